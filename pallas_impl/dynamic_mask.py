"""Compiling a mask whose values are known at run time only, with jax operations.

Clauses DYNAMIC-1 to DYNAMIC-7.
"""

import math
from typing import SupportsIndex

import jax
import jax.numpy as jnp

from pallas_impl.mask_info import MaskInfo
from pallas_impl.prefetch import smallest_int
from pallas_impl.sharding import Direction, Layout, check_layout, join, split


def compile_dynamic_mask(
    mask: jax.Array,
    block_shape: tuple[SupportsIndex, SupportsIndex],
    *,
    direction: Direction = "fwd",
    head_shards: SupportsIndex = 1,
    q_shards: SupportsIndex = 1,
    kv_shards: SupportsIndex = 1,
    downcast: bool = True,
) -> MaskInfo:
    """Compiles a possibly traced mask to the grid layout; can be jitted, vmapped and scanned.

    Labels, `data_next` and `mask_next` follow the rules of `compile_mask`, but since nothing is
    known when tracing, the grid does not shrink and the stack holds every block of the mask.

    Args:
      mask: bool[heads, q_len, kv_len].
      block_shape: `(block_q, block_kv)`, in positions.
      direction: "fwd", "dq" or "dkv".
      head_shards, q_shards, kv_shards: the number of shards of each axis.
      downcast: store each array in the smallest of int8, int16 and int32 that holds every value
        it could have.

    Returns:
      `MaskInfo` whose `partial_mask_blocks` is bool[heads, n_q, n_kv, block_q, block_kv] (dkv:
      last two axes exchanged), to be sharded along its first three axes. `mask_next` counts the
      blocks of one shard of it, flattened to [heads · n_q · n_kv, …].

    Raises:
      ValueError: the mask does not have three axes; a block size or shard count does not divide
        its axis; the direction is unknown.
      TypeError: the mask is not boolean, or a size is not an integer.
    """
    if mask.ndim != 3 or 0 in mask.shape:
        raise ValueError(f"mask: expected (heads, q_len, kv_len), got {mask.shape}")
    if mask.dtype != jnp.bool_:
        raise TypeError(f"mask: a dynamic mask must be bool, got {mask.dtype}")
    layout = check_layout(mask.shape, block_shape, direction, head_shards, q_shards, kv_shards)
    blocks = _tiles(mask, layout)
    some, every = blocks.any(axis=(-1, -2)), blocks.all(axis=(-1, -2))
    labels = some.astype(jnp.int32) + every.astype(jnp.int32)
    grid = split(labels, layout)
    steps = grid.reshape(*grid.shape[:3], -1)
    columns = jnp.broadcast_to(jnp.arange(grid.shape[-1], dtype=jnp.int32), grid.shape)
    ids = _block_ids(grid.shape[3:], layout)
    data_next = _next_values(steps != 0, columns.reshape(steps.shape))
    mask_next = _next_values(steps == 1, jnp.broadcast_to(ids.reshape(-1), steps.shape))

    def whole(array: jax.Array, largest: int) -> jax.Array:
        joined: jax.Array = join(array.reshape(grid.shape), layout)
        return joined.astype(smallest_int(largest)) if downcast else joined

    return MaskInfo(
        data_next=whole(data_next, grid.shape[-1] - 1),
        mask_next=whole(mask_next, ids.size - 1),
        block_mask=whole(grid, 2),
        partial_mask_blocks=blocks.swapaxes(-1, -2) if layout.is_dkv else blocks,
        q_sequence=None,
        kv_sequence=None,
    )


def _tiles(mask: jax.Array, layout: Layout) -> jax.Array:
    heads, q_len, kv_len = mask.shape
    block_q, block_kv = layout.block_shape
    cut = mask.reshape(heads, q_len // block_q, block_q, kv_len // block_kv, block_kv)
    return cut.swapaxes(-2, -3)


def _block_ids(shard: tuple[int, ...], layout: Layout) -> jax.Array:
    """The place of each block of a shard in its flattened stack, in grid order."""
    if not layout.is_dkv:
        return jnp.arange(math.prod(shard), dtype=jnp.int32)
    n_kv, heads, n_q = shard
    ids = jnp.arange(math.prod(shard), dtype=jnp.int32).reshape(heads, n_q, n_kv)
    return ids.transpose(2, 0, 1)


def _next_values(active: jax.Array, values: jax.Array) -> jax.Array:
    """`prefetch.next_values`, traced."""
    n = active.shape[-1]
    at = jnp.where(active, jnp.arange(n, dtype=jnp.int32), n)
    at = jax.lax.cummin(at, axis=at.ndim - 1, reverse=True)
    first = at[..., :1]
    at = jnp.where(at == n, first, at)
    found = jnp.take_along_axis(values, jnp.minimum(at, n - 1), axis=-1)
    return jnp.where(first == n, 0, found)
