"""``report``: the report of an earlier run, as a page, as JUnit XML, or in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands.common import add_output_options, check_targets, detail_of, fail

HELP = "show the report of an earlier run, or turn it into a page"
EXAMPLES = """\
  splash-conformance report report.json           in the terminal
  splash-conformance report report.json --html report.html --junit report.xml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("file", type=Path, metavar="FILE.json", help="what run --json wrote")
    parser.add_argument("--html", type=Path, metavar="F", help="write one self-contained HTML file")
    parser.add_argument("--junit", type=Path, metavar="F", help="write JUnit XML")
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``report``: writes what is asked for; if nothing is, shows the report, with the exit code of its run."""
    from conformance.reports import terminal
    from conformance.reports.html.run_page import write_html
    from conformance.reports.junit import write_junit
    from conformance.runs.report import ReportError, read

    try:
        check_targets({"--html": arguments.html, "--junit": arguments.junit})
        run = read(arguments.file)
    except (ValueError, ReportError) as error:
        return fail(str(error))
    if arguments.html:
        write_html(run, arguments.html)
    if arguments.junit:
        write_junit(run, arguments.junit)
    if not (arguments.html or arguments.junit):
        console = terminal.console_for(color=not arguments.no_color)
        terminal.print_run(run, console, detail_of(arguments))
        return run.exit_code
    return 0
