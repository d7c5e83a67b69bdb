"""Compiled arrays read without regard to their layout, for checks that hold for every layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from conformance.checks.registry import Violation, expect_array
from conformance.contract.fence import Subject
from conformance.findings.expectation import InRange, OfForm
from conformance.findings.place import Place, ShardIndex
from conformance.problems.problem import Problem
from reference.blocks import Int32, block_of, labels
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Bool, Mask
from reference.sharding import Shard, every_shard, shard_masks, slice_flat, slice_grid

#: Head, q block and kv block.
type Block = tuple[int, int, int]
#: What these numbers count.
BLOCK = ("head", "q block", "kv block")


@dataclass(frozen=True)
class ActiveBlocks:
    """The entries with a non-zero label on one shard, in the order of the arrays.

    Attributes:
      head, q_block, kv_block, label: int32 ``[entries]``, counted from the start of the shard.
      place: index into `stack`, -1 if the arrays have no ``mask_next``.
      stack: the stored mask blocks of the shard, None if there are none.
    """

    head: Int32
    q_block: Int32
    kv_block: Int32
    label: Int32
    place: Int32
    stack: Bool | None

    def grid(self, shape: tuple[int, int, int], place: Place) -> Int32:
        """The labels as a grid ``[heads, q blocks, kv blocks]``.

        Raises:
          Violation: an entry names a block that does not exist, or a block that another names.
        """
        at = (self.head, self.q_block, self.kv_block)
        for index, size, name in zip(at, shape, BLOCK, strict=True):
            if len(index) and not (index.min() >= 0 and index.max() < size):
                bad = index[(index < 0) | (index >= size)][0]
                raise Violation(
                    place.named(f"{name} of an active entry"), InRange(0, size - 1), bad
                )
        grid = np.zeros(shape, dtype=np.int32)
        grid[at] = self.label
        times = np.zeros(shape, dtype=np.int32)
        np.add.at(times, at, 1)
        if times.max(initial=0) > 1:
            block = np.argwhere(times > 1)[0]
            raise Violation(place.of("times named").at(*block, axes=BLOCK), 1, times[tuple(block)])
        return grid


def local_info(
    subject: Subject, problem: Problem, direction: Direction, shard: Shard
) -> GridMaskInfo | FlatMaskInfo:
    """The arrays of one shard.

    Raises:
      Violation: the arrays cannot be split into the shards of the problem.
    """
    info = subject.mask_info(problem, direction)
    try:
        if isinstance(info, GridMaskInfo):
            return slice_grid(info, problem.shards, shard, problem.heads)
        return slice_flat(info, problem.shards, shard)
    except ValueError as wrong:
        arrays = Place("arrays", direction=direction)
        raise Violation(arrays, OfForm(("arrays that split into the shards",)), wrong) from None


def active_blocks(
    subject: Subject, problem: Problem, direction: Direction, shard: Shard
) -> ActiveBlocks:
    """The active entries of one shard in either layout."""
    info = local_info(subject, problem, direction, shard)
    heads = problem.heads // problem.shards.head
    if isinstance(info, GridMaskInfo):
        head, row, column = (a.astype(np.int32) for a in np.nonzero(info.block_mask))
        at = (head, row, column)
        data = info.data_next[at].astype(np.int32)
        q_block, kv_block = (data, column) if direction == "dkv" else (row, data)
        label = info.block_mask[at].astype(np.int32)
        place = None if info.mask_next is None else info.mask_next[at].astype(np.int32)
    else:
        active = np.flatnonzero(info.block_mask)
        head = np.repeat(np.arange(heads, dtype=np.int32), len(active))
        rows = np.tile(info.active_rows[active].astype(np.int32), heads)
        columns = np.tile(info.active_cols[active].astype(np.int32), heads)
        q_block, kv_block = (columns, rows) if direction == "dkv" else (rows, columns)
        label = np.tile(info.block_mask[active].astype(np.int32), heads)
        place = None
        if info.mask_next is not None:
            place = np.tile(info.mask_next[active].astype(np.int32), heads)
    if place is None:
        place = np.full(len(label), -1, dtype=np.int32)
    return ActiveBlocks(head, q_block, kv_block, label, place, info.partial_mask_blocks)


@lru_cache(maxsize=512)
def expected_labels(problem: Problem, direction: Direction, shard: Shard) -> Int32:
    """Labels of a shard from the mathematics, ``[heads, q blocks, kv blocks]``."""
    sizes = problem.blocks.of(direction)
    return np.stack([labels(m, *sizes) for m in local_masks(problem, shard)])


@lru_cache(maxsize=512)
def local_masks(problem: Problem, shard: Shard) -> tuple[Mask, ...]:
    """The masks of the heads of a shard, cut to its rows and columns."""
    return tuple(shard_masks(problem.head_masks, problem.shards, shard))


def parts_of(
    subject: Subject, problem: Problem, directions: Sequence[Direction] | None = None
) -> Iterator[tuple[Direction, Shard]]:
    """Every direction of compiled arrays, the declared ones if None, on every shard."""
    for direction in subject.description.directions if directions is None else directions:
        for shard in shards_of(problem):
            yield direction, shard


def shards_of(problem: Problem) -> list[Shard]:
    """Every shard of a problem."""
    return list(every_shard(problem.shards))


def expect_stored_block(
    place: Place, stack: Bool, number: int, problem: Problem, shard: Shard, block: Block
) -> None:
    """Raises `Violation` unless a stack holds the values of a block at an index.

    Args:
      place: of the index; its direction decides whether the block is transposed.
      stack: the stored mask blocks.
      number: the index.
      problem, shard: whose mask.
      block: head, q block and kv block.
    """
    if not 0 <= number < len(stack):
        raise Violation(place.at(*block, axes=BLOCK), InRange(0, len(stack) - 1), number)
    assert place.direction is not None
    head, i, j = block
    sizes = problem.blocks.of(place.direction)
    expected = block_of(local_masks(problem, shard)[head], i, j, *sizes)
    expected = expected.T if place.direction == "dkv" else expected
    found = np.asarray(stack[number], dtype=np.bool_)
    if found.shape != expected.shape or (found != expected).any():
        expect_array(place.named("stored block").under(block=block), expected, found)


def place_of(quantity: str, direction: Direction, shard: Shard, problem: Problem) -> Place:
    """A quantity of one direction on one device."""
    split = {name: getattr(shard, name) for name, n in vars(problem.shards).items() if n > 1}
    return Place(quantity, direction=direction, shard=ShardIndex(**split) if split else None)
