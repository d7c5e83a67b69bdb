"""From a mask to what the kernels of one attention object take: schedules and mask operands."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_impl.block_sizes import BlockSizes
from pallas_impl.config import MaskFunction
from pallas_impl.dynamic_mask import compile_dynamic_mask
from pallas_impl.mask_base import Mask
from pallas_impl.mask_info import MaskInfo, compile_mask
from pallas_impl.schedule import Grid, Schedule, Storage, build_schedule
from pallas_impl.tile_mask import KernelPlan, MaskOperands

SLOTS = {128: 4, 256: 2, 512: 2}
"""Blocks that a step visits, by their width: found by counting bundles on v5e and v6e."""


class AttentionPlan(NamedTuple):
    """Plans of the three kernels; dq is None when the backward pass is fused."""

    forward: KernelPlan
    dq: KernelPlan | None
    dkv: KernelPlan


class _Compiled(NamedTuple):
    """Unshrunk labels and mask ids [P, q blocks, kv blocks], and what goes with them."""

    labels: Any
    ids: Any
    info: MaskInfo
    dynamic: bool


@dataclasses.dataclass(frozen=True)
class Sharding:
    """How many pieces heads, queries and keys are cut into.

    ``order`` lists the mask's token positions in the order in which the arrays hold them; None
    is the natural order.  ``kv_shards`` above 1 gives one schedule for every pair of shards.
    """

    head_shards: int = 1
    q_shards: int = 1
    kv_shards: int = 1
    order: tuple[int, ...] | None = None


def slots_for(column_block: int, *, whole: bool) -> int:
    """How many blocks of ``column_block`` tokens one step visits, if rows have as many.

    ``whole``: blocks are computed in one piece.
    """
    return SLOTS.get(column_block, 1) if whole else 1


def _compile(
    mask: Mask | jax.Array, blocks: tuple[int, int], sharding: Sharding
) -> tuple[_Compiled, MaskFunction | None]:
    shards: dict[str, Any] = {"head_shards": sharding.head_shards, "q_shards": sharding.q_shards}
    if sharding.kv_shards > 1:
        shards["q_shards"] = 1  # the pairs are cut below, out of the whole
    if not isinstance(mask, Mask):
        if mask.shape[0] == 1:
            shards["head_shards"] = 1  # shared by the heads of all shards
        info = compile_dynamic_mask(mask, blocks, downcast=False, **shards)
        return _Compiled(info.block_mask, info.mask_next, info, True), None
    info, function = compile_mask(mask, blocks, shrink=False, downcast=False, **shards)
    labels, ids = np.asarray(info.block_mask), info.mask_next
    if (
        len(labels) > 1
        and np.all(labels == labels[:1])
        and (ids is None or np.all(np.where(labels == 1, ids == ids[:1], True)))
    ):
        labels, ids = labels[:1], None if ids is None else ids[:1]
    return _Compiled(labels, ids, info, False), function


def _block_order(sharding: Sharding, block: int, name: str) -> np.ndarray | None:
    """Blocks in the order in which the arrays hold them.

    Raises:
      ValueError: the order tears a block apart.
    """
    if sharding.order is None:
        return None
    order = np.asarray(sharding.order, np.int64)
    starts = _starts(order, block)
    if starts is None or np.any(starts % block):
        raise ValueError(
            f"{name} must divide the consecutive chunks that the layout deals out, got {block}"
        )
    return starts // block


def _reorder(found: _Compiled, blocks: tuple[int, int], sharding: Sharding) -> _Compiled:
    """Puts rows and columns of blocks into the order of the arrays."""
    rows = _block_order(sharding, blocks[0], "block_q")
    columns = _block_order(sharding, blocks[1], "block_kv")
    if rows is None or columns is None:
        return found
    labels = found.labels[:, rows][:, :, columns]
    ids = None if found.ids is None else found.ids[:, rows][:, :, columns]
    return found._replace(labels=labels, ids=ids)


def _starts(positions: np.ndarray, block: int) -> np.ndarray | None:
    """First position of each block, or None if positions inside a block are not consecutive."""
    blocks = positions.reshape(-1, block)
    if np.any(blocks != blocks[:, :1] + np.arange(block)):
        return None
    return np.ascontiguousarray(blocks[:, 0], dtype=np.int32)


def _operands(
    found: _Compiled,
    blocks: tuple[int, int],
    kv_len: int,
    sharding: Sharding,
    *,
    transposed: bool,
) -> MaskOperands:
    info = found.info
    if info.q_sequence is not None:
        kv = info.kv_sequence
        q_positions = np.asarray(info.q_sequence, np.int32)
        kv_positions = np.arange(kv_len, dtype=np.int32) if kv is None else np.asarray(kv)
        if sharding.order is not None:
            order = np.asarray(sharding.order)
            q_positions, kv_positions = q_positions[order], kv_positions[order]
        q_starts = _starts(q_positions, blocks[0])
        kv_starts = _starts(kv_positions, blocks[1])
        if q_starts is not None and kv_starts is not None:
            return MaskOperands(q_starts=q_starts, kv_starts=kv_starts)
        return MaskOperands(q_positions=q_positions, kv_positions=kv_positions)
    stack = info.partial_mask_blocks
    if stack is None:
        return MaskOperands()
    if transposed:
        stack = stack.swapaxes(-1, -2)
    if found.dynamic:
        return MaskOperands(blocks=stack.astype(jnp.int8))
    return MaskOperands(blocks=np.ascontiguousarray(stack, dtype=np.int8))


def _cut(x: Any, sharding: Sharding) -> list[Any]:
    """[P, rows, columns] of every (q shard, kv shard) pair, kv shards varying fastest."""
    if x is None:
        return [None] * (sharding.q_shards * sharding.kv_shards)
    xp: Any = np if isinstance(x, np.ndarray) else jnp
    return [
        piece
        for rows in xp.split(x, sharding.q_shards, axis=1)
        for piece in xp.split(rows, sharding.kv_shards, axis=2)
    ]


def _schedule(
    found: _Compiled,
    sharding: Sharding,
    *,
    transposed: bool,
    slots: int,
    grid: Grid | None,
    storage: Storage | None,
) -> Schedule:
    pieces = []
    for labels, ids in zip(_cut(found.labels, sharding), _cut(found.ids, sharding), strict=True):
        if transposed:
            labels = labels.swapaxes(1, 2)
            ids = None if ids is None else ids.swapaxes(1, 2)
        pieces.append((labels, ids))
    device_heads = max(1, found.labels.shape[0] // sharding.head_shards)
    return build_schedule(
        pieces,
        slots=slots,
        grid=grid,
        storage=storage,
        device_heads=device_heads,
        aligned=transposed and device_heads > 1,
    )


def make_plan(
    mask: Mask | jax.Array,
    block_sizes: BlockSizes,
    sharding: Sharding,
    *,
    grid: Grid | None = None,
    storage: Storage | None = None,
) -> tuple[AttentionPlan, MaskFunction | None, Any]:
    """Compiles the mask for every kernel.

    Args:
      mask: a Mask, [q_len, kv_len] or [heads, q_len, kv_len], or a traced bool array
        [heads, q_len, kv_len].
      grid, storage: as for ``build_schedule``; None lets the mask decide.

    Returns:
      The plans, the mask function if the mask is computed in the kernels, and for each (q shard,
      kv shard) pair whether it has any visible block, bool[q_shards, kv_shards].
    """
    compiled: dict[tuple[int, int], tuple[_Compiled, MaskFunction | None]] = {}
    kv_len = mask.shape[-1]

    def plan(blocks: tuple[int, int], compute: int, transposed: bool) -> KernelPlan:
        if blocks not in compiled:
            got, function = _compile(mask, blocks, sharding)
            compiled[blocks] = _reorder(got, blocks, sharding), function
        found = compiled[blocks][0]
        whole = compute == blocks[1]
        slots = slots_for(blocks[0 if transposed else 1], whole=whole)
        schedule = _schedule(
            found, sharding, transposed=transposed, slots=slots, grid=grid, storage=storage
        )
        operands = _operands(found, blocks, kv_len, sharding, transposed=transposed)
        return KernelPlan(schedule, operands)

    compute, compute_dkv = block_sizes.block_kv_compute, block_sizes.block_kv_dkv_compute
    assert compute is not None
    assert compute_dkv is not None
    forward = plan(block_sizes.forward, compute, False)
    dq_blocks = block_sizes.dq
    dq = None
    if dq_blocks is not None:
        same = dq_blocks == block_sizes.forward and compute == dq_blocks[1]
        dq = forward if same else plan(dq_blocks, dq_blocks[1], False)
    dkv = plan(block_sizes.dkv, compute_dkv, True)
    found, function = compiled[block_sizes.forward]
    xp: Any = jnp if found.dynamic else np
    active = xp.stack([(labels > 0).any() for labels in _cut(found.labels, sharding)])
    active = active.reshape(sharding.q_shards, sharding.kv_shards)
    return AttentionPlan(forward, dq, dkv), function, active
