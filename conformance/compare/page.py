"""The page of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from conformance.compare.comparison import Comparison, Difference, conclusion
from conformance.findings.printed import problem_facts
from conformance.reports.html.blocks import block_pictures, mask_pictures, region_pictures
from conformance.reports.html.page import render
from conformance.reports.summary import verdict
from spec import Clause, clause

TEMPLATE = Path(__file__).parent / "templates" / "compare.html.j2"


@dataclass(frozen=True)
class ShownDifference:
    """A difference, with its anchor in the page."""

    anchor: str
    item: Difference
    rule: Clause
    labels: list[str]

    @property
    def trials(self) -> list[tuple[str, str, str]]:
        """For every implementation: its name, what it does, and the command that shows it."""
        return [
            (label, trial, self.item.commands.get(n, ""))
            for n, (label, trial) in enumerate(zip(self.labels, self.item.trials, strict=True))
        ]

    @property
    def facts(self) -> list[str]:
        """What the problem is."""
        return problem_facts(self.item.finding.problem)

    @property
    def maps(self) -> list[tuple[str, Markup]]:
        """Its blocks."""
        found = self.item.finding.blocks
        return block_pictures(found) if found else []

    @property
    def masks(self) -> list[tuple[str, Markup]]:
        """Its mask."""
        found = self.item.finding.blocks
        return mask_pictures(found) if found else []

    @property
    def regions(self) -> list[tuple[str, Markup]]:
        """Where results differ."""
        found = self.item.finding.region
        return region_pictures(found) if found else []

    @property
    def search(self) -> str:
        """What the search field looks at, in small letters."""
        parts = (*self.item.clauses, self.rule.title, self.item.finding.actual, *self.facts[1:])
        return " ".join(parts).lower()


def compare_page(comparison: Comparison) -> str:
    """A comparison as one HTML file."""
    labels = [column.label for column in comparison.columns]
    shown = [
        ShownDifference(f"difference-{n}", item, clause(item.finding.clause), labels)
        for n, item in enumerate(comparison.differences, 1)
    ]
    reasons: dict[str, list[str]] = {}
    for item in shown:
        for name in item.item.clauses:
            reasons.setdefault(name, []).append(item.anchor)
    return render(
        TEMPLATE,
        comparison=comparison,
        conclusion=conclusion(comparison),
        differing=set(comparison.differing()),
        chapters=comparison.chapters(everything=True),
        differences=shown,
        reasons=reasons,
        verdicts=[verdict(column.run) for column in comparison.columns],
    )


def write_html(comparison: Comparison, path: Path) -> None:
    """Writes a comparison as one HTML file."""
    path.write_text(compare_page(comparison), encoding="utf-8")
