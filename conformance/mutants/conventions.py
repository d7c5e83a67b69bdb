"""Mutants of the conventions: positions, edge cases, caching."""

from __future__ import annotations

from collections.abc import Callable

from conformance.mutants.base import Info, Mutant, add
from conformance.mutants.patches import compile_masks, wrapped
from conformance.problems.problem import Problem
from reference.mask_info import Direction


class Cache:
    """Caches compiled arrays by an incomplete key."""

    def __init__(self, key: Callable[[Problem], object]) -> None:
        self.key = key
        self.kept: dict[object, Info] = {}

    def __call__(self, problem: Problem, direction: Direction) -> Info:
        key = (self.key(problem), direction)
        if key not in self.kept:
            self.kept[key] = compile_masks(problem, direction, problem.head_masks)
        return self.kept[key]


def without_parameters(problem: Problem) -> object:
    """Class and shape of the masks only."""
    rest = problem.but(masks=problem.masks[:1]).to_json()
    rest["masks"] = [type(mask).__name__ for mask in problem.masks]
    return str(rest)


def crash_on_nothing_visible(problem: Problem, direction: Direction) -> Info:
    """Raises if no block is active."""
    info = compile_masks(problem, direction, problem.head_masks)
    assert (info.block_mask > 0).any()
    return info


add(
    Mutant(
        "mask-shape-transposed",
        "CONV-1",
        "swapped axes",
        mask=wrapped(shape=lambda mask: mask.shape[::-1]),
    ),
    Mutant(
        "nothing-visible-crashes",
        "CONV-2",
        "missing case",
        seen_in="jax 0.12.0.1",
        compile=crash_on_nothing_visible,
    ),
    Mutant("cache-key-misses-parameters", "CONV-3", "cache key", compile=Cache(without_parameters)),
)
