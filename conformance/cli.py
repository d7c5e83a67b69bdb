"""The command line: ``splash-conformance run | list | smoke | replay``."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from conformance import checks, device, expectation, replay, report, runner
from conformance.adapter import SHIPPED, Adapter, AdapterError
from conformance.expectation import ExpectationError
from conformance.foreign.host import close, environment_of
from conformance.foreign.where import Where, add_options
from conformance.journal import Journal
from conformance.judge import CHECKS
from conformance.search import PROFILES
from conformance.smoke import profiles_of, smoke
from conformance.subject import Subject
from conformance.text import finding_text
from spec import all_clauses

#: The implementation that ``run`` judges if none is named: this project's own.
DEFAULT_IMPL = "pallas_impl"

EXAMPLES = """\
examples:
  splash-conformance run                          judge this project's own implementation
  splash-conformance run jax                      judge the installed jax
  splash-conformance run my_pkg.adapter:make      judge your own implementation
  splash-conformance run ./adapter.py:Mine --clause LABEL-1 --clause DATA-3
  splash-conformance run jax --profile deep --json report.json --junit report.xml
  splash-conformance list                         every clause and its check
  splash-conformance smoke ./adapter.py:Mine      does the adapter work at all?
  splash-conformance replay FILE jax              run one saved problem again

IMPL is a shipped adapter ({shipped}), package.module:attribute or path/to/file.py:attribute.
exit codes: 0 conforms, 1 violation, 2 harness or adapter error, 3 stale expectation
"""


class Parser(argparse.ArgumentParser):
    """Argument errors in one line, with the nearest name that exists, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and where help is."""
        self.exit(2, f"{self.prog}: {message}\ntry: {self.prog} --help\n")


def at_least_one(text: str) -> int:
    """A number of processes from the command line."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def build_parser() -> Parser:
    """The parser of the whole command line."""
    shipped = ", ".join(SHIPPED)
    parser = Parser(
        prog="splash-conformance",
        description="Judges splash attention implementations against the specification.",
        epilog=EXAMPLES.format(shipped=shipped),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run the checks against an implementation",
        epilog=EXAMPLES.format(shipped=shipped),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "impl",
        metavar="IMPL",
        nargs="?",
        default=DEFAULT_IMPL,
        help=f"{shipped}, module:attr or file.py:attr (default {DEFAULT_IMPL})",
    )
    run.add_argument(
        "--profile", default="quick", choices=list(PROFILES), help="how much to try (default quick)"
    )
    run.add_argument(
        "--clause", action="append", default=[], metavar="ID", help="only this clause (repeatable)"
    )
    run.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the search (default 0)"
    )
    run.add_argument(
        "-n",
        dest="workers",
        type=at_least_one,
        default=runner.default_workers(),
        metavar="N",
        help="processes (default: 2, or 1 on a single core)",
    )
    run.add_argument("--json", type=Path, metavar="F", help="write the report as JSON")
    run.add_argument("--junit", type=Path, metavar="F", help="write the report as JUnit XML")
    run.add_argument(
        "--failures",
        type=Path,
        default=Path("splash-conformance-failures"),
        metavar="DIR",
        help="folder for replay files (default %(default)s)",
    )
    run.add_argument(
        "--no-expectations", action="store_true", help="report known deviations as violations"
    )
    run.add_argument(
        "--resume",
        type=Path,
        metavar="F",
        help="go on with the run of this journal: beside --json, or run.jsonl in the failures folder",
    )
    run.add_argument(
        "--device",
        choices=device.DEVICES,
        help="where JAX kernels run: compiled on a TPU, or in interpret mode on the CPU (default auto)",
    )
    add_options(run.add_argument)
    run.set_defaults(action=command_run)

    listing = commands.add_parser("list", help="list clauses and their checks")
    listing.add_argument("words", nargs="*", metavar="WORD", help="only clauses with these words")
    listing.set_defaults(action=command_list)

    smoking = commands.add_parser("smoke", help="call everything that an adapter declares once")
    smoking.add_argument("impl", metavar="IMPL")
    add_options(smoking.add_argument)
    smoking.set_defaults(action=command_smoke)

    again = commands.add_parser("replay", help="run one saved problem again")
    again.add_argument("file", type=Path, metavar="FILE", help="a file of the failures folder")
    again.add_argument("impl", metavar="IMPL")
    add_options(again.add_argument)
    again.set_defaults(action=command_replay)
    return parser


def fail(message: str) -> int:
    """Prints one clear line and returns the exit code of a harness or adapter error."""
    print(f"splash-conformance: {message}", file=sys.stderr)
    return 2


def check_clauses(names: Sequence[str]) -> None:
    """Checks the names of clauses.

    Raises:
      ValueError: one does not exist; the message offers the nearest.
    """
    for name in names:
        if name not in all_clauses():
            near = difflib.get_close_matches(name.upper(), all_clauses(), n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"--clause {name}: no such clause{hint}")
        if not all_clauses()[name].is_checkable:
            raise ValueError(f"--clause {name}: nothing to check ({all_clauses()[name].status})")


def check_targets(arguments: argparse.Namespace) -> None:
    """Checks, before a long run, that its reports can be written.

    Raises:
      ValueError: a report would have no folder, or the folder of failures is a file.
    """
    for option, path in (("--json", arguments.json), ("--junit", arguments.junit)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ValueError(f"{option} {path}: must be a file in a folder that exists")
    if arguments.failures.exists() and not arguments.failures.is_dir():
        raise ValueError(f"--failures {arguments.failures}: is not a folder")


def ready(impl: str, where: Where) -> tuple[Adapter, Subject]:
    """Loads an adapter and runs the beginning of the smoke test.

    Raises:
      AdapterError: it cannot be loaded, or cannot do what every run needs.
    """
    adapter = where.open(impl)
    description, steps = smoke(adapter, whole=False)
    broken = [step for step in steps if step.error and step.name in ("describe", "prepare")]
    if description is None or broken:
        step = broken[0]
        close(adapter)
        raise AdapterError(f"{impl!r} fails its smoke test: {step.name}: {step.error}")
    return adapter, Subject(adapter, description)


def command_run(arguments: argparse.Namespace) -> int:
    """``run``: judge an implementation."""
    try:
        check_clauses(arguments.clause)
        check_targets(arguments)
        where = Where.of(arguments)
        adapter, subject = ready(arguments.impl, where)
        close(adapter)  # every process of checks has its own
        known = expectation.load(subject.description)
        journal = journal_of(arguments, subject.description.version)
    except (ValueError, OSError, AdapterError, ExpectationError) as error:
        return fail(str(error))
    console = report.console_for()
    run = report.Run(
        implementation=arguments.impl,
        version=subject.description.version,
        profile=arguments.profile,
        seed=arguments.seed,
        command=runner.command_line(),
        reasons={item.id: item.reason for item in known},
        where=str(where),
        foreign=environment_of(adapter),
    )
    runner.execute(
        run,
        console,
        clauses=arguments.clause,
        workers=arguments.workers,
        expectations=not arguments.no_expectations,
        failures=arguments.failures,
        journal=journal,
        where=where,
    )
    journal.close(finished=run.exit_code != 2)
    report.print_run(run, console)
    if run.exit_code == 2:
        print(f"journal of this run, for --resume: {journal.path}", file=sys.stderr)
    if arguments.json:
        report.write_json(run, arguments.json)
    if arguments.junit:
        report.write_junit(run, arguments.junit)
    return run.exit_code


def journal_of(arguments: argparse.Namespace, version: str) -> Journal:
    """The journal of a run, new or continued.

    Raises:
      JournalError: it cannot be continued.
      OSError: it cannot be written.
    """
    header = {
        "implementation": arguments.impl,
        "version": version,
        "profile": arguments.profile,
        "seed": arguments.seed,
        "clauses": sorted(arguments.clause),
        "expectations": not arguments.no_expectations,
        "python": arguments.python,
    }
    if arguments.resume:
        return Journal(arguments.resume, header, resume=True)
    path = arguments.failures / "run.jsonl"
    if arguments.json:
        path = arguments.json.with_suffix(".jsonl")
    return Journal(path, header, resume=False)


def command_list(arguments: argparse.Namespace) -> int:
    """``list``: clauses with their checks."""
    checks.load_all()
    by_clause: dict[str, list[str]] = {}
    for check in CHECKS.values():
        by_clause.setdefault(check.clause_id, []).append(check.name)
    words = [word.lower() for word in arguments.words]
    for item in all_clauses().values():
        names = ", ".join(by_clause.get(item.id, [])) or "—"
        line = f"{item.id:<12} {item.status:<22} {item.kind:<11} {item.title}  [{names}]"
        if all(word in line.lower() for word in words):
            print(line)
    return 0


def command_smoke(arguments: argparse.Namespace) -> int:
    """``smoke``: call everything that is declared once."""
    try:
        adapter = Where.of(arguments).open(arguments.impl)
    except AdapterError as error:
        return fail(str(error))
    description, steps = smoke(adapter)
    if description is not None:
        print(f"{description.name} {description.version}")
        print(f"features: {', '.join(sorted(description.features))}")
        print(f"profiles: {', '.join(profiles_of(description)) or 'none is complete'}")
    for step in steps:
        print(f"  {'ok  ' if not step.error else 'FAIL'} {step.name}")
        if step.error:
            print("       " + (step.trace or step.error).rstrip().replace("\n", "\n       "))
    return 2 if any(step.error for step in steps) else 0


def command_replay(arguments: argparse.Namespace) -> int:
    """``replay``: run one saved problem again."""
    try:
        finding = replay.read(arguments.file)
        where = Where.of(arguments)
        _, subject = ready(arguments.impl, where)
    except (replay.ReplayError, AdapterError) as error:
        return fail(str(error))
    reason = replay.not_applicable(finding, subject)
    if reason:
        return fail(f"{arguments.impl!r} {reason}, so {finding.check} says nothing about it")
    again = replay.run(finding, subject)
    name = f"{subject.description.name} {subject.description.version}"
    if again is None:
        print(f"{name}: {finding.clause} holds on this problem ({finding.check})")
        return 0
    print(finding_text(again, arguments.impl, str(arguments.file), str(where)))
    print(f"\n{name}: still so")
    return 0 if again.kind == "quality" else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command ``splash-conformance``; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.action(arguments)
    except KeyboardInterrupt:
        print("splash-conformance: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
