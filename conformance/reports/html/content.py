"""What the page of a run shows, as plain objects for its template."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from markupsafe import Markup

from conformance.findings.budget_use import Histogram, together
from conformance.findings.coverage import ANY, LABELS, Coverage
from conformance.findings.finding import Finding, Outcome
from conformance.findings.printed import problem_facts, replay_command
from conformance.reports.causes import Group, clause_ranges, grouped
from conformance.reports.html.blocks import block_pictures, mask_pictures, region_pictures
from conformance.reports.html.charts import class_of, histogram_chart, small_chart
from conformance.reports.summary import STATUSES, chapters
from conformance.runs.report import Run
from spec import Clause, clause

#: Numbers of numerical results in the order in which they are computed.
QUANTITIES = ("output", "logsumexp", "max_logits", "dq", "dk", "dv", "dsinks")
PATTERNS = (
    "empty", "partial", "full", "empty+partial", "empty+full", "partial+full", "empty+partial+full",
)  # fmt: skip


@dataclass(frozen=True)
class ShownClause:
    """A row of the matrix.

    Attributes:
      rule: the clause.
      status: its verdict.
      outcomes: of its checks.
      causes: anchors of violations and deviations that touch it.
    """

    rule: Clause
    status: str
    outcomes: list[Outcome]
    causes: list[ShownCause] = field(default_factory=list)

    @property
    def css(self) -> str:
        """Class of the verdict."""
        return class_of(self.status)

    @property
    def examples(self) -> int:
        """Problems tried."""
        return sum(outcome.examples for outcome in self.outcomes)

    @property
    def search(self) -> str:
        """What the search field looks at, in small letters."""
        names = " ".join(outcome.check for outcome in self.outcomes)
        return f"{self.rule.id} {self.rule.title} {names} {self.rule.sentence}".lower()


@dataclass(frozen=True)
class ShownChapter:
    """A chapter of the matrix, with its clauses by verdict."""

    title: str
    counts: dict[str, int]
    clauses: list[ShownClause]

    @property
    def troubled(self) -> bool:
        """Whether something in it wants to be looked at."""
        return any(self.counts[s] for s in ("violates", "known deviation", "error"))


@dataclass(frozen=True)
class ShownCause:
    """A violation or a known deviation.

    Attributes:
      anchor: where it stands in the page.
      group: the findings that it stands for.
      rule: the clause of the smallest of them.
      reason: what is known about it.
      command: runs it again.
    """

    anchor: str
    group: Group
    rule: Clause
    reason: str
    command: str

    @property
    def finding(self) -> Finding:
        """The smallest finding."""
        return self.group.finding

    @property
    def verb(self) -> str:
        """What it does to the clause."""
        return "crashes" if self.finding.kind == "crash" else "violates"

    @property
    def others(self) -> list[str]:
        """The other clauses that it touches."""
        return [name for name in self.group.clauses if name != self.finding.clause]

    @property
    def facts(self) -> list[str]:
        """What the problem is."""
        return problem_facts(self.finding.problem)

    @property
    def maps(self) -> list[tuple[str, Markup]]:
        """Its blocks."""
        return block_pictures(self.finding.blocks) if self.finding.blocks else []

    @property
    def masks(self) -> list[tuple[str, Markup]]:
        """Its mask."""
        return mask_pictures(self.finding.blocks) if self.finding.blocks else []

    @property
    def regions(self) -> list[tuple[str, Markup]]:
        """Where results differ."""
        return region_pictures(self.finding.region) if self.finding.region else []

    @property
    def search(self) -> str:
        """What the search field looks at, in small letters."""
        parts = (*self.group.clauses, self.rule.title, self.finding.check, self.finding.deviation)
        more = (self.finding.where, self.finding.actual, self.reason, *self.facts[1:])
        return " ".join((*parts, *more)).lower()


def shown_causes(run: Run, known: bool) -> list[ShownCause]:
    """Violations, or known deviations."""
    result = []
    for number, group in enumerate(grouped(run, lambda f: bool(f.deviation) == known), 1):
        finding = group.finding
        command = replay_command(group.replay, run.implementation, run.where)
        result.append(
            ShownCause(
                f"{'deviation' if known else 'violation'}-{number}",
                group,
                clause(finding.clause),
                run.reasons.get(finding.deviation, ""),
                command if group.replay else "",
            )
        )
    return result


def shown_chapters(run: Run, causes: list[ShownCause]) -> list[ShownChapter]:
    """The matrix."""
    by_clause: dict[str, list[Outcome]] = {}
    for outcome in run.outcomes:
        by_clause.setdefault(outcome.clause, []).append(outcome)
    result = []
    for chapter in chapters(run):
        clauses = [
            ShownClause(
                rule,
                status,
                by_clause.get(rule.id, []),
                [cause for cause in causes if rule.id in cause.group.clauses],
            )
            for rule, status in chapter.clauses
        ]
        counts = {status: chapter.counts[status] for status in STATUSES}
        result.append(ShownChapter(chapter.title, counts, clauses))
    return result


@dataclass(frozen=True)
class ShownQuantity:
    """The histograms of one quantity: of all checks together, and of every clause."""

    name: str
    whole: Histogram
    clauses: list[tuple[str, Histogram, Markup]]

    @property
    def chart(self) -> Markup:
        """Of all checks together."""
        return histogram_chart(self.name, self.whole)


def shown_quantities(run: Run) -> list[ShownQuantity]:
    """Histograms of error / budget."""
    found: dict[str, dict[str, Histogram]] = {}
    for outcome in run.outcomes:
        for name, histogram in outcome.ratios.items():
            mine = found.setdefault(name, {})
            mine[outcome.clause] = (
                together(mine[outcome.clause], histogram) if outcome.clause in mine else histogram
            )
    result = []
    for name in sorted(found, key=_quantity_order):
        whole = None
        for histogram in found[name].values():
            whole = histogram if whole is None else together(whole, histogram)
        assert whole is not None
        clauses = [(c, h, small_chart(f"{name} in {c}", h)) for c, h in found[name].items()]
        result.append(ShownQuantity(name, whole, clauses))
    return result


def _quantity_order(name: str) -> tuple[int, str]:
    return (QUANTITIES.index(name) if name in QUANTITIES else len(QUANTITIES), name)


@dataclass(frozen=True)
class ShownCoverage:
    """The problem space.

    Attributes:
      kinds, patterns, dtypes: what occurs.
      features: those that occur, with the number of problems that have them.
      cells: the counts.
    """

    kinds: list[str]
    patterns: list[str]
    dtypes: list[str]
    features: list[tuple[str, int]]
    cells: Coverage

    def number(self, kind: str, pattern: str, feature: str = ANY) -> int:
        """Problems of a kind of mask with some labels, of any type."""
        dtypes = self.cells.get(kind, {}).get(pattern, {})
        return sum(features.get(feature, 0) for features in dtypes.values())

    def total(self, kind: str, feature: str = ANY) -> int:
        """Problems of a kind of mask."""
        return sum(self.number(kind, pattern, feature) for pattern in self.patterns)


def shown_coverage(run: Run) -> ShownCoverage:
    """Which problems were tried."""
    cells = run.total_coverage()
    patterns = {pattern for labels in cells.values() for pattern in labels}
    every = list(_cells(cells))
    present = sorted({dtype for dtype, _ in every})
    numbers = {
        name: sum(features.get(name, 0) for _, features in every)
        for name in (ANY, *LABELS.values())
    }
    return ShownCoverage(
        sorted(cells),
        [*(p for p in PATTERNS if p in patterns), *sorted(patterns - set(PATTERNS))],
        present,
        [(name, number) for name, number in numbers.items() if number],
        cells,
    )


def _cells(cells: Coverage) -> Iterator[tuple[str, dict[str, int]]]:
    for labels in cells.values():
        for dtypes in labels.values():
            yield from dtypes.items()


def joined(names: list[str]) -> str:
    """Clause ids with neighbours joined."""
    return clause_ranges(names)
