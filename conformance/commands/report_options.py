"""What commands that show the report of a run share: how it is printed, and the files that it is written to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from conformance.commands.common import check_targets, detail_of
from conformance.reports.html.run_page import write_html
from conformance.reports.junit import write_junit
from conformance.reports.terminal import console_for, print_run
from conformance.runs.report import Run, write_json

#: What writes a report, by option.
WRITERS: dict[str, Callable[[Run, Path], None]] = {
    "json": write_json,
    "junit": write_junit,
    "html": write_html,
}
_FORMATS = {"json": "JSON", "junit": "JUnit XML", "html": "one self-contained HTML file"}


def add_report_options(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Declares the files that a report is written to.

    Args:
      parser: of the command.
      formats: those of `WRITERS`; all if none is named.
    """
    for name in formats or WRITERS:
        parser.add_argument(
            f"--{name}", type=Path, metavar="F", help=f"write the report as {_FORMATS[name]}"
        )


def targets_of(arguments: argparse.Namespace) -> dict[str, Path]:
    """The files that were asked for, by format.

    Raises:
      ValueError: one would have no folder.
    """
    found = {name: getattr(arguments, name, None) for name in WRITERS}
    check_targets({f"--{name}": path for name, path in found.items()})
    return {name: path for name, path in found.items() if path is not None}


def show(run: Run, arguments: argparse.Namespace) -> None:
    """Prints a report in the terminal."""
    print_run(run, console_for(color=not arguments.no_color), detail_of(arguments))


def write(run: Run, targets: dict[str, Path]) -> None:
    """Writes a report to the files of `targets_of`."""
    for name, path in targets.items():
        WRITERS[name](run, path)
