"""What all commands share: how they fail, how much they print, and checks of what they were given."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

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
    """Two processes where there are two cores: more would spend their time importing."""
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
    """Checks, before a long run, that its files can be written.

    Args:
      targets: files by option.

    Raises:
      ValueError: one is a folder, or its folder does not exist.
    """
    for option, path in targets.items():
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ValueError(f"{option} {path}: must be a file in a folder that exists")
