"""What commands that run checks share: which checks, how much they try, in how many processes, and where."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from conformance import checks
from conformance.checks.registry import CHECKS
from conformance.commands.common import at_least_one, default_workers
from conformance.contract import settings
from conformance.contract.remote.where import Where, add_options
from conformance.contract.suggest import did_you_mean
from conformance.runs.request import Request
from conformance.runs.selection import Part
from conformance.search.effort import PROFILES
from spec import all_clauses


def add_effort_options(parser: argparse.ArgumentParser) -> None:
    """Declares which checks are run, how much they try, and in how many processes."""
    parser.add_argument(
        "--profile", default="quick", choices=list(PROFILES), help="how much to try (default quick)"
    )
    parser.add_argument(
        "--clause", action="append", default=[], metavar="ID", help="only this clause (repeatable)"
    )
    parser.add_argument(
        "-n",
        dest="workers",
        type=at_least_one,
        default=default_workers(),
        metavar="N",
        help="processes (default: 2, or 1 on a single core)",
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Declares what a `Request` needs beside the implementation and the folder."""
    add_effort_options(parser)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the search (default 0)"
    )
    parser.add_argument(
        "--no-expectations", action="store_true", help="report known deviations as violations"
    )
    parser.add_argument(
        "--device",
        choices=settings.DEVICES,
        help="where JAX kernels run: compiled on a TPU, or in interpret mode on the CPU (default auto)",
    )
    add_options(parser.add_argument)


def request_of(
    arguments: argparse.Namespace,
    impl: str,
    failures: Path,
    shard: Part = Part(),  # noqa: B008  (frozen)
) -> Request:
    """The request that the options of `add_run_options` make; sets the device.

    Args:
      arguments: the options.
      impl: the implementation.
      failures: folder for replay files.
      shard: which part of the checks.
    """
    if arguments.device:
        settings.request_device(arguments.device)
    return Request(
        impl=impl,
        where=Where.of(arguments),
        profile=arguments.profile,
        seed=arguments.seed,
        clauses=tuple(arguments.clause),
        expectations=not arguments.no_expectations,
        workers=arguments.workers,
        failures=failures,
        shard=shard,
    )


def check_clauses(names: Sequence[str]) -> None:
    """Checks the names of clauses.

    Raises:
      ValueError: one does not exist, or has nothing to check; the message suggests a name.
    """
    for name in names:
        clause = all_clauses().get(name)
        if clause is None:
            raise ValueError(f"--clause {name}: no such clause{_suggestion(name)}")
        if not clause.is_checkable:
            raise ValueError(f"--clause {name}: nothing to check ({clause.status})")


def _suggestion(name: str) -> str:
    """The clause that was meant: the one of a check, or the one with the most similar name."""
    checks.load_all()
    if name in CHECKS:
        return f"; it is a check of {CHECKS[name].clause_id}"
    return did_you_mean(name, [*all_clauses(), *CHECKS])
