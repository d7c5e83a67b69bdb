"""How a mask is named: the grammar of the command line, stored arrays, Python files and segment ids.

Text and file names come in; a mask expression goes out, made of the expressions of `reference` and those that only
`explain` knows.
"""
