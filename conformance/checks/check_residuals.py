"""Checks of the RES clauses: logsumexp and max_logits."""

from __future__ import annotations

import numpy as np

from conformance.checks.budgets import combined_parts, exact_forward
from conformance.checks.comparison import (
    compare,
    differing_region,
    element,
    forward_matches,
    residuals_match,
)
from conformance.checks.registry import Violation, expect, judges
from conformance.contract.fence import Subject
from conformance.drawing.numeric_domain import MODERATE, NumericDomain
from conformance.findings.expectation import InRange, OneOf
from conformance.findings.place import Place
from conformance.findings.values import number
from conformance.problems.arrays import seeing_rows, visible
from conformance.problems.mask_json import Blocks
from conformance.problems.problem import Problem
from reference.masks import And, Bool

GROUP = "numerics-residuals"
PLAIN = NumericDomain(signatures=("plain", "long"), group=GROUP)
ANY_TYPE = NumericDomain(
    allows={"bfloat16", "soft_cap", "sinks"},
    signatures=("plain", "bfloat16", "cap", "sinks"),
    group=GROUP,
)


@judges("RES-1", NumericDomain(allows={"soft_cap"}, signatures=("plain", "cap"), group=GROUP))
def check_logsumexp(subject: Subject, problem: Problem) -> None:
    """logsumexp of the visible logits, capped where there is a cap."""
    residuals_match(subject, problem, ("logsumexp",))


@judges("RES-2", NumericDomain({"sinks"}, signatures=("sinks",), group=GROUP))
def check_sink_in_logsumexp(subject: Subject, problem: Problem) -> None:
    """The sink is in the denominator that is returned."""
    residuals_match(subject, problem, ("logsumexp",))


@judges(
    "RES-3",
    NumericDomain(allows={"soft_cap", "sinks"}, signatures=("plain", "cap", "sinks"), group=GROUP),
)
def check_max_logits(subject: Subject, problem: Problem) -> None:
    """The largest visible capped logit, without the sink."""
    residuals_match(subject, problem, ("max_logits",))


@judges(
    "RES-4",
    NumericDomain(
        allows={"options"}, signatures=("plain", "long"), regimes=("rising", "falling", "signed"),
        group=GROUP,
    )
)  # fmt: skip
def check_natural_units(subject: Subject, problem: Problem) -> None:
    """Residuals far from 0, where a factor of log 2 is far outside every budget, with every option."""
    residuals_match(subject, problem)


@judges(
    "RES-5",
    NumericDomain(
        {"options"}, signatures=("plain", "cap"), allows={"soft_cap"},
        regimes=MODERATE, group=GROUP,
    )
)  # fmt: skip
def check_options_do_not_change_residuals(subject: Subject, problem: Problem) -> None:
    """Output and residuals for every value of every option that is offered."""
    forward_matches(subject, problem, residuals=True)


@judges(
    "RES-6",
    NumericDomain(
        {"empty_rows"}, {"segment_ids", "blocks"},
        signatures=("plain", "segments", "large_forward"), group=GROUP,
    )
)  # fmt: skip
def check_residuals_of_empty_rows(subject: Subject, problem: Problem) -> None:
    """-inf, or the one documented number; the other rows are right."""
    found, rows = subject.forward(problem, residuals=True), ~seeing_rows(problem)
    documented = subject.description.empty_logsumexp
    for name in ("logsumexp", "max_logits"):
        if name == "max_logits" and not subject.description.offers("residuals:max_logits"):
            continue
        values = np.asarray(getattr(found, name), dtype=np.float64)
        if values.shape != rows.shape:
            raise Violation(Place(name, "shape"), rows.shape, values.shape)
        fine = values == -np.inf
        if documented is not None:
            fine |= values == np.float64(np.float32(documented))
        differs = rows & ~fine
        wrong = np.argwhere(differs)
        if len(wrong):
            at, given = tuple(wrong[0]), {"rows": "that see nothing"}
            allowed = OneOf(("-inf",) if documented is None else ("-inf", documented))
            count, picture = (len(wrong), int(rows.sum())), differing_region(name, differs, problem)
            place = element(name, at, problem, given)
            raise Violation(place, allowed, values[at], count, picture)
    residuals_match(subject, problem, rows=~rows)


def halves(problem: Problem) -> list[Problem]:
    """The problem with the first half of the keys only, and with the second."""
    rows, columns = problem.grid()
    patterns = ("2" * (columns // 2) + "0" * (columns - columns // 2),) * rows
    turned = tuple(row.translate({ord("2"): "0", ord("0"): "2"}) for row in patterns)
    sizes = problem.blocks.q, problem.blocks.kv
    return [
        problem.but(masks=tuple(And(mask, Blocks(part, *sizes)) for mask in problem.masks))
        for part in (patterns, turned)
    ]


def rows_in_both_halves(problem: Problem) -> Bool:
    """Rows that see keys in either half, bool ``[H, q_len]``."""
    first, second = (visible(part).any(axis=2) for part in halves(problem))
    return np.asarray(first & second)


@judges(
    "RES-7",
    NumericDomain(
        signatures=("plain",), regimes=MODERATE, where=lambda p: bool(rows_in_both_halves(p).any()), group=GROUP
    )
)  # fmt: skip
def check_disjoint_calls_combine(subject: Subject, problem: Problem) -> None:
    """Two calls over disjoint keys, combined through their residuals, in rows that see keys of both."""
    parts, whole = halves(problem), exact_forward(subject, problem)
    found = [subject.forward(part, residuals=True) for part in parts]
    output, budget = combined_parts(found, [exact_forward(subject, part) for part in parts], whole)
    rows, given = rows_in_both_halves(problem), {"calls": "combined"}
    compare("output", output, whole.output, budget, problem, rows=rows, given=given)


@judges("RES-8", PLAIN)
def check_order_of_residuals(subject: Subject, problem: Problem) -> None:
    """max_logits <= logsumexp <= max_logits + log n, but for the two budgets."""
    found, exact = subject.forward(problem, residuals=True), exact_forward(subject, problem)
    lse, largest = (np.asarray(a, dtype=np.float64) for a in (found.logsumexp, found.max_logits))
    slack = exact.budget.logsumexp + exact.budget.max_logits
    count = np.log(visible(problem).sum(axis=2))
    differs = ~(largest - lse <= slack) | ~(lse - largest - count <= slack)
    wrong = np.argwhere(differs)
    if len(wrong):
        at = tuple(wrong[0])
        low, high = largest[at] - slack[at], largest[at] + count[at] + slack[at]
        place = element("logsumexp", at, problem, {"max_logits": number(largest[at])})
        picture = differing_region("logsumexp", differs, problem)
        bounds = InRange(number(low), number(high))
        raise Violation(place, bounds, lse[at], (len(wrong), lse.size), picture)


@judges("RES-9", ANY_TYPE)
def check_shape_and_type_of_residuals(subject: Subject, problem: Problem) -> None:
    """float32 ``[H, q_len]``, also for bfloat16 arrays."""
    found = subject.forward(problem, residuals=True)
    expect(Place("residuals", "dtype"), "float32", found.residual_dtype)
    shape, lse = (problem.heads, problem.q_len), np.asarray(found.logsumexp)
    expect(Place("logsumexp", "shape"), shape, lse.shape)
    if subject.description.offers("residuals:max_logits"):
        expect(Place("max_logits", "shape"), shape, np.asarray(found.max_logits).shape)


@judges("RES-10", ANY_TYPE)
def check_output_beside_residuals(subject: Subject, problem: Problem) -> None:
    """The output of a call that returns residuals."""
    found = subject.forward(problem, residuals=True)
    forward_matches(subject, problem, found=found, given={"residuals": True})
