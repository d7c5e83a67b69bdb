"""``report``: the report of an earlier run, as a page, as JUnit XML, or in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import report_options
from conformance.commands.common import add_output_options, fail
from conformance.runs.report import read

EXAMPLES = """\
  splash-conformance report report.json --html report.html --junit report.xml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("file", type=Path, metavar="FILE.json", help="what run --json wrote")
    report_options.add_report_options(parser, "html", "junit")
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``report``: writes what is asked for; if nothing is, shows the report, with the exit code of its run."""
    try:
        targets = report_options.targets_of(arguments)
        run = read(arguments.file)
    except ValueError as error:
        return fail(str(error))
    if targets:
        report_options.write(run, targets)
        return 0
    report_options.show(run, arguments)
    return run.exit_code
