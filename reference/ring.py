"""Ring attention: sharded queries and keys, partial results combined (RING clauses)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from reference.attention import (
    Float,
    SegmentIds,
    attend,
    check_inputs,
    kv_head_of,
    soft_capped,
    visible_pairs,
)
from reference.gradients import (
    Gradients,
    pair_gradients,
    row_dots,
    sink_gradient,
    soft_cap_slope,
)
from reference.masks import Bool
from spec import defines


@dataclass(frozen=True)
class Partial:
    """Undivided softmax over some of the keys.

    Attributes:
      maximum: largest visible capped logit, ``[H, n]``; -inf if none is visible.
      total: sum of ``exp(logit - maximum)``, ``[H, n]``.
      sums: sum of ``exp(logit - maximum) * v``, ``[H, n, head_dim_v]``.
    """

    maximum: Float
    total: Float
    sums: Float


@dataclass(frozen=True)
class RingResult:
    """Output ``[H, q_len, head_dim_v]`` and logsumexp, max_logits ``[H, q_len]`` of all devices."""

    output: Float
    logsumexp: Float
    max_logits: Float


@defines("RING-2")
def shard_at_step(device: int, step: int, ring_size: int) -> int:
    """The kv shard on a device at a step, if every device sends to its next neighbour."""
    return (device - step) % ring_size


@defines("RING-6", "RING-8")
def empty_partial(heads: int, rows: int, dim: int) -> Partial:
    """The partial result over no key: the identity of `combine`."""
    none = np.full((heads, rows), -np.inf)
    return Partial(none, np.zeros((heads, rows)), np.zeros((heads, rows, dim)))


@defines("RING-4", "RING-5", "RING-6", "RING-15")
def combine(a: Partial, b: Partial, *, power: Callable[[Float], Float] = np.exp) -> Partial:
    """Partial result over the keys of both: commutative and associative, with the empty one as identity.

    Args:
      a, b: over disjoint sets of keys, of equal shapes.
      power: exponential function; `numpy.exp2` if the logits are in units of log 2.
    """
    maximum = np.maximum(a.maximum, b.maximum)
    finite = np.where(maximum == -np.inf, 0.0, maximum)
    of_a, of_b = power(a.maximum - finite), power(b.maximum - finite)
    return Partial(
        maximum,
        of_a * a.total + of_b * b.total,
        of_a[:, :, None] * a.sums + of_b[:, :, None] * b.sums,
    )


def sink_partial(sinks: Float, rows: int, dim: int) -> Partial:
    """A sink as a partial result: weight 1 at its logit, no value."""
    shape = (len(sinks), rows)
    maximum = np.broadcast_to(sinks[:, None], shape).astype(np.float64)
    return Partial(maximum, np.where(maximum == -np.inf, 0.0, 1.0), np.zeros((*shape, dim)))


@defines("RING-7")
def finish(partial: Partial) -> tuple[Float, Float]:
    """The only division: output and logsumexp; 0 and -inf where nothing was visible."""
    empty = partial.total == 0
    output = partial.sums / np.where(empty, 1.0, partial.total)[:, :, None]
    with np.errstate(divide="ignore"):
        return output, np.where(empty, 0.0, partial.maximum) + np.log(partial.total)


@defines("RING-10", "RING-11", "RING-16")
def shard_partial(q: Float, k: Float, v: Float, visible: Bool, soft_cap: float | None) -> Partial:
    """The partial result of one device at one step.

    Args:
      q: the device's queries, ``[H, n, head_dim]``.
      k, v: the shard that is local at this step, ``[Hkv, m, dim]``.
      visible: ``[H, n, m]``, the mask of exactly these queries and keys.
      soft_cap: as for `attend`.
    """
    if not visible.any():
        return empty_partial(q.shape[0], q.shape[1], v.shape[2])
    # attend gives the shard's own softmax; undo its division to get the sums.
    local = attend(q, k, v, visible, soft_cap=soft_cap)
    finite = np.where(local.max_logits == -np.inf, 0.0, local.max_logits)
    total = np.exp(local.logsumexp - finite)
    return Partial(local.max_logits, total, local.output * total[:, :, None])


def shard_rows(array: Float, shard: int, ring_size: int) -> Float:
    """Rows of one shard of ``[heads, length, dim]``."""
    return np.split(array, ring_size, axis=1)[shard]


@defines("RING-3", "RING-9")
def step_visible(
    mask: Bool, segment_ids: SegmentIds | None, device: int, shard: int, ring_size: int
) -> Bool:
    """Mask AND segment ids of one device's queries with one kv shard.

    Args:
      mask: bool ``[H, q_len, kv_len]`` of the whole problem.
      segment_ids: of the whole problem; the key ids travel with their shard.
      device: which queries.
      shard: which keys.
      ring_size: devices.
    """
    part = np.split(np.split(mask, ring_size, axis=1)[device], ring_size, axis=2)[shard]
    if segment_ids is None:
        return part
    q_ids = np.split(np.asarray(segment_ids[0]), ring_size)[device]
    kv_ids = np.split(np.asarray(segment_ids[1]), ring_size)[shard]
    return visible_pairs(part, (q_ids, kv_ids), (part.shape[0], part.shape[1], part.shape[2]))


def _check_ring(q: Float, k: Float, ring_size: int) -> None:
    for name, length in (("q_len", q.shape[1]), ("kv_len", k.shape[1])):
        if ring_size < 1 or length % ring_size:
            raise ValueError(f"ring_size={ring_size} must divide {name}={length}")


@defines("RING-1", "RING-12", "RING-17", "RING-18")
def ring_attend(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: Bool,
    ring_size: int,
    *,
    segment_ids: SegmentIds | None = None,
    soft_cap: float | None = None,
    sinks: ArrayLike | None = None,
) -> RingResult:
    """Forward pass of all devices, one combination per step.

    Args:
      q, k, v, mask, segment_ids, soft_cap, sinks: of the whole problem, as for `attend`.
      ring_size: devices; device d holds query shard d.

    Raises:
      ValueError: as `attend`; a ring size that does not divide q_len or kv_len.
    """
    q, k, v = (np.asarray(array, dtype=np.float64) for array in (q, k, v))
    sink = None if sinks is None else np.asarray(sinks, dtype=np.float64)
    check_inputs(q, k, v, sink)
    _check_ring(q, k, ring_size)
    mask = visible_pairs(mask, None, (len(q), q.shape[1], k.shape[1]))
    outputs, logsumexps, maxima = [], [], []
    for device in range(ring_size):
        mine = shard_rows(q, device, ring_size)
        state = empty_partial(mine.shape[0], mine.shape[1], v.shape[2])
        for step in range(ring_size):
            shard = shard_at_step(device, step, ring_size)
            keys, values = (shard_rows(array, shard, ring_size) for array in (k, v))
            seen = step_visible(mask, segment_ids, device, shard, ring_size)
            state = combine(state, shard_partial(mine, keys, values, seen, soft_cap))
        maxima.append(state.maximum)
        if sink is not None:  # once, not once per step
            state = combine(state, sink_partial(sink, mine.shape[1], v.shape[2]))
        output, logsumexp = finish(state)
        outputs.append(output)
        logsumexps.append(logsumexp)
    return RingResult(*(np.concatenate(parts, axis=1) for parts in (outputs, logsumexps, maxima)))


@defines("RING-13", "RING-14")
def ring_gradients(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: Bool,
    d_out: ArrayLike,
    ring_size: int,
    *,
    segment_ids: SegmentIds | None = None,
    soft_cap: float | None = None,
    sinks: ArrayLike | None = None,
) -> Gradients:
    """Backward pass of all devices: dk and dv of a shard accumulate while it travels.

    Args:
      q, k, v, mask, segment_ids, soft_cap, sinks, ring_size: as for `ring_attend`.
      d_out: ``[H, q_len, head_dim_v]``.

    Raises:
      ValueError: as `ring_attend`, or a ``d_out`` of another shape than the output.
    """
    q, k, v, d_out = (np.asarray(array, dtype=np.float64) for array in (q, k, v, d_out))
    forward = ring_attend(
        q, k, v, mask, ring_size, segment_ids=segment_ids, soft_cap=soft_cap, sinks=sinks
    )
    if d_out.shape != forward.output.shape:
        raise ValueError(f"d_out must have shape {forward.output.shape}, got {d_out.shape}")
    mask = visible_pairs(mask, None, (len(q), q.shape[1], k.shape[1]))
    row_dot = row_dots(forward.output, d_out, None)
    lse = np.where(forward.logsumexp == -np.inf, 0.0, forward.logsumexp)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    source = kv_head_of(len(q), len(k))
    for device in range(ring_size):
        rows = _tokens(q, device, ring_size)
        for step in range(ring_size):
            shard = shard_at_step(device, step, ring_size)
            seen = step_visible(mask, segment_ids, device, shard, ring_size)
            if not seen.any():
                continue
            keys = _tokens(k, shard, ring_size)
            arrays = (q[:, rows], k[:, keys], v[:, keys])
            raw = arrays[0] @ arrays[1][source].swapaxes(1, 2)
            exponent = soft_capped(raw, soft_cap) - lse[:, rows, None]
            p = np.exp(np.where(seen, exponent, -np.inf))  # of the whole ring's softmax
            parts = pair_gradients(
                arrays, d_out[:, rows], p, row_dot[:, rows], soft_cap_slope(raw, soft_cap)
            )
            dq[:, rows] += parts[0]
            dk[:, keys] += parts[1]
            dv[:, keys] += parts[2]
    dsinks = None
    if sinks is not None:
        share = np.exp(np.asarray(sinks, dtype=np.float64)[:, None] - lse)
        dsinks = sink_gradient(share, row_dot)
    return Gradients(dq, dk, dv, dsinks)


def _tokens(array: Float, shard: int, ring_size: int) -> slice:
    size = array.shape[1] // ring_size
    return slice(shard * size, (shard + 1) * size)
