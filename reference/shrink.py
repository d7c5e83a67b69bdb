"""Grid shrinking: keep only the non-empty columns of every row of the block grid."""

from __future__ import annotations

import numpy as np

from reference.blocks import Int32
from spec import defines


@defines("SHRINK-1", "SHRINK-2", "SHRINK-3", "SHRINK-7")
def kept_columns(grid: Int32, width: int | None = None) -> Int32:
    """Which columns remain in every row of a shrunk grid.

    Args:
      grid: labels, int32 ``[rows, columns]``.
      width: columns of the result; the longest row of non-empty columns (at least 1) if None.

    Returns:
      int32 ``[rows, width]``: the non-empty columns in order, then -1 for padding.

    Raises:
      ValueError: ``width`` is smaller than the longest row.
    """
    longest = shrunk_width(grid)
    width = longest if width is None else width
    if width < longest:
        raise ValueError(f"width must be at least {longest} (the longest row), got {width}")
    kept = np.full((grid.shape[0], width), -1, dtype=np.int32)
    rows, columns = np.nonzero(grid)  # row by row, columns in order
    counts = (grid != 0).sum(axis=1)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept[rows, place] = columns
    return kept


@defines("SHRINK-1")
def shrunk_width(grid: Int32) -> int:
    """Longest row of non-empty columns, at least 1: a grid without steps writes no output."""
    return max(1, int((grid > 0).sum(axis=1).max()))
