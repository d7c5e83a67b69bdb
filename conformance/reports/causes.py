"""Findings by cause: what reports show once, whatever number of clauses it was met in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.findings.finding import Finding
from conformance.runs.report import Run
from spec import all_clauses


@dataclass(frozen=True)
class Group:
    """Findings with one cause: the smallest stands for all.

    Attributes:
      finding: the smallest.
      replay: its replay file.
      clauses: all clauses that are touched.
    """

    finding: Finding
    replay: str
    clauses: tuple[str, ...]


def grouped(run: Run, wanted: Callable[[Finding], bool]) -> list[Group]:
    """Findings by cause: a known deviation or a crash is one cause whatever clause it was met in."""
    groups: dict[object, list[tuple[Finding, str]]] = {}
    for outcome in run.outcomes:
        for n, finding in enumerate(outcome.findings):
            if finding.kind == "quality" or not wanted(finding):
                continue
            own = (finding.clause, finding.check)
            cause = finding.deviation or (finding.signature if finding.kind == "crash" else own)
            replay = run.replays.get((outcome.check, n), "")
            groups.setdefault(cause, []).append((finding, replay))
    result = []
    order = list(all_clauses())
    for members in groups.values():
        # Equally small problems: the clause that stands first in the specification speaks for all.
        finding, replay = min(members, key=lambda m: (m[0].size[:3], order.index(m[0].clause)))
        clauses = tuple(sorted({f.clause for f, _ in members}, key=order.index))
        result.append(Group(finding, replay, clauses))
    return result


def clause_ranges(ids: Sequence[str]) -> str:
    """Clause ids with neighbours joined, e.g. ``LABEL-1…5, DATA-3``."""
    parts: list[list[Any]] = []
    for clause_id in ids:
        name, number = clause_id.rsplit("-", 1)
        if parts and parts[-1][0] == name and parts[-1][2] + 1 == int(number):
            parts[-1][2] = int(number)
        else:
            parts.append([name, int(number), int(number)])
    return ", ".join(f"{n}-{a}" if a == b else f"{n}-{a}…{b}" for n, a, b in parts)
