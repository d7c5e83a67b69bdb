"""``make_splash_mha`` and ``make_splash_mqa``: kernels as callables for a given mask."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pallas_impl.attention import attention
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.config import KernelConfig
from pallas_impl.identity import ComparedByContent
from pallas_impl.mask_base import Mask
from pallas_impl.masks import as_mask
from pallas_impl.plan import AttentionPlan, Sharding, make_plan
from pallas_impl.schedule import Grid, Schedule, Storage
from pallas_impl.segment_ids import SegmentIds, check_segment_ids
from pallas_impl.tile_mask import KernelPlan, MaskOperands


@dataclasses.dataclass(frozen=True)
class _Meta:
    """What a kernel knows about its operands, before sharding."""

    is_mqa: bool
    mask_heads: int | None
    q_len: int
    kv_len: int
    sharding: Sharding


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SplashAttentionKernel(ComparedByContent):
    """Attention for one mask: call it as ``kernel(q, k, v, segment_ids=None, sinks=None)``.

    A pytree: its arrays (schedules, partial mask blocks) can be passed through ``jax.jit``,
    ``jax.lax.scan`` and ``jax.shard_map``, the last with ``manual_sharding_spec``.  Kernels of
    equal masks and settings are equal and hash alike.
    """

    plan: AttentionPlan
    config: KernelConfig = dataclasses.field(metadata={"static": True})
    meta: _Meta = dataclasses.field(metadata={"static": True})

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        segment_ids: SegmentIds | None = None,
        sinks: jax.Array | None = None,
    ) -> Any:
        """Computes softmax(mask(soft_cap(q·kᵀ)))·v, without scaling of the logits.

        Args:
          q: [H, q_len, D], float32 or bfloat16; with ``q_seq_shards`` or ``head_shards`` the
            local shard.
          k: [H_kv, kv_len, D], H a multiple of H_kv; [kv_len, D] for MQA.  Query head h reads
            kv head h // (H / H_kv).
          v: [H_kv, kv_len, Dv]; [kv_len, Dv] for MQA.
          segment_ids: int[q_len] and int[kv_len]; tokens see only equal ids.
          sinks: float[H], natural-log units: exp(sink) joins each row's denominator.

        Returns:
          out [H, q_len, Dv] of q's dtype, or (out, Residuals) with ``save_residuals``.

        Raises:
          ValueError: a shape, head count or shard count does not fit the mask (REJECT-9 to
            REJECT-15).
          TypeError: dtypes differ or are unsupported.
          MemoryBudgetError: a kernel cannot fit in the memory of a TPU core.
        """
        if self.meta.is_mqa:
            _check_ndim("k", k, 2, "[kv_len, head_dim] for MQA")
            _check_ndim("v", v, 2, "[kv_len, v_dim] for MQA")
            k, v = k[None], v[None]
        check_operands(q, k, v)
        self._check_shards(q, k)
        if segment_ids is not None:
            segment_ids = check_segment_ids(segment_ids, q.shape[1], k.shape[1])
        check_sinks(sinks, q.shape[0])
        return attention(self.config, self.plan, q, k, v, segment_ids, sinks)

    def _check_shards(self, q: jax.Array, k: jax.Array) -> None:
        meta, shards = self.meta, self.meta.sharding
        q_len = meta.q_len // shards.q_shards
        layout = self.plan.forward.schedule.layout
        if layout.rows * self.config.block_sizes.block_q != q_len or not _is_one_shard(
            self.plan.forward.schedule
        ):
            raise ValueError(
                f"q_seq_shards={shards.q_shards}: the kernel must be called inside "
                "jax.shard_map with its manual_sharding_spec"
            )
        if q.shape[1] != q_len:
            raise ValueError(
                f"q must have {q_len} tokens: the mask has {meta.q_len} rows and q_seq_shards is "
                f"{shards.q_shards}; got shape {q.shape}"
            )
        if k.shape[1] != meta.kv_len:
            raise ValueError(
                f"k must have {meta.kv_len} tokens, the columns of the mask, got shape {k.shape}"
            )
        if meta.mask_heads is not None:
            heads = meta.mask_heads // shards.head_shards
            if q.shape[0] != heads:
                raise ValueError(
                    f"q must have {heads} heads: the mask has {meta.mask_heads} and head_shards "
                    f"is {shards.head_shards}; got shape {q.shape}"
                )
            check_local_heads(self.plan, heads, shards.head_shards)

    def manual_sharding_spec(self, sharding: NamedSharding) -> SplashAttentionKernel:
        """Partition specs of the kernel's arrays, as ``in_specs`` of ``jax.shard_map``.

        Clauses SHARD-7 to SHARD-9.

        Args:
          sharding: its spec must be (head axis or None, q sequence axis or None) and its mesh
            axes must have the sizes ``head_shards`` and ``q_seq_shards``.

        Raises:
          ValueError: the spec has another length, or a mesh axis another size.
        """
        if len(sharding.spec) != 2:
            raise ValueError(
                f"sharding.spec must be (heads, q sequence), got {len(sharding.spec)} entries"
            )
        shards = self.meta.sharding
        for name, entry, count in (
            ("head_shards", sharding.spec[0], shards.head_shards),
            ("q_seq_shards", sharding.spec[1], shards.q_shards),
        ):
            size = _axis_size(sharding.mesh, entry)
            if size != count:
                raise ValueError(
                    f"{name} is {count} but sharding.spec cuts that dimension over {size} devices"
                )
        heads, rows = sharding.spec
        plans = [None if p is None else kernel_plan_spec(p, heads, rows, rows) for p in self.plan]
        assert plans[0] is not None
        assert plans[2] is not None
        specs = AttentionPlan(plans[0], plans[1], plans[2])
        return dataclasses.replace(self, plan=specs)


def check_local_heads(plan: AttentionPlan, heads: int, head_shards: int) -> None:
    """Checks that the arrays of masks per head are those of this device's heads (SHARD-7).

    Args:
      plan: as it arrived on the device.
      heads: query heads of the device.
      head_shards: devices that the heads are cut over.

    Raises:
      ValueError: the arrays are those of all heads: they were closed over, or passed whole.
    """
    for kernel in plan:
        if kernel is None:
            continue
        counts = [kernel.schedule.words.shape[0]]
        if kernel.mask.blocks is not None and kernel.mask.blocks.ndim == 5:
            counts.append(kernel.mask.blocks.shape[0])
        if any(count not in (1, heads) for count in counts):
            raise ValueError(
                f"head_shards={head_shards}: this device has {heads} heads, but the kernel came "
                f"with the masks of {max(counts)}; pass it through in_specs of jax.shard_map with "
                "manual_sharding_spec, which cuts its arrays over the heads"
            )


def _is_one_shard(schedule: Schedule) -> bool:
    layout = schedule.layout
    words = layout.steps if layout.storage == "table" else 2 * layout.rows
    return bool(schedule.words.shape[1] == words)


def _axis_size(mesh: Any, entry: Any) -> int:
    names = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
    size = 1
    for name in names:
        size *= mesh.shape[name]
    return size


def kernel_plan_spec(plan: KernelPlan, heads: Any, rows: Any, block_rows: Any) -> KernelPlan:
    """Partition specs of one kernel's arrays.

    Args:
      heads, rows: mesh axes that the heads and the block rows of the schedule are cut over.
      block_rows: mesh axis that the stack of a dynamic mask's blocks, [heads, q blocks, kv
        blocks, ..], is cut over along the second; the distinct blocks of other masks, [n, ..],
        are on every device.
    """
    schedule, mask = plan
    own = heads if schedule.words.shape[0] > 1 else None
    arrays: dict[str, Any] = {name: P(own, rows) for name in schedule.arrays()}
    blocks = None
    if mask.blocks is not None:
        blocks = P(own, block_rows) if mask.blocks.ndim == 5 else P()
    specs = MaskOperands(
        blocks=blocks,
        q_starts=None if mask.q_starts is None else P(rows),
        kv_starts=None if mask.kv_starts is None else P(),
        q_positions=None if mask.q_positions is None else P(rows),
        kv_positions=None if mask.kv_positions is None else P(),
    )
    return KernelPlan(dataclasses.replace(schedule, **arrays), specs)


def _check_ndim(name: str, x: jax.Array, ndim: int, shape: str) -> None:
    if x.ndim != ndim:
        raise ValueError(f"{name} must have shape {shape}, got {x.shape}")


def check_operands(q: jax.Array, k: jax.Array, v: jax.Array) -> None:
    """Checks shapes and dtypes of q [H, S, D], k [H_kv, T, D], v [H_kv, T, Dv].

    Raises:
      ValueError: naming the argument whose shape does not fit.
      TypeError: naming the argument whose dtype does not.
    """
    _check_ndim("q", q, 3, "[heads, q_len, head_dim]; use jax.vmap for a batch")
    _check_ndim("k", k, 3, "[kv heads, kv_len, head_dim]")
    _check_ndim("v", v, 3, "[kv heads, kv_len, v_dim]")
    if k.shape[2] != q.shape[2]:
        raise ValueError(f"k must have q's head_dim {q.shape[2]}, got shape {k.shape}")
    if v.shape[:2] != k.shape[:2]:
        raise ValueError(f"v must have k's heads and tokens {k.shape[:2]}, got shape {v.shape}")
    if q.shape[0] % k.shape[0]:
        raise ValueError(
            f"k must have a number of heads that divides q's {q.shape[0]}, got {k.shape[0]}"
        )
    if q.dtype not in (jnp.float32, jnp.bfloat16):
        raise TypeError(f"q must be float32 or bfloat16, got {q.dtype}")
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(f"{name} must have q's dtype {q.dtype}, got {x.dtype}")


def check_sinks(sinks: jax.Array | None, heads: int) -> None:
    """Checks that there is one floating-point sink for each query head."""
    if sinks is None:
        return
    if sinks.shape != (heads,):
        raise ValueError(
            f"sinks must have shape ({heads},), one for each query head, got {sinks.shape}"
        )
    if not jnp.issubdtype(sinks.dtype, jnp.floating):
        raise TypeError(f"sinks must be floating point, got {sinks.dtype}")


def check_count(name: str, value: SupportsIndex) -> int:
    """A positive integer of any integer type."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}")
    return count


def check_soft_cap(value: float | None) -> float | None:
    """A positive finite number or None."""
    if value is None:
        return None
    try:
        cap = float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"attn_logits_soft_cap must be a number known when the kernel is made, got {value!r}"
        ) from None
    if not (math.isfinite(cap) and cap > 0):
        raise ValueError(f"attn_logits_soft_cap must be positive and finite, got {value}")
    return cap


def checked_block_sizes(block_sizes: Any) -> BlockSizes:
    """``block_sizes``, or the default for None.

    Raises:
      TypeError: something else, also the class of the same name of another library.
    """
    if block_sizes is None:
        return BlockSizes()
    if isinstance(block_sizes, BlockSizes):
        return block_sizes
    kind = type(block_sizes)
    hint = "; its fields have the same names" if kind.__name__ == "BlockSizes" else ""
    raise TypeError(
        f"block_sizes must be pallas_impl.BlockSizes, got {kind.__module__}.{kind.__qualname__}{hint}"
    )


def as_any_mask(mask: Any) -> Mask | jax.Array:
    """A Mask, or bool[heads, q_len, kv_len] for a mask whose values are known at run time.

    Raises:
      TypeError: not a mask, or not boolean.
      ValueError: not 2 or 3 dimensions.
    """
    if isinstance(mask, jax.Array):
        if mask.dtype != jnp.bool_:
            raise TypeError(f"mask must be boolean, got {mask.dtype}")
        if mask.ndim not in (2, 3):
            raise ValueError(
                f"mask must have shape [q_len, kv_len] or [heads, q_len, kv_len], got {mask.shape}"
            )
        return mask if mask.ndim == 3 else mask[None]
    return as_mask(mask)


def _make(
    mask: Any,
    *,
    is_mqa: bool,
    block_sizes: BlockSizes | None,
    head_shards: SupportsIndex,
    q_seq_shards: SupportsIndex,
    save_residuals: bool,
    attn_logits_soft_cap: float | None,
    residual_checkpoint_name: str | None,
    interpret: Any,
    grid: Grid | None,
    storage: Storage | None,
) -> SplashAttentionKernel:
    block_sizes = checked_block_sizes(block_sizes)
    sharding = Sharding(
        check_count("head_shards", head_shards), check_count("q_seq_shards", q_seq_shards)
    )
    cap = check_soft_cap(attn_logits_soft_cap)
    given = as_any_mask(mask)
    shape = given.shape
    shared = len(shape) == 2 or (not isinstance(given, Mask) and shape[0] == 1)
    mask_heads = None if shared else shape[0]
    plan, function, _ = make_plan(given, block_sizes, sharding, grid=grid, storage=storage)
    config = KernelConfig(
        block_sizes,
        mask_function=function,
        soft_cap=cap,
        save_residuals=bool(save_residuals),
        residual_checkpoint_name=residual_checkpoint_name,
        interpret=interpret,
    )
    meta = _Meta(is_mqa, mask_heads, shape[-2], shape[-1], sharding)
    return SplashAttentionKernel(plan, config, meta)


def make_splash_mha(
    mask: Any,
    *,
    block_sizes: BlockSizes | None = None,
    head_shards: SupportsIndex = 1,
    q_seq_shards: SupportsIndex = 1,
    save_residuals: bool = False,
    attn_logits_soft_cap: float | None = None,
    residual_checkpoint_name: str | None = None,
    interpret: Any = False,
    grid: Grid | None = None,
    storage: Storage | None = None,
) -> SplashAttentionKernel:
    """Makes a multi-head or grouped-query attention kernel for a mask.

    Args:
      mask: a Mask [q_len, kv_len] shared by all heads, a MultiHeadMask or bool ndarray
        [heads, q_len, kv_len], or a (traced) bool jax.Array for a mask known at run time only.
      block_sizes: tiles; 512 × 512 by default.
      head_shards, q_seq_shards: devices that heads and the query sequence are cut over, under
        ``jax.shard_map``.
      save_residuals: also return Residuals(logsumexp, max_logits).
      attn_logits_soft_cap: cap of cap · tanh(logits / cap), applied before the mask.
      residual_checkpoint_name: name of out and logsumexp for ``jax.checkpoint`` policies.
      interpret: passed to ``pallas_call``: a bool or ``pltpu.InterpretParams``.
      grid: ``flat`` (active blocks only), ``grid2d``, or None for the cheaper one.
      storage: ``table``, ``runs``, or None to choose by size.

    Raises:
      ValueError: sizes, blocks and shards that do not fit each other (REJECT-1, REJECT-6, REJECT-8);
        a soft cap that is not positive (REJECT-18).
      TypeError: arguments of the wrong type.
    """
    return _make(
        mask,
        is_mqa=False,
        block_sizes=block_sizes,
        head_shards=head_shards,
        q_seq_shards=q_seq_shards,
        save_residuals=save_residuals,
        attn_logits_soft_cap=attn_logits_soft_cap,
        residual_checkpoint_name=residual_checkpoint_name,
        interpret=interpret,
        grid=grid,
        storage=storage,
    )


def make_splash_mqa(
    mask: Any,
    *,
    block_sizes: BlockSizes | None = None,
    head_shards: SupportsIndex = 1,
    q_seq_shards: SupportsIndex = 1,
    save_residuals: bool = False,
    attn_logits_soft_cap: float | None = None,
    residual_checkpoint_name: str | None = None,
    interpret: Any = False,
    grid: Grid | None = None,
    storage: Storage | None = None,
) -> SplashAttentionKernel:
    """Makes a multi-query attention kernel: k [kv_len, D] and v [kv_len, Dv], one kv head.

    Arguments and errors are those of ``make_splash_mha``.
    """
    return _make(
        mask,
        is_mqa=True,
        block_sizes=block_sizes,
        head_shards=head_shards,
        q_seq_shards=q_seq_shards,
        save_residuals=save_residuals,
        attn_logits_soft_cap=attn_logits_soft_cap,
        residual_checkpoint_name=residual_checkpoint_name,
        interpret=interpret,
        grid=grid,
        storage=storage,
    )
