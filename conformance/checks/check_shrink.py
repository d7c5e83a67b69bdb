"""Checks of the SHRINK clauses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.checks.check_mask_info import forward_directions
from conformance.checks.compiled_arrays import (
    expected_labels,
    local_info,
    parts_of,
    place_of,
    shards_of,
)
from conformance.checks.registry import expect, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import GRID, ONE_MASK, SHRUNK, MaskDomain
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from reference.blocks import Int32
from reference.mask_info import Direction, GridMaskInfo
from reference.shrink import kept_columns, shrunk_width

ONE = MaskDomain(allows=ONE_MASK & GRID & SHRUNK)


def expected_width(problem: Problem, direction: Direction) -> int:
    """The longest row over all q shards."""
    grids = [expected_labels(problem, direction, shard)[0] for shard in shards_of(problem)]
    return max(shrunk_width(grid.T if direction == "dkv" else grid) for grid in grids)


def rows(
    subject: Subject, problem: Problem, directions: list[Direction]
) -> Iterator[tuple[Int32, Int32, Int32, Place]]:
    """Every row of every shard: its expected labels, its entries of block_mask and data_next, its place."""
    for direction, shard in parts_of(subject, problem, directions):
        info = local_info(subject, problem, direction, shard)
        if not isinstance(info, GridMaskInfo):
            continue
        axis = 0 if direction == "dkv" else 1
        grid = np.moveaxis(expected_labels(problem, direction, shard)[0], axis, -1)
        label = np.moveaxis(info.block_mask[0], axis, -1).astype(np.int32)
        data = np.moveaxis(info.data_next[0], axis, -1).astype(np.int32)
        where = place_of("block_mask", direction, shard, problem)
        expect(where.of("height"), grid.shape[0], label.shape[0])
        for n in range(grid.shape[0]):
            yield grid[n], label[n], data[n], where.at(n, axes=("row",))


@judges("SHRINK-1", ONE)
def check_width(subject: Subject, problem: Problem) -> None:
    """The width is the longest row, at least 1."""
    for direction in forward_directions(subject):
        info = subject.mask_info(problem, direction)
        if isinstance(info, GridMaskInfo):
            width = expected_width(problem, direction)
            for name in ("block_mask", "data_next", "mask_next"):
                if (array := getattr(info, name)) is not None:
                    expect(Place(name, "width", direction), width, array.shape[-1])


def compare_kept(grid: Int32, label: Int32, data: Int32, where: Place) -> None:
    """Compares the kept blocks of a row, their order and labels."""
    columns = np.flatnonzero(grid).astype(np.int32)
    expect_array(where.named("kept blocks"), columns, data[label > 0])
    expect_array(where.named("kept labels"), grid[columns], label[label > 0])


@judges("SHRINK-2", ONE)
def check_kept_blocks(subject: Subject, problem: Problem) -> None:
    """The kept blocks of every row, in order."""
    for grid, label, data, where in rows(subject, problem, forward_directions(subject)):
        compare_kept(grid, label, data, where)


@judges("SHRINK-3", ONE)
def check_padding_does_not_run(subject: Subject, problem: Problem) -> None:
    """Exactly the entries beyond the kept blocks have label 0."""
    for grid, label, _, where in rows(subject, problem, list(subject.description.directions)):
        place = where.named("non-zero labels").of("length")
        expect(place, int((grid > 0).sum()), int((label > 0).sum()))


@judges("SHRINK-4", MaskDomain({"per_head_masks"}, GRID & SHRUNK))
def check_several_masks_keep_the_width(subject: Subject, problem: Problem) -> None:
    """With different masks the grid is as wide as the mask."""
    for direction in subject.description.directions:
        info = subject.mask_info(problem, direction)
        if isinstance(info, GridMaskInfo):
            grid = problem.grid(direction)
            expect(Place("block_mask", "shape", direction), grid, info.block_mask.shape[1:])


@judges("SHRINK-5", MaskDomain({"shards:q"}, ONE_MASK & GRID & SHRUNK))
def check_every_q_shard_shrinks_by_itself(subject: Subject, problem: Problem) -> None:
    """Every q shard keeps its own blocks in the common width."""
    for direction in subject.description.directions:
        width = expected_width(problem, direction)
        for grid, label, data, where in rows(subject, problem, [direction]):
            expect(where.of("width"), width, len(label))
            compare_kept(grid, label, data, where)


@judges("SHRINK-6", ONE)
def check_dkv_shrinks_along_q(subject: Subject, problem: Problem) -> None:
    """The dkv grid keeps the non-empty q blocks of every kv block."""
    if "dkv" not in subject.description.directions:
        return
    info = subject.mask_info(problem, "dkv")
    if isinstance(info, GridMaskInfo):
        height = problem.shards.q * expected_width(problem, "dkv")
        kv_blocks = problem.grid("dkv")[1]
        expect(Place("block_mask", "shape", "dkv"), (height, kv_blocks), info.block_mask.shape[1:])
        for grid, label, data, where in rows(subject, problem, ["dkv"]):
            compare_kept(grid, label, data, where)


def has_full_row(problem: Problem) -> bool:
    """Whether some forward row of the grid has no empty block."""
    return expected_width(problem, "fwd") == problem.grid()[1]


@judges("SHRINK-7", MaskDomain(allows=ONE_MASK & GRID & SHRUNK, where=has_full_row))
def check_unshrinkable_masks(subject: Subject, problem: Problem) -> None:
    """A mask with a full row keeps its grid, and its full rows stand as they stood."""
    info = subject.mask_info(problem, "fwd")
    if isinstance(info, GridMaskInfo):
        expect(Place("block_mask", "shape", "fwd"), problem.grid(), info.block_mask.shape[1:])
        for grid, label, data, where in rows(subject, problem, ["fwd"]):
            if grid.all():
                expect_array(where, grid, label)
                expect_array(where.named("data_next"), kept_columns(grid[None])[0], data)
