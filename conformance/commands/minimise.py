"""``minimise``: a smaller problem with the same failure, and a script that shows it without the suite."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from conformance.bug_report.case import case_of
from conformance.bug_report.run import outcome_of
from conformance.bug_report.write import script
from conformance.commands.common import at_least_one, check_targets, fail
from conformance.contract import library
from conformance.contract.protocol import AdapterError
from conformance.contract.remote.where import Where, add_options
from conformance.contract.smoke import ready
from conformance.findings.finding import Finding
from conformance.findings.printed import finding_text
from conformance.search import known_deviations as expectation
from conformance.search import replay
from conformance.search.known_deviations import ExpectationError
from conformance.search.minimise.minimise import Minimiser

EXAMPLES = """\
  splash-conformance minimise FILE ./adapter.py:Mine --output smaller.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a file of the failures folder")
    parser.add_argument("impl", metavar="IMPL")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="F",
        help="replay file of the smaller problem (default: beside FILE)",
    )
    parser.add_argument(
        "--tries",
        type=at_least_one,
        default=400,
        metavar="N",
        help="try at most N problems (default 400)",
    )
    parser.add_argument("--no-run", action="store_true", help="do not run the script")
    add_options(parser.add_argument)


def execute(arguments: argparse.Namespace) -> int:
    """``minimise``: prints the script; everything else goes to standard error."""

    try:
        check_targets({"--output": arguments.output})
        finding = replay.read(arguments.file)
        where = Where.of(arguments)
        _, subject = ready(arguments.impl, where)
        deviations = expectation.load(subject.description)
    except (ValueError, AdapterError, ExpectationError) as error:
        return fail(str(error))
    reason = replay.not_applicable(finding, subject)
    if reason:
        return fail(f"{arguments.impl!r} {reason}, so {finding.check} says nothing about it")
    minimiser = Minimiser(subject, deviations, tries=arguments.tries)
    failing = minimiser.reproduce(finding)
    name = f"{subject.description.name} {subject.description.version}"
    if failing is None or failing.kind == "quality":
        return fail(f"{name}: {finding.clause} holds on this problem ({finding.check})")
    smallest = searched(minimiser, failing)
    path = replay.save(
        smallest,
        arguments.output or arguments.file.parent,
        subject.description.name,
        subject.description.version,
    )
    text = finding_text(smallest, arguments.impl, str(path), str(where))
    print(f"{text}\n\n{minimiser.tried} problems tried\n", file=sys.stderr)
    return show(smallest, minimiser, arguments, where)


def searched(minimiser: Minimiser, finding: Finding) -> Finding:
    """Runs the search with a line of progress where somebody can see it."""

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("minimising", total=None)

        def tell(tried: int, smallest: Finding) -> None:
            text = f"{tried} tried, smallest: {smallest.grid()}, {smallest.problem.heads} heads"
            progress.update(task, description=text)

        minimiser.tell = tell
        return minimiser.smallest(finding)


def show(
    finding: Finding, minimiser: Minimiser, arguments: argparse.Namespace, where: Where
) -> int:
    """Prints the script of a finding, and says what comes out when it is run."""

    shipped = arguments.impl.partition("=")[0]
    package = library.judged_package(shipped) if shipped in library.PACKAGES else ""
    made = script(case_of(finding, minimiser.subject, arguments.impl, package))
    print(made.text, end="")
    if made.note:
        print(f"\nsplash-conformance: {made.note}", file=sys.stderr)
    elif not made.runs:
        print("\nsplash-conformance: put your call where the script says so", file=sys.stderr)
    elif not arguments.no_run:
        print(f"\nrunning the script: {outcome_of(made.text, where.python)}", file=sys.stderr)
    return 0
