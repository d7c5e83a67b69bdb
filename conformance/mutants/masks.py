"""Mutants of masks: wrong definitions, slices, equality, bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.base import Mutant, add
from conformance.mutants.patches import (
    Wrapped,
    wrapped,
)
from conformance.problems.mask_json import Random
from conformance.problems.problem import Problem
from reference.masks import (
    And,
    Bool,
    Causal,
    ChunkedCausal,
    Expr,
    Full,
    Int,
    Local,
    Mask,
    Or,
)


def rewritten(kind: type[Expr], change: Callable[[Any], Expr]) -> Callable[[Mask, Problem], Mask]:
    """A patch that replaces expressions of one kind."""

    def patch(mask: Mask, problem: Problem) -> Mask:
        del problem
        if not isinstance(mask.expr, kind):
            return mask
        return Mask(change(mask.expr), mask.q_len, mask.kv_len)

    return patch


def whole_rows(mask: Mask, index: tuple[slice, slice]) -> Bool:
    """Ignores the start of the row slice."""
    rows, columns = index
    length = len(range(mask.q_len)[rows])
    return mask[0:length, columns]


def without_empty_axis(mask: Mask, index: tuple[slice, slice]) -> Bool:
    """Drops an axis of length 1."""
    part = mask[index]
    return part[0] if part.shape[0] == 1 else part


def never_empty(mask: Mask, index: tuple[slice, slice]) -> Bool:
    """Reads ``a:a`` as if it were ``a:``."""
    rows, columns = index
    if rows.start is not None and rows.start == rows.stop:
        rows = slice(rows.start, None)
    return mask[rows, columns]


def as_integers(mask: Mask, index: tuple[slice, slice]) -> Any:
    """Returns 0 and 1."""
    return mask[index].astype(np.int8)


class Forgetful:
    """Returns the slice at the first reading, and False at later readings of the same slice."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, mask: Mask, index: tuple[slice, slice]) -> Bool:
        """The slice, or False of the same shape."""
        key = str(index)
        again, part = key in self.seen, mask[index]
        self.seen.add(key)
        return np.zeros_like(part) if again else part


def forgetful(mask: Mask, problem: Problem) -> Wrapped:
    """A mask that changes when it is read."""
    del problem
    return Wrapped(mask, mask.shape, read=Forgetful())


def by_size(mask: Mask, q_ids: Int, kv_ids: Int, kernel: bool) -> Bool:
    """Assumes that queries run along the rows: positions from the shape, not from the arrays."""
    del kernel
    if q_ids.shape[-1] == 1:
        return mask.at(q_ids, kv_ids)
    rows, columns = np.broadcast_shapes(q_ids.shape, kv_ids.shape)
    return mask.at(np.arange(rows)[:, None], np.arange(columns)[None, :])


def other_inside_kernels(mask: Mask, q_ids: Int, kv_ids: Int, kernel: bool) -> Bool:
    """Shows everything inside a kernel, like a constant made from shapes."""
    seen = mask.at(q_ids, kv_ids)
    return seen | True if kernel else seen


def bounds_of_corners(
    mask: Mask, q_lo: Int, q_hi: Int, kv_lo: Int, kv_hi: Int
) -> tuple[Bool, Bool]:
    """Decides a rectangle by two of its corners."""
    first, last = mask.at(q_hi, kv_lo), mask.at(q_lo, kv_hi)
    return first | last, first & last


def intervals_with_overlap(mask: Mask, q_ids: Int) -> tuple[Int, Int]:
    """Names the first interval twice."""
    lo, hi = mask.kv_intervals(q_ids)
    return np.concatenate([lo[:1], lo]), np.concatenate([hi[:1], hi])


def aligned_to_the_end(mask: Mask, problem: Problem) -> Mask:
    """Causal masks aligned to the last position instead of the first."""
    del problem
    if not isinstance(mask.expr, Causal):
        return mask
    shift = mask.kv_len - mask.q_len
    return Mask(replace(mask.expr, offset=mask.expr.offset + shift), mask.q_len, mask.kv_len)


def of_first_head(mask: Mask, problem: Problem) -> Mask:
    """Every head gets the mask of head 0."""
    return problem.head_masks[0] if problem.heads > 1 else mask


def _no_offset(expr: Expr) -> Expr:
    return replace(expr, offset=0) if isinstance(expr, Causal | Local) else expr


def _column_sums(mask: Mask) -> tuple[int, ...]:
    return tuple(mask.dense().sum(axis=0).tolist())


add(
    Mutant("full-mask-is-causal", "MASK-1", "wrong mask", mask=rewritten(Full, lambda e: Causal())),
    Mutant(
        "causal-excludes-diagonal",
        "MASK-2",
        "off by one",
        mask=rewritten(Causal, lambda e: Causal(e.offset - 1)),
    ),
    Mutant(
        "causal-negative-offset-clamped",
        "MASK-3",
        "ignored argument",
        mask=rewritten(Causal, lambda e: Causal(max(0, e.offset))),
    ),
    Mutant(
        "local-window-one-short",
        "MASK-4",
        "off by one",
        mask=rewritten(Local, lambda e: replace(e, left=e.left - 1) if e.left else e),
    ),
    Mutant(
        "local-ignores-offset",
        "MASK-4",
        "ignored argument",
        mask=rewritten(Local, lambda e: replace(e, offset=0)),
    ),
    Mutant(
        "local-without-limits-is-causal",
        "MASK-5",
        "missing case",
        seen_in="jax 0.12.0.1 cannot run such a mask",
        mask=rewritten(Local, lambda e: Causal() if e.left is e.right is None else e),
    ),
    Mutant(
        "chunks-are-not-causal",
        "MASK-6",
        "missing condition",
        mask=rewritten(ChunkedCausal, lambda e: Local(0, None) | e),
    ),
    Mutant(
        "dense-mask-sees-diagonal",
        "MASK-7",
        "off by one",
        mask=rewritten(Random, lambda e: Or(e, Local(0, 0))),
    ),
    Mutant(
        "and-is-or", "MASK-8", "wrong operator", mask=rewritten(And, lambda e: Or(e.left, e.right))
    ),
    Mutant("or-is-left", "MASK-9", "ignored operand", mask=rewritten(Or, lambda e: e.left)),
    Mutant("all-heads-use-first-mask", "MASK-10", "ignored argument", mask=of_first_head),
    Mutant("causal-aligned-to-end", "MASK-11", "right on squares only", mask=aligned_to_the_end),
    Mutant("slice-ignores-start", "MASK-12", "wrong slice", mask=wrapped(read=whole_rows)),
    Mutant(
        "single-row-loses-axis", "MASK-13", "wrong slice", mask=wrapped(read=without_empty_axis)
    ),
    Mutant("empty-slice-is-rest", "MASK-13", "wrong slice", mask=wrapped(read=never_empty)),
    Mutant(
        "masks-compare-by-identity", "MASK-14", "cache key", mask=wrapped(equal=lambda a, b: a is b)
    ),
    Mutant("hash-by-identity", "MASK-14", "cache key", mask=wrapped(hashed=id)),
    Mutant(
        "equality-by-shape",
        "MASK-15",
        "cache key",
        mask=wrapped(equal=lambda a, b: a.shape == b.shape, hashed=lambda a: hash(a.shape)),
    ),
    Mutant(
        "equality-ignores-offset",
        "MASK-15",
        "cache key",
        mask=wrapped(
            equal=lambda a, b: a.shape == b.shape and _no_offset(a.expr) == _no_offset(b.expr),
            hashed=lambda a: hash(a.shape),
        ),
    ),
    Mutant(
        "equality-by-bytes",
        "MASK-15",
        "cache key",
        mask=wrapped(
            equal=lambda a, b: a.dense().tobytes() == b.dense().tobytes(),
            hashed=lambda a: hash(a.dense().tobytes()),
        ),
    ),
    Mutant(
        "equality-ignores-number-of-keys",
        "MASK-15",
        "cache key",
        mask=wrapped(
            equal=lambda a, b: (a.expr, a.q_len) == (b.expr, b.q_len),
            hashed=lambda a: hash((a.expr, a.q_len)),
        ),
    ),
    Mutant(
        "equality-by-column-sums",
        "MASK-15",
        "cache key",
        mask=wrapped(
            equal=lambda a, b: a.shape == b.shape and _column_sums(a) == _column_sums(b),
            hashed=lambda a: hash((a.shape, _column_sums(a))),
        ),
    ),
    Mutant("mask-holds-integers", "MASK-16", "wrong type", mask=wrapped(read=as_integers)),
    Mutant("mask-used-up-by-reading", "MASK-17", "hidden state", mask=forgetful),
    Mutant(
        "mask-function-counts-rows", "MASK-18", "right in one orientation only", mask_at=by_size
    ),
    Mutant(
        "mask-function-constant-in-kernels",
        "MASK-19",
        "constant in a traced program",
        seen_in="jax 0.12.0.1 and tokamax 0.0.17, windows without limits",
        mask_at=other_inside_kernels,
    ),
    Mutant("bounds-from-two-corners", "MASK-20", "only safe, not exact", bounds=bounds_of_corners),
    Mutant("intervals-overlap", "MASK-21", "counted twice", intervals=intervals_with_overlap),
)
