"""The referee: problems, adapters, checks and the command line."""
