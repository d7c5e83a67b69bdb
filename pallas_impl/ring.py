"""Ring attention: queries and keys both cut over the devices of one mesh axis.

Clauses RING-1 to RING-18.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, SupportsIndex

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from pallas_impl.api import (
    as_any_mask,
    check_count,
    check_local_heads,
    check_operands,
    check_sinks,
    check_soft_cap,
    checked_block_sizes,
    kernel_plan_spec,
)
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.config import KernelConfig
from pallas_impl.identity import ComparedByContent
from pallas_impl.mask_base import Mask
from pallas_impl.plan import AttentionPlan, Sharding, make_plan
from pallas_impl.ring_steps import RingConfig, RingPlan, ring_attention
from pallas_impl.schedule import Grid, Storage
from pallas_impl.segment_ids import SegmentIds, check_segment_ids

RingLayout = Literal["contiguous", "zigzag"]
UNROLL_UP_TO = 16
"""Rings of at most this many devices are lowered as straight code."""


def zigzag_order(length: SupportsIndex, ring_size: SupportsIndex) -> np.ndarray:
    """Token positions in zig-zag order, int64[length]: x[..., order, :] deals them out.

    The sequence is cut into 2 · ring_size chunks and device r gets chunks r and
    2 · ring_size - 1 - r, so that every device has the same share of a causal mask.
    ``numpy.argsort`` of the result undoes it.

    Raises:
      ValueError: length is not a multiple of 2 · ring_size.
    """
    tokens, size = check_count("length", length), check_count("ring_size", ring_size)
    if tokens % (2 * size):
        raise ValueError(f"length must be a multiple of {2 * size}, got {tokens}")
    chunks = np.arange(tokens).reshape(2 * size, -1)
    dealt = [chunks[c] for r in range(size) for c in (r, 2 * size - 1 - r)]
    return np.concatenate(dealt)


@dataclasses.dataclass(frozen=True)
class _Meta:
    is_mqa: bool
    mask_heads: int | None
    length: int
    head_shards: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class RingAttentionKernel(ComparedByContent):
    """Ring attention for one mask; call it inside ``jax.shard_map``.

    A pytree whose partition specs are given by ``manual_sharding_spec``.  Kernels of equal masks
    and settings are equal and hash alike.
    """

    plan: RingPlan
    config: KernelConfig = dataclasses.field(metadata={"static": True})
    ring: RingConfig = dataclasses.field(metadata={"static": True})
    meta: _Meta = dataclasses.field(metadata={"static": True})

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        segment_ids: SegmentIds | None = None,
        sinks: jax.Array | None = None,
    ) -> Any:
        """Attention of this device's queries to all keys of the ring.

        Args:
          q: [H, length / ring_size, D], this device's tokens.
          k, v: [H_kv, length / ring_size, ·], likewise; [length / ring_size, ·] for MQA.
          segment_ids: of this device's tokens.
          sinks: float[H], the same on all devices of the ring.

        Returns:
          out [H, length / ring_size, Dv], or (out, Residuals) with ``save_residuals``.

        Raises:
          ValueError: a shape, head count or ring size does not fit.
          TypeError: dtypes differ or are unsupported.
          MemoryBudgetError: a kernel cannot fit in the memory of a TPU core.
        """
        if self.meta.is_mqa:
            for name, x in (("k", k), ("v", v)):
                if x.ndim != 2:
                    raise ValueError(f"{name} must have shape [kv_len, dim] for MQA, got {x.shape}")
            k, v = k[None], v[None]
        check_operands(q, k, v)
        self._check(q, k)
        if segment_ids is not None:
            segment_ids = check_segment_ids(segment_ids, q.shape[1], k.shape[1])
        check_sinks(sinks, q.shape[0])
        return ring_attention(self.config, self.ring, self.plan, q, k, v, segment_ids, sinks)

    def _check(self, q: jax.Array, k: jax.Array) -> None:
        size = jax.lax.axis_size(self.ring.axis)
        if size != self.ring.size:
            raise ValueError(
                f"ring_size is {self.ring.size} but mesh axis {self.ring.axis!r} has {size} devices"
            )
        local = self.meta.length // size
        for name, x in (("q", q), ("k", k)):
            if x.shape[1] != local:
                raise ValueError(
                    f"{name} must have {local} tokens on each of {size} devices: the mask has "
                    f"{self.meta.length}; got shape {x.shape}"
                )
        if self.plan.active.shape[0] != 1:
            raise ValueError(
                "ring kernel: pass it through in_specs of jax.shard_map with manual_sharding_spec"
            )
        if self.meta.mask_heads is not None:
            heads = self.meta.mask_heads // self.meta.head_shards
            if q.shape[0] != heads:
                raise ValueError(f"q must have {heads} heads, as the mask has, got {q.shape}")
            check_local_heads(self.plan.kernels, heads, self.meta.head_shards)

    def manual_sharding_spec(self, head_axis: str | None = None) -> RingAttentionKernel:
        """Partition specs of the kernel's arrays, as ``in_specs`` of ``jax.shard_map``.

        Args:
          head_axis: mesh axis that heads are cut over (``head_shards`` devices), if any.
        """
        axis = self.ring.axis
        plans = [
            None if p is None else kernel_plan_spec(p, head_axis, axis, None)
            for p in self.plan.kernels
        ]
        assert plans[0] is not None
        assert plans[2] is not None
        specs = RingPlan(AttentionPlan(plans[0], plans[1], plans[2]), P(axis))
        return dataclasses.replace(self, plan=specs)


def make_ring_attention(
    mask: Any,
    *,
    ring_axis: str,
    ring_size: SupportsIndex,
    is_mqa: bool = False,
    block_sizes: BlockSizes | None = None,
    head_shards: SupportsIndex = 1,
    layout: RingLayout = "contiguous",
    save_residuals: bool = False,
    attn_logits_soft_cap: float | None = None,
    residual_checkpoint_name: str | None = None,
    interpret: Any = False,
    grid: Grid | None = None,
    storage: Storage | None = None,
) -> RingAttentionKernel:
    """Makes ring attention for a mask over a mesh axis.

    Arguments that are not listed are those of ``make_splash_mha``.

    Args:
      mask: as for ``make_splash_mha``, with q_len = kv_len, over original token positions.
      ring_axis: mesh axis of the ring.
      ring_size: its devices; each holds length / ring_size queries and keys.
      layout: ``contiguous``, or ``zigzag`` if the arrays are in ``zigzag_order``; positions in
        the mask stay the original ones.
      is_mqa: k and v have no head dimension.

    Raises:
      ValueError: mask, blocks, layout and ring size do not fit each other.
      TypeError: arguments of the wrong type.
    """
    size, head_count = check_count("ring_size", ring_size), check_count("head_shards", head_shards)
    if layout not in ("contiguous", "zigzag"):
        raise ValueError(f"layout must be 'contiguous' or 'zigzag', got {layout!r}")
    block_sizes = checked_block_sizes(block_sizes)
    given = as_any_mask(mask)
    dynamic, shape = not isinstance(given, Mask), given.shape
    length = shape[-1]
    if shape[-2] != length:
        raise ValueError(f"mask must have q_len = kv_len in a ring, got shape {shape}")
    _check_blocks(block_sizes, length, size)
    order = tuple(zigzag_order(length, size).tolist()) if layout == "zigzag" else None
    sharding = Sharding(head_count, size, size, order)
    plan, function, active = make_plan(given, block_sizes, sharding, grid=grid, storage=storage)
    config = KernelConfig(
        block_sizes,
        mask_function=function,
        soft_cap=check_soft_cap(attn_logits_soft_cap),
        save_residuals=bool(save_residuals),
        residual_checkpoint_name=residual_checkpoint_name,
        interpret=interpret,
    )
    some_empty = dynamic or not bool(np.all(active))
    unroll = size <= UNROLL_UP_TO and not interpret  # a simulator gains nothing by it
    ring = RingConfig(ring_axis, size, some_empty, unroll)
    mask_heads = None if len(shape) == 2 or (dynamic and shape[0] == 1) else shape[0]
    meta = _Meta(is_mqa, mask_heads, length, head_count)
    return RingAttentionKernel(RingPlan(plan, active.astype(np.int32)), config, ring, meta)


def _check_blocks(block_sizes: BlockSizes, length: int, size: int) -> None:
    pairs = {"forward": block_sizes.forward, "dkv": block_sizes.dkv, "dq": block_sizes.dq}
    for blocks in pairs.values():
        for block in blocks or ():
            if length % size or (length // size) % block:
                raise ValueError(
                    f"block_sizes: {block} must divide each device's share of the sequence, "
                    f"{length} tokens over ring_size {size}"
                )
