"""Judges a mask class of a user: is it a right mask, and do kernels compute what it says?

A class comes in, with a strategy of its arguments or annotations from which one follows (`arguments`). `cases` and
`problems` draw its masks, `hunt` searches them and shrinks what it finds. The checks are those of the suite: in
`class_checks` the class itself is the implementation (`class_subject`), in `compiled` an implementation is given its
masks. A `FuzzRun` (`outcome`) goes out, which `show` prints.
"""
