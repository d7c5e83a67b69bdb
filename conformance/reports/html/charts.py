"""Charts as SVG: histograms of error / budget, and bars of verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from markupsafe import Markup, escape

from conformance.findings.budget_use import EDGES, Histogram

#: Size of a chart in its own units, and what is left for the axis.
WIDTH, HEIGHT, AXIS = 420, 120, 22
SMALL_WIDTH, SMALL_HEIGHT = 150, 22


def bin_names() -> list[str]:
    """Every bin in words, for tables and screen readers."""
    lows = (0.0, *EDGES)
    inside = [f"{low:g} to {high:g}" for low, high in zip(lows, EDGES, strict=False)]
    return ["exact", *inside, f"above {EDGES[-1]:g}", "infinite or NaN"]


def bin_class(number: int) -> str:
    """Whether a bin is within the budget."""
    return "within" if number <= EDGES.index(1.0) + 1 else "beyond"


def histogram_chart(name: str, found: Histogram) -> Markup:
    """A histogram with its axis; heights are logarithmic, so that a single bad element is seen."""
    bars = _bars(found, WIDTH, HEIGHT - AXIS, gap=2)
    step = WIDTH / len(found["counts"])
    ticks = ["0", *(f"{edge:g}" for edge in EDGES), "∞"]
    marks = [
        Markup('<text x="{:.1f}" y="{}">{}</text>').format(step * (n + 1), HEIGHT - 6, text)
        for n, text in enumerate(ticks)
        if n in (0, 1, 4, 7, 10, 11, 12, 13)
    ]
    budget = step * (EDGES.index(1.0) + 2)
    limit = Markup('<path class="budget" d="M{:.1f} 0v{}"/>').format(budget, HEIGHT - AXIS + 4)
    return _svg(name, found, WIDTH, HEIGHT, Markup("").join([*bars, limit, *marks]), "histogram")


def small_chart(name: str, found: Histogram) -> Markup:
    """The same without an axis, for a row of a table."""
    bars = _bars(found, SMALL_WIDTH, SMALL_HEIGHT, gap=1)
    return _svg(name, found, SMALL_WIDTH, SMALL_HEIGHT, Markup("").join(bars), "histogram small")


def _bars(found: Histogram, width: int, height: int, gap: int) -> list[Markup]:
    names = bin_names()
    tallest = math.log1p(max(found["counts"])) or 1.0
    step = width / len(found["counts"])
    result = []
    for n, count in enumerate(found["counts"]):
        size = max(2.0, height * math.log1p(count) / tallest) if count else 0.0
        if size:
            result.append(
                Markup(
                    '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                    "<title>{}: {}</title></rect>"
                ).format(
                    bin_class(n),
                    n * step + gap / 2,
                    height - size,
                    step - gap,
                    size,
                    names[n],
                    count,
                )
            )
    return result


def _svg(name: str, found: Histogram, width: int, height: int, inside: Markup, kind: str) -> Markup:
    total = sum(found["counts"])
    label = f"error / budget of {name}: {total} elements, largest {found['worst']:.3g}"
    return Markup(
        '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">{}</svg>'
    ).format(kind, escape(label), width, height, width, height, inside)


def status_bar(counts: Mapping[str, int]) -> Markup:
    """Verdicts as one bar; the numbers are beside it, so screen readers skip it."""
    parts = [
        Markup('<span class="{}" style="flex-grow:{}"></span>').format(class_of(status), number)
        for status, number in counts.items()
        if number
    ]
    return Markup('<span class="bar" aria-hidden="true">{}</span>').format(Markup("").join(parts))


def class_of(status: str) -> str:
    """The CSS class of a verdict."""
    return "s-" + "".join(c if c.isalnum() else "-" for c in status)
