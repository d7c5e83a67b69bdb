"""The report of a run in the terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from conformance.causes import Group, clause_ranges, grouped
from conformance.report import Run
from conformance.text import finding_text
from conformance.verdict import Finding
from spec import all_clauses
from spec.clauses import chapter_files, chapter_title

COLUMNS = ("conforms", "violates", "known deviation", "n/a", "error", "undefined")
STYLES = {
    "conforms": "green",
    "violates": "bold red",
    "known deviation": "yellow",
    "error": "magenta",
}


def chapter_table(run: Run) -> Table:
    """Chapters against verdicts, in clauses."""
    table = Table(title=f"{run.implementation} {run.version}", title_justify="left")
    table.add_column("chapter", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    status = run.clause_status()
    totals: Counter[str] = Counter()
    for path in chapter_files():
        mine = [c for c in all_clauses().values() if c.chapter == path.stem]
        counts = Counter(
            "undefined" if not c.is_checkable else status[c.id]
            for c in mine
            if not c.is_checkable or c.id in status
        )
        if any(c.id in status for c in mine):
            totals += counts
            table.add_row(chapter_title(path), *_cells(counts))
    table.add_section()
    table.add_row("all", *_cells(totals))
    return table


def _cells(counts: Counter[str]) -> list[str]:
    return [
        f"[{STYLES.get(c, 'dim')}]{counts[c]}[/]" if counts[c] else "[dim]·[/]" for c in COLUMNS
    ]


def quality_table(findings: Iterable[Finding]) -> Table | None:
    """Figures of quality clauses above the best possible."""
    table = Table(title="figures (never a failure)", title_justify="left")
    for column in ("clause", "what", "measured", "best", "problem"):
        table.add_column(column)
    for item in findings:
        table.add_row(item.clause, item.where, item.actual, item.expected, item.grid())
    return table if table.row_count else None


def print_run(run: Run, console: Console) -> None:
    """Prints violations, known deviations, figures, errors and the table of chapters."""
    for group in grouped(run, lambda f: not f.deviation):
        print_group(group, run, console)
    for group in grouped(run, lambda f: bool(f.deviation)):
        print_group(group, run, console)
    figures = quality_table(f for o in run.outcomes for f in o.findings if f.kind == "quality")
    if figures is not None:
        console.print()
        console.print(figures)
    for name in sorted({name for o in run.outcomes for name in o.stale}):
        console.print(f"[yellow]stale expectation[/] {name}: its fixed problem no longer fails")
    unjudged = [f"{o.clause} ({o.check}): {o.reason}" for o in run.outcomes if o.status == "error"]
    for error in [*run.errors, *unjudged]:
        console.print("error:", error, style="magenta", markup=False)
    console.print()
    console.print(chapter_table(run))
    print_summary(run, console)


def print_group(group: Group, run: Run, console: Console) -> None:
    """Prints the smallest finding of a cause, and what else the cause touches."""
    text = finding_text(group.finding, run.implementation, group.replay, run.where)
    others = [clause for clause in group.clauses if clause != group.finding.clause]
    if others:
        text += f"\n  also in:  {clause_ranges(others)}"
    reason = run.reasons.get(group.finding.deviation)
    if reason:
        text += f"\n  known:    {reason}"
    style = "yellow" if group.finding.deviation else ""
    console.print()
    console.print(text, markup=False, highlight=False, style=style, soft_wrap=True)


def print_summary(run: Run, console: Console) -> None:
    """The last lines: how much was tried, what came out, whether it is complete."""
    problems = sum(o.examples for o in run.outcomes)
    console.print(
        f"{len(run.outcomes)} checks, {problems} problems, {run.seconds:.1f} s "
        f"(profile {run.profile}, seed {run.seed}"
        + (f", shard {run.shard})" if run.shard.of > 1 else ")")
    )
    if not run.complete:
        console.print("[bold yellow]interrupted: this report is partial[/]")
    console.print(f"{run.implementation} {run.version} {verdict(run)}")


def verdict(run: Run) -> str:
    """The last line: what the exit code means, with known deviations counted."""
    words = {
        0: "[green]conforms[/]",
        1: "[bold red]does not conform[/]",
        2: "[magenta]could not be judged completely[/]",
        3: "[yellow]has stale expectations[/]",
    }
    known = {f.deviation for o in run.outcomes for f in o.findings if f.deviation}
    if not known:
        return words[run.exit_code]
    clauses = sum(status == "known deviation" for status in run.clause_status().values())
    text = f"{len(known)} known deviations ({clauses} clauses)"
    if run.exit_code == 0:
        return f"[yellow]conforms apart from {text}[/]"
    return f"{words[run.exit_code]}, besides {text}"


def console_for(stream: Any = None) -> Console:
    """A console that respects NO_COLOR; into a pipe it writes plain text of a fixed width."""
    stream = stream or sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 110)
