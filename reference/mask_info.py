"""MaskInfo in its two-dimensional layout: the arrays that a kernel reads from scalar memory.

One array entry stands for one grid position. For the directions ``fwd`` and ``dq`` the arrays have
the shape ``[rows of masks, q blocks, width]``, for ``dkv`` ``[rows of masks, height, kv blocks]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reference.blocks import PARTIAL, Int32, labels, partial_stack
from reference.masks import Bool, Int, Mask, check_one_shape
from reference.shrink import kept_columns
from spec import defines

Direction = Literal["fwd", "dq", "dkv"]
DIRECTIONS: tuple[Direction, ...] = ("fwd", "dq", "dkv")

IntArray = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class GridMaskInfo:
    """Compiled mask, one entry per grid position.

    Attributes:
      direction: which kernel it is for.
      block_mask: labels 0, 1, 2.
      data_next: block to hold in memory: kv block (fwd, dq) or q block of the shard (dkv).
      mask_next: index into `partial_mask_blocks`; None without a stack.
      partial_mask_blocks: bool ``[n, block_q, block_kv]``, transposed for dkv; None if no block is
        partial or the mask is computed in the kernel.
      q_sequence: int32 ``[q_len]``, position of every query row; None unless computable.
      computed_mask: bool ``[q_len, kv_len]``, values of the mask function at ``q_sequence`` and every
        key position; None unless computable.
    """

    direction: Direction
    block_mask: IntArray
    data_next: IntArray
    mask_next: IntArray | None
    partial_mask_blocks: Bool | None
    q_sequence: IntArray | None = None
    computed_mask: Bool | None = None


@dataclass(frozen=True)
class Shards:
    """How many devices share the heads, the query sequence and the key sequence."""

    head: int = 1
    q: int = 1
    kv: int = 1


@defines("DATA-2", "DATA-3", "DATA-5", "MASKNEXT-2", "MASKNEXT-3")
def next_at_or_after(wanted: Bool) -> Int32:
    """For every position the first wanted one at or after it, wrapping to the first wanted one.

    Args:
      wanted: bool ``[…, positions]`` in grid order; every leading index is a separate grid.

    Returns:
      int32 indices of the same shape; all 0 in a grid where nothing is wanted.
    """
    places, first = _places(wanted)
    following = np.minimum.accumulate(places[..., ::-1], axis=-1)[..., ::-1]
    return np.where(following < wanted.shape[-1], following, first).astype(np.int32)


def _places(wanted: Bool) -> tuple[Int, Int]:
    """Own index where wanted, else the number of positions; and the first wanted index, or 0."""
    count = wanted.shape[-1]
    places = np.where(wanted, np.arange(count), count)
    first = places.min(axis=-1, keepdims=True, initial=count)
    return places, np.where(first < count, first, 0)


@defines("SHRINK-8")
def last_at_or_before(wanted: Bool) -> Int32:
    """For every position the last wanted one at or before it, else the first wanted one.

    Padding of a shrunk grid names this block: a block that is already in memory costs no fetch.

    Args:
      wanted: bool ``[…, positions]`` in grid order; every leading index is a separate grid.

    Returns:
      int32 indices of the same shape; all 0 in a grid where nothing is wanted.
    """
    places, first = _places(wanted)
    before = np.maximum.accumulate(np.where(wanted, places, -1), axis=-1)
    return np.where(before >= 0, before, first).astype(np.int32)


@defines("DATA-4")
def in_grid_order(array: NDArray[Any], direction: Direction) -> NDArray[Any]:
    """Axes ``[…, head, q, kv]`` reordered as the grid of the direction visits them.

    ``fwd`` and ``dq`` visit (head, q, kv), ``dkv`` visits (kv, head, q).
    """
    return np.moveaxis(array, -1, -3) if direction == "dkv" else array


def from_grid_order(array: NDArray[Any], direction: Direction) -> NDArray[Any]:
    """Inverse of `in_grid_order`."""
    return np.moveaxis(array, -3, -1) if direction == "dkv" else array


def carry(
    values: Int32, wanted: Bool, direction: Direction, rule: Callable[[Bool], Int32]
) -> Int32:
    """``values`` of the wanted position that ``rule`` assigns to every position.

    Args:
      values, wanted: ``[…, head, q, kv]``, as is the result; every leading index is a separate grid.
      direction: whose grid order counts.
      rule: `next_at_or_after` or `last_at_or_before`.
    """
    ordered = in_grid_order(values, direction)
    flat = ordered.reshape(*ordered.shape[:-3], -1)
    source = rule(in_grid_order(wanted, direction).reshape(flat.shape))
    moved = np.take_along_axis(flat, source, axis=-1).reshape(ordered.shape)
    moved = np.where(wanted.any(axis=(-3, -2, -1), keepdims=True), moved, 0)
    return from_grid_order(moved, direction).astype(np.int32)


@defines("DOWNCAST-1", "DOWNCAST-2", "DOWNCAST-3")
def downcast(array: Int32) -> IntArray:
    """The same values in the smallest of int8, int16 and int32 that holds the largest one.

    Raises:
      ValueError: a value is negative.
    """
    if array.size and array.min() < 0:
        raise ValueError(f"array must not be negative, got {array.min()}")
    largest = int(array.max()) if array.size else 0
    for small in (np.int8, np.int16):
        if largest <= np.iinfo(small).max:
            return array.astype(small)
    return array


def distinct(masks: Sequence[Mask]) -> tuple[list[Mask], list[int]]:
    """The distinct masks by first appearance, and the index of every head's mask."""
    unique: list[Mask] = []
    for mask in masks:
        if mask not in unique:
            unique.append(mask)
    return unique, [unique.index(mask) for mask in masks]


@defines("HEADS-1", "HEADS-2")
def mask_rows(of_head: Sequence[int], head_shards: int) -> list[int]:
    """The mask of every leading row of the arrays.

    One row per head shard if every shard has a single mask, else one row per head.
    """
    per_shard = len(of_head) // head_shards
    groups = [of_head[s * per_shard : (s + 1) * per_shard] for s in range(head_shards)]
    if all(len(set(group)) == 1 for group in groups):
        return [group[0] for group in groups]
    return list(of_head)


@defines("REJECT-6", "REJECT-8")
def check_shards(heads: int, q_blocks: int, kv_blocks: int, shards: Shards) -> None:
    """Raises ValueError unless every shard count divides what it splits (REJECT-6)."""
    for name, count, what, total in (
        ("head_shards", shards.head, "the number of heads", heads),
        ("q_shards", shards.q, "the number of q blocks", q_blocks),
        ("kv_shards", shards.kv, "the number of kv blocks", kv_blocks),
    ):
        if count < 1 or total % count:
            raise ValueError(f"{name}={count} must divide {what} ({total})")


@defines("DATA-1", "SHRINK-4", "SHRINK-5", "SHRINK-6")
def _columns(grid: Int32, direction: Direction, q_shards: int, shrink: bool) -> tuple[Int32, Int32]:
    """The labels and own block index of every grid position, ``[q shard, q, kv]``.

    Padding (and nothing else) has own index -1.
    """
    parts = grid.reshape(q_shards, -1, grid.shape[1])
    parts = parts.swapaxes(1, 2) if direction == "dkv" else parts
    rows = parts.reshape(-1, parts.shape[2])
    columns = np.broadcast_to(np.arange(rows.shape[1], dtype=np.int32), rows.shape)
    if shrink:
        columns = kept_columns(rows)  # as wide as the widest shard needs
    label = np.where(columns >= 0, np.take_along_axis(rows, columns, axis=1), 0).astype(np.int32)
    found = (array.reshape(*parts.shape[:2], -1) for array in (label, columns))
    kept, own = (array.swapaxes(1, 2) if direction == "dkv" else array for array in found)
    return kept, own


@defines("CONV-2", "CONV-3", "PARTIAL-5", "PARTIAL-6", "HEADS-3", "REJECT-16")
def compile_grid(
    masks: Sequence[Mask],
    block_q: int,
    block_kv: int,
    direction: Direction = "fwd",
    *,
    shards: Shards = Shards(),
    shrink: bool = True,
    downcast_arrays: bool = True,
) -> GridMaskInfo:
    """Compiles one mask per head into the arrays of the two-dimensional layout.

    Args:
      masks: one per head, all of one shape.
      block_q, block_kv: tokens per block.
      direction: ``fwd``, ``dq`` or ``dkv``.
      shards: head and q shards; every shard's slice of the result describes that shard alone.
      shrink: remove empty columns (fwd, dq) or rows (dkv) where the clauses allow it.
      downcast_arrays: store the index arrays in the smallest type that holds them.

    Raises:
      ValueError: no mask, masks of different shapes, block sizes or shard counts that do not divide
        (REJECT-1, REJECT-5, REJECT-6).
    """
    check_one_shape(masks)
    unique, of_head = distinct(masks)
    grids = [labels(mask, block_q, block_kv) for mask in unique]
    q_blocks, kv_blocks = grids[0].shape
    check_shards(len(masks), q_blocks, kv_blocks, shards)
    stack, places = partial_stack(unique, grids, block_q, block_kv)
    shrunk = shrink and len(unique) == 1
    columns = [_columns(grid, direction, shards.q, shrunk) for grid in grids]
    arrays = _arrays(mask_rows(of_head, shards.head), columns, places, direction, shards, shrunk)
    block_mask, data_next, mask_next = map(downcast, arrays) if downcast_arrays else arrays
    computed = computed_in_kernel(unique)
    stored = stack is not None and computed is None
    return GridMaskInfo(
        direction=direction,
        block_mask=block_mask,
        data_next=data_next,
        mask_next=mask_next if stored else None,
        partial_mask_blocks=oriented(stack, direction) if stored else None,
        q_sequence=None if computed is None else computed.expr.q_positions(computed.q_len),
        computed_mask=None if computed is None else computed.dense(),
    )


@defines("COMPUTE-1", "COMPUTE-2", "COMPUTE-3")
def computed_in_kernel(unique: Sequence[Mask]) -> Mask | None:
    """The mask that the kernel computes itself instead of reading blocks; None if it reads them."""
    return unique[0] if len(unique) == 1 and unique[0].expr.computable else None


@defines("PARTIAL-4")
def oriented(stack: Bool | None, direction: Direction) -> Bool | None:
    """The stack as a direction reads it: every block transposed for dkv."""
    return stack.swapaxes(1, 2) if stack is not None and direction == "dkv" else stack


@defines("MASKNEXT-1", "MASKNEXT-4")
def _arrays(
    rows: Sequence[int],
    columns: Sequence[tuple[Int32, Int32]],
    places: Int32,
    direction: Direction,
    shards: Shards,
    shrunk: bool,
) -> tuple[Int32, Int32, Int32]:
    """block_mask, data_next and mask_next of all shards, joined along heads and queries."""
    rule = last_at_or_before if shrunk else next_at_or_after

    def by_shard(array: Int32) -> Int32:
        """``[row, q shard, q, kv]`` as ``[head shard, q shard, row of the shard, q, kv]``."""
        split = array.reshape(shards.head, -1, *array.shape[1:])
        return split.swapaxes(1, 2)

    def joined(array: Int32) -> Int32:
        """All shards one after another, ``[row, q, kv]``."""
        return array.swapaxes(1, 2).reshape(len(rows), -1, array.shape[-1])

    label, own = (np.stack([columns[m][n] for m in rows]) for n in (0, 1))
    parts = places.reshape(len(places), shards.q, -1, places.shape[2])[list(rows)]
    # The stored block of the block at a position; arbitrary at padding.
    axis = 2 if direction == "dkv" else 3
    place = np.take_along_axis(parts, np.maximum(own, 0), axis=axis)
    label, own, place = by_shard(label), by_shard(own), by_shard(place)
    data_next = carry(own, label > 0, direction, rule)
    mask_next = carry(place, label == PARTIAL, direction, rule)
    return joined(label), joined(data_next), joined(mask_next)
