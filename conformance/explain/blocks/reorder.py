"""Searches for a token order that gathers hidden pairs in whole blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.survey import Cut
from reference.masks import Bool, Dense

#: Masks with more entries are not sorted.
SORTABLE = 1 << 24
#: Power iterations; the order hardly changes after that many.
ROUNDS = 200

Order = NDArray[np.int64]


def _alike_together(array: Bool) -> tuple[Order, Order]:
    """Sorts equal rows next to each other, then equal columns."""
    rows = np.lexsort(np.packbits(array, axis=1).T[::-1])
    columns = np.lexsort(np.packbits(array[rows], axis=0)[::-1])
    return rows, columns


def _along_a_line(array: Bool) -> tuple[Order, Order]:
    """Sorts rows and columns by the second singular vectors of the scaled mask, which puts similar ones nearby.

    The first singular vectors only hold the number of visible pairs per row and column; see Dhillon, "Co-clustering
    documents and words using bipartite spectral graph partitioning" (2001). Computed by power iteration.
    """
    degrees = [np.maximum(array.sum(axis=axis, dtype=np.float32), 1) for axis in (1, 0)]
    scaled = array / np.sqrt(degrees[0])[:, None] / np.sqrt(degrees[1])[None, :]
    first = np.sqrt(degrees[1]) / np.linalg.norm(np.sqrt(degrees[1]))
    rng = np.random.default_rng(0)
    columns: NDArray[np.floating] = rng.standard_normal(array.shape[1:], dtype=np.float32)
    for _ in range(ROUNDS):
        columns -= first * (first @ columns)
        rows = scaled @ columns
        columns = rows @ scaled
        columns /= max(1e-30, float(np.linalg.norm(columns)))
    return np.argsort(rows / np.sqrt(degrees[0])), np.argsort(columns / np.sqrt(degrees[1]))


def best_share(array: Bool, block_q: int, block_kv: int) -> float:
    """The largest share of empty blocks over a few ways of sorting the tokens.

    Args:
      array: bool ``[q_len, kv_len]``, of at most `SORTABLE` entries.
      block_q, block_kv: tokens per block.
    """
    q_len, kv_len = array.shape
    shares = []
    for order in (_alike_together, _along_a_line):
        rows, columns = order(array)
        moved = Dense(array[np.ix_(rows, columns)])
        labels = Cut(moved, q_len, kv_len, block_q, block_kv).labels()
        shares.append(float((labels == 0).mean()))
    return max(shares)
