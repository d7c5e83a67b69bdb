"""Exact results, and how far off an element of an implementation's result may be.

Exact results and budgets are kept for a while, by problem: checks that look at the same problem, in other block sizes
or with other options of the implementation, share them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.contract.fence import Subject
from conformance.contract.protocol import Arithmetic, Forward
from conformance.problems.arrays import Cotangent, d_logsumexp, d_out, inputs, visible
from conformance.problems.inputs import Inputs
from conformance.problems.problem import BlockSizes, Problem
from reference.attention import AttentionResult, Float, attend
from reference.error_budget import ArithmeticProfile, ForwardBudget, forward_budget
from reference.error_budget_backward import GradientBudget, gradient_budget
from reference.gradients import Gradients as ExactGradients
from reference.gradients import gradients
from reference.mask_info import Shards


@dataclass(frozen=True)
class Exact:
    """Exact results of a forward call, and their budgets; shapes as in `AttentionResult`."""

    output: Float
    logsumexp: Float
    max_logits: Float
    budget: ForwardBudget


@dataclass(frozen=True)
class ExactBackward:
    """Exact gradients and their budgets."""

    gradients: ExactGradients
    budget: GradientBudget


def core(problem: Problem) -> Problem:
    """The part of a problem that determines the exact result."""
    return problem.but(
        blocks=BlockSizes(1, 1), shards=Shards(), ring=1, dynamic=False, shrink=True, layout=None,
        options=(),
    )  # fmt: skip


def rescales(problem: Problem) -> int:
    """Blocks that a row or a column is computed in, in any direction, plus steps of the ring."""
    blocks = problem.blocks
    keys = (
        blocks.kv_compute or blocks.kv,
        blocks.kv_dkv_compute or blocks.of("dkv")[1],
        blocks.of("dq")[1],
    )
    rows = blocks.of("dkv")[0]
    most = max(*(problem.kv_len // size for size in keys), problem.q_len // rows)
    return most + (problem.ring if problem.ring > 1 else 0)


def arithmetic_of(subject: Subject, problem: Problem) -> Arithmetic:
    """What an implementation declares for the options of a problem, or for its type of arrays."""
    prepared = subject.prepare(problem)
    if hasattr(prepared, "arithmetic"):
        made: Arithmetic = subject.call("arithmetic", prepared.arithmetic)
        return made
    return subject.description.arithmetic[problem.dtype]


@lru_cache(maxsize=6)
def dense_result(problem: Problem) -> AttentionResult:
    """`attend` of the arrays of a problem, which must be a `core`."""
    made = inputs(problem)
    return attend(
        made.q, made.k, made.v, visible(problem), soft_cap=problem.soft_cap, sinks=made.sinks
    )


def budget_of_forward(
    problem: Problem,
    made: Inputs,
    result: AttentionResult,
    profile: ArithmeticProfile,
    steps: int,
) -> ForwardBudget:
    """Budgets of a forward call with some arrays, in the arithmetic of a profile.

    Args:
      problem: whose soft cap.
      made: the arrays.
      result: their exact result.
      profile: of the implementation.
      steps: see `rescales`.
    """
    return forward_budget(
        wide(made.q), wide(made.k), wide(made.v), result, profile,
        soft_cap=problem.soft_cap, sinks=wide_or_none(made.sinks), rescales=steps,
    )  # fmt: skip


def backward_of(
    problem: Problem,
    made: Inputs,
    result: AttentionResult,
    cotangents: tuple[NDArray[Any], NDArray[Any] | None],
    profile: ArithmeticProfile,
    steps: int,
) -> ExactBackward:
    """Exact gradients of a call with some arrays, and their budgets; arguments as in `budget_of_forward`.

    Args:
      cotangents: gradients with respect to output and logsumexp; the latter None if the loss does not depend on it.
    """
    arrays, sinks = (wide(made.q), wide(made.k), wide(made.v)), wide_or_none(made.sinks)
    cotangent, d_lse = wide(cotangents[0]), wide_or_none(cotangents[1])
    exact = gradients(
        *arrays, result.visible, cotangent,
        soft_cap=problem.soft_cap, sinks=sinks, d_logsumexp=d_lse, result=result,
    )  # fmt: skip
    budget = gradient_budget(
        *arrays, cotangent, result, exact, profile,
        soft_cap=problem.soft_cap, sinks=sinks, rescales=steps, d_logsumexp=d_lse,
    )  # fmt: skip
    return ExactBackward(exact, budget)


@lru_cache(maxsize=96)
def _exact_forward(problem: Problem, profile: ArithmeticProfile, steps: int) -> Exact:
    result = dense_result(problem)
    budget = budget_of_forward(problem, inputs(problem), result, profile, steps)
    return Exact(result.output, result.logsumexp, result.max_logits, budget)


@lru_cache(maxsize=96)
def _exact_backward(
    problem: Problem, profile: ArithmeticProfile, steps: int, kind: Cotangent, with_lse: bool
) -> ExactBackward:
    cotangents = d_out(problem, kind), d_logsumexp(problem) if with_lse else None
    return backward_of(problem, inputs(problem), dense_result(problem), cotangents, profile, steps)


def wide(array: NDArray[Any]) -> Float:
    """The array in float64."""
    return array.astype(np.float64)


def wide_or_none(array: NDArray[Any] | None) -> Float | None:
    """The array in float64, if there is one."""
    return None if array is None else wide(array)


def exact_forward(subject: Subject, problem: Problem) -> Exact:
    """Exact forward results of a problem, with the budgets of the implementation's arithmetic."""
    profile = arithmetic_of(subject, problem).forward
    return _exact_forward(core(problem), profile, rescales(problem))


def exact_backward(
    subject: Subject, problem: Problem, kind: Cotangent = "quiet", with_lse: bool = False
) -> ExactBackward:
    """Exact gradients of a problem, with the budgets of the implementation's arithmetic."""
    profile = arithmetic_of(subject, problem).backward
    return _exact_backward(core(problem), profile, rescales(problem), kind, with_lse)


def combined_parts(parts: list[Forward], exacts: list[Exact], whole: Exact) -> tuple[Float, Float]:
    """Two or more calls over disjoint keys, joined through their residuals, and the budget of that (RES-7).

    With ``lse = log sum_b exp(lse_b)`` of the residuals as returned, the weights ``exp(lse_b - lse)`` sum to 1.
    Each is off, relatively, by at most the errors of two logsumexp, and acts on the distance of its part from
    the whole.

    Args:
      parts: what the implementation returned for each set of keys.
      exacts: exact results and budgets of the parts.
      whole: of all keys together.

    Returns:
      The joint output and its budget, ``[H, q_len, head_dim_v]``.
    """
    returned = np.stack([wide(np.asarray(part.logsumexp)) for part in parts])
    with np.errstate(invalid="ignore"):  # rows that see nothing in any part
        weights = np.exp(returned - np.logaddexp.reduce(returned, axis=0))[..., None]
    output = sum(w * wide(part.output) for w, part in zip(weights, parts, strict=True))
    wrong = np.expm1(2 * np.max([exact.budget.logsumexp for exact in exacts], axis=0))[..., None]
    budget = np.zeros_like(whole.output)
    for exact in exacts:
        lse = np.where(whole.logsumexp == -np.inf, 0.0, whole.logsumexp)
        weight = np.exp(exact.logsumexp - lse)[..., None]
        distance = np.abs(exact.output - whole.output)
        budget += weight * ((1 + wrong) * exact.budget.output + wrong * distance)
    return np.asarray(output), budget


def shift_equivalent(subject: Subject, problem: Problem) -> Exact:
    """Budget of a regime whose logits are all equal, exact products: that of logits 0 (FWD-24).

    Equal logits have equal roundings, and ``s - max`` is exactly 0 whatever ``s`` is.
    """
    return exact_forward(subject, replace(problem, regime="level"))
