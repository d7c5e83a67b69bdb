"""Runs one check against an implementation until its verdict.

In here: fixed problems first, then the search and the shrinking, known deviations, the effort of each profile, the
database of failing examples, replay files, and `minimise`. Comes in: a check and a subject. Goes out: an `Outcome`.
"""
