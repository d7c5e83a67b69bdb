"""``merge``: one report out of those of all shards."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.commands.common import add_output_options, check_targets, detail_of, fail

HELP = "put the reports of all shards of a run together"
EXAMPLES = """\
  splash-conformance merge shard-*.json --json report.json --junit report.xml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="F", help="reports of run --shard I/N --json F"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the report as JSON")
    parser.add_argument("--junit", type=Path, metavar="F", help="write the report as JUnit XML")
    parser.add_argument(
        "--html", type=Path, metavar="F", help="write the report as one self-contained HTML file"
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="shards may be missing: the report is incomplete then",
    )
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``merge``: prints and writes the report; exit codes are those of ``run``."""
    from conformance.reports import terminal
    from conformance.reports.html.run_page import write_html
    from conformance.reports.junit import write_junit
    from conformance.runs import merge
    from conformance.runs.report import write_json
    from conformance.runs.runner import command_line

    try:
        check_targets(
            {"--json": arguments.json, "--junit": arguments.junit, "--html": arguments.html}
        )
        run, notes = merge.merge(arguments.files, command_line(), arguments.partial)
    except ValueError as error:
        return fail(str(error))
    console = terminal.console_for(color=not arguments.no_color)
    terminal.print_run(run, console, detail_of(arguments))
    for note in notes:
        print(f"splash-conformance: {note}", file=sys.stderr)
    if arguments.json:
        write_json(run, arguments.json)
    if arguments.junit:
        write_junit(run, arguments.junit)
    if arguments.html:
        write_html(run, arguments.html)
    return run.exit_code
