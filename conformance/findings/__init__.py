"""Findings: what a check found, as plain data, and how it is written for people.

In here: violations and findings with their place (`place`), what the clause asks for (`expectation`) and what was found
(`observation`), all of them typed; coverage of the problem space, use of the error budgets, pictures of blocks and
differing regions. `text` is the one place where they get words, `printed` makes the lines of a terminal. Comes in:
problems. Goes out: records that reports print and that journals keep. Nothing reads text back: known deviations,
minimising and scripts for bug reports go by the data.
"""
