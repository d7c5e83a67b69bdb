"""The smallest problem that still fails in the same way, looked for without drawing anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.checks.registry import CHECKS, Check
from conformance.contract.fence import Subject
from conformance.contract.protocol import Description
from conformance.contract.remote.errors import NotTried
from conformance.findings.finding import Finding
from conformance.problems.problem import Problem
from conformance.search.known_deviations import Deviation, mark
from conformance.search.minimise.simpler_problems import PASSES, is_whole, size
from conformance.search.search import evaluate

#: Problems that are tried if nobody says how many.
TRIES = 400


def can_be_given(
    problem: Problem, check: Check, original: Problem, description: Description
) -> bool:
    """Whether a problem belongs to what a check is about, and to what an implementation declares.

    Args:
      problem: a simpler one.
      check: whose domain.
      original: where it comes from.
      description: of the implementation.
    """
    return (
        is_whole(problem)
        and check.domain.contains_simplified(problem)
        and check.domain.accepts(problem, description)
        and {problem.head_dim, problem.head_dim_v} <= {*description.head_dims, original.head_dim}
        and problem.ring in (1, original.ring, *description.ring_sizes)
    )


@dataclass
class Minimiser:
    """Looks for a smaller problem with the same failure.

    Attributes:
      subject: the implementation.
      deviations: known ones: what is one of them stays that one, what is none does not become one.
      tell: is told about every problem that was tried: how many there were, and the smallest so far.
      tries: at most so many problems are tried.
      tried: how many there were.
    """

    subject: Subject
    deviations: Sequence[Deviation] = ()
    tell: Callable[[int, Finding], None] = lambda tried, finding: None
    tries: int = TRIES
    tried: int = 0
    _seen: set[str] = field(default_factory=set)

    def reproduce(self, finding: Finding) -> Finding | None:
        """The finding as it is today; None if nothing is wrong any more."""
        return self._look(CHECKS[finding.check], finding.problem)

    def _look(self, check: Check, problem: Problem) -> Finding | None:
        """What a check finds; errors of the check itself are about problems that it is not made for."""
        try:
            found = evaluate(check, self.subject, problem)
        except NotTried:
            raise
        except Exception:
            return None
        return None if found is None else mark(found, problem, self.deviations)

    def smallest(self, finding: Finding) -> Finding:
        """The same failure on the smallest problem that was met.

        An interruption ends the search, not more.

        Args:
          finding: as `reproduce` returns it.
        """
        self._best = finding
        try:
            while self._round():
                pass
        except (KeyboardInterrupt, NotTried):
            pass
        return self._best

    def _round(self) -> bool:
        """One round of all passes; whether any of them found something smaller."""
        before = self._best
        for simplify in PASSES:
            while True:
                description = self.subject.description
                if not any(map(self._improves, simplify(self._best.problem, description))):
                    break
        return self._best is not before and self.tried < self.tries

    def _improves(self, candidate: Problem) -> bool:
        """Whether a problem is smaller than the best, belongs to the check, and fails in the same way."""
        best, check = self._best, CHECKS[self._best.check]
        if self.tried >= self.tries or size(candidate) >= size(best.problem):
            return False
        if candidate.key in self._seen:
            return False
        self._seen.add(candidate.key)
        if not can_be_given(candidate, check, best.problem, self.subject.description):
            return False
        found = self._look(check, candidate)
        self.tried += 1
        if found is not None and same_failure(found, best):
            self._best = found
        self.tell(self.tried, self._best)
        return self._best is found


def same_failure(one: Finding, other: Finding) -> bool:
    """Whether two findings of a check are about one mistake, as far as can be told."""
    first, second = (
        (found.kind, found.deviation, found.signature, found.place.subject)
        for found in (one, other)
    )
    return first == second
