"""Runs many checks: what was asked for, the processes that do it, and the report of all outcomes.

In here: requests, the pytest plugin and its runner, shards, the journal that survives an interruption, and the report
with its merge. Comes in: the options of a command. Goes out: a `Run`, whose JSON form is the canonical report.
"""
