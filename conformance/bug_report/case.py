"""What a script is about: a failing problem, the call that shows it, and what would be right."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.adapters.reference.adapter import compile_mask
from conformance.checks.budgets import arithmetic_of, backward_of, budget_of_forward, rescales
from conformance.checks.registry import CHECKS
from conformance.contract.fence import Subject
from conformance.contract.protocol import Description, Forward, Gradients
from conformance.contract.recording import Call, Recorder
from conformance.contract.remote.errors import NotTried
from conformance.findings.expectation import Presence, Refusal
from conformance.findings.finding import Finding
from conformance.findings.observation import Unwritten
from conformance.problems.arrays import d_out, inputs
from conformance.problems.inputs import Inputs
from conformance.problems.problem import Problem
from conformance.search.search import evaluate
from reference.attention import attend, visible_pairs
from reference.flat import FlatMaskInfo
from reference.masks import Bool
from spec import clause

Array = NDArray[Any]

FORWARD = ("output", "logsumexp", "max_logits")
BACKWARD = ("dq", "dk", "dv", "dsinks")
#: Arrays of compiled masks, in both layouts.
COMPILED = (
    "block_mask", "data_next", "mask_next", "partial_mask_blocks", "active_rows", "active_cols",
    "num_active_blocks", "q_sequence",
)  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """An array that an implementation got wrong.

    Attributes:
      name: of the array.
      expected, actual: what is right and what was returned.
      allowed: largest error of an element; None for arrays that are compared for equality.
      rows: bool ``[heads, rows]``, the rows that are compared; None for all.
    """

    name: str
    expected: Array
    actual: Array
    allowed: float | None = None
    rows: Bool | None = None

    @cached_property
    def differs(self) -> bool:
        """Whether it is wrong by itself."""
        if self.expected.shape != self.actual.shape:
            return True
        expected, actual = self.expected, self.actual
        if self.rows is not None:
            expected, actual = expected[self.rows], actual[self.rows]
        if self.allowed is None:
            return not np.array_equal(expected, actual)
        with np.errstate(invalid="ignore"):
            return not bool(
                ((np.abs(actual - expected) <= self.allowed) | (actual == expected)).all()
            )


@dataclass(frozen=True)
class Case:
    """A failing problem.

    Attributes:
      finding: what is wrong.
      call: what shows it.
      wrong: the arrays that are wrong in the answer of that call, as far as that can be told.
      description: of the implementation.
      implementation: as on the command line.
      package: the package that is judged, for the libraries that have one; "" otherwise.
    """

    finding: Finding
    call: Call
    wrong: tuple[Wrong, ...]
    description: Description
    implementation: str
    package: str

    @property
    def problem(self) -> Problem:
        """What was prepared for the call."""
        return self.call.problem

    @property
    def inputs(self) -> Inputs:
        """The arrays of the call."""
        for argument in self.call.arguments:
            if isinstance(argument, Inputs):
                return argument
        return inputs(self.problem.but(regime="zeros"))  # their values do not matter

    @property
    def d_out(self) -> Array:
        """The gradient with respect to the output; that of a problem whose values do not matter if there is none."""
        if self.call.method == "backward":
            return np.asarray(self.call.arguments[1])
        return d_out(self.problem.but(regime="zeros"))

    @property
    def title(self) -> str:
        """One line."""
        name = f"{self.description.name} {self.description.version}"
        word = "raises" if self.finding.kind == "crash" else "is wrong"
        if isinstance(self.finding.expectation, Refusal):
            word = "does not refuse"
        return f"{name} {word}: {clause(self.finding.clause).title}"

    def header(self) -> str:
        """The documentation string of the script, without quotes."""
        finding = self.finding
        rule = textwrap.fill(clause(finding.clause).sentence, 96)
        rows = [self.title, "", rule, "", f"where:    {finding.where}"]
        for name, value in (("expected", finding.expected), ("found", finding.actual)):
            first, *rest = str(value).split("\n")
            rows += [f"{name + ':':<9} {first}", *(" " * 10 + line for line in rest)]
        return "\n".join([*rows, "", f"Clause {finding.clause} of splash-conformance."])


def is_missing(finding: Finding) -> bool:
    """Whether a numerical result was not returned at all."""
    named = finding.place.quantity in (*FORWARD, *BACKWARD)
    return named and finding.expectation == Presence(True)


def visible_of(problem: Problem, made: Inputs) -> Bool:
    """Mask AND segment ids, bool ``[heads, q_len, kv_len]``."""
    shape = (problem.heads, problem.q_len, problem.kv_len)
    dense = np.stack([mask.dense() for mask in problem.head_masks])
    return visible_pairs(dense, made.segment_ids, shape)


def _rounded_up(value: float) -> float:
    """The next number of one digit."""
    if not 0 < value < math.inf:
        return 1e-30
    exponent = math.floor(math.log10(value))
    return float(f"{math.ceil(value / 10**exponent)}e{exponent}")


def _wrong(name: str, expected: Any, budget: Any, actual: Any, rows: Bool | None) -> Wrong | None:
    if actual is None or expected is None:
        return None
    array = np.asarray(actual, dtype=np.float64)
    if rows is not None and not rows.any():
        return None
    chosen = budget if rows is None else budget[rows]
    finite = chosen[np.isfinite(chosen)]
    allowed = _rounded_up(float(finite.max(initial=0.0)))
    return Wrong(name, np.asarray(expected), array, allowed, rows)


def numeric_results(subject: Subject, call: Call) -> list[Wrong]:
    """Every array of a numerical call, with the exact one and the error that is allowed."""
    problem, made = call.problem, call.arguments[0]
    seen = visible_of(problem, made)
    seeing = None if subject.description.offers("empty_rows:zero") else seen.any(axis=2)
    arithmetic, steps = arithmetic_of(subject, problem), rescales(problem)
    result = attend(made.q, made.k, made.v, seen, soft_cap=problem.soft_cap, sinks=made.sinks)
    found: list[Wrong | None] = []
    if isinstance(call.answer, Forward):
        budget = budget_of_forward(problem, made, result, arithmetic.forward, steps)
        for name in FORWARD:
            actual = getattr(call.answer, name)
            found.append(_wrong(name, getattr(result, name), getattr(budget, name), actual, seeing))
    elif isinstance(call.answer, Gradients):
        cotangents = np.asarray(call.arguments[1]), call.keywords.get("d_logsumexp")
        exact = backward_of(problem, made, result, cotangents, arithmetic.backward, steps)
        for name in BACKWARD:
            rows = seeing if name == "dq" else None
            right, bound = getattr(exact.gradients, name), getattr(exact.budget, name)
            found.append(_wrong(name, right, bound, getattr(call.answer, name), rows))
    return [item for item in found if item is not None]


def compiled_results(call: Call) -> list[Wrong]:
    """Every array of a compiled mask, with that of the reference; indices in any integer type."""
    direction = call.arguments[0]
    layout = "flat" if isinstance(call.answer, FlatMaskInfo) else "grid"
    right = compile_mask(call.problem.but(layout=layout), direction)
    found = []
    for name in COMPILED:
        expected, actual = getattr(right, name, None), getattr(call.answer, name, None)
        if expected is not None and actual is not None:
            found.append(Wrong(name, np.asarray(expected), np.asarray(actual)))
    return found


def _wrong_arrays(subject: Subject, call: Call) -> list[Wrong]:
    """The arrays of an answer that are wrong."""
    if call.error is not None:
        return []
    if call.method == "mask_info":
        results = compiled_results(call)
    elif isinstance(call.answer, (Forward, Gradients)):
        results = numeric_results(subject, call)
    else:
        return []
    return [item for item in results if item.differs]


def case_of(finding: Finding, subject: Subject, implementation: str, package: str) -> Case:
    """The call that shows a failure, and what is wrong about its answer.

    Args:
      finding: of a problem that still fails.
      subject: the implementation.
      implementation: as on the command line.
      package: of a library; "" for others.

    Raises:
      NotTried: the implementation cannot be called any more.
      ValueError: nothing was called.
    """
    recorder = Recorder(subject.adapter)
    recorded = Subject(recorder, subject.description)
    evaluate(CHECKS[finding.check], recorded, finding.problem)
    calls = [call for call in recorder.calls if not isinstance(call.error, NotTried)]
    if not calls:
        raise ValueError("the check did not call the implementation")
    call, wrong = _telling(calls, subject, finding)
    return Case(finding, call, tuple(wrong), subject.description, implementation, package)


def _telling(calls: Sequence[Call], subject: Subject, finding: Finding) -> tuple[Call, list[Wrong]]:
    """The first call whose answer is wrong where the report says so, or at all; the last one if none is."""
    last = calls[-1]
    if finding.kind == "crash" or finding.clause.startswith("REJECT-") or is_missing(finding):
        return last, []
    if isinstance(finding.observation, Unwritten) and last.method != "mask_info":
        # It shows where memory starts as NaN.
        made = (inputs(last.problem.but(regime="zeros")),)
        return Call(last.problem, "forward", made, {"uninitialised": True}), []
    found = [(call, _wrong_arrays(subject, call)) for call in calls]
    place = finding.place
    for call, wrong in found:
        named = [item for item in wrong if item.name == place.quantity and not place.aspect]
        if named:
            return call, named
    return next(((call, wrong) for call, wrong in found if wrong), (last, []))
