"""Comparison of numerical results: with the exact ones, non-finite values first, and with those of another call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from conformance.checks.budgets import core, dense_result, exact_backward, exact_forward, wide
from conformance.checks.registry import Violation
from conformance.contract.fence import Subject
from conformance.contract.protocol import Forward, Gradients
from conformance.findings import budget_use as ratios
from conformance.findings.expectation import Finite, Presence, Unchanged, Within
from conformance.findings.observation import AsIf, Observation, Value, observe
from conformance.findings.pictures import Region, region
from conformance.findings.place import Place
from conformance.findings.values import Plain, number
from conformance.problems.arrays import Cotangent, inputs
from conformance.problems.problem import Problem
from reference.attention import Float, kv_head_of
from reference.error_budget import error_ratio
from reference.masks import Bool

#: How a call differed from an ordinary one, see `Place.given`.
type Given = Mapping[str, Plain]
NOTHING: Given = {}

#: Share of an error that a missing or additional block or key must explain to be named in a report.
EXPLAINED = 0.9


def _blocks(name: str, problem: Problem) -> tuple[str, str, int]:
    """The axes of an array, what its second axis counts, and the size in tokens of the blocks along it."""
    if name in ("dk", "dv"):
        return "kv head", "key", problem.blocks.of("dkv")[1]
    return "head", "row", problem.blocks.of("dq" if name == "dq" else "fwd")[0]


def element(name: str, index: Sequence[Any], problem: Problem, given: Given = NOTHING) -> Place:
    """An element of a numerical result, e.g. ``output[head 0, row 129 (q block 1), 3]``.

    Args:
      name: ``output``, ``logsumexp``, ``max_logits``, ``dq``, ``dk``, ``dv`` or ``dsinks``.
      index: of the element.
      problem: whose blocks the rows are in.
      given: see `Place.given`.
    """
    head, token, size = _blocks(name, problem)
    axes = (head, token, "")[: len(index)]
    block = int(index[1]) // size if len(index) > 1 else None
    return Place(name, given=given).at(*index, axes=axes, block=block)


def compare(
    name: str,
    actual: NDArray[Any],
    expected: Float,
    budget: Float,
    problem: Problem,
    *,
    rows: Bool | None = None,
    given: Given = NOTHING,
) -> None:
    """Raises `Violation` unless every element is within its budget.

    Args:
      name: ``output``, ``logsumexp``, ``max_logits``, ``dq``, ``dk``, ``dv`` or ``dsinks``.
      actual: from an implementation.
      expected, budget: exact result and largest error, of the same shape; an infinite budget asks for finite numbers.
      problem: for the place in reports.
      rows: bool ``[H, q_len]``, the rows to compare; all if None.
      given: how the call differed from an ordinary one.
    """
    if actual.shape != expected.shape:
        raise Violation(Place(name, "shape", given=given), expected.shape, actual.shape)
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
    as_if = _explanation(name, actual, index, problem)
    if not np.isfinite(found):
        seen: Observation = observe(found)
    elif special[index]:
        seen = Value(found, as_if=as_if)
    else:
        seen = Value(found, abs(found - right), number(ratio[index]), as_if)
    raise Violation(
        element(name, index, problem, given),
        Within(number(right), allowed) if allowed < np.inf else Finite(),
        seen,
        (int(wrong.sum()), wrong.size),
        differing_region(name, wrong, problem),
    )


def differing_region(name: str, wrong: Bool, problem: Problem) -> Region:
    """Where a numerical result is wrong, with the blocks of its rows."""
    if wrong.ndim < 2:
        return region(name, wrong, ("head",))
    head = "kv head" if name in ("dk", "dv") else "head"
    row = "key" if name in ("dk", "dv") else "row"
    size = _blocks(name, problem)[2]
    if wrong.ndim == 2:  # one value a row: heads against rows
        return region(name, wrong, (head, row), (0, size))
    return region(name, wrong, (head, row, "dimension"), (size, 0))


def _explanation(
    name: str, actual: NDArray[Any], index: tuple[int, ...], problem: Problem
) -> AsIf | None:
    """Which block of keys a wrong row of the output lacks or has too much, if that explains it.

    A row without the visible keys of a block, or with the hidden keys of a block at their own weight, is computed
    for every block and for every key; what leaves the least error, and less than a tenth of it, is named.
    """
    if name != "output" or not np.isfinite(actual[index[:2]]).all():
        return None
    result, made = dense_result(core(problem)), inputs(core(problem))
    head, row = index[:2]
    found = wide(actual[head, row])
    values = wide(made.v[kv_head_of(problem.heads, problem.kv_heads)[head]])
    seen, lse = result.visible[head, row], result.logsumexp[head, row]
    if lse == -np.inf:
        return None
    # A hidden key as heavy as exp(30) of the rest has all the weight: more would only overflow.
    weight = np.exp(np.minimum(result.logits[head, row] - lse, 30.0))
    error = np.abs(found - result.output[head, row]).max()
    best: float = (1 - EXPLAINED) * error
    found_as: AsIf | None = None
    units: tuple[tuple[Literal["kv block", "key"], int], ...] = (
        ("kv block", problem.blocks.kv), ("key", 1),
    )  # fmt: skip
    words: tuple[tuple[Literal["lacked", "had the hidden"], Bool, float], ...] = (
        ("lacked", seen, -1.0), ("had the hidden", ~seen, 1.0),
    )  # fmt: skip
    for unit, size in units:
        for n in range(problem.kv_len // size):
            keys = slice(n * size, (n + 1) * size)
            for word, chosen, sign in words:
                part = np.where(chosen[keys], weight[keys], 0.0)
                total = 1 + sign * part.sum()
                if not part.any() or total <= 0:
                    continue
                guess = (result.output[head, row] + sign * part @ values[keys]) / total
                left = np.abs(found - guess).max()
                if left < best:
                    best, found_as = left, AsIf(word, unit, n)
    return found_as


def forward_matches(
    subject: Subject,
    problem: Problem,
    *,
    residuals: bool = False,
    rows: Bool | None = None,
    found: Forward | None = None,
    given: Given = NOTHING,
) -> Forward:
    """Raises `Violation` unless the output, and the residuals if asked for, are within their budgets.

    Args:
      subject, problem: what is run.
      residuals: ask for residuals, and compare them.
      rows: the rows to compare; all if None.
      found: the result, if it did not come from an ordinary call.
      given: how the call differed from an ordinary one.

    Returns:
      What the implementation returned.
    """
    found = found or subject.forward(problem, residuals=residuals)
    exact = exact_forward(subject, problem)
    compare(
        "output", found.output, exact.output, exact.budget.output, problem, rows=rows, given=given
    )
    if residuals:
        residuals_match(subject, problem, rows=rows, given=given)
    return found


def residuals_match(
    subject: Subject,
    problem: Problem,
    names: tuple[str, ...] = ("logsumexp", "max_logits"),
    *,
    rows: Bool | None = None,
    given: Given = NOTHING,
) -> None:
    """Raises `Violation` unless the named residuals are within their budgets (those that are declared)."""
    found, exact = subject.forward(problem, residuals=True), exact_forward(subject, problem)
    for name in names:
        if name == "max_logits" and not subject.description.offers("residuals:max_logits"):
            continue
        array = getattr(found, name)
        if array is None:
            raise Violation(Place(name, given=given), Presence(True), Presence(False))
        expected, budget = getattr(exact, name), getattr(exact.budget, name)
        compare(name, array, expected, budget, problem, rows=rows, given=given)


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
    given: Given = NOTHING,
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
      given: how the call differed from an ordinary one.

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
            raise Violation(Place(name, given=given), Presence(True), Presence(False))
        chosen = rows if name == "dq" else None
        compare(name, np.asarray(array), expected, budget, problem, rows=chosen, given=given)
    return found


def same_bits(
    name: str,
    actual: NDArray[Any],
    expected: NDArray[Any],
    problem: Problem,
    *,
    rows: Bool | None = None,
    given: Given = NOTHING,
) -> None:
    """Raises `Violation` unless two results of one implementation are equal, NaN to NaN."""
    if actual.shape != expected.shape:
        raise Violation(Place(name, "shape", given=given), expected.shape, actual.shape)
    differs = (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
    if rows is not None:
        differs = differs & (rows if differs.ndim == 2 else rows[:, :, None])
    if differs.any():
        index = tuple(int(k) for k in np.argwhere(differs)[0])
        raise Violation(
            element(name, index, problem, given),
            Unchanged(number(expected[index])),
            float(actual[index]),
            (int(differs.sum()), differs.size),
            differing_region(name, differs, problem),
        )
