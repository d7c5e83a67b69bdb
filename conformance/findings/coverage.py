"""Which problems were tried: counts by kind of mask, labels of blocks, type of the arrays and feature."""

from __future__ import annotations

from functools import lru_cache

from conformance.problems.predicates import describe_labels, mask_kinds
from conformance.problems.problem import Problem
from reference.mask_info import DIRECTIONS

#: Problems by kind of mask, labels that occur, type of the arrays, and feature. A problem counts once under `ANY`, and
#: once under every feature that it has.
Coverage = dict[str, dict[str, dict[str, dict[str, int]]]]

ANY = "any"
SEVERAL = "several kinds"

#: What a problem may have beyond a mask in blocks.
FEATURES = (
    "several masks", "shared kv heads", "segment ids", "sinks", "soft cap", "other v head dim", "ring",
    "run-time mask", "head shards", "q shards", "kv shards", "other backward blocks", "compute blocks",
    "grid layout", "flat layout", "unshrunk", "not downcast", "options",
)  # fmt: skip


def features_of(problem: Problem) -> list[str]:
    """Those of `FEATURES` that a problem has."""
    shards, blocks = problem.shards, problem.blocks
    facts = (
        not problem.single_mask,
        problem.kv_heads < problem.heads,
        problem.segments is not None,
        problem.sinks is not None,
        problem.soft_cap is not None,
        problem.head_dim_v != problem.head_dim,
        problem.ring > 1,
        problem.dynamic,
        shards.head > 1,
        shards.q > 1,
        shards.kv > 1,
        len({blocks.of(direction) for direction in DIRECTIONS}) > 1,
        bool(blocks.kv_compute or blocks.kv_dkv_compute),
        problem.layout == "grid",
        problem.layout == "flat",
        not problem.shrink,
        not problem.downcast,
        bool(problem.options),
    )
    return [name for name, fact in zip(FEATURES, facts, strict=True) if fact]


@lru_cache(maxsize=1024)
def place_of(problem: Problem) -> tuple[str, str, str]:
    """Kind of mask, labels that occur and type of the arrays."""
    kinds = mask_kinds(problem)
    return kinds[0] if len(kinds) == 1 else SEVERAL, describe_labels(problem), problem.dtype


def count(coverage: Coverage, problem: Problem) -> None:
    """Counts a problem."""
    kind, labels, dtype = place_of(problem)
    cell = coverage.setdefault(kind, {}).setdefault(labels, {}).setdefault(dtype, {})
    for feature in (ANY, *features_of(problem)):
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
