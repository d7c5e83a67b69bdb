"""Checks of the FLAT clauses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.checks.check_mask_info import compare_stored, in_range
from conformance.checks.compiled_arrays import expected_labels, local_info, place_name, shards_of
from conformance.checks.registry import Violation, expect, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import FLAT, ONE_HEAD_SHARD, ONE_MASK, MaskDomain
from conformance.problems.problem import Problem
from reference.blocks import Int32
from reference.flat import FlatMaskInfo

LISTS = MaskDomain(allows=(ONE_MASK & ONE_HEAD_SHARD & FLAT) | {"shards:kv"})


def lists(subject: Subject, problem: Problem) -> Iterator[tuple[FlatMaskInfo, Int32, str]]:
    """Every shard's list without padding, its labels with output blocks as rows, and its name."""
    for direction in subject.description.directions:
        for shard in shards_of(problem):
            info = local_info(subject, problem, direction, shard)
            if isinstance(info, FlatMaskInfo):
                grid = expected_labels(problem, direction, shard)[0]
                yield (
                    info,
                    grid.T if direction == "dkv" else grid,
                    place_name(direction, shard, problem),
                )


@judges("FLAT-1", LISTS)
def check_list_of_blocks(subject: Subject, problem: Problem) -> None:
    """The active entries are the non-empty blocks, row by row."""
    for info, grid, where in lists(subject, problem):
        active = info.block_mask > 0
        got = np.stack([info.active_rows[active], info.active_cols[active]], axis=1)
        expect_array(f"(row, column) of the entries ({where})", np.argwhere(grid), got)


@judges("FLAT-2", LISTS)
def check_labels_of_list(subject: Subject, problem: Problem) -> None:
    """Every entry has the label of its block."""
    for info, grid, where in lists(subject, problem):
        rows, columns = info.active_rows.astype(int), info.active_cols.astype(int)
        inside = (rows >= 0) & (rows < grid.shape[0]) & (columns >= 0) & (columns < grid.shape[1])
        expected = grid[rows[inside], columns[inside]]
        expect_array(f"block_mask ({where})", expected, info.block_mask[inside].astype(np.int32))


@judges("FLAT-3", LISTS)
def check_stored_blocks_of_list(subject: Subject, problem: Problem) -> None:
    """Every entry with label 1 finds its stored block."""
    for direction in subject.description.directions:
        for shard in shards_of(problem):
            compare_stored(subject, problem, direction, shard)


@judges("FLAT-4", LISTS)
def check_empty_rows_are_listed(subject: Subject, problem: Problem) -> None:
    """Every output block has at least one entry."""
    for info, grid, where in lists(subject, problem):
        missing = sorted(set(range(grid.shape[0])) - set(info.active_rows.tolist()))
        if missing:
            actual = f"none for rows {missing}, which stay unwritten"
            raise Violation(f"list ({where})", "an entry for every row", actual)


@judges("FLAT-5", MaskDomain({"shards:q"}, (ONE_MASK & FLAT) | {"shards:kv"}))
def check_padding_between_shards(subject: Subject, problem: Problem) -> None:
    """Counts fit the arrays, and no entry before the padding lies outside the shard."""
    for direction in subject.description.directions:
        info = subject.mask_info(problem, direction)
        if isinstance(info, FlatMaskInfo):
            length = len(info.block_mask) // (problem.shards.q * problem.shards.kv)
            longest = int(np.max(info.num_active_blocks))
            expect(f"entries a shard ({direction})", longest, length)


@judges("FLAT-6", LISTS)
def check_list_indices_in_range(subject: Subject, problem: Problem) -> None:
    """Rows and columns name blocks of the shard."""
    for info, grid, where in lists(subject, problem):
        in_range(f"active_rows ({where})", info.active_rows.astype(np.int32), grid.shape[0])
        in_range(f"active_cols ({where})", info.active_cols.astype(np.int32), grid.shape[1])


@judges("SHARD-6", LISTS)
def check_flat_shards_follow_one_another(subject: Subject, problem: Problem) -> None:
    """One count a shard, all shards of one length."""
    total = problem.shards.q * problem.shards.kv
    for direction in subject.description.directions:
        info = subject.mask_info(problem, direction)
        if isinstance(info, FlatMaskInfo):
            expect(f"counts ({direction})", total, len(info.num_active_blocks))
            expect(f"entries modulo shards ({direction})", 0, len(info.block_mask) % total)
    for info, grid, where in lists(subject, problem):
        active = int((info.block_mask > 0).sum())
        expect(f"active blocks ({where})", int((grid > 0).sum()), active)
