"""Sharding: what one device sees of a mask and of its compiled arrays (SHARD clauses)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reference.flat import FlatMaskInfo
from reference.mask_info import GridMaskInfo, IntArray, Shards
from reference.masks import Dense, Mask
from spec import defines


@dataclass(frozen=True)
class Shard:
    """One device: its share of the heads, of the query sequence and of the key sequence."""

    head: int = 0
    q: int = 0
    kv: int = 0


def every_shard(shards: Shards) -> Iterator[Shard]:
    """All devices, q shard major, then kv shard, then head shard."""
    for q in range(shards.q):
        for kv in range(shards.kv):
            for head in range(shards.head):
                yield Shard(head, q, kv)


@defines("SHARD-1", "SHARD-2", "SHARD-3")
def shard_masks(masks: Sequence[Mask], shards: Shards, shard: Shard) -> list[Mask]:
    """The masks of one device: its heads, its rows, its columns, with positions from 0."""
    heads = len(masks) // shards.head
    mine = masks[shard.head * heads : (shard.head + 1) * heads]
    q_len, kv_len = mine[0].q_len // shards.q, mine[0].kv_len // shards.kv
    rows = slice(shard.q * q_len, (shard.q + 1) * q_len)
    columns = slice(shard.kv * kv_len, (shard.kv + 1) * kv_len)
    return [Mask(Dense(mask[rows, columns]), q_len, kv_len) for mask in mine]


@defines("SHARD-4", "SHARD-5")
def slice_grid(info: GridMaskInfo, shards: Shards, shard: Shard, heads: int) -> GridMaskInfo:
    """Slices the arrays of one device out of the arrays of all devices (two-dimensional layout).

    Args:
      info: arrays of all shards.
      shards: number of shards.
      shard: the one to slice.
      heads: query heads of all shards together; the result has one leading row per head.

    Raises:
      ValueError: the leading axis is neither one row per head shard nor one row per head, or the
        q shards do not divide the second axis.
    """
    per_shard = heads // shards.head

    def part(array: IntArray) -> IntArray:
        if array.shape[1] % shards.q:
            raise ValueError(f"q_shards={shards.q} must divide the array shape {array.shape}")
        if array.shape[0] == heads:
            rows = array[shard.head * per_shard : (shard.head + 1) * per_shard]
        elif array.shape[0] == shards.head:
            rows = np.repeat(array[shard.head : shard.head + 1], per_shard, axis=0)
        else:
            raise ValueError(
                f"leading axis must be {shards.head} (head shards) or {heads} (heads), "
                f"got shape {array.shape}"
            )
        return np.split(rows, shards.q, axis=1)[shard.q]

    stack = info.partial_mask_blocks
    if stack is not None and stack.ndim == 5:  # dynamic: the stack itself is sharded
        mine = stack[shard.head * per_shard : (shard.head + 1) * per_shard]
        mine = np.split(mine, shards.q, axis=1)[shard.q]
        stack = mine.reshape(-1, *stack.shape[3:])
    sequence = info.q_sequence
    return replace(
        info,
        block_mask=part(info.block_mask),
        data_next=part(info.data_next),
        mask_next=None if info.mask_next is None else part(info.mask_next),
        partial_mask_blocks=stack,
        q_sequence=None if sequence is None else np.split(sequence, shards.q)[shard.q],
    )


@defines("SHARD-6")
def slice_flat(info: FlatMaskInfo, shards: Shards, shard: Shard) -> FlatMaskInfo:
    """Slices the arrays of one device out of the arrays of all devices (flat layout), without padding.

    Raises:
      ValueError: the number of shards does not divide the arrays, or counts exceed them.
    """
    total, place = shards.q * shards.kv, shard.q * shards.kv + shard.kv
    if len(info.num_active_blocks) != total or len(info.block_mask) % total:
        raise ValueError(
            f"arrays of {len(info.block_mask)} entries and {len(info.num_active_blocks)} counts "
            f"do not split into {total} shards"
        )
    count = int(info.num_active_blocks[place])
    length = len(info.block_mask) // total
    if not 0 <= count <= length:
        raise ValueError(f"num_active_blocks[{place}]={count} exceeds the {length} entries")

    def part(array: IntArray) -> IntArray:
        return array[place * length : place * length + count]

    sequence = info.q_sequence
    return replace(
        info,
        active_rows=part(info.active_rows),
        active_cols=part(info.active_cols),
        block_mask=part(info.block_mask),
        mask_next=None if info.mask_next is None else part(info.mask_next),
        num_active_blocks=info.num_active_blocks[place : place + 1],
        q_sequence=None if sequence is None else np.split(sequence, shards.q)[shard.q],
    )
