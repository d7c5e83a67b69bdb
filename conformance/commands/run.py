"""``run``: judge an implementation."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.commands import report_options
from conformance.commands.common import add_output_options, fail
from conformance.commands.run_options import add_run_options, check_clauses, request_of
from conformance.contract.protocol import AdapterError
from conformance.contract.remote.host import close
from conformance.contract.settings import request_database
from conformance.contract.shipped import DEFAULT_IMPL, SHIPPED
from conformance.contract.smoke import ready
from conformance.reports.terminal import console_for
from conformance.runs.journal import Journal
from conformance.runs.request import Request, begin_run, execute_run
from conformance.runs.selection import Part, parse_part

EXAMPLES = """\
  splash-conformance run                          judge this project's own implementation
  splash-conformance run my_pkg.adapter:make      judge your own implementation
  splash-conformance run ./adapter.py:Mine --clause LABEL-1 --clause DATA-3
  splash-conformance run jax --profile deep --json report.json --html report.html --junit report.xml
  splash-conformance run jax --shard 3/16 --json 3.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    shipped = ", ".join(SHIPPED)
    parser.add_argument(
        "impl",
        metavar="IMPL",
        nargs="?",
        default=DEFAULT_IMPL,
        help=f"{shipped}, module:attr or file.py:attr (default {DEFAULT_IMPL})",
    )
    add_run_options(parser)
    parser.add_argument(
        "--shard",
        type=parse_part,
        default=Part(),
        metavar="I/N",
        help="only part I of N of the checks, for N machines; see merge",
    )
    report_options.add_report_options(parser)
    parser.add_argument(
        "--failures",
        type=Path,
        default=Path("splash-conformance-failures"),
        metavar="DIR",
        help="folder for replay files (default %(default)s)",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="F",
        help="continue the run of this journal: beside --json, or run.jsonl in the failures folder",
    )
    parser.add_argument(
        "--database",
        type=Path,
        metavar="DIR",
        help="keep failing examples there and try them first; machines may share it",
    )
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``run``: judge an implementation."""
    try:
        check_clauses(arguments.clause)
        targets = report_options.targets_of(arguments)
        if arguments.failures.exists() and not arguments.failures.is_dir():
            raise ValueError(f"--failures {arguments.failures}: is not a folder")
        request = request_of(arguments, arguments.impl, arguments.failures, arguments.shard)
        request_database(arguments.database)
        adapter, subject = ready(arguments.impl, request.where)
        close(adapter)  # every process that runs checks opens its own
        run = begin_run(request, subject)
        journal = journal_of(arguments, request, run.version)
    except (ValueError, OSError, AdapterError) as error:
        return fail(str(error))
    execute_run(run, request, journal, console_for(color=not arguments.no_color))
    report_options.show(run, arguments)
    if run.exit_code == 2:
        print(f"journal of this run, for --resume: {journal.path}", file=sys.stderr)
    report_options.write(run, targets)
    return run.exit_code


def journal_of(arguments: argparse.Namespace, request: Request, version: str) -> Journal:
    """The journal of a run, new or continued.

    Raises:
      JournalError: it cannot be continued.
      OSError: it cannot be written.
    """
    if arguments.resume:
        return Journal(arguments.resume, request.header(version), resume=True)
    path = arguments.failures / "run.jsonl"
    if arguments.json:
        path = arguments.json.with_suffix(".jsonl")
    return Journal(path, request.header(version), resume=False)
