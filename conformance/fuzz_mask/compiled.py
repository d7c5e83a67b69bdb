"""Checks of an implementation that is given masks of the class: compiled arrays, kernels, attention and gradients.

These are the ordinary checks. If one fails, it runs again with a dense mask of the same values: if that fails too, the
class is not to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from conformance import checks
from conformance.checks.registry import CHECKS, Check
from conformance.contract.fence import Crash, Subject
from conformance.findings.finding import Finding
from conformance.findings.violation import Violation
from conformance.fuzz_mask.case import Judge, NotAsked, NotToBlame
from conformance.fuzz_mask.problems import ProblemCase
from conformance.problems.problem import Problem
from conformance.search.known_deviations import Deviation, mark
from conformance.search.search import evaluate
from reference.masks import And, Dense, Expr, Mask, Or
from spec import all_clauses

#: Chapters about compiled arrays, and further clauses about them.
COMPILED = ("03_labels", "04_mask_info", "05_flat", "06_shrink", "07_sharding")
ALSO_COMPILED = ("CONV-2", "CONV-3")
COMPILES = "check_every_mask_compiles"
SCHEDULE = ("09_schedule",)

#: Clauses about attention that need nothing but a mask: output and gradients, rows that see nothing, hidden keys.
ATTENTION = (
    "FWD-1", "FWD-2", "FWD-14", "FWD-17", "FWD-18",
    "BWD-1", "BWD-2", "BWD-3", "BWD-4", "BWD-10", "BWD-13", "BWD-14", "BWD-21", "BWD-22",
)  # fmt: skip


@dataclass
class OtherCauses:
    """Findings that the class did not cause.

    Attributes:
      known: known deviations of the implementation, by id.
      shared: findings that a dense mask of the same values shows too, the first of every check.
    """

    known: dict[str, Finding] = field(default_factory=dict)
    shared: dict[str, Finding] = field(default_factory=dict)


def checks_of(stage: str, subject: Subject) -> list[Check]:
    """The checks of a stage that apply to an implementation, in the order of the clauses.

    Args:
      stage: ``compiled``, ``kernels`` or ``attention``.
      subject: the implementation.
    """
    checks.load_all()
    order = {name: n for n, name in enumerate(all_clauses())}
    found = [
        check
        for check in CHECKS.values()
        if _belongs(check, stage) and not check.missing(subject) and not check.domain.only
    ]
    return sorted(found, key=lambda check: (check.name != COMPILES, order[check.clause_id]))


def _belongs(check: Check, stage: str) -> bool:
    if stage == "attention":
        return check.clause_id in ATTENTION and bool(check.domain.regimes)
    if check.domain.regimes or check.domain.may("dynamic") == "always":
        return False
    if check.clause.kind == "quality":
        return False
    if stage == "compiled":
        named = check.clause.chapter in COMPILED or check.clause_id in ALSO_COMPILED
        return named and check.domain.work == "structure"
    return check.clause.chapter in SCHEDULE


def judges_of(
    stage: str, subject: Subject, deviations: Sequence[Deviation], others: OtherCauses
) -> dict[str, Judge]:
    """The checks of a stage as judges of problems.

    Args:
      stage: as in `checks_of`.
      subject: the implementation.
      deviations: known ones of this version.
      others: receives the findings that the class did not cause.
    """
    made = {}
    for check in checks_of(stage, subject):
        after = (COMPILES,) if stage == "compiled" and check.name != COMPILES else ()
        made[check.name] = _judge(check, after, subject, deviations, others)
    return made


def _judge(
    check: Check,
    after: tuple[str, ...],
    subject: Subject,
    deviations: Sequence[Deviation],
    others: OtherCauses,
) -> Judge:
    def judged(case: ProblemCase) -> None:
        problem = suited(check, case.problem)
        try:
            check.function(subject, problem)
        except (Violation, Crash):
            found = evaluate(check, subject, problem)
            if found is not None:
                found = mark(found, problem, deviations)
                if found.deviation:
                    others.known.setdefault(found.deviation, found)
                    raise NotToBlame from None
                if fails_with_dense_masks(check, subject, problem):
                    others.shared.setdefault(check.name, found)
                    raise NotToBlame from None
            raise

    return Judge(check.clause_id, judged, after, check.name)


def suited(check: Check, problem: Problem) -> Problem:
    """The problem, with a regime of arrays that the check is about.

    Raises:
      NotAsked: the check is not about such problems.
    """
    domain, tried = check.domain, [problem]
    if domain.regimes and problem.regime not in domain.regimes:
        tried = [problem.but(regime=regime) for regime in domain.regimes[:1]]
    for candidate in tried:
        if domain.contains(candidate):
            return candidate
    raise NotAsked


def dense(exprs: Iterable[Expr], q_len: int, kv_len: int) -> tuple[Expr, ...]:
    """The same masks as arrays."""
    made: list[Expr] = []
    for expr in exprs:
        if isinstance(expr, And | Or):
            left, right = dense((expr.left, expr.right), q_len, kv_len)
            made.append(type(expr)(left, right))
        else:
            made.append(Dense(Mask(expr, q_len, kv_len).dense()))
    return tuple(made)


def fails_with_dense_masks(check: Check, subject: Subject, problem: Problem) -> bool:
    """Whether a check fails on the same values without the class."""
    other = problem.but(masks=dense(problem.masks, problem.q_len, problem.kv_len))
    if not check.domain.contains(other):
        return False
    found = evaluate(check, subject, other)
    return found is not None and found.kind != "quality"
