"""Simpler masks: cropped, scaled to smaller blocks, and drawn with fewer patterns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from conformance.problems.mask_json import PATTERNS, Blocks, Random
from reference.masks import And, Bool, Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask, Or

Index = NDArray[np.int64]

#: Patterns of a block, the simplest first.
LETTERS = "20abcdefghij"

#: How complicated a kind of mask is by itself.
_RANK: dict[type[Expr], int] = {
    Full: 0, Causal: 1, ChunkedCausal: 3, Local: 4, Blocks: 5, Dense: 400, Random: 800,
}  # fmt: skip


def complexity(expr: Expr) -> int:
    """How much there is to say about a mask; a full mask is 0."""
    if isinstance(expr, (And, Or)):
        return 10 + complexity(expr.left) + complexity(expr.right)
    rank = _RANK.get(type(expr), 1000)
    if isinstance(expr, Causal):
        return rank + (expr.offset != 0)
    if isinstance(expr, Local):
        sides = (side is not None for side in (expr.left, expr.right))
        return rank + sum(sides) + (expr.offset != 0)
    if isinstance(expr, Blocks):
        return rank + sum(LETTERS.find(letter) % 100 for letter in "".join(expr.rows))
    return rank


def _is_range(index: Index) -> bool:
    return bool((np.diff(index) == 1).all())


def crop(expr: Expr, shape: tuple[int, int], rows: Index, columns: Index) -> Expr:
    """The mask of some rows and columns, in its own kind if that has one.

    Args:
      expr: a mask.
      shape: its rows and columns.
      rows, columns: which of them are kept, ascending.
    """
    if isinstance(expr, (And, Or)):
        parts = (crop(part, shape, rows, columns) for part in (expr.left, expr.right))
        return type(expr)(*parts)
    if isinstance(expr, Full):
        return expr
    if isinstance(expr, (Causal, Local)) and _is_range(rows) and _is_range(columns):
        return replace(expr, offset=expr.offset + int(rows[0]) - int(columns[0]))
    at_start = rows[0] == columns[0] == 0 and _is_range(rows) and _is_range(columns)
    if isinstance(expr, (ChunkedCausal, Random)) and at_start:
        return expr
    if isinstance(expr, Blocks):
        letters = np.array([list(row) for row in expr.rows])
        chosen_rows, whole_rows = _whole(rows, expr.block_q)
        chosen_columns, whole_columns = _whole(columns, expr.block_kv)
        if whole_rows and whole_columns:
            kept = letters[chosen_rows][:, chosen_columns]
            return replace(expr, rows=tuple("".join(row) for row in kept))
    return Dense(Mask(expr, *shape).dense()[rows][:, columns])


def _whole(index: Index, size: int) -> tuple[Index, bool]:
    """The blocks that an index consists of, and whether it consists of whole blocks."""
    blocks = np.unique(index // size)
    whole = (blocks[:, None] * size + np.arange(size)).ravel()
    return blocks, np.array_equal(whole, index)


def scale(expr: Expr, shape: tuple[int, int], ratio_q: float, ratio_kv: float) -> Expr | None:
    """The mask over blocks of another size; None where that has no clear meaning.

    Args:
      expr: a mask.
      shape: its rows and columns.
      ratio_q, ratio_kv: new block size by old one.
    """
    if isinstance(expr, (And, Or)):
        parts = [scale(part, shape, ratio_q, ratio_kv) for part in (expr.left, expr.right)]
        return None if None in parts else type(expr)(*parts)  # type: ignore[arg-type]

    def scaled(tokens: int | None) -> int | None:
        return None if tokens is None else round(tokens * ratio_kv)

    if isinstance(expr, Causal):
        return Causal(round(expr.offset * ratio_kv))
    if isinstance(expr, Local):
        offset = round(expr.offset * ratio_kv)
        return Local(scaled(expr.left), scaled(expr.right), offset)
    if isinstance(expr, ChunkedCausal):
        return ChunkedCausal(max(1, round(expr.chunk_size * ratio_kv)))
    if isinstance(expr, Blocks):
        sizes = expr.block_q * ratio_q, expr.block_kv * ratio_kv
        if not all(size >= 1 and size == int(size) for size in sizes):
            return None
        return replace(expr, block_q=int(sizes[0]), block_kv=int(sizes[1]))
    if isinstance(expr, Dense):
        rows, columns = (
            (np.arange(round(size * ratio)) / ratio).astype(np.int64)
            for size, ratio in zip(shape, (ratio_q, ratio_kv), strict=True)
        )
        return Dense(expr.array[rows][:, columns])
    return expr if isinstance(expr, (Full, Random)) else None


def drawn(dense: Bool, block_q: int, block_kv: int) -> Blocks:
    """A drawing of a mask: blocks that look like no pattern of `LETTERS` become triangles."""
    shape = (block_q, block_kv)
    patterns = {letter: PATTERNS[letter](shape) for letter in LETTERS}
    rows = []
    for i in range(0, dense.shape[0], block_q):
        row = ""
        for j in range(0, dense.shape[1], block_kv):
            tile = dense[i : i + block_q, j : j + block_kv]
            same = (letter for letter, one in patterns.items() if np.array_equal(one, tile))
            row += next(same, "a")
        rows.append(row)
    return Blocks(tuple(rows), block_q, block_kv)


def simpler_masks(expr: Expr, shape: tuple[int, int], sizes: tuple[int, int]) -> Iterator[Expr]:
    """Masks with less to say, the simplest first; most of them are other masks.

    Args:
      expr: a mask.
      shape: its rows and columns.
      sizes: tokens a block along either axis; they divide the shape.
    """
    own = complexity(expr)
    offered: list[Expr] = [Full(), Causal()]
    if isinstance(expr, (And, Or)):
        offered += [expr.left, expr.right]
        for part in simpler_masks(expr.left, shape, sizes):
            offered.append(replace(expr, left=part))
        for part in simpler_masks(expr.right, shape, sizes):
            offered.append(replace(expr, right=part))
    if isinstance(expr, Local):
        offered += [
            replace(expr, **change) for change in ({"left": None}, {"right": None}, {"offset": 0})
        ]
    if isinstance(expr, Blocks):
        offered += _with_simpler_letter(expr)
    else:
        offered.append(drawn(Mask(expr, *shape).dense(), *sizes))
    for simpler in sorted(offered, key=complexity):
        if complexity(simpler) < own:
            yield simpler


def _with_simpler_letter(expr: Blocks) -> list[Expr]:
    """The drawing with one letter simpler, everywhere or in one place."""
    found: list[Expr] = []
    for letter in sorted(set("".join(expr.rows)), key=LETTERS.find):
        for other in LETTERS[: LETTERS.find(letter) % 100]:
            everywhere = tuple(row.replace(letter, other) for row in expr.rows)
            found.append(replace(expr, rows=everywhere))
            for i, row in enumerate(expr.rows):
                for j, old in enumerate(row):
                    if old == letter:
                        rows = list(expr.rows)
                        rows[i] = row[:j] + other + row[j + 1 :]
                        found.append(replace(expr, rows=tuple(rows)))
    return found
