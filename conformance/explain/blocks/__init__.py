"""Labels and distinct partial blocks of a mask expression, of any length.

Structured masks are decided by bounds (`bounds`) and row intervals (`intervals`); `survey` reads entries only where it
must. `reorder` tries other token orders; `shades` reduces a label grid to the size of a picture.
"""
