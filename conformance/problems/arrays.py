"""The arrays of a problem, and which of their pairs are visible."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from conformance.problems.inputs import Inputs
from conformance.problems.problem import Problem
from conformance.problems.ranges import (
    backward_sizes,
    forward_sizes,
    overflowing,
    underflowing,
)
from conformance.problems.regimes import (
    REGIMES,
    SIMPLE,
    Float32,
    Float64,
    Shapes,
    bell,
    few,
    hashed,
    signs,
)
from reference.arithmetic import to_bfloat16
from reference.attention import visible_pairs
from reference.error_budget import FLOAT32, ArithmeticProfile
from reference.masks import Bool

#: Gradients of the loss with respect to the output:
#: ``quiet`` is 0 in rows that see nothing, ``loud`` is large there, ``zero`` is 0 everywhere, ``early`` is 0 but in the
#: first quarter of the rows (one device of a ring), and ``combined`` is ``2 first - second``, exactly.
Cotangent = Literal["quiet", "loud", "zero", "early", "first", "second", "combined"]

#: What ``loud`` multiplies cotangents by.
LOUD = 2.0**20
#: The largest magnitude of `bell`, in rows that ``loud`` multiplies.
LARGEST_COTANGENT = 4 * LOUD


def rounded(array: Float64, dtype: str) -> Float32:
    """Rounds to the type of a problem; the result is float32."""
    return to_bfloat16(array) if dtype == "bfloat16" else array.astype(np.float32)


def expanded(runs: tuple[tuple[int, int], ...]) -> NDArray[np.int32]:
    """Segment ids of every token, from (id, length) runs."""
    return np.repeat([i for i, _ in runs], [n for _, n in runs]).astype(np.int32)


@lru_cache(maxsize=64)
def inputs(problem: Problem) -> Inputs:
    """Returns the arrays of a problem; callers must not change them.

    Raises:
      ValueError: the regime is unknown, or its numbers are none that every float32 arithmetic can work with.
    """
    if problem.regime not in REGIMES:
        raise ValueError(f"regime {problem.regime!r} is unknown, expected one of {sorted(REGIMES)}")
    shapes = Shapes(
        problem.seed,
        (problem.heads, problem.q_len, problem.head_dim),
        (problem.kv_heads, problem.kv_len, problem.head_dim),
        (problem.kv_heads, problem.kv_len, problem.head_dim_v),
    )
    q, k, v = (rounded(x, problem.dtype) for x in REGIMES[problem.regime].make(shapes))
    segments = problem.segments
    made = Inputs(
        q,
        k,
        v,
        None if segments is None else (expanded(segments[0]), expanded(segments[1])),
        None if problem.sinks is None else np.array(problem.sinks, dtype=np.float32),
    )
    if underflowing(q, k) or underflowing(v):
        raise ValueError(f"regime {problem.regime!r} has products that may be flushed to 0")
    too_large = overflowing(forward_sizes(made, FLOAT32, problem.soft_cap))
    if too_large is not None:
        raise ValueError(f"regime {problem.regime!r} can overflow float32: {too_large}")
    for array in (q, k, v):
        array.flags.writeable = False
    return made


def overflows(problem: Problem, forward: ArithmeticProfile) -> bool:
    """Whether a correct forward pass in the given arithmetic may overflow, in some order of summation."""
    sizes = forward_sizes(inputs(problem), forward, problem.soft_cap)
    return overflowing(sizes) is not None


def overflows_backward(problem: Problem, backward: ArithmeticProfile = FLOAT32) -> bool:
    """Whether a correct backward pass in the given arithmetic may overflow, for some kind of cotangent."""
    sizes = backward_sizes(inputs(problem), LARGEST_COTANGENT, backward, problem.soft_cap)
    return overflowing(sizes) is not None


@lru_cache(maxsize=64)
def visible(problem: Problem) -> Bool:
    """Mask AND segment ids, bool ``[H, q_len, kv_len]``."""
    masks = {mask: mask.dense() for mask in set(problem.head_masks)}
    dense = np.stack([masks[mask] for mask in problem.head_masks])
    shape = (problem.heads, problem.q_len, problem.kv_len)
    segments = problem.segments
    ids = None if segments is None else (expanded(segments[0]), expanded(segments[1]))
    return visible_pairs(dense, ids, shape)


def seeing_rows(problem: Problem) -> Bool:
    """Rows that see a key, bool ``[H, q_len]``."""
    return np.asarray(visible(problem).any(axis=2))


@lru_cache(maxsize=64)
def d_out(problem: Problem, kind: Cotangent = "quiet") -> Float32:
    """The gradient with respect to the output, float32 ``[H, q_len, head_dim_v]``, exact in the problem's type.

    ``first``, ``second`` and ``combined`` are multiples of 1/4 below 3, so that ``combined`` is exact.
    """
    shape = (problem.heads, problem.q_len, problem.head_dim_v)
    if kind == "combined":
        return 2 * d_out(problem, "first") - d_out(problem, "second")
    if kind in ("first", "second"):
        small = (hashed(problem.seed, kind, shape) % np.uint64(7)).astype(np.float64)
        made = (small - 3.0) / 4
    elif problem.regime in ("zeros", "counting"):
        made = np.ones(shape)
    elif problem.regime == "few":
        made = few(4, shape)
    elif problem.regime == "flat":
        made = signs(problem.seed, "d_out", shape)
    else:
        made = bell(problem.seed, "d_out", shape)
    unseeing = ~seeing_rows(problem)
    if kind == "loud":
        made[unseeing] *= LOUD
    else:
        made[unseeing] = 0.0
    if kind == "zero":
        made[:] = 0.0
    if kind == "early":
        made[:, problem.q_len // 4 :] = 0.0
    return rounded(made, problem.dtype)


def d_logsumexp(problem: Problem) -> Float32:
    """A gradient with respect to logsumexp, float32 ``[H, q_len]``; 0 in rows that see nothing."""
    if problem.regime in SIMPLE:
        return seeing_rows(problem).astype(np.float32)
    return np.ascontiguousarray(d_out(problem, "first")[:, :, 0])
