"""Mutants of shrinking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.mutants.base import Info, Mutant, add
from conformance.mutants.patches import (
    alternates_when_idle,
    compile_masks,
    every_array,
    grid_only,
    operand_changed,
)
from conformance.problems.problem import Problem
from reference.mask_info import Direction, GridMaskInfo


def shrunk_only(
    patch: Callable[[GridMaskInfo, Problem], GridMaskInfo], *directions: Direction
) -> Callable[[Info, Problem], Info]:
    """Applies a patch if the grid was shrunk."""
    return grid_only(
        lambda info, problem: (
            patch(info, problem) if problem.shrink and problem.single_mask else info
        ),
        *directions,
    )


def one_column_more(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """A column of padding more than needed."""
    return every_array(
        info, lambda a: np.pad(a, ((0, 0), (0, 0), (0, 1)), mode="edge" if a.size else "constant")
    )


def padded_with_zero(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """One column of padding more than needed, with label 0."""
    wider = one_column_more(info, problem)
    label = np.array(wider.block_mask)
    label[:, :, -1] = 0
    return replace(wider, block_mask=label)


def last_column_dropped(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """The last kept column becomes padding."""
    label = np.array(info.block_mask)
    label[:, :, -1] = 0
    return replace(info, block_mask=label)


def reversed_columns(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Kept columns in the opposite order."""
    return every_array(info, lambda a: a[:, :, ::-1])


def padding_runs(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Padding repeats the label of the block it names."""
    return replace(
        info, block_mask=np.where(info.block_mask == 0, 2, info.block_mask).astype(np.int8)
    )


def not_shrunk(problem: Problem, direction: Direction) -> Info:
    """The forward grid is never shrunk if there are q shards."""
    shrink = problem.shrink and problem.shards.q == 1
    if problem.dynamic or problem.layout == "flat":
        return compile_masks(problem, direction, problem.head_masks)
    return compile_masks(problem, direction, problem.head_masks, shrink=shrink)


def dkv_not_shrunk(problem: Problem, direction: Direction) -> Info:
    """The dkv grid is never shrunk."""
    if problem.dynamic or problem.layout == "flat" or direction != "dkv":
        return compile_masks(problem, direction, problem.head_masks)
    return compile_masks(problem, direction, problem.head_masks, shrink=False)


def several_masks_shrunk(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """The grid loses its last column if heads have different masks."""
    if problem.single_mask or info.block_mask.shape[2] < 2:
        return info
    return every_array(info, lambda a: a[:, :, :-1])


def full_rows_lose_a_column(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """The grid is always one column narrower than the mask."""
    if info.block_mask.shape[2] < 2 or info.block_mask.shape[2] < problem.grid()[1]:
        return info
    return every_array(info, lambda a: a[:, :, :-1])


add(
    Mutant(
        "grid-one-column-wider",
        "SHRINK-1",
        "off by one",
        info=shrunk_only(padded_with_zero, "fwd", "dq"),
    ),
    Mutant(
        "kept-columns-reversed",
        "SHRINK-2",
        "order",
        info=shrunk_only(reversed_columns, "fwd", "dq"),
    ),
    Mutant(
        "last-kept-column-dropped",
        "SHRINK-2",
        "off by one",
        info=shrunk_only(last_column_dropped, "fwd", "dq"),
    ),
    Mutant("padding-runs", "SHRINK-3", "wrong label", info=shrunk_only(padding_runs)),
    Mutant(
        "several-masks-shrunk", "SHRINK-4", "wrong condition", info=grid_only(several_masks_shrunk)
    ),
    Mutant("q-shards-not-shrunk", "SHRINK-5", "lost optimisation", compile=not_shrunk),
    Mutant("dkv-not-shrunk", "SHRINK-6", "lost optimisation", compile=dkv_not_shrunk),
    Mutant(
        "full-rows-lose-a-column",
        "SHRINK-7",
        "off by one",
        info=shrunk_only(full_rows_lose_a_column, "fwd"),
    ),
    Mutant(
        "padding-fetches",
        "SHRINK-8",
        "wasted fetches",
        seen_in="jax 0.12.0.1, dkv",
        schedule=operand_changed(("k", "v", "q"), alternates_when_idle),
        quality=True,
    ),
)
