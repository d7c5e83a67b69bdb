"""Analytic gradients of dense attention in float64 (BWD clauses)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from reference.attention import (
    AttentionResult,
    Float,
    SegmentIds,
    attend,
    kv_head_of,
    without_unseen_keys,
)
from reference.masks import Bool
from reference.summation import BLAS, Summation
from spec import defines


@dataclass(frozen=True)
class Gradients:
    """Derivatives of ``sum(output * d_out)`` (plus ``sum(logsumexp * d_logsumexp)`` if given).

    Attributes:
      dq, dk, dv: of the shapes of q, k and v.
      dsinks: ``[H]``; None without sinks.
    """

    dq: Float
    dk: Float
    dv: Float
    dsinks: Float | None


@defines("BWD-6")
def soft_cap_slope(raw_logits: Float, soft_cap: float | None) -> Float:
    """Derivative of the capped logit: ``1 - tanh(raw / cap)**2``; 1 without a cap."""
    if soft_cap is None:
        return np.ones_like(raw_logits)
    return np.asarray(1.0 - np.tanh(raw_logits / soft_cap) ** 2)


@defines("BWD-7", "BWD-8")
def sum_over_group(per_query_head: Float, kv_heads: int, summation: Summation = BLAS) -> Float:
    """Sums the query heads that read one key/value head: ``[H, n, d]`` to ``[Hkv, n, d]``."""
    heads, length, dim = per_query_head.shape
    return summation.sum(per_query_head.reshape(kv_heads, heads // kv_heads, length, dim), 1)


@defines("BWD-5")
def sink_gradient(sink_probabilities: Float, row_dot: Float, summation: Summation = BLAS) -> Float:
    """``dsinks[h] = -sum_i p_sink[h, i] * row_dot[h, i]``, both ``[H, q_len]``."""
    return -summation.sum(sink_probabilities * row_dot, 1)


@defines("BWD-2", "RES-7")
def row_dots(
    output: Float, d_out: Float, d_logsumexp: Float | None, summation: Summation = BLAS
) -> Float:
    """``di = sum_d output * d_out``, minus the gradient of the logsumexp; ``[H, q_len]``."""
    dots = summation.sum(output * d_out, 2)
    return dots if d_logsumexp is None else dots - d_logsumexp


@defines("BWD-1", "BWD-2", "BWD-3", "BWD-4", "BWD-19", "RING-14")
def pair_gradients(
    arrays: tuple[Float, Float, Float],
    d_out: Float,
    probabilities: Float,
    row_dot: Float,
    slope: Float,
) -> tuple[Float, Float, Float]:
    """dq, dk and dv of the pairs of some queries with some keys, given the whole softmax.

    The pairs may be a part of the sequence (one shard, one block): contributions add up.

    Args:
      arrays: q ``[H, n, head_dim]``, k ``[Hkv, m, head_dim]``, v ``[Hkv, m, head_dim_v]``.
      d_out: ``[H, n, head_dim_v]``.
      probabilities: ``[H, n, m]``, of the softmax over every key of the sequence.
      row_dot: ``[H, n]`` from `row_dots`.
      slope: ``[H, n, m]`` from `soft_cap_slope`.
    """
    q, k, v = arrays
    source = kv_head_of(len(q), len(k))
    d_probabilities = d_out @ v[source].swapaxes(1, 2)
    d_logits = probabilities * (d_probabilities - row_dot[:, :, None]) * slope
    dq = d_logits @ k[source]
    dk = sum_over_group(d_logits.swapaxes(1, 2) @ q, len(k))
    dv = sum_over_group(probabilities.swapaxes(1, 2) @ d_out, len(k))
    return dq, dk, dv


@defines(
    "BWD-12", "BWD-13", "BWD-14", "BWD-15", "BWD-16", "BWD-17", "BWD-18", "BWD-20", "BWD-24",
    "BWD-25", "BWD-26",
)  # fmt: skip
def gradients(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: Bool,
    d_out: ArrayLike,
    *,
    segment_ids: SegmentIds | None = None,
    soft_cap: float | None = None,
    sinks: ArrayLike | None = None,
    d_logsumexp: ArrayLike | None = None,
    result: AttentionResult | None = None,
) -> Gradients:
    """Gradients of ``sum(output * d_out) + sum(logsumexp * d_logsumexp)``.

    Args:
      q, k, v, mask, segment_ids, soft_cap, sinks: as for `reference.attention.attend`.
      d_out: ``[H, q_len, head_dim_v]``.
      d_logsumexp: ``[H, q_len]``; None for 0. Rows with nothing visible ignore it.
      result: `attend` of the same arguments, if it is already known.

    Raises:
      ValueError: as `attend`, or a ``d_out`` or ``d_logsumexp`` of another shape than the output.
    """
    q, k, v, d_out = (np.asarray(array, dtype=np.float64) for array in (q, k, v, d_out))
    if result is None:
        result = attend(q, k, v, mask, segment_ids=segment_ids, soft_cap=soft_cap, sinks=sinks)
    if d_out.shape != result.output.shape:
        raise ValueError(f"d_out must have shape {result.output.shape}, got {d_out.shape}")
    d_lse = None if d_logsumexp is None else np.asarray(d_logsumexp, dtype=np.float64)
    if d_lse is not None and d_lse.shape != result.logsumexp.shape:
        raise ValueError(f"d_logsumexp must have shape {result.logsumexp.shape}, got {d_lse.shape}")
    arrays = (
        q, without_unseen_keys(k, result.visible), without_unseen_keys(v, result.visible)
    )  # fmt: skip
    row_dot = row_dots(result.output, d_out, d_lse)
    slope = soft_cap_slope(result.raw_logits, soft_cap)
    dq, dk, dv = pair_gradients(arrays, d_out, result.probabilities, row_dot, slope)
    dsinks = None if sinks is None else sink_gradient(result.sink_probabilities, row_dot)
    return Gradients(dq, dk, dv, dsinks)
