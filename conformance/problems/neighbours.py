"""Masks that differ from a given one in little: what a cache key must tell apart."""

from __future__ import annotations

from dataclasses import replace

from conformance.problems.mask_json import Blocks, Random
from conformance.problems.user_mask import UserMask
from reference.masks import And, Causal, ChunkedCausal, Dense, Expr, Full, Local, Or


def _step(value: int | None) -> list[int | None]:
    return [0, 1] if value is None else [None, value + 1, value - 1]


def neighbours(expr: Expr) -> list[Expr]:
    """Expressions of the same shape that differ from ``expr`` in one parameter, or have its parts in another order."""
    match expr:
        case Full():
            return [Causal()]
        case Causal():
            return [Causal(expr.offset + 1), Causal(expr.offset - 1), Full()]
        case Local():
            return [
                *(replace(expr, left=left) for left in _step(expr.left)),
                *(replace(expr, right=right) for right in _step(expr.right)),
                replace(expr, offset=expr.offset + 1),
                replace(expr, offset=expr.offset - 1),
            ]
        case ChunkedCausal():
            return [ChunkedCausal(expr.chunk_size + 1), ChunkedCausal(max(1, expr.chunk_size - 1))]
        case Random():
            return [replace(expr, seed=expr.seed + 1)]
        case Blocks():
            first = "2" if expr.rows[0][0] == "0" else "0"
            last = "2" if expr.rows[-1][-1] != "2" else "e"
            return [
                replace(expr, rows=(first + expr.rows[0][1:], *expr.rows[1:])),
                replace(expr, rows=(*expr.rows[:-1], expr.rows[-1][:-1] + last)),
                replace(expr, rows=expr.rows[::-1]),
                replace(expr, rows=tuple(row[::-1] for row in expr.rows)),
            ]
        case Dense():
            flipped = expr.array.copy()
            flipped[-1, -1] ^= True
            return [Dense(flipped)]
        case And() | Or():
            other = Or if isinstance(expr, And) else And
            return [
                other(expr.left, expr.right),
                *(replace(expr, left=left) for left in neighbours(expr.left)[:2]),
                *(replace(expr, right=right) for right in neighbours(expr.right)[:2]),
            ]
        case UserMask():
            return list(expr.others)
    return []
