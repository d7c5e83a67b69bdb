"""Comparison with the exact result: non-finite values first, then the budget of every element.

Exact results and budgets are kept for a while, by problem: checks that look at the same problem, in other block sizes
or with other options of the implementation, share them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.checks.registry import Violation
from conformance.contract.fence import Subject
from conformance.contract.protocol import Arithmetic, Forward, Gradients
from conformance.findings import budget_use as ratios
from conformance.findings.pictures import Region, region
from conformance.problems.problem import BlockSizes, Problem
from conformance.problems.regimes import Cotangent, d_logsumexp, d_out, inputs, visible
from reference.attention import AttentionResult, Float, attend, kv_head_of
from reference.error_budget import ArithmeticProfile, ForwardBudget, error_ratio, forward_budget
from reference.error_budget_backward import GradientBudget, gradient_budget
from reference.gradients import Gradients as ExactGradients
from reference.gradients import gradients
from reference.mask_info import Shards
from reference.masks import Bool

#: Share of an error that a missing or additional block or key must explain to be named in a report.
EXPLAINED = 0.9


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


@lru_cache(maxsize=96)
def _exact_forward(problem: Problem, profile: ArithmeticProfile, steps: int) -> Exact:
    made, result = inputs(problem), dense_result(problem)
    budget = forward_budget(
        _wide(made.q), _wide(made.k), _wide(made.v), result, profile,
        soft_cap=problem.soft_cap, sinks=_wide_or_none(made.sinks), rescales=steps,
    )  # fmt: skip
    return Exact(result.output, result.logsumexp, result.max_logits, budget)


@lru_cache(maxsize=96)
def _exact_backward(
    problem: Problem, profile: ArithmeticProfile, steps: int, kind: Cotangent, with_lse: bool
) -> ExactBackward:
    made, result, cotangent = inputs(problem), dense_result(problem), _wide(d_out(problem, kind))
    arrays = _wide(made.q), _wide(made.k), _wide(made.v)
    sinks, d_lse = _wide_or_none(made.sinks), _wide(d_logsumexp(problem)) if with_lse else None
    exact = gradients(
        *arrays, visible(problem), cotangent,
        soft_cap=problem.soft_cap, sinks=sinks, d_logsumexp=d_lse, result=result,
    )  # fmt: skip
    budget = gradient_budget(
        *arrays, cotangent, result, exact, profile,
        soft_cap=problem.soft_cap, sinks=sinks, rescales=steps, d_logsumexp=d_lse,
    )  # fmt: skip
    return ExactBackward(exact, budget)


def _wide(array: NDArray[Any]) -> Float:
    return array.astype(np.float64)


def _wide_or_none(array: NDArray[Any] | None) -> Float | None:
    return None if array is None else _wide(array)


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


def _block_size(name: str, problem: Problem) -> tuple[str, int]:
    """Which axis of blocks the second axis of an array is on, and their size in tokens."""
    if name in ("dk", "dv"):
        return "kv block", problem.blocks.of("dkv")[1]
    return "q block", problem.blocks.of("dq" if name == "dq" else "fwd")[0]


def place(name: str, index: tuple[int, ...], problem: Problem) -> str:
    """An element as reports name it: ``output[head 0, row 129 (q block 1), 3]``."""
    head = f"{'kv head' if name in ('dk', 'dv') else 'head'} {index[0]}"
    if len(index) == 1:
        return f"{name}[{head}]"
    block, size = _block_size(name, problem)
    token = "key" if name in ("dk", "dv") else "row"
    rest = "".join(f", {k}" for k in index[2:])
    return f"{name}[{head}, {token} {index[1]} ({block} {index[1] // size}){rest}]"


def compare(
    name: str,
    actual: NDArray[Any],
    expected: Float,
    budget: Float,
    problem: Problem,
    *,
    rows: Bool | None = None,
    note: str = "",
) -> None:
    """Raises `Violation` unless every element is within its budget.

    Args:
      name: ``output``, ``logsumexp``, ``max_logits``, ``dq``, ``dk``, ``dv`` or ``dsinks``.
      actual: from an implementation.
      expected, budget: exact result and largest error, of the same shape.
      problem: for the place in reports.
      rows: bool ``[H, q_len]``, the rows to compare; all if None.
      note: added to the place, e.g. which variant was run.
    """
    if actual.shape != expected.shape:
        raise Violation(f"shape of {name}{note}", expected.shape, actual.shape)
    ratio = error_ratio(actual, expected, budget)
    ratios.note(name, ratio if rows is None else ratio[rows])
    if rows is not None:
        ratio = np.where(rows if ratio.ndim == 2 else rows[:, :, None], ratio, 0.0)
    wrong = ratio > 1
    if not wrong.any():
        return
    special = wrong & ~(np.isfinite(actual) & np.isfinite(expected))
    # Where non-finite values are wrong the first of them says most, otherwise the largest excess.
    where = (
        np.argwhere(special)[0] if special.any() else np.unravel_index(ratio.argmax(), ratio.shape)
    )
    index = tuple(int(k) for k in where)
    found, right, allowed = float(actual[index]), float(expected[index]), float(budget[index])
    excess = f", off by {abs(found - right):.3g}, {ratio[index]:.3g} times the budget"
    raise Violation(
        place(name, index, problem) + note + _explained(name, actual, index, problem),
        f"{right:.9g} within {allowed:.2g}",
        f"{found:.9g}" + ("" if special[index] else excess),
        (int(wrong.sum()), wrong.size),
        differing_region(name, wrong, problem),
    )


def differing_region(name: str, wrong: Bool, problem: Problem) -> Region:
    """Where a numerical result is wrong, with the blocks of its rows."""
    if wrong.ndim < 2:
        return region(name, wrong, ("head",))
    head = "kv head" if name in ("dk", "dv") else "head"
    row = "key" if name in ("dk", "dv") else "row"
    size = _block_size(name, problem)[1]
    if wrong.ndim == 2:  # one value a row: heads against rows
        return region(name, wrong, (head, row), (0, size))
    return region(name, wrong, (head, row, "dimension"), (size, 0))


def _explained(name: str, actual: NDArray[Any], index: tuple[int, ...], problem: Problem) -> str:
    """Which block of keys a wrong row of the output lacks or has too much, if that explains it.

    A row without the visible keys of a block, or with the hidden keys of a block at their own weight, is computed
    for every block and for every key; what leaves the least error, and less than a tenth of it, is named.
    """
    if name != "output" or not np.isfinite(actual[index[:2]]).all():
        return ""
    result, made = dense_result(core(problem)), inputs(core(problem))
    head, row = index[:2]
    found = _wide(actual[head, row])
    values = _wide(made.v[kv_head_of(problem.heads, problem.kv_heads)[head]])
    seen, lse = result.visible[head, row], result.logsumexp[head, row]
    if lse == -np.inf:
        return ""
    # A hidden key as heavy as exp(30) of the rest has all the weight: more would only overflow.
    weight = np.exp(np.minimum(result.logits[head, row] - lse, 30.0))
    error = np.abs(found - result.output[head, row]).max()
    best, text = (1 - EXPLAINED) * error, ""
    for unit, size in (("kv block", problem.blocks.kv), ("key", 1)):
        for number in range(problem.kv_len // size):
            keys = slice(number * size, (number + 1) * size)
            for word, chosen, sign in (("lacked", seen, -1.0), ("had the hidden", ~seen, 1.0)):
                part = np.where(chosen[keys], weight[keys], 0.0)
                total = 1 + sign * part.sum()
                if not part.any() or total <= 0:
                    continue
                guess = (result.output[head, row] + sign * part @ values[keys]) / total
                left = np.abs(found - guess).max()
                if left < best:
                    best, text = left, f", as if the row {word} {unit} {number}"
    return text


def forward_matches(
    subject: Subject,
    problem: Problem,
    *,
    residuals: bool = False,
    rows: Bool | None = None,
    found: Forward | None = None,
    note: str = "",
) -> Forward:
    """Raises `Violation` unless the output, and the residuals if asked for, are within their budgets.

    Args:
      subject, problem: what is run.
      residuals: ask for residuals, and compare them.
      rows: the rows to compare; all if None.
      found: the result, if it did not come from an ordinary call.
      note: added to the place.

    Returns:
      What the implementation returned.
    """
    found = found or subject.forward(problem, residuals=residuals)
    exact = exact_forward(subject, problem)
    compare(
        "output", found.output, exact.output, exact.budget.output, problem, rows=rows, note=note
    )
    if residuals:
        residuals_match(subject, problem, rows=rows, note=note)
    return found


def residuals_match(
    subject: Subject,
    problem: Problem,
    names: tuple[str, ...] = ("logsumexp", "max_logits"),
    *,
    rows: Bool | None = None,
    note: str = "",
) -> None:
    """Raises `Violation` unless the named residuals are within their budgets (those that are declared)."""
    found, exact = subject.forward(problem, residuals=True), exact_forward(subject, problem)
    for name in names:
        if name == "max_logits" and not subject.description.offers("residuals:max_logits"):
            continue
        array = getattr(found, name)
        if array is None:
            raise Violation(f"{name}{note}", "an array", "None")
        expected, budget = getattr(exact, name), getattr(exact.budget, name)
        compare(name, array, expected, budget, problem, rows=rows, note=note)


def gradients_match(
    subject: Subject,
    problem: Problem,
    names: tuple[str, ...] = ("dq", "dk", "dv", "dsinks"),
    *,
    kind: Cotangent = "quiet",
    with_residuals: bool = False,
    with_lse: bool = False,
    rows: Bool | None = None,
    found: Gradients | None = None,
    note: str = "",
) -> Gradients:
    """Raises `Violation` unless the named gradients are within their budgets.

    Args:
      subject, problem: what is run.
      names: gradients to compare; ``dsinks`` only if the problem has sinks.
      kind: the gradient with respect to the output.
      with_residuals: differentiate the call that returns residuals.
      with_lse: add a loss on logsumexp.
      rows: the rows of dq to compare; all if None.
      found: the gradients, if they did not come from an ordinary call.
      note: added to the place.

    Returns:
      What the implementation returned.
    """
    if found is None:
        found = subject.backward(problem, kind, with_residuals=with_residuals, with_lse=with_lse)
    exact = exact_backward(subject, problem, kind, with_lse)
    for name in names:
        expected, budget = getattr(exact.gradients, name), getattr(exact.budget, name)
        if expected is None:
            continue
        array = getattr(found, name)
        if array is None:
            raise Violation(f"{name}{note}", "an array", "None")
        chosen = rows if name == "dq" else None
        compare(name, np.asarray(array), expected, budget, problem, rows=chosen, note=note)
    return found


def same_bits(
    name: str,
    actual: NDArray[Any],
    expected: NDArray[Any],
    problem: Problem,
    *,
    rows: Bool | None = None,
    note: str = "",
) -> None:
    """Raises `Violation` unless two results of one implementation are equal, NaN to NaN."""
    if actual.shape != expected.shape:
        raise Violation(f"shape of {name}{note}", expected.shape, actual.shape)
    differs = (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
    if rows is not None:
        differs = differs & (rows if differs.ndim == 2 else rows[:, :, None])
    if differs.any():
        index = tuple(int(k) for k in np.argwhere(differs)[0])
        raise Violation(
            place(name, index, problem) + note,
            f"{float(expected[index]):.9g}, unchanged",
            f"{float(actual[index]):.9g}",
            (int(differs.sum()), differs.size),
            differing_region(name, differs, problem),
        )


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
    returned = np.stack([_wide(np.asarray(part.logsumexp)) for part in parts])
    with np.errstate(invalid="ignore"):  # rows that see nothing in any part
        weights = np.exp(returned - np.logaddexp.reduce(returned, axis=0))[..., None]
    output = sum(w * _wide(part.output) for w, part in zip(weights, parts, strict=True))
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
