"""A run in numbers and one sentence: what the terminal and the pages say alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from conformance.runs.report import Run
from spec import Clause, all_clauses
from spec.clauses import chapter_files, chapter_title

#: Verdicts of clauses in the order of reports.
STATUSES = ("conforms", "violates", "known deviation", "n/a", "error", "undefined")

#: What every verdict means, for legends.
MEANINGS = {
    "conforms": "every problem that was tried is right",
    "violates": "at least one problem is wrong, or makes the implementation raise",
    "known deviation": "wrong only where this release is known to be; never a pass",
    "n/a": "the implementation does not declare what the clause is about, or refuses it; never a pass",
    "error": "could not be judged",
    "undefined": "the specification promises nothing that a check could see",
}


@dataclass(frozen=True)
class Chapter:
    """The clauses of a chapter that a run is about, with their verdicts."""

    name: str
    title: str
    clauses: tuple[tuple[Clause, str], ...]

    @property
    def counts(self) -> Counter[str]:
        """Clauses by verdict."""
        return Counter(status for _, status in self.clauses)


def chapters(run: Run) -> list[Chapter]:
    """The chapters that a run has judged something of, in reading order.

    Clauses that promise nothing belong to a run of everything.
    """
    found = run.clause_status()
    if not run.clauses:  # whoever asks for some clauses does not ask for those
        found |= {c.id: "undefined" for c in all_clauses().values() if not c.is_checkable}
    result = []
    for path in chapter_files():
        own = [
            (item, found[item.id])
            for item in all_clauses().values()
            if item.chapter == path.stem and item.id in found
        ]
        if any(status != "undefined" for _, status in own):
            result.append(Chapter(path.stem, chapter_title(path), tuple(own)))
    return result


def totals(run: Run) -> Counter[str]:
    """Clauses by verdict, over all chapters."""
    return sum((chapter.counts for chapter in chapters(run)), Counter())


def problems_tried(run: Run) -> int:
    """Problems, over all checks."""
    return sum(outcome.examples for outcome in run.outcomes)


#: What an exit code means, and the verdict whose colour it has.
_WORDS = {
    0: ("conforms", "conforms"),
    1: ("does not conform", "violates"),
    2: ("could not be judged completely", "error"),
    3: ("has stale expectations", "known deviation"),
}


def verdict(run: Run) -> tuple[str, str]:
    """The verdict in words, with the clauses that it rests on, and the clause verdict whose colour it has."""
    words, status = _WORDS[run.exit_code]
    counts = Counter(run.clause_status().values())
    known = {f.deviation for o in run.outcomes for f in o.findings if f.deviation}
    if run.exit_code == 0 and known:
        words, status = (
            f"conforms apart from {plural(len(known), 'known deviation')}",
            "known deviation",
        )
    judged = sum(n for name, n in counts.items() if name not in ("n/a", "error"))
    parts = [f"{plural(judged, 'clause')} judged"]
    for name, text in (("violates", "violated"), ("known deviation", "with known deviations")):
        if counts[name]:
            parts.append(f"{counts[name]} {text}")
    if counts["n/a"]:
        parts.append(f"{counts['n/a']} n/a")
    return f"{words} ({', '.join(parts)})", status


def plural(number: int, name: str) -> str:
    """``1 clause``, ``2 clauses``."""
    return f"{number} {name}" + ("" if number == 1 else "s")
