"""One run of the suite, as the commands ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from conformance.contract.fence import Subject
from conformance.contract.remote.host import environment_of
from conformance.contract.remote.where import Where
from conformance.contract.settings import requested_device
from conformance.runs import runner
from conformance.runs.journal import Journal
from conformance.runs.report import Run, now
from conformance.runs.selection import Part
from conformance.runs.shards import selection_of
from conformance.search import known_deviations as expectation


@dataclass(frozen=True)
class Request:
    """What is to be judged, and how.

    Attributes:
      impl: as for `conformance.contract.protocol.load`.
      where: where it runs.
      profile, seed: how much is tried.
      clauses: only these; all if empty.
      expectations: known deviations are taken into account.
      shard: which part of the checks.
      workers: processes.
      failures: folder for replay files.
    """

    impl: str
    where: Where
    profile: str
    seed: int
    clauses: tuple[str, ...]
    expectations: bool
    workers: int
    failures: Path
    shard: Part = Part()  # noqa: RUF009  (frozen)

    def header(self, version: str) -> dict[str, Any]:
        """What a journal, or a report, of the same run says about it."""
        return {
            "implementation": self.impl,
            "version": version,
            "profile": self.profile,
            "seed": self.seed,
            "clauses": sorted(self.clauses),
            "expectations": self.expectations,
            "python": self.where.python,
            "shard": str(self.shard),
            "device": requested_device(),
        }


def begin_run(request: Request, subject: Subject) -> Run:
    """A run that has not found out anything yet.

    Raises:
      ExpectationError: the known deviations of the implementation are malformed.
    """
    known = expectation.load(subject.description)
    return Run(
        implementation=request.impl,
        version=subject.description.version,
        profile=request.profile,
        seed=request.seed,
        command=runner.command_line(),
        features=tuple(sorted(subject.description.features)),
        started=now(),
        clauses=request.clauses,
        selection=selection_of(request.clauses, request.expectations),
        shard=request.shard,
        reasons={item.id: item.reason for item in known},
        where=str(request.where),
        foreign=environment_of(subject.adapter),
    )


def execute_run(run: Run, request: Request, journal: Journal, console: Console) -> None:
    """Runs the checks and fills the run; its journal goes when nothing is left to do."""
    runner.run_checks(
        run,
        console,
        workers=request.workers,
        failures=request.failures,
        journal=journal,
        where=request.where,
    )
    journal.close(finished=run.exit_code != 2)
