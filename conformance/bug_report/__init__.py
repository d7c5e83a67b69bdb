"""Scripts for bug reports: one failing problem in plain NumPy and the library's own calls.

They need neither this suite nor Hypothesis. What a script writes down (arrays, masks) is run and compared with the
problem before it is used, so a script never shows another problem than the one that failed.
"""
