"""``compare``: several implementations side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.commands.common import add_output_options, check_targets, detail_of, fail
from conformance.commands.run_options import add_run_options, check_clauses, request_of
from conformance.compare.comparison import write_json
from conformance.compare.page import write_html
from conformance.compare.run import Runs, compare, sides_of
from conformance.compare.terminal import print_comparison
from conformance.contract.protocol import AdapterError
from conformance.contract.shipped import SHIPPED
from conformance.reports.terminal import console_for

EXAMPLES = """\
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
    add_run_options(parser)
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
        "--resume", action="store_true", help="continue the runs whose files are in that folder"
    )
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``compare``: 0 if everything was compared, whatever came out; 2 if something is missing."""
    try:
        check_clauses(arguments.clause)
        check_targets({"--json": arguments.json, "--html": arguments.html})
        if arguments.folder.exists() and not arguments.folder.is_dir():
            raise ValueError(f"--folder {arguments.folder}: is not a folder")
        if len(arguments.impls) < 2:
            raise ValueError("compare needs two implementations or reports, or more")
        request = request_of(arguments, impl="", failures=arguments.folder)
        progress = console_for(sys.stderr, color=not arguments.no_color)
        progress.quiet = arguments.quiet
        sides = sides_of(arguments.impls, request)
        comparison = compare(
            Runs(sides, arguments.folder, arguments.resume, progress), arguments.clause
        )
    except (ValueError, OSError, AdapterError) as error:
        return fail(str(error))
    console = console_for(color=not arguments.no_color)
    print_comparison(comparison, console, detail_of(arguments), arguments.all)
    if not comparison.complete:
        print("continue with the same command and --resume", file=sys.stderr)
    if arguments.json:
        write_json(comparison, arguments.json)
    if arguments.html:
        write_html(comparison, arguments.html)
    broken = any(column.run.errors for column in comparison.columns)
    return 0 if comparison.complete and not broken else 2
