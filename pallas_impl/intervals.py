"""Sets of kv positions as disjoint intervals, one set for each query row, in NumPy.

A set is a pair `(lo, hi)` of int64 arrays [k, ...]: row r sees `lo[i, r] <= kv <= hi[i, r]` for
any of the k intervals. Intervals with `lo > hi` are empty; those of a row never overlap, so the
sizes of their overlaps with a block of columns add up to the number of visible entries.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# More intervals a row than this cost more than looking at the entries themselves.
MAX_INTERVALS = 32

_BEYOND = np.int64(2**62)


class Intervals(NamedTuple):
    """Disjoint inclusive intervals of kv positions, int64[k, ...] each."""

    lo: NDArray[np.int64]
    hi: NDArray[np.int64]


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The intersection, row by row; `k_a * k_b` intervals before empty ones are dropped."""
    lo = np.maximum(a.lo[:, None], b.lo[None])
    hi = np.minimum(a.hi[:, None], b.hi[None])
    shape = (-1, *lo.shape[2:])
    return _drop_empty(lo.reshape(shape), hi.reshape(shape))


def unite(a: Intervals, b: Intervals) -> Intervals:
    """The union, row by row, cut so that the intervals stay disjoint."""
    lo = np.concatenate([a.lo, b.lo])
    hi = np.concatenate([a.hi, b.hi])
    empty = lo > hi
    lo = np.where(empty, _BEYOND, lo)
    hi = np.where(empty, _BEYOND - 1, hi)
    order = np.argsort(lo, axis=0, kind="stable")
    lo = np.take_along_axis(lo, order, axis=0)
    hi = np.take_along_axis(hi, order, axis=0)
    covered = np.maximum.accumulate(hi, axis=0)
    lo[1:] = np.maximum(lo[1:], covered[:-1] + 1)
    return _drop_empty(lo, hi)


def count(rows: Intervals, kv_lo: NDArray[np.int64], kv_hi: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of positions of each row's set that lie in [kv_lo, kv_hi]."""
    width = np.minimum(rows.hi, kv_hi) - np.maximum(rows.lo, kv_lo) + 1
    counted: NDArray[np.int64] = np.maximum(width, 0).sum(axis=0)
    return counted


def _drop_empty(lo: NDArray[np.int64], hi: NDArray[np.int64]) -> Intervals:
    used = (lo <= hi).reshape(lo.shape[0], -1).any(axis=1)
    used[0] = True
    return Intervals(lo[used], hi[used])
