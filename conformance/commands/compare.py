"""``compare``: several implementations side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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
from conformance.contract.shipped import SHIPPED
from conformance.search.effort import PROFILES

HELP = "judge several implementations and show where they differ"
EXAMPLES = """\
  splash-conformance compare jax tokamax pallas_impl
  splash-conformance compare jax jax@~/venvs/jax-0.4.31 --html compare.html
  splash-conformance compare jax ./adapter.py:Mine --clause LABEL-3 --clause FWD-1
  splash-conformance compare one.json other.json  reports of earlier runs
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "impls",
        metavar="IMPL",
        nargs="+",
        help=f"{', '.join(SHIPPED)}, module:attr or file.py:attr, each with @PYTHON for another interpreter "
        "or virtual environment; or the JSON report of a run",
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
        "--all", action="store_true", help="show every clause, not only differences"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the comparison as JSON")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="F",
        help="write the comparison as one self-contained HTML file",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("splash-conformance-compare"),
        metavar="DIR",
        help="for the report, the journal and the replay files of every run (default %(default)s)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the runs whose files are in that folder"
    )
    parser.add_argument(
        "--no-expectations", action="store_true", help="take known deviations as violations"
    )
    parser.add_argument(
        "--device",
        choices=settings.DEVICES,
        help="where JAX kernels run: compiled on a TPU, or in interpret mode on the CPU (default auto)",
    )
    add_options(parser.add_argument)
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``compare``: 0 if everything was compared, whatever came out; 2 if something is missing."""
    from conformance.compare import run as comparing
    from conformance.compare import terminal as terminal_compare
    from conformance.compare.comparison import write_json
    from conformance.compare.page import write_html
    from conformance.contract.protocol import AdapterError
    from conformance.reports import terminal
    from conformance.runs.request import Request
    from conformance.search.known_deviations import ExpectationError

    try:
        check_clauses(arguments.clause)
        check_targets({"--json": arguments.json, "--html": arguments.html})
        if arguments.folder.exists() and not arguments.folder.is_dir():
            raise ValueError(f"--folder {arguments.folder}: is not a folder")
        if len(arguments.impls) < 2:
            raise ValueError("compare needs two implementations or reports, or more")
        if arguments.device:
            settings.request_device(arguments.device)
        request = Request(
            impl="",
            where=Where.of(arguments),
            profile=arguments.profile,
            seed=arguments.seed,
            clauses=tuple(arguments.clause),
            expectations=not arguments.no_expectations,
            workers=arguments.workers,
            failures=arguments.folder,
        )
        progress = terminal.console_for(sys.stderr, color=not arguments.no_color)
        progress.quiet = arguments.quiet
        sides = comparing.sides_of(arguments.impls, request)
        runs = comparing.Runs(sides, arguments.folder, arguments.resume, progress)
        comparison = comparing.compare(runs, arguments.clause)
    except (ValueError, OSError, AdapterError, ExpectationError) as error:
        return fail(str(error))
    console = terminal.console_for(color=not arguments.no_color)
    terminal_compare.print_comparison(comparison, console, detail_of(arguments), arguments.all)
    if not comparison.complete:
        print("go on with the same command and --resume", file=sys.stderr)
    if arguments.json:
        write_json(comparison, arguments.json)
    if arguments.html:
        write_html(comparison, arguments.html)
    broken = any(column.run.errors for column in comparison.columns)
    return 0 if comparison.complete and not broken else 2
