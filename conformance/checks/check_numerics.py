"""Checks of the NUM clauses: budgets on problems with every feature, alone and in pairs."""

from __future__ import annotations

import numpy as np

from conformance.checks.budgets import arithmetic_of, core, dense_result, exact_forward
from conformance.checks.comparison import compare, forward_matches, gradients_match
from conformance.checks.registry import Measure, judges
from conformance.contract.fence import Subject
from conformance.drawing.numeric_domain import GENERAL, NumericDomain
from conformance.findings.place import Place
from conformance.problems.arrays import inputs, seeing_rows
from conformance.problems.features import features_of
from conformance.problems.problem import Problem
from reference.error_budget import accuracy_ratio
from reference.online import compile_program, online_forward

FEATURES = frozenset(
    {
        "gqa", "mqa", "segment_ids", "soft_cap", "sinks", "head_dim_v", "bfloat16", "per_head_masks",
        "blocks", "options",
    }
)  # fmt: skip
ALL_REGIMES = (*GENERAL, "huge")


def is_telling(problem: Problem) -> bool:
    """Whether a problem has two features, or a regime about precision: the rest has clauses of its own."""
    return len(features_of(problem, FEATURES)) > 1 or problem.regime in PRECISION


PRECISION = ("cancelling", "representable", "positive", "huge")


@judges(
    "NUM-1", NumericDomain(allows=(FEATURES - {"options"}) | {"empty_rows"}, regimes=ALL_REGIMES)
)
def check_non_finite_values(subject: Subject, problem: Problem) -> None:
    """NaN and infinity in the output, in rows that see something."""
    found, expected = (
        np.asarray(subject.forward(problem).output),
        dense_result(core(problem)).output,
    )
    unlimited = np.full_like(expected, np.inf)
    compare("output", found, expected, unlimited, problem, rows=seeing_rows(problem))


@judges(
    "NUM-2",
    NumericDomain(signatures=("plain", "oblong"), regimes=("positive", "representable", "flat")),
)
def check_precision_of_sums(subject: Subject, problem: Problem) -> None:
    """Sums that grow from block to block, in float32."""
    forward_matches(subject, problem)


@judges(
    "NUM-3",
    NumericDomain(allows=FEATURES, regimes=ALL_REGIMES, where=is_telling, broad=True, costly=True),
)
def check_forward_budgets(subject: Subject, problem: Problem) -> None:
    """The output, and the residuals that are declared, with features alone and in pairs."""
    if subject.description.offers("residuals"):
        found = subject.forward(problem, residuals=True)
        forward_matches(subject, problem, residuals=True, found=found)
    forward_matches(subject, problem)


@judges(
    "NUM-4",
    NumericDomain(
        allows=FEATURES, where=is_telling, broad=True, costly=True, group="numerics-backward"
    ),
)
def check_gradient_budgets(subject: Subject, problem: Problem) -> None:
    """All gradients, with features alone and in pairs."""
    gradients_match(subject, problem)


@judges("NUM-12", NumericDomain(allows=FEATURES - {"blocks", "options"}))
def measure_accuracy(subject: Subject, problem: Problem) -> Measure | None:
    """Root mean square error over that of a plain blockwise computation in the same arithmetic."""
    made, exact = inputs(problem), exact_forward(subject, problem)
    program = compile_program(
        problem.head_masks, problem.kv_heads, problem.blocks.q, problem.blocks.kv
    )
    baseline = online_forward(
        program, made.q, made.k, made.v,
        segment_ids=made.segment_ids, soft_cap=problem.soft_cap, sinks=made.sinks,
        profile=arithmetic_of(subject, problem).forward,
    )  # fmt: skip
    ratio = accuracy_ratio(subject.forward(problem).output, baseline.output, exact.output)
    if not np.isfinite(ratio):
        return None  # the baseline has no error at all
    place = Place("root mean square error of the output, in that of a plain computation")
    return Measure(ratio, 1.0, place)
