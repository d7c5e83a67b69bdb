"""``merge``: one report out of those of all shards."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.commands import report_options
from conformance.commands.common import add_output_options, fail
from conformance.runs.merge import merge
from conformance.runs.runner import command_line

EXAMPLES = """\
  splash-conformance merge shard-*.json --partial --html report.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="F", help="reports of run --shard I/N --json F"
    )
    report_options.add_report_options(parser)
    parser.add_argument(
        "--partial",
        action="store_true",
        help="shards may be missing: the report is incomplete then",
    )
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``merge``: prints and writes the report; exit codes are those of ``run``."""
    try:
        targets = report_options.targets_of(arguments)
        run, notes = merge(arguments.files, command_line(), arguments.partial)
    except ValueError as error:
        return fail(str(error))
    report_options.show(run, arguments)
    for note in notes:
        print(f"splash-conformance: {note}", file=sys.stderr)
    report_options.write(run, targets)
    return run.exit_code
