"""Fuzzing of mask classes: is a class of somebody else a right mask, and do kernels compute what it says?

`load` finds what the command line names, `annotations` derives strategies of arguments, `source` makes masks,
`contract`, `functions` and `identity` judge the class itself, `compiled` judges what an implementation makes of its
masks, `hunt` searches and shrinks, `outcome` and `show` report.
"""
