"""Problems: everything that defines one test case, as plain data.

In here: problems and their JSON form, masks, the arrays that a regime and a seed make, predicates, and neighbours of a
problem. Comes in: nothing of the suite; only `spec` and `reference`. Goes out: `Problem` and `Inputs`, which every
other room works on.
"""
