"""What several commands share: their errors, and how they open an implementation."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.contract.suggest import did_you_mean
from spec import all_clauses

if TYPE_CHECKING:
    from conformance.reports.terminal import Detail


def fail(message: str) -> int:
    """Prints one clear line and returns the exit code of a harness or adapter error."""
    print(f"splash-conformance: {message}", file=sys.stderr)
    return 2


def at_least_one(text: str) -> int:
    """A number of processes from the command line."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def default_workers() -> int:
    """Two processes where there are two cores: more would spend their time on imports."""
    return min(2, os.cpu_count() or 1)


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Declares how much is printed, and how."""
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "-q", "--quiet", action="store_true", help="print the verdict and violations only"
    )
    how_much.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print known deviations and all violations in full",
    )
    parser.add_argument(
        "--no-color", action="store_true", help="no colours; also with NO_COLOR in the environment"
    )


def detail_of(arguments: argparse.Namespace) -> Detail:
    """How much is printed, from the options of `add_output_options`."""
    if arguments.quiet:
        return "quiet"
    return "verbose" if arguments.verbose else "normal"


def check_targets(targets: Mapping[str, Path | None]) -> None:
    """Checks, before a long run, that its reports can be written.

    Args:
      targets: files by option.

    Raises:
      ValueError: a report would have no folder.
    """
    for option, path in targets.items():
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ValueError(f"{option} {path}: must be a file in a folder that exists")


def check_clauses(names: Sequence[str]) -> None:
    """Checks the names of clauses.

    Raises:
      ValueError: one does not exist; the message offers the nearest.
    """
    for name in names:
        if name not in all_clauses():
            raise ValueError(f"--clause {name}: no such clause{_meant(name)}")
        if not all_clauses()[name].is_checkable:
            raise ValueError(f"--clause {name}: nothing to check ({all_clauses()[name].status})")


def _meant(name: str) -> str:
    """What a name that is no clause may mean: a clause, or the name of a check."""
    from conformance import checks
    from conformance.checks.registry import CHECKS

    checks.load_all()
    if name in CHECKS:
        return f"; it is a check of {CHECKS[name].clause_id}"
    return did_you_mean(name, [*all_clauses(), *CHECKS])
