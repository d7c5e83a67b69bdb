"""Error budgets of the gradients, element by element; sources as in `reference.error_budget`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.attention import AttentionResult, Float, kv_head_of
from reference.error_budget import (
    ArithmeticProfile,
    accumulated,
    forward_budget,
    log_weights,
    logit_error,
    sink_logits,
    weight_change,
)
from reference.gradients import Gradients, soft_cap_slope, sum_over_group
from spec import defines


@dataclass(frozen=True)
class GradientBudget:
    """Largest absolute error of a correct implementation, shapes as in `Gradients`."""

    dq: Float
    dk: Float
    dv: Float
    dsinks: Float | None


@dataclass(frozen=True)
class _Pairs:
    """Magnitudes and errors of every pair, ``[H, q_len, kv_len]``, and of every row.

    Attributes:
      wrong: error of the probability as recomputed in the backward pass.
      d_logits, d_logits_error: magnitude of the (capped) logit gradient, and its error.
      row_dot, row_dot_error: magnitude of di and its error, ``[H, q_len]``.
      wrong_sink: error of the sink's probability, ``[H, q_len]``.
    """

    wrong: Float
    d_logits: Float
    d_logits_error: Float
    row_dot: Float
    row_dot_error: Float
    wrong_sink: Float


def _pair_errors(
    arrays: tuple[Float, Float, Float],
    d_out: Float,
    result: AttentionResult,
    profile: ArithmeticProfile,
    soft_cap: float | None,
    sinks: Float | None,
    rescales: int,
    d_logsumexp: Float | None,
) -> _Pairs:
    q, k, v = arrays
    u, p = profile.accumulate_u, result.probabilities
    forward = forward_budget(
        q, k, v, result, profile, soft_cap=soft_cap, sinks=sinks, rescales=rescales
    )
    error = logit_error(q, k, result, profile, soft_cap)
    lse = np.where(result.logsumexp == -np.inf, 0.0, result.logsumexp)
    scale = (4 if profile.base2 else 1) * u
    common = forward.logsumexp + scale * np.abs(lse) + 2 * profile.exp_ulps * u
    sink = sink_logits(sinks, result)
    log_weight = log_weights(result, sink)
    column = np.where(sink == -np.inf, 0.0, scale * np.abs(sink))[:, :, None]
    exponent = np.concatenate([error.capped, column], axis=2) + common[:, :, None]
    exponent += u * np.where(log_weight == -np.inf, 0.0, np.abs(log_weight))
    changes = weight_change(log_weight, exponent)
    wrong, wrong_sink = changes[:, :, :-1], changes[:, :, -1]

    # di is a sum over head_dim_v of the stored output; dp is one of values.
    products = (accumulated(v.shape[2], u) + u) * np.abs(result.output * d_out).sum(axis=2)
    row_dot = (result.output * d_out).sum(axis=2)
    row_dot_error = (forward.output * np.abs(d_out)).sum(axis=2) + products
    if d_logsumexp is not None:
        row_dot = row_dot - d_logsumexp
        row_dot_error = row_dot_error + u * np.abs(row_dot)
    values = v[kv_head_of(len(q), len(k))].swapaxes(1, 2)
    dp = d_out @ values
    dp_error = accumulated(v.shape[2], u) + profile.multiply_u
    dp_error = dp_error * (np.abs(d_out) @ np.abs(values))

    difference = np.abs(dp - row_dot[:, :, None])
    shift = dp_error + row_dot_error[:, :, None] + u * difference
    # A probability below the smallest normal number may vanish, whatever it is multiplied by.
    flushed = np.where(result.visible, profile.smallest, 0.0)
    ds_error = (wrong + flushed) * difference + (p + wrong) * shift
    ds = p * difference
    slope = soft_cap_slope(result.raw_logits, soft_cap)
    capped = ds * slope
    capped_error = ds_error * (slope + error.slope) + ds * error.slope + 2 * u * capped
    return _Pairs(wrong, capped, capped_error, np.abs(row_dot), row_dot_error, wrong_sink)


def _sink_budget(
    pairs: _Pairs, share: Float, dsinks: Float | None, profile: ArithmeticProfile
) -> Float | None:
    """Budget of ``-sum_i share_i di_i``, ``[H]``; ``share`` is the sink's probability."""
    if dsinks is None:
        return None
    u, length = profile.accumulate_u, share.shape[1]
    row = (pairs.wrong_sink + profile.smallest) * pairs.row_dot + (
        share + pairs.wrong_sink
    ) * pairs.row_dot_error
    total = row.sum(axis=1) + (accumulated(length, u) + 2 * u) * (share * pairs.row_dot).sum(axis=1)
    return np.asarray(total + u * np.abs(dsinks) + length * profile.smallest)


@defines("NUM-4", "NUM-11")
def gradient_budget(
    q: Float,
    k: Float,
    v: Float,
    d_out: Float,
    result: AttentionResult,
    expected: Gradients,
    profile: ArithmeticProfile,
    *,
    soft_cap: float | None = None,
    sinks: Float | None = None,
    rescales: int = 1,
    d_logsumexp: Float | None = None,
) -> GradientBudget:
    """Budgets of dq, dk, dv and dsinks.

    Args:
      q, k, v, d_out: as given to `gradients`, already rounded to the input type.
      result, expected: what `attend` and `gradients` returned for them.
      profile: declared arithmetic.
      soft_cap, sinks, d_logsumexp: as given to `gradients`.
      rescales: number of kv blocks in which a row is computed forward, plus ring steps; also the number of partial
        gradients that are stored and added up.
    """
    q, k, v, d_out = (np.asarray(array, dtype=np.float64) for array in (q, k, v, d_out))
    pairs = _pair_errors((q, k, v), d_out, result, profile, soft_cap, sinks, rescales, d_logsumexp)
    u, p = profile.accumulate_u, result.probabilities
    kv_heads = len(k)
    source = kv_head_of(len(q), kv_heads)
    pairs_seen = result.visible.astype(np.float64)
    per_row = pairs_seen.sum(axis=2)[:, :, None]
    # Sums over the query heads of a group run on from the sums over rows.
    per_key = sum_over_group(pairs_seen.sum(axis=1)[:, :, None], kv_heads)
    stored = profile.probability_u
    once = profile.multiply_u + profile.partial_u + accumulated(rescales, u)

    def finish(spread: Float, magnitude: Float, terms: Float, value: Float) -> Float:
        total = spread + (accumulated(terms, u) + once) * magnitude + terms * profile.smallest
        return np.asarray(total + profile.output_u * (np.abs(value) + total))

    ds, ds_error = pairs.d_logits, pairs.d_logits_error
    ds_error = ds_error + stored * (ds + ds_error)
    p_error = pairs.wrong + stored * (p + pairs.wrong)
    flushed = pairs_seen * profile.smallest
    p_error, ds_error = p_error + flushed, ds_error + flushed
    keys, queries, cotangent = np.abs(k[source]), np.abs(q), np.abs(d_out)
    turned, turned_error = ds.swapaxes(1, 2), ds_error.swapaxes(1, 2)

    def grouped(weights: Float, rows: Float) -> Float:
        return sum_over_group(weights @ rows, kv_heads)

    return GradientBudget(
        dq=finish(ds_error @ keys, ds @ keys, per_row, expected.dq),
        dk=finish(grouped(turned_error, queries), grouped(turned, queries), per_key, expected.dk),
        dv=finish(
            grouped(p_error.swapaxes(1, 2), cotangent),
            grouped(p.swapaxes(1, 2), cotangent),
            per_key,
            expected.dv,
        ),
        dsinks=_sink_budget(pairs, result.sink_probabilities, expected.dsinks, profile),
    )


@defines("BWD-17")
def difference_budget(
    outputs: tuple[Float, Float],
    output_budgets: tuple[Float, Float],
    d_out: Float,
    gradient: Float,
    gradient_budget: Float,
    displacement: Float,
) -> float:
    """Budget for the difference between a central difference of losses and the gradient.

    With the loss ``sum(output * d_out)``, at two points that are ``displacement`` apart, and the
    gradient between them, ``loss(plus) - loss(minus)`` is ``sum(gradient * displacement)`` but for
    the errors of the two outputs, the error of the gradient, and the curvature, which the exact
    outputs and gradient give exactly. There is no division, and so no step size to be tuned.

    Args:
      outputs: exact outputs at plus and minus, ``[H, q_len, head_dim_v]``.
      output_budgets: of the same two points.
      d_out: ``[H, q_len, head_dim_v]``.
      gradient: exact gradient at the midpoint, of the shape of the input that is moved.
      gradient_budget: its budget.
      displacement: plus less minus, of that shape.
    """
    curvature = ((outputs[0] - outputs[1]) * d_out).sum() - (gradient * displacement).sum()
    rounding = ((output_budgets[0] + output_budgets[1]) * np.abs(d_out)).sum()
    rounding += (gradient_budget * np.abs(displacement)).sum()
    return float(abs(curvature) + rounding)
