"""Checks of the FLAT clauses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.checks.check_mask_info import compare_stored, in_range
from conformance.checks.compiled_arrays import expected_labels, local_info, parts_of, place_of
from conformance.checks.registry import Violation, expect, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import FLAT, ONE_HEAD_SHARD, ONE_MASK, MaskDomain
from conformance.findings.expectation import Written
from conformance.findings.observation import Unwritten
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from reference.blocks import Int32
from reference.flat import FlatMaskInfo

LISTS = MaskDomain(allows=(ONE_MASK & ONE_HEAD_SHARD & FLAT) | {"shards:kv"})


def lists(subject: Subject, problem: Problem) -> Iterator[tuple[FlatMaskInfo, Int32, Place]]:
    """Every shard's list without padding, its labels with output blocks as rows, and its place."""
    for direction, shard in parts_of(subject, problem):
        info = local_info(subject, problem, direction, shard)
        if isinstance(info, FlatMaskInfo):
            grid = expected_labels(problem, direction, shard)[0]
            where = place_of("list of blocks", direction, shard, problem)
            yield info, grid.T if direction == "dkv" else grid, where


@judges("FLAT-1", LISTS)
def check_list_of_blocks(subject: Subject, problem: Problem) -> None:
    """The active entries are the non-empty blocks, row by row."""
    for info, grid, where in lists(subject, problem):
        active = info.block_mask > 0
        got = np.stack([info.active_rows[active], info.active_cols[active]], axis=1)
        expect_array(where.named("(row, column) of the entries"), np.argwhere(grid), got)


@judges("FLAT-2", LISTS)
def check_labels_of_list(subject: Subject, problem: Problem) -> None:
    """Every entry has the label of its block."""
    for info, grid, where in lists(subject, problem):
        rows, columns = info.active_rows.astype(int), info.active_cols.astype(int)
        inside = (rows >= 0) & (rows < grid.shape[0]) & (columns >= 0) & (columns < grid.shape[1])
        expected = grid[rows[inside], columns[inside]]
        found = info.block_mask[inside].astype(np.int32)
        expect_array(where.named("block_mask"), expected, found)


@judges("FLAT-3", LISTS)
def check_stored_blocks_of_list(subject: Subject, problem: Problem) -> None:
    """Every entry with label 1 finds its stored block."""
    for direction, shard in parts_of(subject, problem):
        compare_stored(subject, problem, direction, shard)


@judges("FLAT-4", LISTS)
def check_empty_rows_are_listed(subject: Subject, problem: Problem) -> None:
    """Every output block has at least one entry."""
    for info, grid, where in lists(subject, problem):
        missing = sorted(set(range(grid.shape[0])) - set(info.active_rows.tolist()))
        if missing:
            place, count = where.at(missing[0], axes=("row",)), (len(missing), grid.shape[0])
            raise Violation(place, Written(), Unwritten(), count)


@judges("FLAT-5", MaskDomain({"shards:q"}, (ONE_MASK & FLAT) | {"shards:kv"}))
def check_padding_between_shards(subject: Subject, problem: Problem) -> None:
    """Counts fit the arrays, and no entry before the padding lies outside the shard."""
    for direction in subject.description.directions:
        info = subject.mask_info(problem, direction)
        if isinstance(info, FlatMaskInfo):
            length = len(info.block_mask) // (problem.shards.q * problem.shards.kv)
            longest = int(np.max(info.num_active_blocks))
            expect(Place("list of blocks of a shard", "length", direction), longest, length)


@judges("FLAT-6", LISTS)
def check_list_indices_in_range(subject: Subject, problem: Problem) -> None:
    """Rows and columns name blocks of the shard."""
    for info, grid, where in lists(subject, problem):
        in_range(where.named("active_rows"), info.active_rows.astype(np.int32), grid.shape[0])
        in_range(where.named("active_cols"), info.active_cols.astype(np.int32), grid.shape[1])


@judges("SHARD-6", LISTS)
def check_flat_shards_follow_one_another(subject: Subject, problem: Problem) -> None:
    """One count a shard, all shards of one length."""
    total = problem.shards.q * problem.shards.kv
    for direction in subject.description.directions:
        info = subject.mask_info(problem, direction)
        if isinstance(info, FlatMaskInfo):
            counts = Place("num_active_blocks", "length", direction)
            expect(counts, total, len(info.num_active_blocks))
            expect(
                Place("list of blocks modulo shards", "length", direction),
                0,
                len(info.block_mask) % total,
            )
    for info, grid, where in lists(subject, problem):
        active = int((info.block_mask > 0).sum())
        expect(where.named("active blocks").of("length"), int((grid > 0).sum()), active)
