"""A label grid reduced to the size of a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.survey import Labels
from reference.blocks import EMPTY, FULL


@dataclass(frozen=True)
class Shades:
    """Cells that stand for one block each, or for a rectangle of blocks.

    Attributes:
      empty, full: share of the blocks of every cell with that label, ``[rows, columns]``.
      exact: whether every cell is one block.
    """

    empty: NDArray[np.float64]
    full: NDArray[np.float64]
    exact: bool

    @property
    def running(self) -> NDArray[np.float64]:
        """Share of the blocks of every cell that run."""
        return 1 - self.empty


def shades(labels: Labels, rows: int, columns: int) -> Shades:
    """Reduces a label grid to at most ``rows`` × ``columns`` cells."""
    height, width = labels.shape
    rows, columns = min(rows, height), min(columns, width)
    exact = (rows, columns) == (height, width)
    tops = np.arange(rows) * height // rows
    lefts = np.arange(columns) * width // columns
    sizes = np.outer(np.diff(tops, append=height), np.diff(lefts, append=width))
    found = []
    for label in (EMPTY, FULL):
        total = np.empty((rows, columns), dtype=np.int64)
        for row, (top, bottom) in enumerate(zip(tops, [*tops[1:], height], strict=True)):
            per_column = np.count_nonzero(labels[top:bottom] == label, axis=0)
            total[row] = np.add.reduceat(per_column, lefts)
        found.append(total / sizes)
    return Shades(found[0], found[1], exact)
