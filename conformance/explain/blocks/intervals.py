"""The key positions that every query sees, as a few intervals: exact counts without reading entries."""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.bounds import Positions
from conformance.explain.language.expressions import ClaimedRows, Documents, Prefix
from reference.masks import And, Causal, ChunkedCausal, Expr, Full, Local, Or

#: Larger than any position: the bound of an open side.
FAR = np.int64(1) << 40


class Intervals(NamedTuple):
    """Inclusive intervals of key positions, int64 ``[k, ...]``; disjoint, in order, empty ones with ``lo > hi``."""

    lo: NDArray[np.int64]
    hi: NDArray[np.int64]


@singledispatch
def intervals(expr: Expr, q_ids: Positions) -> Intervals:
    """The key positions that every query of a structured mask sees.

    Raises:
      TypeError: the mask is not structured.
    """
    raise TypeError(f"{type(expr).__name__} has no intervals")


def _one(lo: NDArray[np.int64], hi: NDArray[np.int64]) -> Intervals:
    return Intervals(lo[None], hi[None])


@intervals.register
def _(expr: Full, q_ids: Positions) -> Intervals:
    return _one(np.full_like(q_ids, -FAR), np.full_like(q_ids, FAR))


@intervals.register
def _(expr: Causal, q_ids: Positions) -> Intervals:
    return _one(np.full_like(q_ids, -FAR), q_ids + expr.offset)


@intervals.register
def _(expr: Local, q_ids: Positions) -> Intervals:
    middle = q_ids + expr.offset
    left = np.full_like(q_ids, -FAR) if expr.left is None else middle - expr.left
    right = np.full_like(q_ids, FAR) if expr.right is None else middle + expr.right
    return _one(left, right)


@intervals.register
def _(expr: ChunkedCausal, q_ids: Positions) -> Intervals:
    return _one(q_ids // expr.chunk_size * expr.chunk_size, q_ids)


@intervals.register
def _(expr: Prefix, q_ids: Positions) -> Intervals:
    return _one(np.full_like(q_ids, -FAR), np.full_like(q_ids, expr.length - 1))


@intervals.register
def _(expr: Documents, q_ids: Positions) -> Intervals:
    return _one(*expr.span(q_ids))


@intervals.register
def _(expr: ClaimedRows, q_ids: Positions) -> Intervals:
    lo, hi = expr.mask.kv_intervals(q_ids.astype(np.int32))
    return tidy(np.asarray(lo, dtype=np.int64), np.asarray(hi, dtype=np.int64))


@intervals.register
def _(expr: And, q_ids: Positions) -> Intervals:
    a, b = intervals(expr.left, q_ids), intervals(expr.right, q_ids)
    lo = np.maximum(a.lo[:, None], b.lo[None]).reshape(-1, *q_ids.shape)
    hi = np.minimum(a.hi[:, None], b.hi[None]).reshape(-1, *q_ids.shape)
    return tidy(lo, hi)


@intervals.register
def _(expr: Or, q_ids: Positions) -> Intervals:
    a, b = intervals(expr.left, q_ids), intervals(expr.right, q_ids)
    return tidy(np.concatenate([a.lo, b.lo]), np.concatenate([a.hi, b.hi]))


def tidy(lo: NDArray[np.int64], hi: NDArray[np.int64]) -> Intervals:
    """Normalises intervals: sorted, adjacent ones joined, empty ones last as ``(FAR, FAR - 1)``."""
    empty = lo > hi
    lo, hi = np.where(empty, FAR, lo), np.where(empty, FAR - 1, hi)
    order = np.argsort(lo, axis=0, kind="stable")
    lo, hi = np.take_along_axis(lo, order, axis=0), np.take_along_axis(hi, order, axis=0)
    reach = np.maximum.accumulate(hi, axis=0)
    # An interval begins wherever nothing before it reaches to its neighbour.
    begins = np.ones(lo.shape, dtype=np.bool_)
    begins[1:] = lo[1:] > reach[:-1] + 1
    begins &= lo < FAR
    ends = np.ones(lo.shape, dtype=np.bool_)
    ends[:-1] = begins[1:] | (lo[1:] >= FAR)
    ends &= lo < FAR
    number = np.cumsum(begins, axis=0) - 1
    size = max(1, int(begins.sum(axis=0).max(initial=0)))
    out_lo, out_hi = np.full((size, *lo.shape[1:]), FAR), np.full((size, *lo.shape[1:]), FAR - 1)
    for t in range(len(lo)):
        for flags, values, out in ((begins, lo, out_lo), (ends, reach, out_hi)):
            at = np.nonzero(flags[t])
            out[(number[t][at], *at)] = values[t][at]
    return Intervals(out_lo, out_hi)


def clip(rows: Intervals, lo: Positions, hi: Positions) -> Intervals:
    """The parts inside ``lo`` to ``hi`` (which broadcast), relative to ``lo`` and normalised."""
    return tidy(np.maximum(rows.lo, lo) - lo, np.minimum(rows.hi, hi) - lo)


def visible_between(rows: Intervals, lo: Positions, hi: Positions) -> NDArray[np.int64]:
    """Number of key positions between ``lo`` and ``hi`` that every query sees."""
    size = np.minimum(rows.hi, hi) - np.maximum(rows.lo, lo) + 1
    return np.asarray(np.maximum(size, 0).sum(axis=0))
