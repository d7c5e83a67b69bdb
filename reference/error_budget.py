"""Error budgets: how far each element of a correct implementation may be from the float64 result (NUM clauses).

Nothing here is tuned. Every term is a count of roundings times the unit roundoff of the declared
arithmetic, times a magnitude of the problem at hand. Sources:

* [H] Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002: the model of
  rounding (2.4), sums and inner products (3.1 to 3.5, 4.2).
* [BHH] Blanchard, Higham, Higham, Accurately computing the log-sum-exp and softmax functions, IMA
  J. Numer. Anal. 41 (2021): errors of the shifted exponentials, of their sum and of its logarithm.
* [IZ] Ipsen, Zhou, Probabilistic error analysis for inner products, SIAM J. Matrix Anal. Appl. 41
  (2020): n roundings that are independent with mean zero cost sqrt(n), not n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from reference.attention import AttentionResult, Float, kv_head_of
from reference.gradients import soft_cap_slope
from spec import defines

#: Unit roundoffs, 2**-precision [H, 2.1].
U_BFLOAT16, U_FLOAT32, U_FLOAT64 = 2.0**-8, 2.0**-24, 2.0**-53

#: Probability that one inner product exceeds its [IZ] bound; too small to occur in any test run.
FAILURE_PROBABILITY = 1e-12

#: Cap for exponents of errors: exp(89) overflows float32, exp(300)**2 does not overflow float64.
_CLIP = 300.0


def mxu_multiply_u(passes: int) -> float:
    """Relative error of one product of float32 numbers that are multiplied as bfloat16 pieces.

    One pass rounds both operands (2u + u^2). Three passes keep two pieces of each (residue u^2 on
    either side) and drop the product of the two small ones (another u^2). Six passes keep three
    pieces, which hold a float32 exactly, and drop products of the size u^3.

    Raises:
      ValueError: ``passes`` is not 1, 3 or 6.
    """
    u = U_BFLOAT16
    try:
        return {1: 2 * u + u**2, 3: 3 * u**2 + 3 * u**3, 6: 3 * u**3 + U_FLOAT32}[passes]
    except KeyError:
        raise ValueError(f"passes must be 1, 3 or 6, got {passes}") from None


@defines("NUM-5")
@dataclass(frozen=True)
class ArithmeticProfile:
    """The arithmetic that an implementation declares; tolerances cannot be declared.

    Attributes:
      name: for reports.
      multiply_u: relative error of one product inside a matrix multiplication.
      accumulate_u: unit roundoff of sums and of all elementwise work.
      probability_u: unit roundoff in which probabilities, and the logit gradients made from them,
        are stored for the matrix multiplication that reads them.
      output_u: unit roundoff of output, dq, dk and dv as returned.
      partial_u: unit roundoff of partial gradients that are stored and added up later.
      exp_ulps, log_ulps, tanh_ulps: error of the functions, in units in the last place.
      base2: logits are multiplied by log2(e) and powers of two are taken.
      constant_maximum: number subtracted from every logit in place of the running maximum; None for
        the running maximum.
      smallest: smallest normal number; anything below it may become 0.
    """

    name: str
    multiply_u: float = U_FLOAT32
    accumulate_u: float = U_FLOAT32
    probability_u: float = U_FLOAT32
    output_u: float = U_FLOAT32
    partial_u: float = U_FLOAT32
    exp_ulps: float = 2.0
    log_ulps: float = 2.0
    tanh_ulps: float = 4.0
    base2: bool = False
    constant_maximum: float | None = None
    smallest: float = 2.0**-126


FLOAT64 = ArithmeticProfile(
    "float64", U_FLOAT64, U_FLOAT64, U_FLOAT64, U_FLOAT64, U_FLOAT64, smallest=2.0**-1022
)
FLOAT32 = ArithmeticProfile("float32")
#: bfloat16 arrays, float32 sums, probabilities kept in float32.
BFLOAT16 = ArithmeticProfile("bfloat16", output_u=U_BFLOAT16)
#: The same with probabilities and logit gradients rounded to bfloat16 before they are multiplied.
BFLOAT16_STORED = ArithmeticProfile(
    "bfloat16, probabilities stored", probability_u=U_BFLOAT16, output_u=U_BFLOAT16
)
#: float32 arrays on a matrix unit that multiplies bfloat16, by number of passes.
MXU_PASSES = {
    passes: ArithmeticProfile(f"float32, {passes} bfloat16 passes", mxu_multiply_u(passes))
    for passes in (1, 3, 6)
}


@defines("NUM-2", "NUM-6")
def accumulated(terms: ArrayLike, u: float) -> Float:
    """Relative error of a sum of that many terms, relative to the sum of magnitudes.

    The smaller of ``n u`` [H, 4.2] and ``sqrt(2 n ln(2 / failure probability)) u`` [IZ, thm 4.8
    in leading order], with the second-order correction ``x / (1 - x)`` [H, 3.4].
    """
    spread = math.sqrt(2.0 * math.log(2.0 / FAILURE_PROBABILITY))
    count = np.asarray(terms, dtype=np.float64)
    first = np.minimum(count, spread * np.sqrt(count)) * u
    return np.asarray(first / np.maximum(1.0 - first, 0.5))


@dataclass(frozen=True)
class LogitError:
    """Absolute error of every logit and what follows from it.

    Attributes:
      capped: bound of the error of the capped logits, ``[H, q_len, kv_len]``.
      slope: bound of the error of the soft cap's derivative, same shape; 0 without a cap.
    """

    capped: Float
    slope: Float


@defines("NUM-7", "NUM-8")
def logit_error(
    q: Float, k: Float, result: AttentionResult, profile: ArithmeticProfile, soft_cap: float | None
) -> LogitError:
    """Error of ``q k^T``: (c(d) u_acc + u_mul) sum |q||k| (and underflow); then through the cap.

    The cap contracts by its largest derivative within reach of the error, and adds the rounding of
    the quotient, of tanh and of the product.
    """
    source = kv_head_of(len(q), len(k))
    magnitude = np.abs(q) @ np.abs(k[source]).swapaxes(1, 2)
    u = profile.accumulate_u
    relative = accumulated(q.shape[2], u) + profile.multiply_u
    if profile.base2:
        relative = relative + 3 * u  # log2(e) itself, the product with it, and the way back
    raw = magnitude * relative + np.where(magnitude > 0, q.shape[2] * profile.smallest, 0.0)
    if soft_cap is None:
        return LogitError(raw, np.zeros_like(raw))
    nearest = np.maximum(np.abs(result.raw_logits) - raw, 0.0)
    steepest = soft_cap_slope(nearest, soft_cap)
    size = np.abs(result.logits)
    argument = raw + u * np.abs(result.raw_logits)
    functions = (2 * profile.tanh_ulps + 2) * u
    capped = np.minimum(argument * steepest, 2 * soft_cap) + functions * size
    # d(1 - t^2) = -2 t dt, and two roundings of a number of at most 1.
    tanh_error = capped / soft_cap
    slope = 2 * size / soft_cap * tanh_error + tanh_error**2 + 2 * u
    return LogitError(capped, slope)


@dataclass(frozen=True)
class ForwardBudget:
    """Largest absolute error of a correct implementation, shapes as in `AttentionResult`."""

    output: Float
    logsumexp: Float
    max_logits: Float


def exponent_error(
    result: AttentionResult,
    error: LogitError,
    profile: ArithmeticProfile,
    sink: Float,
    rescales: int,
) -> Float:
    """Logarithmic error of ``exp(s - m)`` as it stands in the final sums, ``[H, q_len, kv_len+1]``.

    The logit's own error; the rounding of ``s - m``, which telescopes over the rescalings because
    the running maximum only grows [BHH, 4]; the function itself, once and once a rescaling. The
    last column is the sink.
    """
    u = profile.accumulate_u
    shift = shift_of(result, sink, profile)[:, :, None]
    column = np.where(sink == -np.inf, 0.0, sink)[:, :, None]
    logits = np.concatenate([result.logits, column], axis=2)
    own = np.concatenate([error.capped, 4 * u * np.abs(column)], axis=2)
    functions = (1 + rescales) * 2 * profile.exp_ulps * u
    return np.asarray(own + u * np.abs(logits - shift) + functions)


def log_weights(result: AttentionResult, sink: Float) -> Float:
    """Logarithms of the probabilities, with the sink as last column; -inf where there is none.

    Unlike the probabilities they do not underflow: an error of a large logit can bring a key back
    whose exact probability is 0 in float64.
    """
    shown = np.where(result.visible, result.logits, -np.inf)
    every = np.concatenate([shown, sink[:, :, None]], axis=2)
    lse = np.where(result.logsumexp == -np.inf, 0.0, result.logsumexp)
    return np.asarray(every - lse[:, :, None])


def weight_change(log_weight: Float, change: Float) -> Float:
    """Largest change of ``exp(log_weight)`` if its logarithm changes by ``change``."""
    small = np.exp(log_weight) * np.expm1(np.minimum(change, 1.0))
    large = np.exp(np.minimum(log_weight + change, _CLIP))
    return np.where(change > 1.0, large, small)


def _log_mean(log_weight: Float, change: Float) -> Float:
    """``log sum exp(log_weight + change)`` over the last axis; 0 for an empty row."""
    moved = log_weight + change
    largest = moved.max(axis=2, keepdims=True)
    largest = np.where(largest == -np.inf, 0.0, largest)
    total = np.exp(moved - largest).sum(axis=2)
    return np.where(total > 0, largest[:, :, 0] + np.log(np.where(total > 0, total, 1.0)), 0.0)


def shift_of(result: AttentionResult, sink: Float, profile: ArithmeticProfile) -> Float:
    """The number that is finally subtracted before exponentials, ``[H, q_len]``; 0 for an empty row."""
    largest = np.maximum(result.max_logits, sink)
    if profile.constant_maximum is not None:
        largest = np.full_like(largest, profile.constant_maximum)
    return np.where(largest == -np.inf, 0.0, largest)


def sink_logits(sinks: Float | None, result: AttentionResult) -> Float:
    """The sink of every row, ``[H, q_len]``; -inf without one."""
    column = np.full(result.output.shape[0], -np.inf) if sinks is None else np.asarray(sinks)
    return np.broadcast_to(column.astype(np.float64)[:, None], result.logsumexp.shape)


@defines("NUM-3", "NUM-9", "NUM-10", "FWD-26")
def forward_budget(
    q: Float,
    k: Float,
    v: Float,
    result: AttentionResult,
    profile: ArithmeticProfile,
    *,
    soft_cap: float | None = None,
    sinks: Float | None = None,
    rescales: int = 1,
) -> ForwardBudget:
    """Budgets of output, logsumexp and max_logits.

    Args:
      q, k, v: as given to `attend`, already rounded to the input type.
      result: what `attend` returned for them.
      profile: declared arithmetic.
      soft_cap, sinks: as given to `attend`.
      rescales: number of kv blocks in which a row is computed, plus ring steps.
    """
    q, k, v = (np.asarray(array, dtype=np.float64) for array in (q, k, v))
    sink = sink_logits(sinks, result)
    error = logit_error(q, k, result, profile, soft_cap)
    change = exponent_error(result, error, profile, sink, rescales)
    log_weight = log_weights(result, sink)
    u = profile.accumulate_u
    terms = (log_weight > -np.inf).sum(axis=2)
    summed = accumulated(terms, u) + accumulated(rescales, u)
    shift = shift_of(result, sink, profile)
    empty = terms == 0
    lse = np.where(empty, 0.0, result.logsumexp)
    # Numbers below the smallest normal one may vanish, one per term, relative to the denominator.
    flushed = terms * profile.smallest * np.exp(np.minimum(shift - lse, _CLIP))

    log_shrunk = _log_mean(log_weight, -change)
    logsumexp = (
        np.maximum(_log_mean(log_weight, change), -log_shrunk) + summed + flushed
        + 2 * profile.log_ulps * u * np.abs(lse - shift)
        + u * (np.abs(lse) + np.abs(shift)) * (4 if profile.base2 else 1)
    )  # fmt: skip

    values, size = v[kv_head_of(len(q), len(k))], np.abs(result.output)
    values = np.concatenate([values, np.zeros_like(values[:, :1])], axis=1)  # the sink has none
    shrunk = np.exp(np.maximum(log_shrunk, -_CLIP))[:, :, None]
    wrong, top = weight_change(log_weight, change), np.abs(values).max(axis=1, keepdims=True)
    carried = np.minimum((np.exp(log_weight) + wrong) @ np.abs(values) / shrunk, top)
    output = _weight_error(result.output, log_weight, wrong, values, shrunk)
    size = size + output
    output = output + (profile.probability_u + profile.multiply_u + summed)[:, :, None] * carried
    output += (summed + 2 * u)[:, :, None] * size
    output += flushed[:, :, None] * (top + size) + terms[:, :, None] * profile.smallest
    output += profile.output_u * (np.abs(result.output) + output)
    return ForwardBudget(
        output=np.where(empty[:, :, None], 0.0, output),
        logsumexp=np.where(empty, 0.0, logsumexp),
        max_logits=_maximum_error(result, error, profile),
    )


def _weight_error(
    output: Float, log_weight: Float, wrong: Float, values: Float, shrunk: Float
) -> Float:
    """Effect on the output of weights that are off by ``wrong``, in absolute value.

    The output is a mean, so that an error of a weight acts through ``|v_j - o|``: a wrong weight
    between equal values does nothing. By Cauchy and Schwarz the sum over j of
    ``p_j eta_j |v_j - o|`` is at most ``sqrt(sum p eta^2) sqrt(sum p (v - o)^2)``, which needs no
    array of size q_len * kv_len * head_dim_v. No mean leaves the range of its values.

    Args:
      output: ``[H, q_len, head_dim_v]``.
      log_weight, wrong: from `log_weights` and `weight_change`.
      values: ``[H, kv_len+1, head_dim_v]``.
      shrunk: smallest possible sum of the weights, ``[H, q_len, 1]``.
    """
    p = np.exp(log_weight)
    second = p @ values**2
    variance = second + output**2 * p.sum(axis=2, keepdims=True) - 2 * output * (p @ values)
    variance = np.maximum(variance, 0.0) + 8 * U_FLOAT64 * second  # its own rounding
    moderate = (wrong <= 2 * p).all(axis=2, keepdims=True)
    relative = np.where(moderate & (p > 0), wrong / np.where(p > 0, p, 1.0), 0.0)
    spread = np.sqrt((p * relative**2).sum(axis=2, keepdims=True)) * np.sqrt(variance)
    plain = wrong @ np.abs(values) + np.abs(output) * wrong.sum(axis=2, keepdims=True)
    effect = np.where(moderate, np.minimum(spread, plain), plain) / shrunk
    lowest, highest = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    return np.asarray(np.minimum(effect, highest - lowest))


def _maximum_error(result: AttentionResult, error: LogitError, profile: ArithmeticProfile) -> Float:
    """The largest error among the keys that could be taken for the maximum."""
    low = np.where(result.visible, result.logits - error.capped, -np.inf).max(axis=2)
    candidate = result.visible & (result.logits + error.capped >= low[:, :, None])
    worst = np.where(candidate, error.capped, 0.0).max(axis=2)
    largest = np.where(result.max_logits == -np.inf, 0.0, np.abs(result.max_logits))
    return np.asarray(worst + profile.accumulate_u * largest * (4 if profile.base2 else 1))


@defines("NUM-1")
def error_ratio(actual: ArrayLike, expected: Float, budget: Float) -> Float:
    """Error divided by budget for every element; at most 1 conforms.

    Non-finite numbers come first: where either side is not finite both must be the same infinity,
    or both NaN. The ratio is 0 where they agree and infinite where they do not. A budget of 0 asks
    for the exact value.

    Args:
      actual: from an implementation, any floating type.
      expected, budget: of the same shape.

    Raises:
      ValueError: shapes differ.
    """
    found = np.asarray(actual, dtype=np.float64)
    if not found.shape == expected.shape == budget.shape:
        raise ValueError(
            f"actual, expected and budget must have one shape, got {found.shape}, "
            f"{expected.shape}, {budget.shape}"
        )
    special = ~np.isfinite(found) | ~np.isfinite(expected)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    error = np.abs(np.where(special, 0.0, found) - np.where(special, 0.0, expected))
    ratio = np.divide(error, budget, out=np.where(error > 0, np.inf, 0.0), where=budget > 0)
    return np.where(special, np.where(same, 0.0, np.inf), ratio)


@defines("NUM-12")
def accuracy_ratio(actual: ArrayLike, baseline: ArrayLike, expected: Float) -> float:
    """Root mean square error of an implementation over that of a baseline of equal arithmetic.

    Only elements that are finite on all sides count. Infinite if only the baseline is exact.

    Args:
      actual: from an implementation.
      baseline: from `reference.online` with the implementation's profile.
      expected: float64 result.
    """
    found, base = (np.asarray(a, dtype=np.float64) for a in (actual, baseline))
    usable = np.isfinite(found) & np.isfinite(base) & np.isfinite(expected)
    mine, theirs = (
        math.sqrt(float(np.square(a[usable] - expected[usable]).sum())) for a in (found, base)
    )
    return mine / theirs if theirs > 0 else (math.inf if mine > 0 else 1.0)
