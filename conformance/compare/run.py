"""Runs several implementations for a comparison, and tries the problems of one on the others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from conformance.compare.comparison import Column, Comparison, Difference, compared, explain
from conformance.compare.comparison_form import Trial
from conformance.contract.fence import Subject
from conformance.contract.library import PACKAGES
from conformance.contract.protocol import AdapterError
from conformance.contract.remote.errors import NotTried
from conformance.contract.remote.host import close
from conformance.contract.smoke import ready
from conformance.findings.finding import Finding
from conformance.findings.printed import replay_command
from conformance.runs import runner
from conformance.runs.journal import Journal
from conformance.runs.report import ReportError, Run, read, write_json
from conformance.runs.request import Request, begin_run, execute_run
from conformance.search import known_deviations as expectation
from conformance.search import replay
from conformance.search.known_deviations import Deviation


@dataclass(frozen=True)
class Side:
    """One argument of ``compare``.

    Attributes:
      text: as on the command line.
      request: what to run; None for a report.
      report: a report file.
    """

    text: str
    request: Request | None
    report: Path | None = None

    @property
    def stem(self) -> str:
        """Name of its files: readable, and different for different texts."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:6]
        return re.sub(r"[^\w.=]+", "-", self.text).strip("-") + "-" + digest


def side_of(text: str, request: Request) -> Side:
    """An argument: a report, an implementation, or an implementation and its interpreter (``jax@~/venvs/old``).

    Args:
      text: the argument.
      request: what all runs have in common.
    """
    if text.endswith(".json"):
        return Side(text, None, Path(text))
    impl, at, python = text.rpartition("@")
    if not at or ".py:" in python:  # the sign belongs to the path of a file
        return Side(text, replace(request, impl=text))
    where = replace(request.where, python=str(Path(python).expanduser()))
    return Side(text, replace(request, impl=impl, where=where))


def sides_of(texts: Sequence[str], request: Request) -> list[Side]:
    """All arguments. Several packages for one adapter of a library need a process each.

    Raises:
      ValueError: an argument is there twice.
    """
    sides = [side_of(text, request) for text in texts]
    double = [text for n, text in enumerate(texts) if text in texts[:n]]
    if double:
        raise ValueError(f"{double[0]!r} is there twice")
    packages: dict[str, set[str]] = {}
    for side in sides:
        if side.request is not None:
            library, _, package = side.request.impl.partition("=")
            packages.setdefault(library, set()).add(package)
    return [_isolated(side) if _clashes(side, packages) else side for side in sides]


def _clashes(side: Side, packages: dict[str, set[str]]) -> bool:
    if side.request is None or side.request.where.apart:
        return False
    library = side.request.impl.partition("=")[0]
    return library in PACKAGES and len(packages[library]) > 1


def _isolated(side: Side) -> Side:
    assert side.request is not None
    return replace(
        side, request=replace(side.request, where=replace(side.request.where, isolate=True))
    )


class Runs:
    """Runs the sides one after the other; every one has a report and a journal of its own.

    Args:
      sides: what to run or read.
      folder: for reports, journals and replay files.
      resume: go on with what is there.
      console: for progress.
    """

    def __init__(self, sides: Sequence[Side], folder: Path, resume: bool, console: Console) -> None:
        self.sides = sides
        self.folder = folder
        self.resume = resume
        self.console = console
        self.complete = True
        self._subjects: dict[int, Subject | None] = {}
        self._known: dict[int, list[Deviation]] = {}

    def columns(self) -> list[Column]:
        """All runs; after an interruption those that are left are empty.

        Raises:
          ReportError: a report cannot be read.
          AdapterError, ExpectationError, JournalError, OSError: a side cannot be run. Nothing has been run then,
            as far as that can be known.
        """
        runs = [self._begin(n, side) for n, side in enumerate(self.sides)]
        columns = []
        for n, (side, run) in enumerate(zip(self.sides, runs, strict=True)):
            columns.append(Column(run, side.text, started=self.complete or side.request is None))
            if side.request is None or not self.complete:
                continue
            if self.resume and (finished := self._finished(side, run)):
                self.console.print(f"[{n + 1}/{len(runs)}] {side.text}: read again", markup=False)
                columns[-1].run = finished
                continue
            self.console.print(f"[{n + 1}/{len(runs)}] {side.text} {run.version}", markup=False)
            self._run(side, run)
            self.complete = run.complete
        return columns

    def _begin(self, n: int, side: Side) -> Run:
        if side.request is None:
            assert side.report is not None
            return read(side.report)
        adapter, subject = ready(side.request.impl, side.request.where)
        close(adapter)
        self._known[n] = expectation.load(subject.description) if side.request.expectations else []
        return begin_run(self._request(side), subject)

    def _request(self, side: Side) -> Request:
        assert side.request is not None
        return replace(side.request, failures=self.folder / side.stem)

    def _run(self, side: Side, run: Run) -> None:
        request, header = self._request(side), self._request(side).header(run.version)
        path = self.folder / f"{side.stem}.jsonl"
        journal = Journal(path, header, resume=self.resume and path.is_file())
        execute_run(run, request, journal, self.console)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(run, self.folder / f"{side.stem}.json")

    def _finished(self, side: Side, run: Run) -> Run | None:
        """The report of the same run, if it is there and has nothing left to do."""
        try:
            found = read(self.folder / f"{side.stem}.json")
        except ReportError:
            return None
        names = ("implementation", "version", "profile", "seed", "clauses", "selection", "where")
        same = all(getattr(found, name) == getattr(run, name) for name in names)
        return found if same and found.exit_code != 2 else None

    def attempt(self, finding: Finding, n: int) -> tuple[Trial, Finding | None]:
        """Tries a finding of one side on another, see `conformance.compare.comparison.Try`."""
        subject = self._subject(n)
        if subject is None:
            return "not tried", None
        try:
            if replay.not_applicable(finding, subject):
                return "n/a", None
            found = replay.run(finding, subject)
        except NotTried:
            return "not tried", None
        if found is None or found.kind == "quality":
            return "holds", None
        return "fails", expectation.mark(found, finding.problem, self._known[n])

    def _subject(self, n: int) -> Subject | None:
        if n not in self._subjects:
            request = self.sides[n].request
            try:
                self._subjects[n] = ready(request.impl, request.where)[1] if request else None
            except AdapterError:
                self._subjects[n] = None
        return self._subjects[n]

    def close(self) -> None:
        """Ends what was started."""
        for subject in self._subjects.values():
            if subject is not None:
                close(subject.adapter)


def compare(runs: Runs, clauses: Collection[str]) -> Comparison:
    """Runs everything and explains the differences.

    Args:
      runs: the sides.
      clauses: only these; all if empty.

    Raises:
      ReportError, AdapterError, ExpectationError, JournalError, OSError: see `Runs.columns`.
    """
    columns = runs.columns()
    comparison = compared(columns, runner.command_line(), runs.complete, clauses)
    try:
        with runs.console.status("trying problems on the others"):
            explain(comparison, runs.attempt if runs.complete else _not_tried)
    except KeyboardInterrupt:
        comparison.complete = False
    finally:
        runs.close()
    comparison.differences = [_saved(item, comparison, runs) for item in comparison.differences]
    return comparison


def _not_tried(finding: Finding, n: int) -> tuple[Trial, Finding | None]:
    """After an interruption nothing more is run."""
    del finding, n
    return "not tried", None


def _saved(item: Difference, comparison: Comparison, runs: Runs) -> Difference:
    """The difference with its replay file, and a command for everyone to whom it is applicable."""
    run = comparison.columns[item.column].run
    path = replay.save(item.finding, runs.folder, run.implementation, run.version)
    commands = {
        n: replay_command(str(path), column.run.implementation, column.run.where)
        for n, column in enumerate(comparison.columns)
        if item.trials[n] != "n/a"
    }
    return replace(item, replay=str(path), commands=commands)
