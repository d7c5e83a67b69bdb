"""Masks whose values are known only at run time (DYNAMIC clauses)."""

from __future__ import annotations

import numpy as np

from reference.blocks import PARTIAL, Int32, block_grid
from reference.mask_info import (
    Direction,
    GridMaskInfo,
    Shards,
    carry,
    check_shards,
    downcast,
    last_at_or_before,
)
from reference.masks import Bool
from spec import defines


@defines("DYNAMIC-1")
def dynamic_labels(tiles: Bool) -> Int32:
    """Labels from tiles ``[heads, q blocks, kv blocks, block_q, block_kv]``."""
    some, every = tiles.any(axis=(3, 4)), tiles.all(axis=(3, 4))
    return some.astype(np.int32) + every.astype(np.int32)


@defines("DYNAMIC-2", "DYNAMIC-3")
def compile_dynamic(
    mask: Bool,
    block_q: int,
    block_kv: int,
    direction: Direction = "fwd",
    *,
    shards: Shards = Shards(),  # noqa: B008  (frozen)
    downcast_arrays: bool = True,
) -> GridMaskInfo:
    """Compiles mask values that may differ at every call: shapes depend on sizes only.

    Args:
      mask: bool ``[heads, q_len, kv_len]``.
      block_q, block_kv: tokens per block.
      direction: ``fwd``, ``dq`` or ``dkv``.
      shards: head and q shards.
      downcast_arrays: store the index arrays in the smallest type that holds them.

    Returns:
      Arrays of one row per head, not shrunk. ``partial_mask_blocks`` holds every block, bool
      ``[heads, q blocks, kv blocks, block_q, block_kv]`` (the last two transposed for dkv), so that
      it can be sharded; ``mask_next`` counts blocks inside one shard.

    Raises:
      ValueError: wrong rank, not boolean, block sizes or shard counts that do not divide.
    """
    if mask.ndim != 3:
        raise ValueError(f"mask must have rank 3 (heads, q_len, kv_len), got shape {mask.shape}")
    if mask.dtype != np.bool_:
        raise ValueError(f"mask must be boolean, got dtype {mask.dtype}")
    heads, q_len, kv_len = mask.shape
    q_blocks, kv_blocks = block_grid(q_len, kv_len, block_q, block_kv)
    check_shards(heads, q_blocks, kv_blocks, shards)
    tiles = mask.reshape(heads, q_blocks, block_q, kv_blocks, block_kv).swapaxes(2, 3)
    label = dynamic_labels(tiles)
    data_next, mask_next = np.empty_like(label), np.empty_like(label)
    local = (heads // shards.head, q_blocks // shards.q, kv_blocks)
    own_axis = 1 if direction == "dkv" else 2
    own = np.moveaxis(
        np.broadcast_to(
            np.arange(local[own_axis], dtype=np.int32),
            (*np.delete(local, own_axis), local[own_axis]),
        ),
        -1,
        own_axis,
    )
    place = np.arange(np.prod(local), dtype=np.int32).reshape(local)
    for h in range(0, heads, local[0]):
        for i in range(0, q_blocks, local[1]):
            part = np.s_[h : h + local[0], i : i + local[1]]
            data_next[part] = carry(own, label[part] > 0, direction, last_at_or_before)
            mask_next[part] = carry(place, label[part] == PARTIAL, direction, last_at_or_before)
    fit = downcast if downcast_arrays else (lambda array: array)
    return GridMaskInfo(
        direction=direction,
        block_mask=fit(label),
        data_next=fit(data_next),
        mask_next=fit(mask_next),
        partial_mask_blocks=tiles.swapaxes(3, 4) if direction == "dkv" else tiles,
    )
