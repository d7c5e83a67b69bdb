"""The report of a run in the terminal."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from conformance.findings.finding import Finding
from conformance.findings.printed import finding_text
from conformance.reports.causes import Group, clause_ranges, grouped
from conformance.reports.summary import (
    MEANINGS,
    STATUSES,
    chapters,
    plural,
    problems_tried,
    totals,
    verdict,
)
from conformance.runs.report import Run
from spec import clause

#: How much is printed: the verdict and violations, also what is known in a line each, or everything in full.
Detail = Literal["quiet", "normal", "verbose"]

STYLES = {
    "conforms": "green",
    "violates": "bold red",
    "known deviation": "yellow",
    "error": "magenta",
}

#: Violations that are printed in full unless everything is asked for; further ones in a line each.
IN_FULL = 10

#: Columns of a pipe or a file.
WIDTH = 110


def console_for(stream: Any = None, color: bool = True) -> Console:
    """A console that respects NO_COLOR and FORCE_COLOR; into a pipe it writes plain text of a fixed width.

    Args:
      stream: where it writes; standard output if None.
      color: False for no colour, whatever the environment says.
    """
    stream = stream or sys.stdout
    plain = not color or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        width=None if stream.isatty() else WIDTH,
        color_system=None if plain else "auto",
        force_terminal=False if plain and not stream.isatty() else None,
    )


def print_run(run: Run, console: Console, detail: Detail = "normal") -> None:
    """Prints a run: violations, known deviations, figures, errors, the table of chapters and the verdict.

    Args:
      run: what to print.
      console: where.
      detail: how much.
    """
    print_violations(run, console, detail)
    if detail != "quiet":
        print_deviations(run, console, detail)
        figures = quality_table(f for o in run.outcomes for f in o.findings if f.kind == "quality")
        if figures is not None:
            console.print()
            console.print(figures)
        print_refusals(run, console)
    for name in sorted({name for o in run.outcomes for name in o.stale}):
        console.print(f"[yellow]stale expectation[/] {name}: its fixed problem no longer fails")
    unjudged = [f"{o.clause} ({o.check}): {o.reason}" for o in run.outcomes if o.status == "error"]
    for error in [*run.errors, *unjudged]:
        console.print("error:", error, style="magenta", markup=False)
    if detail != "quiet":
        console.print()
        console.print(chapter_table(run))
        print_meanings(totals(run), console)
    print_summary(run, console, detail)


def print_violations(run: Run, console: Console, detail: Detail) -> None:
    """The first violations in full: they are the most basic. Others in a line each."""
    groups = grouped(run, lambda f: not f.deviation)
    shown = len(groups) if detail == "verbose" else IN_FULL
    for group in groups[:shown]:
        print_group(group, run, console)
    if groups[shown:]:
        console.print()
        console.print(f"{plural(len(groups[shown:]), 'further violation')} (in full: --verbose)")
        table = Table.grid(padding=(0, 2))
        for group in groups[shown:]:
            finding = group.finding
            table.add_row(
                f"  [bold red]{finding.clause}[/]", clause(finding.clause).title, finding.where
            )
        console.print(table)


def print_refusals(run: Run, console: Console) -> None:
    """What the implementation says that it does not offer, in its words."""
    refused: dict[str, dict[str, int]] = {}
    for outcome in run.outcomes:
        for text, count in outcome.refused.items():
            clauses = refused.setdefault(text, {})
            clauses[outcome.clause] = clauses.get(outcome.clause, 0) + count
    if not refused:
        return
    console.print()
    console.print("refused by the implementation, neither passes nor failures")
    for text, clauses in refused.items():
        problems = plural(sum(clauses.values()), "problem")
        console.print(f"  {problems} of {', '.join(clauses)}: {text}", markup=False)


def print_deviations(run: Run, console: Console, detail: Detail) -> None:
    """What the release is known to do: a line each, or in full."""
    groups = grouped(run, lambda f: bool(f.deviation))
    if detail == "verbose":
        for group in groups:
            print_group(group, run, console)
    elif groups:
        console.print()
        console.print(
            "[yellow]known deviations[/] of this release, neither passes nor failures (in full: --verbose)"
        )
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        for group in groups:
            name = group.finding.deviation
            table.add_row(
                f"  [yellow]{name}[/]",
                plural(len(group.clauses), "clause"),
                run.reasons.get(name, ""),
            )
        console.print(table)


def print_group(group: Group, run: Run, console: Console) -> None:
    """Prints the smallest finding of a cause, and what else the cause touches."""
    text = finding_text(group.finding, run.implementation, group.replay, run.where)
    others = [name for name in group.clauses if name != group.finding.clause]
    if others:
        text += f"\n  also in:  {clause_ranges(others)}"
    reason = run.reasons.get(group.finding.deviation)
    if reason:
        text += f"\n  known:    {reason}"
    style = "yellow" if group.finding.deviation else ""
    console.print()
    console.print(text, markup=False, highlight=False, style=style, soft_wrap=True)


def quality_table(findings: Iterable[Finding]) -> Table | None:
    """Figures of quality clauses above the best possible."""
    table = Table(title="figures (never a failure)", title_justify="left")
    for column in ("clause", "what", "measured", "best", "problem"):
        table.add_column(column)
    for item in findings:
        table.add_row(item.clause, item.where, item.actual, item.expected, item.grid())
    return table if table.row_count else None


def chapter_table(run: Run) -> Table:
    """Chapters against verdicts, in clauses; verdicts that no clause has are left out."""
    table = Table(title=f"{run.implementation} {run.version}", title_justify="left")
    table.add_column("clauses of chapter", no_wrap=True)
    found = totals(run)
    columns = [status for status in STATUSES if found[status] or status in ("conforms", "violates")]
    for column in columns:
        table.add_column(column, justify="right")
    parts = chapters(run)
    for chapter in parts:
        table.add_row(chapter.title, *_cells(columns, chapter.counts))
    if len(parts) > 1:
        table.add_section()
        table.add_row("all", *_cells(columns, found))
    return table


def _cells(columns: Iterable[str], counts: Mapping[str, int]) -> list[str]:
    return [
        f"[{STYLES.get(c, 'dim')}]{counts[c]}[/]" if counts[c] else "[dim]·[/]" for c in columns
    ]


def print_meanings(found: Counter[str], console: Console) -> None:
    """Explains the verdicts of a table that do not explain themselves."""
    for status in STATUSES[2:]:
        if found[status]:
            console.print(f"[dim]{status}: {MEANINGS[status]}[/]")


def print_summary(run: Run, console: Console, detail: Detail = "normal") -> None:
    """The last lines: how much was tried, what came out, whether it is complete."""
    if detail != "quiet":
        shard = f", shard {run.shard}" if run.shard.of > 1 else ""
        console.print(
            f"{plural(len(run.outcomes), 'check')}, {plural(problems_tried(run), 'problem')}, "
            f"{run.seconds:.1f} s (profile {run.profile}, seed {run.seed}{shard})"
        )
    if not run.complete:
        console.print("[bold yellow]interrupted: this report is partial[/]")
    words, status = verdict(run)
    console.print(
        f"{run.implementation} {run.version} [{STYLES[status]}]{words}[/]", soft_wrap=True
    )
