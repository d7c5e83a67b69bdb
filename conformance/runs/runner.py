"""Runs the checks through pytest and collects their outcomes, with a live progress bar."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conformance import checks
from conformance.contract.remote.where import Where
from conformance.contract.settings import (
    FOLDER,
    HYPOTHESIS_FOLDER,
    ONE_PROCESS_A_PROCESSOR,
    inherited,
)
from conformance.findings.finding import Outcome
from conformance.runs.journal import Journal
from conformance.runs.plugin import PROPERTY
from conformance.runs.report import Run
from conformance.runs.shards import part_of, selected
from conformance.search.effort import PROFILES
from conformance.search.last_problem import Trail
from conformance.search.replay import save

#: So many processes of checks may be lost to an implementation that is not isolated.
LOST_PROCESSES = 20


class Collector:
    """Pytest plugin that listens to reports, of this process and of xdist workers."""

    def __init__(self, run: Run, progress: Progress, journal: Journal, trail: Trail) -> None:
        self.run = run
        self.progress = progress
        self.journal = journal
        self.trail = trail
        self.task = progress.add_task("collecting", total=None)
        self.failing = 0
        self.lost = 0
        self.left = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers: the number of checks."""
        if session.items:
            self._expect(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """With workers: the number of checks."""
        del node
        self._expect(len(ids))

    def _expect(self, checks: int) -> None:
        self.left = checks
        self.progress.update(self.task, total=checks, description="checking")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the outcome out of a report; a failure without one is an error of the harness."""
        found = [json.loads(str(v)) for k, v in report.user_properties if k == PROPERTY]
        if report.when == "call":
            if found:
                self._take(Outcome.from_json(found[-1]))
            elif report.failed:
                self.run.errors.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")
            self.progress.advance(self.task)
        elif str(report.when) == "???":  # how xdist reports a check whose process ended
            self._lost(report)
        elif report.failed:
            self.run.errors.append(
                f"{report.nodeid} ({report.when}): {_last_line(report.longreprtext)}"
            )

    def _lost(self, report: pytest.TestReport) -> None:
        """A check whose process ended is a verdict about the problem that it tried last."""
        checks.load_all()
        name = report.nodeid.rsplit("::", 1)[1].split("@")[0]
        outcome = self.trail.outcome(name)
        if outcome is None:
            self.run.errors.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")
        else:
            self.lost += 1
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        self.run.outcomes.append(outcome)
        self.left -= 1
        if outcome.status != "error":  # what could not be judged is tried again
            self.journal.add(outcome)
        self.failing += outcome.status == "violates"
        note = f"checking, {self.failing} violated" if self.failing else "checking"
        self.progress.update(self.task, description=note)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A check that cannot be collected is an error of the harness."""
        if report.failed:
            self.run.errors.append(f"{report.nodeid}: {_last_line(str(report.longrepr))}")

    def pytest_internalerror(self, excrepr: Any) -> None:
        """An error inside pytest or a worker."""
        self.run.errors.append(_last_line(str(excrepr)))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Ctrl-C: what was found so far is reported. Pytest derives other reasons to stop from it."""
        if excinfo.type is KeyboardInterrupt:
            self.run.complete = False


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().split("\n") if line.strip()]
    return lines[-1].strip() if lines else "failed without a message"


def pytest_arguments(
    run: Run,
    workers: int,
    where: Where = Where(),  # noqa: B008
) -> list[str]:
    """Arguments of the pytest run, independent of any configuration of the current folder."""
    home = Path(checks.__file__).parent
    arguments = [
        str(home),
        f"--rootdir={home}",
        f"--confcutdir={home}",
        "-c",
        os.devnull,
        "-p",
        "conformance.runs.plugin",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
        "-p",
        "no:doctest",
        "-p",
        "no:benchmark",
        "--import-mode=importlib",
        f"--splash-impl={run.implementation}",
        f"--splash-profile={run.profile}",
        f"--splash-seed={run.seed}",
        f"--splash-shard={run.shard}",
        *where.arguments("--splash-"),
    ]
    arguments += [f"--splash-clause={clause}" for clause in run.clauses]
    if not run.selection.expectations:
        arguments.append("--splash-no-expectations")
    if workers > 1:
        arguments += ["-n", str(workers), "--dist=loadgroup"]
        arguments.append("--max-worker-restart=0")
    else:
        arguments += ["-p", "no:xdist"]
    return arguments


def run_checks(
    run: Run,
    console: Console,
    *,
    workers: int = 1,
    failures: Path,
    journal: Journal,
    where: Where = Where(),  # noqa: B008  (frozen)
) -> None:
    """Runs all checks and fills ``run``.

    Args:
      run: what to run; receives outcomes, errors and replay files.
      console: where the progress bar goes; nothing is drawn where it is not a terminal.
      workers: processes.
      failures: folder for replay files.
      journal: receives every outcome at once; what it holds already is not run again.
      where: where the implementation runs.
    """
    start = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = not interactive(console)
    run.outcomes += journal.outcomes
    # Of many parts of few checks some are empty: then there is nothing to do, and nothing wrong.
    own = part_of(selected(run.clauses), PROFILES[run.profile], run.shard)
    with (
        _folder() as folder,
        inherited(ONE_PROCESS_A_PROCESSOR),
        Progress(*columns, console=console, transient=True, disable=hidden) as progress,
    ):
        collector = Collector(run, progress, journal, Trail(folder))
        arguments = pytest_arguments(run, workers, where)
        arguments.append(f"--splash-done={journal.path.resolve()}")
        if workers > 1 and not where.apart:
            arguments.append(f"--splash-trail={folder}")
        code = _through_pytest(arguments, collector) if own else pytest.ExitCode.OK
    if code == pytest.ExitCode.INTERRUPTED:
        run.complete = False
    elif code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR) and not run.errors:
        run.errors.append("pytest could not run the checks, see above")
    elif own and not run.outcomes and not run.errors:
        run.errors.append("no check was run")
    run.sort()
    run.seconds = time.perf_counter() - start
    try:
        save_findings(run, failures)
    except OSError as error:
        run.errors.append(f"replay files cannot be written: {error}")


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder of the run, in which its processes make theirs: not all live to remove them."""
    with (
        tempfile.TemporaryDirectory(prefix="splash-conformance-") as name,
        inherited({FOLDER: name, HYPOTHESIS_FOLDER: name}),
    ):
        yield Path(name)


def _through_pytest(arguments: list[str], collector: Collector) -> int:
    """Runs pytest; again for the checks that are left, if the implementation ended one of its processes."""
    while True:
        lost = collector.lost
        try:
            code = pytest.main(arguments, plugins=[collector])
        except KeyboardInterrupt:
            return pytest.ExitCode.INTERRUPTED
        if not (lost < collector.lost <= LOST_PROCESSES and collector.run.complete):
            return code
        if collector.left <= 0:
            return pytest.ExitCode.OK


def save_findings(run: Run, folder: Path) -> None:
    """Writes a replay file for every finding that is more than a figure."""
    for outcome in run.outcomes:
        for n, finding in enumerate(outcome.findings):
            if finding.kind != "quality":
                path = save(finding, folder, run.implementation, run.version)
                run.replays[outcome.check, n] = _relative(path)


def _relative(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def command_line() -> str:
    """The command that is running, for reports."""
    return " ".join(["splash-conformance", *sys.argv[1:]])


def interactive(console: Console) -> bool:
    """Whether somebody watches: FORCE_COLOR colours a file, but does not make it a terminal."""
    return bool(console.file.isatty()) and not console.is_dumb_terminal
