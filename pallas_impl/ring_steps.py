"""The loop of ring attention: what one device computes and sends at each step.

At step i device r holds kv shard (r - i) mod n.  Each step's kernel leaves an undivided partial
result; partial results combine like the blocks inside one kernel (Liu et al. 2023, "Ring
Attention"; the online softmax of Milakov & Gimelshein 2018), in base 2, and the sum is divided
once at the end.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from pallas_impl.attention import (
    Residuals,
    backward,
    first_derivative_only,
    sinks_gradient,
    statistics,
)
from pallas_impl.backward_dkv import BackwardOperands
from pallas_impl.config import LN2, LOG2E, MAX_FLOOR, KernelConfig
from pallas_impl.forward import PartialResult, forward_partial
from pallas_impl.plan import AttentionPlan
from pallas_impl.segment_ids import SegmentIds
from pallas_impl.tile_mask import KernelPlan


@dataclasses.dataclass(frozen=True)
class RingConfig:
    """Static settings of the ring.

    Attributes:
      axis: name of the mesh axis whose devices form the ring.
      size: devices in the ring.
      some_empty: whether some pair of shards has nothing visible, so that steps are guarded.
      unroll: lower the scan as straight code, which lets transfers overlap freely.
    """

    axis: str
    size: int
    some_empty: bool
    unroll: bool


class RingPlan(NamedTuple):
    """Plans of all (q shard, kv shard) pairs, and int32[size] which of the device's are active."""

    kernels: AttentionPlan
    active: Any


class _Moving(NamedTuple):
    """What travels around the ring."""

    k: jax.Array
    v: jax.Array
    segment: Any


def combine(a: PartialResult, b: PartialResult) -> PartialResult:
    """Sum of two partial results; associative, commutative, ``nothing`` is its identity.

    Clauses RING-4 to RING-6.
    """
    peak = jnp.maximum(a.peak, b.peak)
    scale_a, scale_b = jnp.exp2(a.peak - peak), jnp.exp2(b.peak - peak)
    total = a.total * scale_a[..., None] + b.total * scale_b[..., None]
    return PartialResult(total, peak, a.weight * scale_a + b.weight * scale_b)


def nothing(q: jax.Array, v_dim: int) -> PartialResult:
    """The partial result of no keys."""
    rows = q.shape[:2]
    return PartialResult(
        jnp.zeros((*rows, v_dim), jnp.float32),
        jnp.full(rows, MAX_FLOOR, jnp.float32),
        jnp.zeros(rows, jnp.float32),
    )


def divide(part: PartialResult, sinks: jax.Array | None, dtype: Any) -> tuple[jax.Array, Residuals]:
    """The one division: (out, Residuals); each sink joins its head's denominator once.

    Clauses RING-7, RING-12.
    """
    peak, weight, scale = part.peak, part.weight, None
    if sinks is not None:
        sink = sinks.astype(jnp.float32)[:, None] * LOG2E
        peak = jnp.maximum(part.peak, sink)
        scale = jnp.exp2(part.peak - peak)
        weight = part.weight * scale + jnp.exp2(sink - peak)
    some = weight > 0.0
    inverse = jnp.where(some, 1.0 / jnp.where(some, weight, 1.0), 0.0)
    inverse = inverse if scale is None else inverse * scale
    out = (part.total * inverse[..., None]).astype(dtype)
    logsumexp = jnp.where(some, (peak + jnp.log2(jnp.where(some, weight, 1.0))) * LN2, -jnp.inf)
    return out, Residuals(logsumexp, jnp.where(part.weight > 0.0, part.peak * LN2, -jnp.inf))


def _shard_of(array: Any, index: Any, size: int, axis: int) -> Any:
    """The index-th of ``size`` equal pieces along an axis."""
    if array is None:
        return None
    piece = array.shape[axis] // size
    return lax.dynamic_slice_in_dim(array, index * piece, piece, axis)


def _local(plan: KernelPlan, shard: Any, size: int) -> KernelPlan:
    schedule, mask = plan
    arrays = {n: _shard_of(jnp.asarray(a), shard, size, 1) for n, a in schedule.arrays().items()}
    mask = mask._replace(
        kv_starts=_shard_of(mask.kv_starts, shard, size, 0),
        kv_positions=_shard_of(mask.kv_positions, shard, size, 0),
    )
    return KernelPlan(dataclasses.replace(schedule, **arrays), mask)


def _local_plan(plan: AttentionPlan, shard: Any, size: int) -> AttentionPlan:
    forward, dq, dkv = (None if p is None else _local(p, shard, size) for p in plan)
    assert forward is not None
    assert dkv is not None
    return AttentionPlan(forward, dq, dkv)


def _segments(q_segment: Any, kv_segment: Any) -> SegmentIds | None:
    return None if q_segment is None else SegmentIds(q_segment, kv_segment)


class _Ring:
    """The ring as seen from one device."""

    def __init__(self, ring: RingConfig, plan: RingPlan) -> None:
        self.ring, self.plan = ring, plan
        self.me = lax.axis_index(ring.axis)

    def shard(self, step: Any) -> Any:
        """The kv shard that is here at a step."""
        return lax.rem(self.me - step + self.ring.size, self.ring.size)

    def send(self, x: Any) -> Any:
        """Passes arrays to the next device and returns what the previous one passed."""
        size = self.ring.size
        pairs = [(i, (i + 1) % size) for i in range(size)]
        return jax.tree.map(lambda a: lax.ppermute(a, self.ring.axis, pairs), x)

    def guarded(self, step: Any, run: Any, idle: Any) -> Any:
        """``run(plans)`` of this step's pair of shards, or ``idle`` if nothing is visible."""
        shard = self.shard(step)

        def work() -> Any:
            return run(_local_plan(self.plan.kernels, shard, self.ring.size))

        if not self.ring.some_empty:
            return work()
        active = jnp.ravel(self.plan.active)[shard] > 0
        return lax.cond(active, work, lambda: idle)

    def scan(self, body: Any, carry: Any) -> Any:
        """Runs steps 0 … size - 2 of a loop; ``carry`` is (what moves on at once, state, …).

        The barrier lets a step's transfer start only when the step before is computed; without
        it the unrolled transfers are all moved to the front, where nothing hides them and all
        shards are in memory at once.
        """

        def step(carry: Any, i: Any) -> tuple[Any, None]:
            here, state, *rest = carry
            here, state = lax.optimization_barrier((here, state))
            return body((here, state, *rest), i), None

        steps = jnp.arange(self.ring.size - 1, dtype=jnp.int32)
        return lax.scan(step, carry, steps, unroll=self.ring.unroll)[0]


def _forward(
    cfg: KernelConfig, ring_cfg: RingConfig, plan: RingPlan, args: Any
) -> tuple[jax.Array, Residuals]:
    q, k, v, segment_ids, sinks = args
    ring = _Ring(ring_cfg, plan)
    q_segment, kv_segment = (None, None) if segment_ids is None else segment_ids
    idle = nothing(q, v.shape[2])

    def add(state: PartialResult, here: _Moving, step: Any) -> PartialResult:
        def run(local: AttentionPlan) -> PartialResult:
            segments = _segments(q_segment, here.segment)
            return combine(state, forward_partial(cfg, local.forward, q, here.k, here.v, segments))

        got: PartialResult = ring.guarded(step, run, state)
        return got

    def body(carry: Any, step: Any) -> Any:
        here, state = carry
        following = ring.send(here)
        return following, add(state, here, step)

    here, state = ring.scan(body, (_Moving(k, v, kv_segment), idle))
    state = add(state, here, ring_cfg.size - 1)
    return divide(state, sinks, q.dtype)


def _backward(
    cfg: KernelConfig, ring_cfg: RingConfig, plan: RingPlan, args: BackwardOperands
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(dq, dk, dv) in float32: dq stays, dk and dv follow their keys and come home."""
    ring = _Ring(ring_cfg, plan)
    q_segment, kv_segment = (None, None) if args.segment_ids is None else args.segment_ids

    def add(grads: Any, here: _Moving, step: Any) -> Any:
        def run(local: AttentionPlan) -> Any:
            operands = args._replace(
                k=here.k, v=here.v, segment_ids=_segments(q_segment, here.segment)
            )
            parts = backward(cfg, local, operands, jnp.float32)
            return jax.tree.map(jnp.add, grads, parts)

        return ring.guarded(step, run, grads)

    def body(carry: Any, step: Any) -> Any:
        here, dq, moving = carry
        following = ring.send(here)
        grads = add((dq, *moving), here, step)
        # Keys arrive before gradients leave: both transfers then surround one kernel each.
        following, (dq, *moving) = lax.optimization_barrier((following, grads))
        return following, dq, ring.send(tuple(moving))

    zeros = [jnp.zeros(x.shape, jnp.float32) for x in (args.q, args.k, args.v)]
    start = (_Moving(args.k, args.v, kv_segment), zeros[0], (zeros[1], zeros[2]))
    here, dq, moving = ring.scan(body, start)
    dq, *moving = add((dq, *moving), here, ring_cfg.size - 1)
    dk, dv = ring.send(tuple(moving))
    return dq, dk, dv


def _result(cfg: KernelConfig, out: jax.Array, stats: Residuals) -> Any:
    return (out, stats) if cfg.save_residuals else out


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def ring_attention(
    cfg: KernelConfig,
    ring: RingConfig,
    plan: RingPlan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: Any,
    sinks: jax.Array | None,
) -> Any:
    """Attention of local queries to the keys of the whole ring; inside ``jax.shard_map``."""
    return _result(cfg, *_forward(cfg, ring, plan, (q, k, v, segment_ids, sinks)))


def _forward_rule(
    cfg: KernelConfig,
    ring: RingConfig,
    plan: RingPlan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: Any,
    sinks: jax.Array | None,
) -> tuple[Any, Any]:
    q, k, v = first_derivative_only((q, k, v))
    out, stats = _forward(cfg, ring, plan, (q, k, v, segment_ids, sinks))
    name = cfg.residual_checkpoint_name
    if name is not None:
        out = checkpoint_name(out, name)
        stats = stats._replace(logsumexp=checkpoint_name(stats.logsumexp, name))
    kept = (plan, q, k, v, segment_ids, sinks, out, stats.logsumexp)
    return _result(cfg, out, stats), kept


def _backward_rule(cfg: KernelConfig, ring: RingConfig, kept: Any, cotangent: Any) -> Any:
    plan, q, k, v, segment_ids, sinks, out, logsumexp = kept
    do = cotangent[0] if cfg.save_residuals else cotangent
    do = first_derivative_only(do)
    delta = jnp.sum(do.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    if cfg.save_residuals:
        delta = delta - cotangent[1].logsumexp
    stats = statistics(logsumexp, delta)
    args = BackwardOperands(q, k, v, do.astype(q.dtype), stats, segment_ids)
    grads = _backward(cfg, ring, plan, args)
    dq, dk, dv = (g.astype(x.dtype) for g, x in zip(grads, (q, k, v), strict=True))
    d_sinks = None if sinks is None else sinks_gradient(sinks, logsumexp, delta)
    return None, dq, dk, dv, None, d_sinks


ring_attention.defvjp(_forward_rule, _backward_rule)
