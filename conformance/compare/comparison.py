"""Several runs side by side: verdicts by clause, and the smallest problem behind every difference."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.compare.comparison_form import SCHEMA, Trial
from conformance.findings.finding import Finding
from conformance.reports.summary import plural
from conformance.runs.report import Run
from spec import Clause, all_clauses
from spec.clauses import chapter_files, chapter_title

NOT_RUN = "not run"

#: Tries a finding of one column on another, by its number; the finding if it fails there too.
Try = Callable[[Finding, int], "tuple[Trial, Finding | None]"]


@dataclass
class Column:
    """One implementation.

    Attributes:
      run: what is known about it.
      source: the report that this was read from, or the argument of the command line.
      label: its name where names must differ.
      started: False if nothing was tried, after an interruption.
    """

    run: Run
    source: str
    label: str = ""
    started: bool = True


@dataclass(frozen=True)
class Difference:
    """One cause of differing verdicts.

    Attributes:
      finding: the smallest problem that shows it.
      column: in which it was found.
      clauses: whose verdicts differ by it.
      trials: what every implementation does with that problem.
      replay: its replay file.
      commands: run it again, by column; those that it is not applicable to are left out.
    """

    finding: Finding
    column: int
    clauses: tuple[str, ...]
    trials: tuple[Trial, ...]
    replay: str = ""
    commands: dict[int, str] = field(default_factory=dict)


@dataclass
class Comparison:
    """Several implementations, clause by clause.

    Attributes:
      columns: the implementations.
      verdicts: by clause, one for every column.
      differences: why they differ.
      command: what repeats the comparison.
      complete: False after an interruption.
      late: clauses, by column, that hold for what was tried in its own run, but fail on a problem of another column.
    """

    columns: list[Column]
    verdicts: dict[str, list[str]]
    differences: list[Difference] = field(default_factory=list)
    command: str = ""
    complete: bool = True
    late: set[tuple[str, int]] = field(default_factory=set)

    def differing(self) -> list[str]:
        """Clauses whose verdicts are not all the same, or were not before a problem was tried elsewhere.

        Where a clause was not run is no verdict.
        """
        late = {clause for clause, _ in self.late}
        return [n for n, row in self.verdicts.items() if len({*row} - {NOT_RUN}) > 1 or n in late]

    def chapters(self, everything: bool) -> list[tuple[str, list[Clause]]]:
        """Titles of chapters with their clauses, those that differ or all."""
        wanted = set(self.verdicts if everything else self.differing())
        result = []
        for path in chapter_files():
            own = [
                rule
                for rule in all_clauses().values()
                if rule.chapter == path.stem and rule.id in wanted
            ]
            if own:
                result.append((chapter_title(path), own))
        return result

    def features(self) -> dict[str, list[bool]]:
        """Features that some implementations declare and others do not."""
        names = sorted({name for column in self.columns for name in column.run.features})
        rows = {name: [name in column.run.features for column in self.columns] for name in names}
        return {name: row for name, row in rows.items() if not all(row)}

    def to_json(self) -> dict[str, Any]:
        """Plain data, in the form of `conformance.compare.comparison_form.ComparisonForm`."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "complete": self.complete,
            "columns": [
                {
                    "label": column.label,
                    "source": column.source,
                    "implementation": column.run.implementation,
                    "version": column.run.version,
                    "where": column.run.where,
                    "profile": column.run.profile,
                    "seed": column.run.seed,
                    "complete": column.run.complete and column.started,
                    "features": list(column.run.features),
                    "environment": column.run.environment | column.run.foreign,
                    "errors": column.run.errors,
                }
                for column in self.columns
            ],
            "clauses": self.verdicts,
            "late": [{"clause": clause, "column": n} for clause, n in sorted(self.late)],
            "features": self.features(),
            "differences": [
                {
                    "clauses": list(item.clauses),
                    "column": item.column,
                    "trials": list(item.trials),
                    "replay": item.replay,
                    "commands": {str(n): text for n, text in item.commands.items()},
                    "finding": item.finding.to_json(),
                }
                for item in self.differences
            ],
        }


def compared(
    columns: Sequence[Column], command: str, complete: bool, clauses: Collection[str] = ()
) -> Comparison:
    """The verdicts of several runs side by side, their differences not explained yet.

    Args:
      columns: the runs.
      command: what repeats the comparison.
      complete: False after an interruption.
      clauses: only these; all if empty.
    """
    label(columns)
    found = [column.run.clause_status() for column in columns]
    verdicts = {
        rule.id: [status.get(rule.id, NOT_RUN) for status in found]
        for rule in all_clauses().values()
        if any(rule.id in status for status in found) and (not clauses or rule.id in clauses)
    }
    whole = complete and all(column.run.complete and column.started for column in columns)
    return Comparison(list(columns), verdicts, command=command, complete=whole)


def label(columns: Sequence[Column]) -> None:
    """Gives every column a name of its own: its version too, and where that is not enough its source or number."""
    for column in columns:
        column.label = f"{column.run.implementation} {column.run.version}".strip()
    for wider in ("source", "number"):
        names = [column.label for column in columns]
        for n, column in enumerate(columns):
            if names.count(column.label) > 1:
                more = column.source if wider == "source" else str(n + 1)
                column.label = f"{names[n]} ({more})"


def explain(comparison: Comparison, attempt: Try) -> None:
    """Finds the smallest problem behind every difference.

    A problem on which one implementation fails is tried on those that have not been seen to fail on it. One that
    fails there too, against its verdict so far, gets the verdict that belongs to that.

    Args:
      comparison: receives differences and corrected verdicts.
      attempt: tries a problem; see `Try`.
    """
    differing = set(comparison.differing())
    causes: dict[object, list[tuple[Finding, int]]] = {}
    for n, column in enumerate(comparison.columns):
        for outcome in column.run.outcomes:
            for finding in outcome.findings:
                if finding.kind != "quality" and finding.clause in differing:
                    causes.setdefault(_cause(finding), []).append((finding, n))
    for members in causes.values():
        left = sorted(members, key=lambda member: member[0].size)
        while left:
            difference = _difference(comparison, left, attempt)
            comparison.differences.append(difference)
            left = [item for item in left if difference.trials[item[1]] != "fails"]
    comparison.differences.sort(key=lambda item: list(all_clauses()).index(item.clauses[0]))


def _cause(finding: Finding) -> object:
    """What findings of one cause have in common, in whatever implementation."""
    if finding.deviation:
        return finding.deviation
    return finding.signature if finding.kind == "crash" else (finding.clause, finding.check)


def _difference(
    comparison: Comparison, members: Sequence[tuple[Finding, int]], attempt: Try
) -> Difference:
    """The difference that the smallest finding shows."""
    finding, own = members[0]
    trials: list[Trial] = []
    for n, column in enumerate(comparison.columns):
        same = [f for f, m in members if m == n and _same(f, finding)]
        if n == own or same:
            trials.append("fails")
        elif not column.started:
            trials.append("not tried")
        else:
            trial, found = attempt(finding, n)
            trials.append(trial)
            row = comparison.verdicts[finding.clause]
            if found is not None and row[n] in ("conforms", "known deviation"):
                status = "known deviation" if found.deviation else "violates"
                if status != row[n]:
                    row[n] = status
                    comparison.late.add((finding.clause, n))
    failing = {n for n, trial in enumerate(trials) if trial == "fails"}
    order = list(all_clauses())
    clauses = {f.clause for f, n in members if n in failing}
    return Difference(finding, own, tuple(sorted(clauses, key=order.index)), tuple(trials))


def _same(one: Finding, other: Finding) -> bool:
    return one.check == other.check and one.problem == other.problem


def write_json(comparison: Comparison, path: Path) -> None:
    """Writes a comparison, one line a field."""
    parts = (f' "{name}": {json.dumps(value)}' for name, value in comparison.to_json().items())
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def conclusion(comparison: Comparison) -> str:
    """The result in a sentence."""
    rows = comparison.verdicts.values()
    shared = sum(sum(verdict != NOT_RUN for verdict in row) > 1 for row in rows)
    differing, total = len(comparison.differing()), plural(shared, "clause")
    text = f"{differing} of {total} differ" if differing else f"no difference in {total}"
    alone = len(rows) - shared
    return text + (
        f"; {plural(alone, 'clause')} judged in one implementation only" if alone else ""
    )
