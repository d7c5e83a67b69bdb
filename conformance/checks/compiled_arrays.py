"""Compiled arrays read without regard to their layout, for checks that hold for every layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from conformance.checks.registry import Violation
from conformance.contract.fence import Subject
from conformance.problems.problem import Problem
from reference.blocks import Int32, labels
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Bool, Mask
from reference.sharding import Shard, every_shard, shard_masks, slice_flat, slice_grid


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

    def grid(self, shape: tuple[int, int, int], where: str) -> Int32:
        """The labels as a grid ``[heads, q blocks, kv blocks]``.

        Raises:
          Violation: an entry names a block that does not exist, or a block that another names.
        """
        at = (self.head, self.q_block, self.kv_block)
        for index, size, name in zip(at, shape, ("head", "q block", "kv block"), strict=True):
            if len(index) and not (index.min() >= 0 and index.max() < size):
                bad = index[(index < 0) | (index >= size)][0]
                raise Violation(
                    f"{where}: an active entry", f"a {name} below {size}", f"{name} {bad}"
                )
        grid = np.zeros(shape, dtype=np.int32)
        grid[at] = self.label
        times = np.zeros(shape, dtype=np.int32)
        np.add.at(times, at, 1)
        if times.max(initial=0) > 1:
            block = tuple(int(k) for k in np.argwhere(times > 1)[0])
            raise Violation(f"{where}: block (head, q, kv) = {block}", "named once", "named twice")
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
        raise Violation(f"{direction} arrays", "arrays that split into the shards", wrong) from None


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


def shards_of(problem: Problem) -> list[Shard]:
    """Every shard of a problem."""
    return list(every_shard(problem.shards))


def place_name(direction: Direction, shard: Shard, problem: Problem) -> str:
    """How reports name a part of the arrays, e.g. ``dkv, q shard 1``."""
    parts: list[str] = [direction]
    for name in ("head", "q", "kv"):
        if getattr(problem.shards, name) > 1:
            parts.append(f"{name} shard {getattr(shard, name)}")
    return ", ".join(parts)
