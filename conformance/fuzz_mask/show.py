"""Prints the verdict on a class in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.fuzz_mask.outcome import NOT_ASKED_FOR, Fault, FuzzRun
from conformance.reports.causes import clause_ranges
from conformance.reports.summary import plural
from conformance.reports.terminal import Detail
from spec import all_clauses

STYLES = {"conforms": "green", "violates": "bold red", "not tried": "yellow", "n/a": "dim"}
COLUMNS = ("verdict", "clauses hold", "violated", "tried", "seconds")

#: Print at most this many causes in full; list only the clauses of the others.
WHOLE = 8


def fault_text(fault: Fault) -> str:
    """One fault: clause, masks, difference, and the command that repeats it."""
    word = {"required": "violates", "advice": "advice"}[fault.severity]
    if fault.severity == "required" and fault.kind == "crash":
        word = "fails"
    title = "declared meaning" if fault.check == "check_declared_meaning" else fault.check
    out = [f"{title}: {word}"]
    if fault.clause:
        rule = all_clauses()[fault.clause]
        out = [f"{fault.clause} — {rule.title}: {word} ({fault.check})"]
        out += textwrap.wrap(rule.sentence, 96, initial_indent="  ", subsequent_indent="  ")
    names = ("first", "second") if len(fault.calls) == 2 else ("mask",) * len(fault.calls)
    out += [f"  {name + ':':<9} {call}" for name, call in zip(names, fault.calls, strict=True)]
    out += ["  " + line for line in fault.lines]
    for name, value in (
        ("where", fault.where),
        ("expected", fault.expected),
        ("actual", fault.actual),
    ):
        first, *rest = value.split("\n")
        out += [f"  {name + ':':<9} {first}", *(" " * 12 + line for line in rest)]
    out += [" " * 12 + line.rstrip() for line in fault.detail.split("\n") if fault.detail]
    if fault.again:
        out.append(f"  again:    {fault.again}")
    return "\n".join(out)


def print_run(run: FuzzRun, console: Console, detail: Detail = "normal") -> None:
    """Prints what is wrong, advice, notes, the table of stages and the verdict.

    Args:
      run: the verdict.
      console: where to print.
      detail: ``quiet`` prints only what is wrong and the verdict, ``verbose`` shortens nothing.
    """
    causes = by_cause(run.of("required"))
    whole = len(causes) if detail == "verbose" else WHOLE
    for fault, *same in causes[:whole]:
        text = fault_text(fault)
        others = {other.clause for other in same if other.clause} - {fault.clause}
        if others:
            text += f"\n  also in:  {clause_ranges(sorted(others, key=_order))}"
        console.print()
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    more = [fault.clause for cause in causes[whole:] for fault in cause if fault.clause]
    if more:
        console.print(f"\nalso violated: {clause_ranges(sorted(set(more), key=_order))}")
    if detail != "quiet":
        _print_rest(run, console)
    for error in run.errors:
        console.print("error:", error, style="magenta", markup=False)
    print_verdict(run, console)


def by_cause(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Faults grouped by their cause, in order of the first of each."""
    causes: dict[object, list[Fault]] = {}
    for fault in faults:
        cause = (fault.actual, fault.detail) if fault.kind == "crash" else fault.check
        causes.setdefault(cause, []).append(fault)
    return list(causes.values())


def _print_rest(run: FuzzRun, console: Console) -> None:
    """Advice, failures of the implementation, the table and how much was tried."""
    for fault in run.of("advice"):
        console.print()
        text = fault_text(fault)
        console.print(text, markup=False, highlight=False, soft_wrap=True, style="yellow")
    if run.elsewhere:
        name = escape(f"{run.implementation} {run.version}")
        console.print(f"\nnot caused by the class, but by {name}:", highlight=False)
        for line in run.elsewhere:
            _print_item(line, console)
    console.print()
    console.print(stage_table(run))
    for line in run.notes:
        _print_item(line, console)
    print_tried(run, console)


def _order(clause_id: str) -> int:
    return list(all_clauses()).index(clause_id)


def _print_item(line: str, console: Console) -> None:
    for part in textwrap.wrap(line, 104, initial_indent="- ", subsequent_indent="  "):
        console.print(part, markup=False, highlight=False)


def stage_table(run: FuzzRun) -> Table:
    """The table of stages and verdicts."""
    title = escape(f"{run.target} on {run.implementation} {run.version}")
    table = Table(title=title, title_justify="left")
    table.add_column("what", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "verdict" else "right")
    for stage in run.stages.values():
        if stage.reason == NOT_ASKED_FOR:
            continue
        counts = stage.counts()
        verdict = f"[{STYLES[stage.status]}]{stage.status}[/]"
        if stage.reason:
            verdict += f": {escape(stage.reason)}"
        figures = (counts["conforms"], counts["violates"], stage.cases)
        cells = [str(n) if n else "[dim]·[/]" for n in figures]
        table.add_row(stage.title, verdict, *cells, f"{stage.seconds:.1f}")
    return table


def print_tried(run: FuzzRun, console: Console) -> None:
    """How many masks were tried, and which calls the constructor refused."""
    console.print(
        f"{run.made} masks, {run.seconds:.1f} s (profile {run.profile}, seed {run.seed})",
        highlight=False,
    )
    if run.refused:
        console.print(
            f"{run.refused} calls were refused by the constructor, most often:", highlight=False
        )
        for text, number in run.reasons.items():
            _print_item(f"{number} times, such as: {text}", console)


def print_verdict(run: FuzzRun, console: Console) -> None:
    """The last lines."""
    if not run.complete:
        console.print("[bold yellow]interrupted: this report is partial[/]")
    words = {
        0: "[green]conforms[/]",
        1: "[bold red]does not conform[/]",
        2: "[magenta]could not be judged completely[/]",
    }
    advice = len(run.of("advice"))
    more = f", with {plural(advice, 'piece')} of advice" if advice else ""
    console.print(f"{escape(run.target)} {words[run.exit_code]}{more}", highlight=False)
