"""MaskInfo in its flat layout: a list of the active blocks only (FLAT clauses)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.blocks import PARTIAL, Int32, labels, partial_stack
from reference.mask_info import (
    Direction,
    IntArray,
    Shards,
    check_shards,
    computed_in_kernel,
    downcast,
    next_at_or_after,
    oriented,
)
from reference.masks import Bool, Mask
from spec import defines


@dataclass(frozen=True)
class FlatMaskInfo:
    """Compiled mask, one entry per active block, shard after shard (q shard major, then kv shard).

    A *row* is a block of the output: a q block for fwd and dq, a kv block for dkv. A *column* is the
    other axis. Both count from the start of the shard.

    Attributes:
      direction: which kernel it is for.
      active_rows, active_cols: ``[entries]``; -1 after the last entry of a shard.
      block_mask: labels ``[entries]``; 0 for an entry that exists only to write an empty row.
      mask_next: index into `partial_mask_blocks`, ``[entries]``; None without a stack.
      num_active_blocks: int32 ``[q shards * kv shards]``, entries of every shard before its padding.
      partial_mask_blocks: as in `GridMaskInfo`.
      q_sequence, computed_mask: as in `GridMaskInfo`.
    """

    direction: Direction
    active_rows: IntArray
    active_cols: IntArray
    block_mask: IntArray
    mask_next: IntArray | None
    num_active_blocks: Int32
    partial_mask_blocks: Bool | None
    q_sequence: IntArray | None = None
    computed_mask: Bool | None = None


@defines("FLAT-1", "FLAT-2", "FLAT-4", "FLAT-6")
def active_entries(grids: Int32) -> tuple[Int32, Int32, Int32]:
    """Shards, rows and columns of the entries of all shards, shard by shard and row by row.

    Args:
      grids: labels, int32 ``[shards, rows, columns]`` with the output blocks as rows.

    Returns:
      Three int32 arrays of one length. A wholly empty row has one entry, whose label is 0.
    """
    visited = grids > 0
    visited[:, :, 0] |= ~visited.any(axis=2)
    shards, rows, columns = (index.astype(np.int32) for index in np.nonzero(visited))
    return shards, rows, columns


def _by_shard(grid: Int32, direction: Direction, shards: Shards) -> Int32:
    """``[q blocks, kv blocks]`` as ``[shards, rows, columns]``, with the output blocks as rows."""
    q_rows, kv_columns = grid.shape[0] // shards.q, grid.shape[1] // shards.kv
    split = grid.reshape(shards.q, q_rows, shards.kv, kv_columns)
    parts = split.swapaxes(1, 2).reshape(-1, q_rows, kv_columns)
    return parts.swapaxes(1, 2) if direction == "dkv" else parts


@defines("FLAT-3", "FLAT-5")
def compile_flat(
    mask: Mask,
    block_q: int,
    block_kv: int,
    direction: Direction = "fwd",
    *,
    shards: Shards = Shards(),  # noqa: B008  (frozen)
    downcast_arrays: bool = True,
) -> FlatMaskInfo:
    """Compiles one mask, shared by all heads, into the list of its active blocks.

    Args:
      mask: the mask of every head.
      block_q, block_kv: tokens per block.
      direction: ``fwd``, ``dq`` or ``dkv``.
      shards: q and kv shards.
      downcast_arrays: store the index arrays in the smallest type that holds them.

    Raises:
      ValueError: block sizes or shard counts that do not divide (REJECT-1, REJECT-6).
    """
    grid = labels(mask, block_q, block_kv)
    q_blocks, kv_blocks = grid.shape
    check_shards(shards.head, q_blocks, kv_blocks, shards)
    stack, ids = partial_stack([mask], [grid], block_q, block_kv)
    parts, places = (_by_shard(array, direction, shards) for array in (grid, ids[0]))
    at = active_entries(parts)
    shard, own_rows, own_columns = at
    counts = np.bincount(shard, minlength=len(parts)).astype(np.int32)
    number = np.arange(len(shard)) - (np.cumsum(counts) - counts)[shard]

    def listed(values: Int32) -> Int32:
        """Values of the entries as lists of one length, ``[shards, longest]``, then -1."""
        found = np.full((len(parts), int(counts.max())), -1, dtype=np.int32)
        found[shard, number] = values
        return found

    rows, columns, label = listed(own_rows), listed(own_columns), listed(parts[at])
    wanted = label == PARTIAL
    place = np.take_along_axis(listed(places[at]), next_at_or_after(wanted), axis=1)
    place = np.where(wanted.any(axis=1, keepdims=True), place, 0)
    place = np.where(label >= 0, place, -1)
    computed = computed_in_kernel([mask])
    stored = stack is not None and computed is None

    def fit(array: Int32) -> IntArray:
        if not downcast_arrays:
            return array
        small = downcast(np.maximum(array, 0)).dtype  # padding is -1 and fits any type
        return array.astype(small)

    return FlatMaskInfo(
        direction=direction,
        active_rows=fit(rows.ravel()),
        active_cols=fit(columns.ravel()),
        block_mask=fit(label.ravel()),
        mask_next=fit(place.ravel()) if stored else None,
        num_active_blocks=counts,
        partial_mask_blocks=oriented(stack, direction) if stored else None,
        q_sequence=None if computed is None else computed.expr.q_positions(mask.q_len),
        computed_mask=None if computed is None else mask.dense(),
    )
