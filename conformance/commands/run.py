"""``run``: judge an implementation."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.commands.common import (
    add_output_options,
    at_least_one,
    check_clauses,
    check_targets,
    default_workers,
    detail_of,
    fail,
)
from conformance.contract import settings
from conformance.contract.remote.where import Where, add_options
from conformance.contract.shipped import DEFAULT_IMPL, SHIPPED
from conformance.contract.smoke import ready
from conformance.runs.selection import Part, part
from conformance.search.effort import PROFILES

if TYPE_CHECKING:
    from conformance.runs.journal import Journal
    from conformance.runs.request import Request

HELP = "run the checks against an implementation"
EXAMPLES = """\
  splash-conformance run jax                      judge the installed jax
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
    parser.add_argument(
        "--profile", default="quick", choices=list(PROFILES), help="how much to try (default quick)"
    )
    parser.add_argument(
        "--clause", action="append", default=[], metavar="ID", help="only this clause (repeatable)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the search (default 0)"
    )
    parser.add_argument(
        "-n",
        dest="workers",
        type=at_least_one,
        default=default_workers(),
        metavar="N",
        help="processes (default: 2, or 1 on a single core)",
    )
    parser.add_argument(
        "--shard",
        type=part,
        default=Part(),
        metavar="I/N",
        help="only part I of N of the checks, for N machines; see merge",
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the report as JSON")
    parser.add_argument("--junit", type=Path, metavar="F", help="write the report as JUnit XML")
    parser.add_argument(
        "--html", type=Path, metavar="F", help="write the report as one self-contained HTML file"
    )
    parser.add_argument(
        "--failures",
        type=Path,
        default=Path("splash-conformance-failures"),
        metavar="DIR",
        help="folder for replay files (default %(default)s)",
    )
    parser.add_argument(
        "--no-expectations", action="store_true", help="report known deviations as violations"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="F",
        help="go on with the run of this journal: beside --json, or run.jsonl in the failures folder",
    )
    parser.add_argument(
        "--database",
        type=Path,
        metavar="DIR",
        help="keep failing examples there and try them first; machines may share it",
    )
    parser.add_argument(
        "--device",
        choices=settings.DEVICES,
        help="where JAX kernels run: compiled on a TPU, or in interpret mode on the CPU (default auto)",
    )
    add_options(parser.add_argument)
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``run``: judge an implementation."""
    from conformance.contract.protocol import AdapterError
    from conformance.contract.remote.host import close
    from conformance.reports import terminal
    from conformance.reports.html.run_page import write_html
    from conformance.reports.junit import write_junit
    from conformance.runs import request as judging
    from conformance.runs.report import write_json
    from conformance.search.known_deviations import ExpectationError

    try:
        check_clauses(arguments.clause)
        check_targets(
            {"--json": arguments.json, "--junit": arguments.junit, "--html": arguments.html}
        )
        if arguments.failures.exists() and not arguments.failures.is_dir():
            raise ValueError(f"--failures {arguments.failures}: is not a folder")
        if arguments.device:
            settings.request_device(arguments.device)
        settings.request_database(arguments.database)
        request = request_of(arguments)
        adapter, subject = ready(arguments.impl, request.where)
        close(adapter)  # every process of checks has its own
        run = judging.begin(request, subject)
        journal = journal_of(arguments, request, run.version)
    except (ValueError, OSError, AdapterError, ExpectationError) as error:
        return fail(str(error))
    console = terminal.console_for(color=not arguments.no_color)
    judging.judge(run, request, journal, console)
    terminal.print_run(run, console, detail_of(arguments))
    if run.exit_code == 2:
        print(f"journal of this run, for --resume: {journal.path}", file=sys.stderr)
    if arguments.json:
        write_json(run, arguments.json)
    if arguments.junit:
        write_junit(run, arguments.junit)
    if arguments.html:
        write_html(run, arguments.html)
    return run.exit_code


def request_of(arguments: argparse.Namespace) -> Request:
    """What the command line asks for."""
    from conformance.runs.request import Request

    return Request(
        impl=arguments.impl,
        where=Where.of(arguments),
        profile=arguments.profile,
        seed=arguments.seed,
        clauses=tuple(arguments.clause),
        expectations=not arguments.no_expectations,
        workers=arguments.workers,
        failures=arguments.failures,
        shard=arguments.shard,
    )


def journal_of(arguments: argparse.Namespace, request: Request, version: str) -> Journal:
    """The journal of a run, new or continued.

    Raises:
      JournalError: it cannot be continued.
      OSError: it cannot be written.
    """
    from conformance.runs.journal import Journal

    if arguments.resume:
        return Journal(arguments.resume, request.header(version), resume=True)
    path = arguments.failures / "run.jsonl"
    if arguments.json:
        path = arguments.json.with_suffix(".jsonl")
    return Journal(path, request.header(version), resume=False)
