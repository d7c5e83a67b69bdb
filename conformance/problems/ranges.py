"""How large the numbers inside a right implementation can become, in any order of summation.

What overflows, or not, must not depend on the order in which an implementation adds up, on fused multiply-add or on
the base of its exponent: then it would depend on the machine. So a problem is judged only if every number on the way
to the result stays below the largest float32 in every order. The bounds follow from the arrays alone:

* a partial sum of products, in any order and with products rounded or not, is at most the sum of their magnitudes,
  times ``1 + n u``; `ROOM` covers all roundings;
* logits lie in the sum over the head dimension of the intervals of products, which is exact where every logit is one
  product (`float_edge`);
* a weight is at most ``exp(logit - maximum)``, 1 with the running maximum;
* a probability of the backward pass is ``exp(s - logsumexp)`` of a logit that was computed anew, in another order. It
  is 1 times the exponential of what both orders are apart: twice the error of a logit, and the rounding of logsumexp.
  For logits of 1e34 that is ``exp(1e28)``: their gradients are not defined by any arithmetic of 24 bits;
* output lies between the values, so that ``di = sum o d_out`` has the bound of ``dp = sum d_out v``.

Small numbers: arrays, and products of their elements, are normal numbers or 0. What may become 0 on a machine that
flushes denormals are exponentials and the gradients made from them; budgets count each with
`ArithmeticProfile.smallest`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from conformance.problems.inputs import Inputs
from reference.arithmetic import LOG2_E
from reference.attention import kv_head_of
from reference.error_budget import FLOAT32, MXU_PASSES, ArithmeticProfile, accumulated

LARGEST = float(np.finfo(np.float32).max)
#: Room for all roundings between a bound and the largest number: the sum of 20 000 terms grows by less than 2**-9,
#: products of one bfloat16 pass by less than 2**-6.
ROOM = 1.125
#: The arithmetic whose numbers become largest: powers of two, and products of one bfloat16 pass.
WIDEST = replace(MXU_PASSES[1], name="widest", base2=True)

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Logits:
    """Bounds of the logits of some arrays, natural units, after the soft cap.

    Attributes:
      low, high: of the exact logits.
      products: largest sum of the magnitudes of the products, before the soft cap.
      error: how far a computed logit may be from the exact one.
    """

    low: float
    high: float
    products: float
    error: float

    @property
    def size(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


def logits_of(arrays: Inputs, profile: ArithmeticProfile, soft_cap: float | None) -> Logits:
    """Bounds of the logits, from the extremes of every coordinate."""
    source = kv_head_of(len(arrays.q), len(arrays.k))
    q, k = _extremes(arrays.q), _extremes(arrays.k)[:, source]
    corners = q[:, None] * k[None, :]  # of (least, most), (least, most), head, coordinate
    low = float(corners.min(axis=(0, 1)).sum(axis=1).min())
    high = float(corners.max(axis=(0, 1)).sum(axis=1).max())
    products = float(np.abs(corners).max(axis=(0, 1)).sum(axis=1).max())
    terms = accumulated(arrays.q.shape[2], profile.accumulate_u)
    error = products * float(terms + profile.multiply_u)
    if _is_cap(soft_cap):
        low, high = (soft_cap * math.tanh(edge / soft_cap) for edge in (low, high))
        error = min(error, 2 * soft_cap)
    return Logits(low, high, products, error)


def _extremes(array: Array) -> NDArray[np.float64]:
    """Least and largest value of every coordinate, ``[2, heads, dim]``."""
    return np.stack([array.min(axis=1), array.max(axis=1)]).astype(np.float64)


def forward_sizes(
    arrays: Inputs, profile: ArithmeticProfile = FLOAT32, soft_cap: float | None = None
) -> dict[str, float]:
    """Bounds of the numbers of a forward pass by name; infinite where they are not float64 numbers either."""
    logits = logits_of(arrays, profile, soft_cap)
    base = LOG2_E if profile.base2 else 1.0
    sinks = [] if arrays.sinks is None else [float(x) for x in arrays.sinks if np.isfinite(x)]
    low, high = min([logits.low, *sinks]), max([logits.high, *sinks])
    fixed = profile.constant_maximum
    below = high - low if fixed is None else max(high - fixed, fixed - low)
    weight = 1.0 if fixed is None else _exp(max(0.0, high + logits.error - fixed))
    terms, values = arrays.k.shape[1] + 1, float(np.abs(arrays.v).max(initial=0.0))
    return {
        "sums of q k": logits.products,
        "logits over the soft cap": logits.products / (soft_cap if _is_cap(soft_cap) else 1.0),
        "logits": base * max([logits.size, *map(abs, sinks)]),
        "logits less the maximum": base * (below + 2 * logits.error),
        "sums of weights": terms * weight,
        "sums of weights and values": terms * weight * values,
    }


def backward_sizes(
    arrays: Inputs,
    cotangent: float,
    profile: ArithmeticProfile = FLOAT32,
    soft_cap: float | None = None,
    d_logsumexp: float = 1.0,
) -> dict[str, float]:
    """Bounds of the numbers of a backward pass by name.

    Args:
      arrays: of the forward pass.
      cotangent: largest magnitude of the gradient with respect to the output.
      profile: declared arithmetic.
      soft_cap: or None.
      d_logsumexp: largest magnitude of a gradient with respect to logsumexp.
    """
    logits = logits_of(arrays, profile, soft_cap)
    keys, rows = arrays.k.shape[1], arrays.q.shape[1] * len(arrays.q) // len(arrays.k)
    u = profile.accumulate_u
    logsumexp = logits.size + math.log(keys + 1)
    apart = 2 * logits.error + 8 * u * logsumexp + float(accumulated(keys + 1, u))
    p = _exp(apart)
    dp = cotangent * float(np.abs(arrays.v).max(axis=1).astype(np.float64).sum(axis=1).max())
    ds = p * (2 * dp + d_logsumexp)
    q, k = (float(np.abs(array).max()) for array in (arrays.q, arrays.k))
    return {
        "probabilities": p,
        "sums of d_out v": dp,
        "logit gradients": ds,
        "sums of dq": keys * ds * k,
        "sums of dk": rows * ds * q,
        "sums of dv": rows * p * cotangent,
        "sums of dsinks": rows * ds,
    }


def overflowing(sizes: dict[str, float]) -> str | None:
    """The first number that some order of summation could make infinite; None if there is none."""
    return next((name for name, size in sizes.items() if not size * ROOM < LARGEST), None)


def underflowing(*factors: NDArray[Any]) -> bool:
    """Whether a product of one element of each array is a denormal: not 0, and below the smallest normal number."""
    least = 1.0
    for array in factors:
        size = np.abs(array[array != 0]).astype(np.float64)
        if not len(size):
            return False
        least *= float(size.min())
        if size.min() < FLOAT32.smallest:
            return True
    return least < FLOAT32.smallest


def _is_cap(soft_cap: float | None) -> TypeGuard[float]:
    """Whether there is a cap, and one that implementations must not refuse."""
    return soft_cap is not None and 0 < soft_cap < math.inf


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf
