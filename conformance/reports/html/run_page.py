"""The page of a run."""

from __future__ import annotations

from pathlib import Path

from conformance.reports.html.charts import class_of
from conformance.reports.html.content import (
    joined,
    shown_causes,
    shown_chapters,
    shown_coverage,
    shown_quantities,
)
from conformance.reports.html.page import render
from conformance.reports.summary import problems_tried, totals, verdict
from conformance.runs.report import Run

TEMPLATE = Path(__file__).parent / "templates" / "run.html.j2"


def run_page(run: Run) -> str:
    """The report of a run as one HTML file."""
    violations, deviations = shown_causes(run, known=False), shown_causes(run, known=True)
    words, status = verdict(run)
    unjudged = [f"{o.clause} ({o.check}): {o.reason}" for o in run.outcomes if o.status == "error"]
    return render(
        TEMPLATE,
        run=run,
        verdict=words,
        verdict_class=class_of(status),
        problems=problems_tried(run),
        totals=totals(run),
        chapters=shown_chapters(run, [*violations, *deviations]),
        violations=violations,
        deviations=deviations,
        figures=[f for o in run.outcomes for f in o.findings if f.kind == "quality"],
        stale=sorted({name for o in run.outcomes for name in o.stale}),
        errors=[*run.errors, *unjudged],
        quantities=shown_quantities(run),
        coverage=shown_coverage(run),
        joined=joined,
    )


def write_html(run: Run, path: Path) -> None:
    """Writes the report of a run as one HTML file."""
    path.write_text(run_page(run), encoding="utf-8")
