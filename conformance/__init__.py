"""The referee: problems, adapters, checks and the command line."""

from conformance.packages import claim

claim()
