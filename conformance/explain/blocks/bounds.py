"""Facts about rectangles of a mask from their bounds alone: a few comparisons, whatever the size."""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conformance.explain.language.expressions import Claimed, Documents, Prefix
from reference.masks import And, Bool, Causal, ChunkedCausal, Expr, Full, Local, Or

Positions = NDArray[np.int64]


class Box(NamedTuple):
    """Rectangles of positions: inclusive bounds that broadcast against each other."""

    q_lo: Positions
    q_hi: Positions
    kv_lo: Positions
    kv_hi: Positions

    @property
    def shape(self) -> tuple[int, ...]:
        """One element per rectangle."""
        return np.broadcast_shapes(self.q_lo.shape, self.kv_lo.shape)


class Facts(NamedTuple):
    """What is known about every rectangle; False means "not known".

    Attributes:
      some: a pair is visible.
      gap: a pair is hidden.
      none: every pair is hidden.
      full: every pair is visible.
    """

    some: Bool
    gap: Bool
    none: Bool
    full: Bool


def _exact(box: Box, some: Bool, full: Bool) -> Facts:
    some, full = (np.broadcast_to(known, box.shape) for known in (some, full))
    return Facts(some, ~full, ~some, full)


@singledispatch
def facts(expr: Expr, box: Box) -> Facts:
    """What the bounds prove about rectangles of a mask; nothing for an unstructured mask."""
    nothing = np.zeros(box.shape, dtype=np.bool_)
    return Facts(nothing, nothing, nothing, nothing)


@facts.register
def _(expr: Full, box: Box) -> Facts:
    every = np.ones(box.shape, dtype=np.bool_)
    return _exact(box, every, every)


def _band(box: Box, lower: int | None, upper: int | None) -> Facts:
    """Visible iff ``lower <= kv - q <= upper``: the difference takes every value between its extremes."""
    least, most = box.kv_lo - box.q_hi, box.kv_hi - box.q_lo
    some, full = np.ones(box.shape, dtype=np.bool_), np.ones(box.shape, dtype=np.bool_)
    if upper is not None:
        some, full = some & (least <= upper), full & (most <= upper)
    if lower is not None:
        some, full = some & (most >= lower), full & (least >= lower)
    if lower is not None and upper is not None and lower > upper:
        some = np.zeros_like(some)
    return _exact(box, some, full)


@facts.register
def _(expr: Causal, box: Box) -> Facts:
    return _band(box, None, expr.offset)


@facts.register
def _(expr: Local, box: Box) -> Facts:
    lower = None if expr.left is None else expr.offset - expr.left
    upper = None if expr.right is None else expr.offset + expr.right
    return _band(box, lower, upper)


@facts.register
def _(expr: ChunkedCausal, box: Box) -> Facts:
    size = expr.chunk_size
    chunks = [edge // size for edge in box]
    first, last = np.maximum(chunks[0], chunks[2]), np.minimum(chunks[1], chunks[3])
    # Of several chunks that both sides meet, both reach the end of the first. In a single one the
    # latest query has to reach the earliest key.
    earliest = np.maximum(box.kv_lo, first * size)
    latest = np.minimum(box.q_hi, first * size + size - 1)
    some = (first < last) | ((first == last) & (earliest <= latest))
    one_chunk = (chunks[0] == chunks[1]) & (chunks[2] == chunks[3]) & (chunks[0] == chunks[2])
    return _exact(box, some, one_chunk & (box.kv_hi <= box.q_lo))


@facts.register
def _(expr: Prefix, box: Box) -> Facts:
    return _exact(box, box.kv_lo < expr.length, box.kv_hi < expr.length)


@facts.register
def _(expr: Documents, box: Box) -> Facts:
    first_q, last_q, first_kv, last_kv = (expr.span(edge)[0] for edge in box)
    some = (first_q <= last_kv) & (first_kv <= last_q)
    return _exact(box, some, (first_q == last_kv) & (first_kv == last_q))


@facts.register
def _(expr: Claimed, box: Box) -> Facts:
    some, full = expr.mask.block_bounds(*(edge.astype(np.int32) for edge in box))
    return _exact(box, np.asarray(some), np.asarray(full))


@facts.register
def _(expr: And, box: Box) -> Facts:
    a, b = facts(expr.left, box), facts(expr.right, box)
    some = (a.some & b.full) | (a.full & b.some)
    return Facts(some, a.gap | b.gap, a.none | b.none, a.full & b.full)


@facts.register
def _(expr: Or, box: Box) -> Facts:
    a, b = facts(expr.left, box), facts(expr.right, box)
    gap = (a.gap & b.none) | (a.none & b.gap)
    return Facts(a.some | b.some, gap, a.none & b.none, a.full | b.full)
