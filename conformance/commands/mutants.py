"""``mutants``: run the catalogue of wrong implementations against the checks that must notice them."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from conformance.commands.common import at_least_one, check_targets, fail
from conformance.commands.run_options import add_effort_options, check_clauses
from conformance.mutants import load_all
from conformance.mutants.kill import Fate, Kill, fates, kill_named
from conformance.reports import terminal

#: What mutants are about, see `conformance.mutants.Mutant.kind`.
KINDS = ("structural", "algebraic", "precision", "quality", "kernel")

EXAMPLES = """\
  splash-conformance mutants --clause LABEL-1 --seeds 5 --json mutants.json
  splash-conformance mutants --kind kernel
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    add_effort_options(parser)
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        choices=KINDS,
        help="only of this kind (repeatable); kernel: the Pallas kernels of pallas_impl with a mistake, "
        "all others: the reference with one",
    )
    parser.add_argument(
        "--seeds", type=at_least_one, default=1, metavar="N", help="seeds 0…N-1 (default 1)"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the result as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """``mutants``: 1 if a mutant survives that must not, 2 after an interruption."""

    try:
        check_clauses(arguments.clause)
        check_targets({"--json": arguments.json})
    except ValueError as error:
        return fail(str(error))
    chosen = [
        m
        for m in load_all().values()
        if m.clause in (arguments.clause or [m.clause]) and m.kind in (arguments.kind or KINDS)
    ]
    wanted = len(chosen)
    if find_spec("jax") is None:
        chosen = [mutant for mutant in chosen if mutant.kind != "kernel"]
    tasks = [
        (mutant.name, seed, arguments.profile)
        for mutant in chosen
        for seed in range(arguments.seeds)
    ]
    console = terminal.console_for()
    kills, complete = _kill(tasks, arguments.workers, console)
    found = fates(kills)
    console.print(table(found))
    lines = summary(found, len(chosen), arguments, complete)
    if wanted > len(chosen):
        lines.append(
            f"{wanted - len(chosen)} kernel mutants left out: they need jax (pip install jax)"
        )
    for line in lines:
        console.print(line, markup=False, highlight=False)
    if arguments.json:
        data = {
            "profile": arguments.profile,
            "seeds": arguments.seeds,
            "complete": complete,
            "mutants": [fate.to_json() for fate in found],
        }
        arguments.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if any(fate.survives for fate in found):
        return 1
    return 0 if complete else 2


def _kill(
    tasks: list[tuple[str, int, str]], workers: int, console: Console
) -> tuple[list[Kill], bool]:
    """Runs the tasks with a progress bar; what was done until an interruption, and whether that is all."""

    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kills: list[Kill] = []
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("mutants", total=len(tasks))
        try:
            with _results(tasks, min(workers, len(tasks))) as results:
                for kill in results:
                    kills.append(kill)
                    progress.advance(bar)
        except KeyboardInterrupt:
            return kills, False
    return kills, True


@contextmanager
def _results(tasks: list[tuple[str, int, str]], workers: int) -> Iterator[Iterator[Kill]]:
    """The results of the tasks as they arrive."""

    if workers < 2:
        yield map(kill_named, tasks)
        return
    with interruptions_ignored():  # the processes inherit that: Ctrl-C is for this one
        pool = multiprocessing.get_context("spawn").Pool(workers)
    with pool:  # ends them at its end
        yield pool.imap_unordered(kill_named, tasks)


@contextmanager
def interruptions_ignored() -> Iterator[None]:
    """Ignores SIGINT in the main thread; no other can have it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def table(found: list[Fate]) -> Table:
    """Clause × killed by × examples needed × seconds."""

    made = Table(title="mutants", title_justify="left")
    for name in ("clause", "mutant", "kind", "killed by"):
        made.add_column(name, overflow="fold")
    for name in ("seeds", "examples", "seconds"):
        made.add_column(name, justify="right", no_wrap=True)
    for fate in found:
        killers = dict.fromkeys(kill.check for kill in fate.kills if kill.check)
        examples = [kill.examples for kill in fate.kills if kill.check]
        needed = "" if not examples else f"{min(examples)}"
        if examples and max(examples) > min(examples):
            needed += f"…{max(examples)}"
        made.add_row(
            fate.mutant.clause,
            fate.mutant.name,
            fate.mutant.kind,
            ", ".join(killers) or "[dim]nothing[/]",
            f"{fate.killed}/{len(fate.kills)}",
            needed,
            f"{sum(kill.seconds for kill in fate.kills):.2f}",
            style="bold red" if fate.survives else "",
        )
    return made


def summary(
    found: list[Fate], wanted: int, arguments: argparse.Namespace, complete: bool
) -> list[str]:
    """The last lines."""
    lines = []
    for fate in found:
        mutant = fate.mutant
        if mutant.kind == "precision":
            rate = fate.killed / len(fate.kills)
            lines.append(
                f"{mutant.name}: noticed with {rate:.0%} of the seeds, recorded {mutant.kill_rate:.0%}"
            )
    for fate in found:
        if fate.survives:
            missed = ", ".join(str(kill.seed) for kill in fate.kills if not kill.check)
            lines.append(f"{fate.mutant.name} survives {fate.mutant.clause} (seeds {missed})")
    if not complete:
        lines.append("interrupted: this result is partial")
    survivors = sum(fate.survives for fate in found)
    problems = sum(kill.examples for fate in found for kill in fate.kills)
    of = "" if len(found) == wanted else f" of {wanted}"
    lines.append(
        f"{len(found)}{of} mutants, {problems} problems, {survivors} survive "
        f"(profile {arguments.profile}, {arguments.seeds} seeds)"
    )
    return lines
