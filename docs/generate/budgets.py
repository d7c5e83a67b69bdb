"""Errors of small kernels in float32, beside their budgets and a fixed tolerance: the table of the page on numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from conformance.problems.regimes import REGIMES, Shapes
from reference.arithmetic import to_bfloat16
from reference.attention import attend
from reference.error_budget import BFLOAT16_STORED, FLOAT32, error_ratio, forward_budget

Float32 = NDArray[np.float32]

ROWS, KEYS, HEAD_DIM, BLOCK = 16, 2048, 64, 128
#: What a test of a kernel might compare with.
TOLERANCE = 1e-3


def online(
    q: Float32, k: Float32, v: Float32, store: Callable[[Float32], Float32] = np.asarray
) -> Float32:
    """Attention of one head, block by block in float32.

    Args:
      q, k, v: float32 ``[rows, head_dim]`` and ``[keys, head_dim]``, a multiple of the block.
      store: what is done to the running sums between blocks.
    """
    top = np.full((len(q), 1), -np.inf, np.float32)
    total, sums = np.zeros_like(top), np.zeros((len(q), v.shape[1]), np.float32)
    for start in range(0, len(k), BLOCK):
        logits = q @ k[start : start + BLOCK].T
        new = np.maximum(top, logits.max(axis=1, keepdims=True))
        weights, old = np.exp(logits - new), np.exp(top - new)
        total = store(total * old + weights.sum(axis=1, keepdims=True))
        sums, top = store(sums * old + weights @ v[start : start + BLOCK]), new
    return np.asarray(sums / total, np.float32)


def rounded_to_bfloat16(array: Float32) -> Float32:
    """An array as bfloat16 stores it."""
    return np.asarray(to_bfloat16(array), np.float32)


def lacks_a_key(q: Float32, k: Float32, v: Float32) -> Float32:
    """Attention that leaves out the last key."""
    weights = np.exp(q @ k[:-1].T)
    return np.asarray(weights @ v[:-1] / weights.sum(axis=1, keepdims=True), np.float32)


def inputs(regime: str) -> tuple[Float32, Float32, Float32]:
    """q, k and v of one head, as a regime makes them."""
    shapes = Shapes(0, (1, ROWS, HEAD_DIM), (1, KEYS, HEAD_DIM), (1, KEYS, HEAD_DIM))
    q, k, v = (array[0].astype(np.float32) for array in REGIMES[regime].make(shapes))
    return q, k, v


def table() -> str:
    """Right and wrong kernels on two kinds of input."""
    flat, (q, k, v) = inputs("flat"), inputs("signed")
    low = rounded_to_bfloat16(q), rounded_to_bfloat16(k), rounded_to_bfloat16(v)
    rows = (
        ("right", FLOAT32, flat, online(*flat)),
        (f"leaves out one key of {KEYS}", FLOAT32, flat, lacks_a_key(*flat)),
        ("keeps its running sums in bfloat16", FLOAT32, flat, online(*flat, rounded_to_bfloat16)),
        ("right, returns bfloat16", BFLOAT16_STORED, low, rounded_to_bfloat16(online(*low))),
    )
    out = [
        f"| kernel | largest error | fixed tolerance of {TOLERANCE:g} | error ÷ budget | verdict |",
        "|-|-|-|-|-|",
    ]
    for what, profile, (q, k, v), found in rows:
        exact = attend(q[None], k[None], v[None], np.ones((1, ROWS, KEYS), np.bool_))
        budget = forward_budget(q[None], k[None], v[None], exact, profile)
        error = float(np.abs(found - exact.output[0]).max())
        ratio = float(error_ratio(found[None], exact.output, budget.output).max())
        passed = "passes" if error <= TOLERANCE else "fails"
        verdict = "within its budget" if ratio <= 1 else "**wrong**"
        out.append(f"| {what} | {error:.1e} | {passed} | {ratio:.3g} | {verdict} |")
    return "\n".join(out)
