"""A comparison in the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.compare.comparison import NOT_RUN, Comparison, Difference, conclusion
from conformance.findings.printed import block_map, problem_facts
from conformance.reports.causes import clause_ranges
from conformance.reports.summary import MEANINGS, plural
from conformance.reports.terminal import IN_FULL, STYLES, Detail
from spec import Clause, clause

MEANING_NOT_RUN = "nothing is known: the run did not get there, or was not asked for the clause"


def print_comparison(
    comparison: Comparison, console: Console, detail: Detail, everything: bool
) -> None:
    """Prints differences, the table of clauses, the table of features and the conclusion.

    Args:
      comparison: what to print.
      console: where.
      detail: ``quiet`` leaves differences and features out; ``verbose`` prints all differences in full.
      everything: every clause in a row of its own, not only those that differ.
    """
    if detail != "quiet":
        print_differences(comparison, console, detail)
    table = clause_table(comparison, everything)
    if table.row_count:
        console.print()
        console.print(table)
        print_legend(comparison, console)
    if detail != "quiet" and comparison.features():
        console.print()
        console.print(feature_table(comparison))
    for column in comparison.columns:
        for error in column.run.errors:
            console.print(f"error: {column.label}: {error}", style="magenta", markup=False)
        if not column.started:
            console.print(f"[bold yellow]not run:[/] {escape(column.label)}")
        elif not column.run.complete:
            console.print(f"[bold yellow]interrupted:[/] {escape(column.label)}")
    if not comparison.complete:
        console.print("[bold yellow]this comparison is partial[/]")
    console.print(conclusion(comparison))


def clause_table(comparison: Comparison, everything: bool) -> Table:
    """Clauses against implementations; neighbours with the same verdicts share a row, unless all are asked for."""
    table = Table(title_justify="left")
    table.add_column("clauses", overflow="fold")
    for column in comparison.columns:
        table.add_column(escape(column.label), justify="center", overflow="fold")
    for title, clauses in comparison.chapters(everything):
        table.add_section()
        table.add_row(f"[bold]{title}[/]")
        for ids, verdicts in _rows(comparison, clauses, everything):
            text = clause_ranges(ids)
            if everything:
                text += f" [dim]{escape(clause(ids[0]).title)}[/]"
            table.add_row(f"  {text}", *map(_cell, verdicts))
    return table


def _rows(
    comparison: Comparison, clauses: Iterable[Clause], everything: bool
) -> list[tuple[list[str], list[str]]]:
    rows: list[tuple[list[str], list[str]]] = []
    for rule in clauses:
        verdicts = [
            f"{verdict}*" if (rule.id, n) in comparison.late else verdict
            for n, verdict in enumerate(comparison.verdicts[rule.id])
        ]
        known = [ids for ids, others in rows if others == verdicts]
        if known and not everything:
            known[0].append(rule.id)
        else:
            rows.append(([rule.id], verdicts))
    return rows


def _cell(verdict: str) -> str:
    return f"[{STYLES.get(verdict.rstrip('*'), 'dim')}]{verdict}[/]"


def print_legend(comparison: Comparison, console: Console) -> None:
    """Explains the verdicts that do not explain themselves."""
    shown = {verdict for row in comparison.verdicts.values() for verdict in row}
    meanings = MEANINGS | {NOT_RUN: MEANING_NOT_RUN}
    for verdict in ("known deviation", "n/a", "error", NOT_RUN):
        if verdict in shown:
            console.print(f"[dim]{verdict}: {meanings[verdict]}[/]")
    if comparison.late:
        console.print("[dim]*: found by trying a problem of another implementation[/]")


def feature_table(comparison: Comparison) -> Table:
    """Features that some declare and others do not; those that the same ones declare share a row."""
    table = Table(title="features that not all declare", title_justify="left", show_lines=True)
    table.add_column("features")
    for column in comparison.columns:
        table.add_column(escape(column.label), justify="center", overflow="fold")
    together: dict[tuple[bool, ...], list[str]] = {}
    for name, row in comparison.features().items():
        together.setdefault(tuple(row), []).append(name)
    for owners, names in together.items():
        cells = ("[green]yes[/]" if has else "[dim]no[/]" for has in owners)
        table.add_row(escape(", ".join(names)), *cells)
    return table


def print_differences(comparison: Comparison, console: Console, detail: Detail) -> None:
    """The smallest problem behind every difference; of many the first ones in full."""
    shown = len(comparison.differences) if detail == "verbose" else IN_FULL
    for item in comparison.differences[:shown]:
        console.print()
        text = "\n".join(difference_lines(comparison, item))
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    rest = comparison.differences[shown:]
    if rest:
        console.print()
        console.print(f"{plural(len(rest), 'further difference')} (in full: --verbose)")
        table = Table.grid(padding=(0, 2))
        for item in rest:
            table.add_row(f"  {clause_ranges(item.clauses)}", escape(_who(comparison, item)))
        console.print(table)


def _who(comparison: Comparison, item: Difference) -> str:
    """Who fails, and who does not."""
    words = {
        "fails": "fails in",
        "holds": "holds in",
        "not tried": "not tried in",
        "n/a": "not for",
    }
    parts = []
    for trial, text in words.items():
        names = [
            c.label for c, t in zip(comparison.columns, item.trials, strict=True) if t == trial
        ]
        if names:
            parts.append(f"{text} {', '.join(names)}")
    return "; ".join(parts)


def difference_lines(comparison: Comparison, item: Difference) -> list[str]:
    """One difference: clause, problem, who fails and how, and how to see that it fails here and holds there."""
    finding, rule = item.finding, clause(item.finding.clause)
    lines = [f"{finding.clause} — {rule.title}: {_who(comparison, item)}"]
    lines += ["  " + line for line in problem_facts(finding.problem) + block_map(finding.problem)]
    lines += [f"  where:    {finding.where}", f"  expected: {_first(finding.expected)}"]
    lines += [f"  actual:   {_first(finding.actual)}"]
    if finding.deviation:
        lines.append(f"  known:    {finding.deviation}")
    others = [name for name in item.clauses if name != finding.clause]
    if others:
        lines.append(f"  also in:  {clause_ranges(others)}")
    for trial in ("fails", "holds"):
        shown = [text for n, text in item.commands.items() if item.trials[n] == trial]
        lines += [f"  {trial + ':':<9} {text}" for text in shown[:1]]
    return lines


def _first(text: str) -> str:
    first, *rest = text.split("\n")
    return first + (" …" if rest else "")
