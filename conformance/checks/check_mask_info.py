"""Checks of the MaskInfo chapter about its index arrays (DATA, MASKNEXT, HEADS, DOWNCAST)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from conformance.checks.compiled_arrays import (
    active_blocks,
    expect_stored_block,
    expected_labels,
    local_info,
    parts_of,
    place_of,
)
from conformance.checks.registry import Violation, expect, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import ANY, GRID, MaskDomain
from conformance.findings.expectation import InRange
from conformance.findings.pictures import region
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from reference.blocks import PARTIAL, Int32
from reference.flat import FlatMaskInfo
from reference.mask_info import (
    Direction,
    GridMaskInfo,
    carry,
    distinct,
    from_grid_order,
    in_grid_order,
    mask_rows,
    next_at_or_after,
)
from reference.masks import Bool
from reference.sharding import Shard

UNSHRUNK = MaskDomain({"unshrunk"}, GRID)


def forward_directions(subject: Subject) -> list[Direction]:
    """The declared directions that visit kv blocks inside q blocks."""
    return [d for d in subject.description.directions if d != "dkv"]


def grids(
    subject: Subject, problem: Problem, directions: list[Direction]
) -> Iterator[tuple[GridMaskInfo, Int32, Shard, Place]]:
    """Every shard's arrays in the grid layout with one row a head, its labels and its place."""
    for direction, shard in parts_of(subject, problem, directions):
        info = local_info(subject, problem, direction, shard)
        if isinstance(info, GridMaskInfo):
            expected = expected_labels(problem, direction, shard)
            yield info, expected, shard, place_of("", direction, shard, problem)


def own_blocks(labels_: Int32, direction: Direction) -> Int32:
    """The block that every position of an unshrunk grid stands for."""
    axis = 1 if direction == "dkv" else 2
    shape = [1, 1, 1]
    shape[axis] = labels_.shape[axis]
    return np.broadcast_to(
        np.arange(labels_.shape[axis], dtype=np.int32).reshape(shape), labels_.shape
    )


def rows_of(info: GridMaskInfo, problem: Problem, shard: Shard) -> slice:
    """The leading rows of a shard that count for "next": one if the heads share them."""
    heads = problem.heads // problem.shards.head
    _, of_head = distinct(problem.head_masks)
    shared = len(mask_rows(of_head, problem.shards.head)) == problem.shards.head
    return slice(0, 1 if shared else heads)


def compare_where(place: Place, chosen: Bool, expected: Int32, actual: Int32) -> None:
    """Compares two arrays at some positions only.

    Raises:
      Violation: they differ, or have different shapes.
    """
    expect(place.of("shape"), expected.shape, actual.shape)
    differs = chosen & (expected != actual)
    wrong = np.argwhere(differs)
    if len(wrong):
        at = tuple(wrong[0])
        count, picture = (len(wrong), int(chosen.sum())), region(place.quantity, differs)
        raise Violation(place.at(*at), expected[at], actual[at], count, picture)


def after_last(wanted: Bool, direction: Direction) -> Bool:
    """Positions after the last wanted one in grid order."""
    ordered = in_grid_order(wanted, direction)
    flat = np.cumsum(ordered.ravel()[::-1])[::-1] == 0
    return from_grid_order(flat.reshape(ordered.shape), direction)


def compare_next(
    subject: Subject, problem: Problem, directions: list[Direction], *, wrapped: bool | None
) -> None:
    """Compares ``data_next`` at empty positions, before or after the wrap-around."""
    for info, label, shard, where in grids(subject, problem, directions):
        rows = rows_of(info, problem, shard)
        label, actual = label[rows], info.data_next[rows].astype(np.int32)
        if not label.any():
            continue
        expected = carry(
            own_blocks(label, info.direction), label > 0, info.direction, next_at_or_after
        )
        tail = after_last(label > 0, info.direction)
        chosen = (label == 0) if wrapped is None else (label == 0) & (tail == wrapped)
        position = "after the last non-empty block" if wrapped else "of an empty block"
        data_next = where.named("data_next").under(position=position)
        compare_where(data_next, chosen, expected, actual)


@judges("DATA-1", MaskDomain(allows=GRID))
def check_running_positions_name_themselves(subject: Subject, problem: Problem) -> None:
    """The active entries name each non-empty block once, in order; unshrunk ones at their place."""
    for info, label, _, where in grids(subject, problem, list(subject.description.directions)):
        if info.block_mask.shape == label.shape and not problem.shrink:
            own, actual = own_blocks(label, info.direction), info.data_next.astype(np.int32)
            compare_where(where.named("data_next"), label > 0, own, actual)
            continue
        axis = 1 if info.direction == "dkv" else 2
        expected_rows = np.moveaxis(label, axis, -1)
        active = np.moveaxis(info.block_mask, axis, -1)
        data = np.moveaxis(info.data_next, axis, -1)
        for at in np.ndindex(*expected_rows.shape[:2]):
            got = data[at][active[at] > 0].astype(np.int32)
            expected = np.flatnonzero(expected_rows[at]).astype(np.int32)
            if not np.array_equal(expected, got):
                expect_array(
                    where.named("data_next").under(active_entries_of_row=at), expected, got
                )


@judges("DATA-2", UNSHRUNK)
def check_empty_positions_name_the_next_block(subject: Subject, problem: Problem) -> None:
    """``data_next`` at empty positions before the last non-empty one."""
    compare_next(subject, problem, forward_directions(subject), wrapped=False)


@judges("DATA-3", UNSHRUNK)
def check_wrap_around(subject: Subject, problem: Problem) -> None:
    """``data_next`` after the last non-empty position."""
    compare_next(subject, problem, forward_directions(subject), wrapped=True)


@judges("DATA-4", UNSHRUNK)
def check_dkv_order(subject: Subject, problem: Problem) -> None:
    """``data_next`` of dkv at empty positions, in the order (kv, head, q)."""
    if "dkv" in subject.description.directions:
        compare_next(subject, problem, ["dkv"], wrapped=None)


def in_range(place: Place, array: Int32, size: int) -> None:
    """Raises `Violation` unless all entries are indices below ``size``."""
    outside = (array < 0) | (array >= size)
    wrong = np.argwhere(outside)
    if len(wrong):
        at, count = tuple(wrong[0]), (len(wrong), array.size)
        picture = region(place.quantity, outside)
        raise Violation(place.at(*at), InRange(0, size - 1), array[at], count, picture)


@judges("DATA-5")
def check_data_next_in_range(subject: Subject, problem: Problem) -> None:
    """Every entry of ``data_next`` (or of the list) names a block of the shard."""
    for direction, shard in parts_of(subject, problem):
        info = local_info(subject, problem, direction, shard)
        _, q_blocks, kv_blocks = expected_labels(problem, direction, shard).shape
        where = place_of("", direction, shard, problem)
        other, rows = (q_blocks, kv_blocks) if direction == "dkv" else (kv_blocks, q_blocks)
        if isinstance(info, GridMaskInfo):
            in_range(where.named("data_next"), info.data_next.astype(np.int32), other)
        else:
            in_range(where.named("active_cols"), info.active_cols.astype(np.int32), other)
            in_range(where.named("active_rows"), info.active_rows.astype(np.int32), rows)


@judges("MASKNEXT-1", MaskDomain(allows=ANY | {"shards:kv"}))
def check_partial_blocks_find_their_mask(subject: Subject, problem: Problem) -> None:
    """``partial_mask_blocks[mask_next]`` at label 1, in every direction."""
    for direction, shard in parts_of(subject, problem):
        compare_stored(subject, problem, direction, shard)


def compare_stored(subject: Subject, problem: Problem, direction: Direction, shard: Shard) -> None:
    """Compares the stored block of every active entry with label 1."""
    blocks = active_blocks(subject, problem, direction, shard)
    if blocks.stack is None:
        return
    grid = expected_labels(problem, direction, shard)
    place = place_of("mask_next", direction, shard, problem)
    entries = np.stack([blocks.head, blocks.q_block, blocks.kv_block, blocks.place], axis=1)
    for h, i, j, number in entries.tolist():
        if 0 <= i < grid.shape[1] and 0 <= j < grid.shape[2] and grid[h, i, j] == PARTIAL:
            expect_stored_block(place, blocks.stack, number, problem, shard, (h, i, j))


def compare_mask_next(subject: Subject, problem: Problem, *, wrapped: bool) -> None:
    """Compares ``mask_next`` at labels 0 and 2 with the value at the next label 1."""
    for info, label, shard, where in grids(subject, problem, list(subject.description.directions)):
        if info.mask_next is None:
            continue
        rows = rows_of(info, problem, shard)
        label, actual = label[rows], info.mask_next[rows].astype(np.int32)
        wanted = label == PARTIAL
        if not wanted.any() or label.shape != actual.shape:
            continue
        # Compared with the array's own values at label 1: whether those are right is MASKNEXT-1.
        expected = carry(actual, wanted, info.direction, next_at_or_after)
        chosen = ~wanted & (after_last(wanted, info.direction) == wrapped)
        position = "after the last partial block" if wrapped else "before the next partial block"
        mask_next = where.named("mask_next").under(position=position)
        compare_where(mask_next, chosen, expected, actual)


@judges("MASKNEXT-2", UNSHRUNK)
def check_other_positions_name_the_next_stored_block(subject: Subject, problem: Problem) -> None:
    """``mask_next`` between partial blocks."""
    compare_mask_next(subject, problem, wrapped=False)


@judges("MASKNEXT-3", UNSHRUNK)
def check_wrap_around_of_stored_blocks(subject: Subject, problem: Problem) -> None:
    """``mask_next`` after the last partial block."""
    compare_mask_next(subject, problem, wrapped=True)


@judges("MASKNEXT-4")
def check_mask_next_in_range(subject: Subject, problem: Problem) -> None:
    """Every entry of ``mask_next`` names a stored block."""
    for direction, shard in parts_of(subject, problem):
        mask_next_in_range(subject, problem, direction, shard)


def mask_next_in_range(
    subject: Subject, problem: Problem, direction: Direction, shard: Shard
) -> None:
    """Raises `Violation` unless every entry of ``mask_next`` names a stored block, where there are any."""
    info = local_info(subject, problem, direction, shard)
    if info.mask_next is not None and info.partial_mask_blocks is not None:
        place = place_of("mask_next", direction, shard, problem)
        in_range(place, info.mask_next.astype(np.int32), len(info.partial_mask_blocks))


def leading_rows(subject: Subject, problem: Problem) -> None:
    """Compares the leading axis with the number of rows that the masks need."""
    _, of_head = distinct(problem.head_masks)
    rows = len(mask_rows(of_head, problem.shards.head))
    for direction in subject.description.directions:
        info = subject.mask_info(problem, direction)
        if isinstance(info, GridMaskInfo):
            for name in ("block_mask", "data_next"):
                expect(Place(name, "length", direction), rows, getattr(info, name).shape[0])


def has_mixed_shard(problem: Problem, of_head: Sequence[int]) -> bool:
    """Whether some head shard holds different masks, given which one every head has."""
    return len(mask_rows(of_head, problem.shards.head)) == problem.heads != problem.shards.head


def mixed_shard(problem: Problem) -> bool:
    """Whether some head shard holds masks that are written differently: an implementation may compare them so."""
    return has_mixed_shard(problem, distinct(problem.head_masks)[1])


def surely_mixed_shard(problem: Problem) -> bool:
    """Whether some head shard holds masks with different values, which nobody may take for one."""
    values = [mask.dense().tobytes() for mask in problem.head_masks]
    return has_mixed_shard(problem, [values.index(value) for value in values])


@judges("HEADS-1", MaskDomain({"per_head_masks"}, GRID, where=surely_mixed_shard))
def check_one_row_a_head(subject: Subject, problem: Problem) -> None:
    """Different masks in a head shard: one row a head."""
    leading_rows(subject, problem)


@judges("HEADS-2", MaskDomain(allows=GRID, where=lambda p: not mixed_shard(p)))
def check_one_row_a_head_shard(subject: Subject, problem: Problem) -> None:
    """One mask in every head shard: one row a shard."""
    leading_rows(subject, problem)


def index_arrays(info: GridMaskInfo | FlatMaskInfo) -> dict[str, Int32]:
    """The index arrays of either layout that are present."""
    names = ("block_mask", "data_next", "active_rows", "active_cols", "mask_next")
    found = {name: getattr(info, name, None) for name in names}
    return {name: np.asarray(array) for name, array in found.items() if array is not None}


def compare_types(subject: Subject, problem: Problem) -> None:
    """Compares the type of every index array with the smallest that holds its values."""
    for direction in subject.description.directions:
        for name, array in index_arrays(subject.mask_info(problem, direction)).items():
            if array.size == 0:
                continue
            largest = int(array.max())
            fits = [t for t in (np.int8, np.int16, np.int32) if largest <= np.iinfo(t).max]
            place = Place(name, "dtype", direction).under(largest_value=largest)
            expect(place, np.dtype(fits[0]), array.dtype)


SMALL = MaskDomain(where=lambda p: p.downcast)


@judges("DOWNCAST-1", SMALL)
def check_smallest_type(subject: Subject, problem: Problem) -> None:
    """Every index array has the smallest type."""
    compare_types(subject, problem)


@judges("DOWNCAST-2", SMALL)
def check_downcast_keeps_values(subject: Subject, problem: Problem) -> None:
    """The arrays are equal with and without downcasting."""
    for direction in subject.description.directions:
        small = index_arrays(subject.mask_info(problem, direction))
        wide = index_arrays(subject.mask_info(problem.but(downcast=False), direction))
        expect(Place("index arrays", direction=direction), sorted(wide), sorted(small))
        for name, array in wide.items():
            place = Place(name, direction=direction).under(downcast=True)
            expect_array(place, array, small[name])


BOUNDARIES = ("data-127", "data-128", "stored-127", "stored-128", "data-32767", "data-32768")


@judges("DOWNCAST-3", MaskDomain(only=BOUNDARIES))
def check_downcast_boundaries(subject: Subject, problem: Problem) -> None:
    """Types and values on both sides of the ends of int8 and int16."""
    compare_types(subject, problem)
    info = subject.mask_info(problem, "fwd")
    if isinstance(info, GridMaskInfo) and problem.q_len == 1:
        last = np.full(info.data_next.shape, problem.kv_len - 1)
        expect_array(Place("data_next", direction="fwd"), last, info.data_next)
