"""Runs one check against an implementation: fixed problems first, then a search, then shrinking."""

from __future__ import annotations

import time
import unittest
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase

from conformance.checks.given_maximum import beyond_float32, may_be_far
from conformance.checks.registry import Check, Measure, Violation
from conformance.contract.fence import HANG, Crash, Subject, raised_by
from conformance.contract.memory_maps import ROOM
from conformance.contract.remote.errors import NotTried, Refused
from conformance.drawing import constants
from conformance.findings import budget_use as ratios
from conformance.findings import coverage, text
from conformance.findings.expectation import Equal, NoError
from conformance.findings.finding import Finding, Kind, Outcome, Status
from conformance.findings.observation import Value
from conformance.findings.pictures import block_map
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from conformance.search import database
from conformance.search.database import Shelf
from conformance.search.effort import PROFILES as PROFILES
from conformance.search.effort import Profile as Profile
from conformance.search.known_deviations import Deviation, avoidable, mark
from conformance.search.last_problem import Trail

#: Problems that failed before are tried up to this number in a check that draws none.
KEPT = 20

#: A check in which the implementation has ended this many processes tries nothing more.
LOSSES = 2 * HANG


class Hit(Exception):
    """Tells Hypothesis that a problem is one that is looked for."""


def evaluate(check: Check, subject: Subject, problem: Problem, vector: str = "") -> Finding | None:
    """Runs a check on one problem.

    Returns:
      What is wrong (or a quality figure), None if nothing is.
    """

    about = partial(Finding, check.clause_id, check.name, problem=problem, vector=vector)
    try:
        if check.domain.regimes and (
            may_be_far(subject, problem)
            or beyond_float32(subject, problem, backward=check.domain.backward)
        ):
            return None
        measure = check.function(subject, problem)
    except Violation as wrong:
        return about(
            kind="value",
            place=wrong.place,
            expectation=wrong.expectation,
            observation=wrong.observation,
            detail=text.count_text(*wrong.differing) if wrong.differing else "",
            region=wrong.region,
        )
    except Crash as crash:
        return about(
            kind="crash",
            place=Place(crash.phase, "call"),
            expectation=NoError(),
            observation=raised_by(crash.error),
            detail=crash.trace,
        )
    if isinstance(measure, Measure) and measure.ratio > 1:
        return about(
            kind="quality",
            place=measure.place,
            expectation=Equal(measure.best),
            observation=Value(measure.value, times=measure.ratio if measure.best else None),
            ratio=measure.ratio,
        )
    return None


class Search:
    """State of the search of one check."""

    def __init__(
        self,
        check: Check,
        subject: Subject,
        profile: Profile,
        deviations: Sequence[Deviation],
        trail: Trail | None,
        kept: ExampleDatabase | None = None,
    ) -> None:
        self.check = check
        self.kept = kept
        self.subject = subject
        self.examples = profile.examples_of(check.domain)
        self.shrinks = profile.shrinks_of(check.domain)
        self.variants = profile.variants
        self.deviations = deviations
        self.trail = trail
        self.seen: dict[str, Finding | None] = {}
        self.shown: set[str] = set()
        self.tried: coverage.Coverage = {}
        self.left = 0
        self.losses = subject.losses + LOSSES
        self.not_tried = ""
        self.refused: dict[str, str] = {}

    def look(self, problem: Problem, vector: str = "") -> Finding | None:
        """What is wrong with a problem; also with the options that avoid a known deviation, which would hide it.

        Once the deviation has shown, problems that it would hide are tried with these options only.
        """
        hiding = avoidable(self.check.clause_id, problem, self.deviations)
        if hiding is None:
            return self.look_once(problem, vector)
        its_own = bool(vector) and vector == hiding.vector and not problem.options
        if its_own or hiding.id not in self.shown:
            found = self.look_once(problem, vector)
            if found is None or found.deviation != hiding.id:
                return found
            self.shown.add(hiding.id)
        return self.look_once(hiding.avoided(problem), vector)

    def look_once(self, problem: Problem, vector: str = "") -> Finding | None:
        """Evaluates a problem once; nothing more is evaluated after too many lost processes."""
        if problem.key in self.refused:
            return None
        if problem.key not in self.seen:
            if self.subject.losses >= self.losses:
                return None
            ROOM.make()
            if self.trail is not None:
                self.trail.note(self.check.name, problem, vector)
            try:
                found = evaluate(self.check, self.subject, problem, vector)
            except Refused as reason:
                self.refused[problem.key] = str(reason)
                return None
            except NotTried as reason:
                self.not_tried = str(reason)
                return None
            if found is not None:
                found = mark(found, problem, self.deviations)
            self.seen[problem.key] = found
            coverage.count(self.tried, problem)
        return self.seen[problem.key]

    def try_vectors(self) -> None:
        """Looks at every fixed problem of the domain."""
        description = self.subject.description
        for item, problem in self.check.domain.vectors(description, self.variants):
            self.look(problem, item.name)

    def run(self, seed: int) -> None:
        """Tries fixed problems, then searches for wrong results; for crashes if there are those only."""
        self.try_vectors()
        self.hunt("value", seed)
        kinds = {f.kind for f in self.seen.values() if f and not f.deviation}
        if "value" not in kinds and ("crash" in kinds or self.kept is not None):
            self.hunt("crash", seed)

    def hunt(self, kind: Kind, seed: int) -> None:
        """Draws problems, and shrinks the first one that fails in the given way."""
        if self.check.domain.only or (self.examples < 1 and self.kept is None):
            return
        self.left = self.examples or KEPT
        failing = False

        def test(problem: Problem) -> None:
            nonlocal failing
            if problem.key not in self.seen:
                if self.left <= 0:
                    return
                self.left -= 1
            found = self.look(problem)
            if found is not None and found.kind == kind and not found.deviation:
                if not failing:
                    failing, self.left = True, self.shrinks
                raise Hit

        drawn = self.check.domain.strategy(self.subject.description)
        kept = None if self.kept is None else Shelf(self.kept, f"{kind}/".encode())
        draw_until_hit(drawn, test, examples=self.examples, seed=seed, kept=kept)

    def findings(self) -> list[Finding]:
        """The smallest finding of every kind, cause and deviation; the worst quality figure."""
        best: dict[tuple[str, ...], Finding] = {}
        for found in self.seen.values():
            if found is None:
                continue
            key = (found.kind, found.signature, found.deviation)
            if key not in best or _order(found) < _order(best[key]):
                best[key] = found
        drawn = [replace(f, blocks=block_map(f.problem)) for f in best.values()]
        return sorted(drawn, key=lambda f: (bool(f.deviation), f.kind, f.size))


def _order(found: Finding) -> tuple[Any, ...]:
    if found.kind == "quality":
        return (-found.ratio, found.size)
    return (0.0, found.size)


def draw_until_hit[T](
    strategy: st.SearchStrategy[T],
    test: Callable[[T], None],
    *,
    examples: int,
    seed: int,
    kept: ExampleDatabase | None = None,
    modules: Iterable[ModuleType] = (),
) -> None:
    """Draws problems for a test until it raises `Hit`, and goes on with smaller ones.

    Args:
      strategy: what to draw.
      test: raises `Hit` for what is looked for.
      examples: how many are drawn; 0 tries what was kept only.
      seed: the same seed draws the same problems.
      kept: what was found before.
      modules: numbers in their sources are drawn more often than others.
    """
    wrapped = hypothesis.given(strategy)(test)
    # In this order: a seed takes the database away.
    run = hypothesis_settings(examples, kept)(hypothesis.seed(seed)(wrapped))
    try:
        with constants.only_of(*modules):
            run()
    except Hit:
        pass
    except hypothesis.errors.Unsatisfiable:
        pass  # nothing can be drawn
    except unittest.SkipTest:
        pass  # nothing is drawn, and nothing was kept


def hypothesis_settings(examples: int, kept: ExampleDatabase | None = None) -> hypothesis.settings:
    """A search that prints nothing and ends after its examples or its shrinking.

    Args:
      examples: how many are drawn.
      kept: what failed before is tried first; nothing is kept if None.
    """
    phases = [Phase.shrink]
    if examples > 0:
        phases.append(Phase.generate)
    if kept is not None:
        phases.append(Phase.reuse)
    return hypothesis.settings(
        max_examples=examples or KEPT,
        database=kept,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )


def run_check(
    check: Check,
    subject: Subject,
    profile: Profile,
    seed: int,
    deviations: Sequence[Deviation] = (),
    trail: Trail | None = None,
) -> Outcome:
    """The verdict of one check.

    Args:
      check: what to run.
      subject: the implementation.
      profile: how much to try.
      seed: of the search; the same seed tries the same problems.
      deviations: known deviations of this version.
      trail: where to note what is tried.
    """
    start = time.perf_counter()
    outcome = Outcome(check.clause_id, check.name, check.clause.chapter, "conforms")
    missing = check.missing(subject)
    if missing:
        return replace(outcome, status="n/a", reason=f"not declared: {', '.join(missing)}")
    kept = database.examples(check.name, subject.description.name)
    search = Search(check, subject, profile, deviations, trail, kept)
    with ratios.recording() as outcome.ratios:
        search.run(seed)
    outcome.examples, outcome.coverage = len(search.seen), search.tried
    outcome.findings = search.findings()
    outcome.stale = stale_deviations(check, search, deviations)
    outcome.status = _status(outcome)
    outcome.refused = dict(Counter(reason[:200] for reason in search.refused.values()))
    if not search.seen:
        outcome.status, outcome.reason = "n/a", "no problem that the implementation can be given"
        if outcome.refused:
            outcome.reason = f"refused: {[*outcome.refused][-1]}"
    if search.not_tried and outcome.status != "violates":
        outcome.status, outcome.reason = "error", search.not_tried
    outcome.seconds = time.perf_counter() - start
    return outcome


def _status(outcome: Outcome) -> Status:
    if outcome.of_kind("value", "crash"):
        return "violates"
    return "known deviation" if any(f.deviation for f in outcome.findings) else "conforms"


def stale_deviations(check: Check, search: Search, deviations: Sequence[Deviation]) -> list[str]:
    """Known deviations whose fixed problem belongs to this check and no longer fails."""
    failing = {
        (found.deviation, found.vector)
        for found in search.seen.values()
        if found is not None and found.deviation
    }
    fixed = check.domain.vectors(search.subject.description, search.variants)
    tried = {item.name for item, _ in fixed}
    return [
        item.id
        for item in deviations
        if item.vector in tried
        and check.name == item.proof
        and (item.id, item.vector) not in failing
    ]
