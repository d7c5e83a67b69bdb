"""Which problems were tried: counts by kind of mask, labels of blocks, type of the arrays and feature."""

from __future__ import annotations

from functools import lru_cache

from conformance.problems.features import FEATURES, features_of
from conformance.problems.predicates import describe_labels, mask_kinds
from conformance.problems.problem import Problem

#: Problems by kind of mask, labels that occur, type of the arrays, and feature. A problem counts once under `ANY`, and
#: once under every feature that it has.
Coverage = dict[str, dict[str, dict[str, dict[str, int]]]]

ANY = "any"
SEVERAL = "several kinds"

#: Features that are counted, by name.
LABELS = {name: item.label for name, item in FEATURES.items() if item.label}


def labels_of(problem: Problem) -> list[str]:
    """The features of a problem as they are counted."""
    has = features_of(problem, LABELS)
    return [label for name, label in LABELS.items() if name in has]


@lru_cache(maxsize=1024)
def place_of(problem: Problem) -> tuple[str, str, str]:
    """Kind of mask, labels that occur and type of the arrays."""
    kinds = mask_kinds(problem)
    return kinds[0] if len(kinds) == 1 else SEVERAL, describe_labels(problem), problem.dtype


def count(coverage: Coverage, problem: Problem) -> None:
    """Counts a problem."""
    kind, labels, dtype = place_of(problem)
    cell = coverage.setdefault(kind, {}).setdefault(labels, {}).setdefault(dtype, {})
    for feature in (ANY, *labels_of(problem)):
        cell[feature] = cell.get(feature, 0) + 1


def add(total: Coverage, more: Coverage) -> None:
    """Adds counts to others."""
    for kind, patterns in more.items():
        for labels, dtypes in patterns.items():
            for dtype, features in dtypes.items():
                cell = total.setdefault(kind, {}).setdefault(labels, {}).setdefault(dtype, {})
                for feature, number in features.items():
                    cell[feature] = cell.get(feature, 0) + number


def problems(coverage: Coverage) -> int:
    """How many problems were counted."""
    return sum(
        features.get(ANY, 0)
        for patterns in coverage.values()
        for dtypes in patterns.values()
        for features in dtypes.values()
    )
