"""How much of their error budgets numerical results use: histograms, by quantity."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, TypedDict

import numpy as np

from conformance.findings.json_schema import Count, Keywords
from reference.attention import Float

#: Upper ends of the bins of error / budget. Before the first are exact results, after the last what is larger or
#: not a number.
EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 10.0, 100.0)
#: Bins: exact, up to every edge, above the last edge, infinite (a wrong NaN or infinity, or an error without a budget).
BINS = len(EDGES) + 3


class Histogram(TypedDict):
    """Elements of a quantity by error / budget.

    Attributes:
      counts: elements in every bin.
      worst: the largest ratio that is finite.
    """

    counts: Annotated[list[Count], Keywords(minItems=BINS, maxItems=BINS)]
    worst: Annotated[float, Keywords(minimum=0)]


def histogram(ratio: Float) -> Histogram:
    """The histogram of some ratios."""
    values = ratio.ravel()
    finite = values[np.isfinite(values)]
    places = np.searchsorted(EDGES, finite, side="left") + 1
    places[finite == 0] = 0
    counts = np.bincount(places, minlength=BINS)
    counts[BINS - 1] += len(values) - len(finite)
    return Histogram(counts=counts.tolist(), worst=float(finite.max(initial=0.0)))


def together(first: Histogram, second: Histogram) -> Histogram:
    """The histogram of the elements of both."""
    counts = [a + b for a, b in zip(first["counts"], second["counts"], strict=True)]
    return Histogram(counts=counts, worst=max(first["worst"], second["worst"]))


_recording: dict[str, Histogram] | None = None


@contextlib.contextmanager
def recording() -> Iterator[dict[str, Histogram]]:
    """Collects what is noted meanwhile, by quantity."""
    global _recording
    before, _recording = _recording, {}
    try:
        yield _recording
    finally:
        _recording = before


def note(quantity: str, ratio: Float) -> None:
    """Adds the ratios of a comparison, where they are collected."""
    if _recording is None:
        return
    found = histogram(ratio)
    _recording[quantity] = (
        together(_recording[quantity], found) if quantity in _recording else found
    )
