"""Whether the check of its clause notices a mutant, and after how many problems."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from conformance import checks
from conformance.checks.registry import CHECKS, Check
from conformance.contract.fence import Subject
from conformance.contract.protocol import Adapter
from conformance.findings.finding import Finding
from conformance.mutants.base import MUTANTS, Mutant, MutantAdapter, adapter_of, load_all
from conformance.search.effort import PROFILES, Profile
from conformance.search.search import Search, run_check


@dataclass(frozen=True)
class Kill:
    """What became of a mutant with one seed.

    Attributes:
      mutant: its name.
      seed: of the search.
      check: the check that noticed; "" if the mutant survived.
      examples: problems tried, including the one that failed; all problems if the mutant survived.
      seconds: wall time.
      finding: the failure; None if the mutant survived.
    """

    mutant: str
    seed: int
    check: str
    examples: int
    seconds: float
    finding: Finding | None = None


@dataclass(frozen=True)
class Fate:
    """What became of a mutant with all seeds."""

    mutant: Mutant
    kills: tuple[Kill, ...]

    @property
    def killed(self) -> int:
        """Number of seeds that noticed it."""
        return sum(bool(kill.check) for kill in self.kills)

    @property
    def survives(self) -> bool:
        """Whether some seed missed it, for kinds of mistakes that no seed may miss."""
        return self.mutant.kind != "precision" and self.killed < len(self.kills)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        mutant = self.mutant
        names = ("name", "clause", "bug_class", "seen_in", "kind")
        kills = []
        for kill in self.kills:
            data = asdict(replace(kill, seconds=round(kill.seconds, 3), finding=None))
            kills.append({k: v for k, v in data.items() if k not in ("mutant", "finding")})
        fields = {name: getattr(mutant, name) for name in names}
        return fields | {"killed": self.killed, "survives": self.survives, "seeds": kills}


def checks_of(mutant: Mutant) -> list[Check]:
    """The checks of the clause that a mutant violates."""
    checks.load_all()
    return [check for check in CHECKS.values() if check.clause_id == mutant.clause]


def subject_of(adapter: Adapter) -> Subject:
    """An adapter as the checks see it."""
    return Subject(adapter, adapter.describe())


def kill(mutant: Mutant, seed: int, profile: Profile) -> Kill:
    """Lets the checks of its clause look at a mutant, until one of them notices."""
    start = time.perf_counter()
    how = _by_figure if mutant.quality else _by_failure
    check, examples, finding = how(mutant, seed, profile)
    return Kill(mutant.name, seed, check, examples, time.perf_counter() - start, finding)


def _by_failure(mutant: Mutant, seed: int, profile: Profile) -> tuple[str, int, Finding | None]:
    subject, tried = subject_of(adapter_of(mutant)), 0
    for check in checks_of(mutant):
        if not check.missing(subject):
            found, number = first_failure(check, subject, seed, profile)
            tried += number
            if found is not None:
                return check.name, tried, found
    return "", tried, None


def first_failure(
    check: Check, subject: Subject, seed: int, profile: Profile
) -> tuple[Finding | None, int]:
    """The first problem of a check that fails, without making it smaller, and how many were tried."""
    search = Search(check, subject, replace(profile, shrinks=0), (), None)

    def failing() -> Iterator[tuple[int, Finding]]:
        for number, found in enumerate(search.seen.values(), 1):
            if found is not None and found.kind != "quality":
                yield number, found

    for item, problem in check.domain.vectors(subject.description, profile.variants):
        found = search.look(problem, item.name)
        if found is not None and found.kind != "quality":
            return found, len(search.seen)
    search.hunt("value", seed)
    if not any(failing()):
        search.hunt("crash", seed)
    for number, found in failing():
        return found, number
    return None, len(search.seen)


def _by_figure(mutant: Mutant, seed: int, profile: Profile) -> tuple[str, int, Finding | None]:
    """Notices a mutant of a quality clause by a figure worse than the reference's."""
    unchanged = subject_of(MutantAdapter(Mutant("unchanged", mutant.clause, "none")))
    subject, tried = subject_of(MutantAdapter(mutant)), 0
    for check in checks_of(mutant):
        outcome = run_check(check, subject, profile, seed)
        tried += outcome.examples
        figures = [f for f in outcome.findings if f.kind == "quality"]
        best = run_check(check, unchanged, profile, seed)
        limit = max((f.ratio for f in best.findings if f.kind == "quality"), default=1.0)
        if figures and max(f.ratio for f in figures) > limit:
            return check.name, tried, max(figures, key=lambda f: f.ratio)
    return "", tried, None


def kill_named(task: tuple[str, int, str]) -> Kill:
    """Calls `kill` by names, for other processes."""
    name, seed, profile = task
    return kill(load_all()[name], seed, PROFILES[profile])


def fates(kills: Sequence[Kill]) -> list[Fate]:
    """Groups kills by mutant, in the order of `MUTANTS`."""
    by_name: dict[str, list[Kill]] = {}
    for one in kills:
        by_name.setdefault(one.mutant, []).append(one)
    return [
        Fate(MUTANTS[name], tuple(sorted(by_name[name], key=lambda k: k.seed)))
        for name in MUTANTS
        if name in by_name
    ]
