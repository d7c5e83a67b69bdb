"""Findings: what a check found, as plain data, and how it is written for people.

In here: violations and findings, coverage of the problem space, how much of the error budgets was used, pictures of
blocks and differing regions, and the one place where findings become text. Comes in: problems. Goes out: records that
reports print and that journals keep; nothing reads text back.
"""
