"""Schedules: the steps that a kernel takes, whatever layout they were compiled from.

Both MaskInfo layouts, and any kernel observed from outside, become a `Schedule`; the SCHED, FETCH
and OUT clauses are written over it alone. Everything counts blocks from the start of one shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reference.blocks import Int32
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Bool
from spec import defines


@dataclass(frozen=True)
class Schedule:
    """The steps of one kernel on one shard, in the order in which they run.

    Attributes:
      direction: which kernel.
      head, q_block, kv_block: int32 ``[steps]``, the position that a running step works on.
      runs: bool ``[steps]``, whether the step computes.
      mask_block: int32 ``[steps]``, index of the mask block in memory; -1 without one.
      operands: block index in memory at every step, int32 ``[steps, rank]``, by operand name: what
        the pipeline fetches and keeps (``q``, ``k``, ``v``, ``mask``, …).
      outputs: the same for the outputs (``o``, ``dq``, ``dk``, ``dv``).
      initialises: bool ``[steps]`` by output: the step resets the accumulator.
      writes: bool ``[steps]`` by output: the step stores the finished block.
      output_blocks: number of blocks along every axis of an output, by output.
      copies: bool ``[steps]`` by operand: the step copies the operand into memory. Only for kernels
        that copy by hand; elsewhere the pipeline decides, see `copies_of`.
      buffers: for an operand of which several blocks are kept at once, which of its memories a step
        works from, int32 ``[steps]``. A kernel that works on several blocks in one step of its grid
        has one step here for each.
      strays: what names a block that does not exist, a sentence each: for operands and axes that the other fields
        leave out, such as segment ids.
    """

    direction: Direction
    head: Int32
    q_block: Int32
    kv_block: Int32
    runs: Bool
    mask_block: Int32
    operands: dict[str, Int32]
    outputs: dict[str, Int32]
    initialises: dict[str, Bool]
    writes: dict[str, Bool]
    output_blocks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    copies: dict[str, Bool] = field(default_factory=dict)
    buffers: dict[str, Int32] = field(default_factory=dict)
    strays: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.runs)

    def work(self) -> Int32:
        """(head, q block, kv block) of the running steps in order, int32 ``[running, 3]``."""
        steps = np.stack([self.head, self.q_block, self.kv_block], axis=1)
        return steps[self.runs]

    def copies_of(self, operand: str) -> Bool:
        """The steps at which an operand is copied, bool ``[steps]``."""
        pipelined = fetches(self.operands[operand], self.buffers.get(operand))
        return self.copies.get(operand, pipelined)


@defines("FETCH-1")
def fetches(index: Int32, buffer: Int32 | None = None) -> Bool:
    """The pipeline rule: a step fetches an operand iff its block index differs from the step before.

    Args:
      index: block index of the operand at every step, int32 ``[steps, rank]``.
      buffer: which of several memories every step works from, int32 ``[steps]``; the rule then holds
        for the steps of each memory by themselves. None if there is one.

    Returns:
      bool ``[steps]``; the first step always fetches.
    """
    changed = np.ones(len(index), dtype=np.bool_)
    memory = np.zeros(len(index), dtype=np.int32) if buffer is None else buffer
    for number in np.unique(memory):
        at = np.flatnonzero(memory == number)
        changed[at[1:]] = (index[at[1:]] != index[at[:-1]]).any(axis=1)
    return changed


@defines("FETCH-2", "FETCH-3", "DYNAMIC-4", "SHRINK-8")
def fetch_counts(index: Int32, runs: Bool, buffer: Int32 | None = None) -> tuple[int, int]:
    """Fetches of an operand, and the fewest that the running steps need in this order.

    The minimum is that of a kernel which keeps one block of the operand: one fetch per change of
    block along the running steps. A schedule that runs nothing needs none. Arguments are those of
    `fetches`; a kernel that keeps several blocks is measured by the same minimum.
    """
    return int(fetches(index, buffer).sum()), int(fetches(index[runs]).sum())


@defines("SCHED-1", "SCHED-2")
def expected_work(grids: Int32) -> set[tuple[int, int, int]]:
    """Every (head, q block, kv block) with a non-zero label; ``grids`` is ``[heads, q, kv]``."""
    return {(int(h), int(i), int(j)) for h, i, j in np.argwhere(grids > 0)}


@defines("SCHED-3", "SCHED-4", "SCHED-6")
def grid_schedule(info: GridMaskInfo, kv_heads: int) -> Schedule:
    """The schedule of the two-dimensional layout.

    Args:
      info: arrays of one shard with one leading row per head (`reference.sharding.slice_grid`).
      kv_heads: key/value heads of the shard; query head h reads kv head ``h // (heads/kv_heads)``.
    """
    heads, height, width = info.block_mask.shape
    dkv = info.direction == "dkv"
    if dkv:
        other, head, step = (a.ravel() for a in np.indices((width, heads, height), dtype=np.int32))
        at = (head, step, other)
        last = step == height - 1
    else:
        head, other, step = (a.ravel() for a in np.indices((heads, height, width), dtype=np.int32))
        at = (head, other, step)
        last = step == width - 1
    data = info.data_next[at].astype(np.int32)
    q_block, kv_block = (data, other) if dkv else (other, data)
    mask = np.full(len(data), -1, dtype=np.int32)
    if info.mask_next is not None:
        mask = info.mask_next[at].astype(np.int32)
    return _assemble(
        info.direction,
        heads // kv_heads,
        (head, q_block, kv_block),
        info.block_mask[at] > 0,
        mask,
        first=step == 0,
        last=last,
        blocks=(heads, kv_heads, width if dkv else height),
    )


@defines("SCHED-3", "SCHED-4", "SCHED-6")
def flat_schedule(info: FlatMaskInfo, heads: int, kv_heads: int, output_rows: int) -> Schedule:
    """The schedule of the flat layout: the list once per head.

    Args:
      info: arrays of one shard without padding (`reference.sharding.slice_flat`).
      heads, kv_heads: of the shard.
      output_rows: output blocks of the shard.
    """
    rows, columns = info.active_rows.astype(np.int32), info.active_cols.astype(np.int32)
    count = len(rows)
    head = np.repeat(np.arange(heads, dtype=np.int32), count)
    rows, columns = np.tile(rows, heads), np.tile(columns, heads)
    dkv = info.direction == "dkv"
    q_block, kv_block = (columns, rows) if dkv else (rows, columns)
    mask = np.full(len(rows), -1, dtype=np.int32)
    if info.mask_next is not None:
        mask = np.tile(info.mask_next.astype(np.int32), heads)
    edge = np.ones(len(rows) + 1, dtype=np.bool_)
    edge[1:-1] = (rows[1:] != rows[:-1]) | (head[1:] != head[:-1])
    return _assemble(
        info.direction,
        heads // kv_heads,
        (head, q_block, kv_block),
        np.tile(info.block_mask > 0, heads),
        mask,
        first=edge[:-1],
        last=edge[1:],
        blocks=(heads, kv_heads, output_rows),
    )


def _assemble(
    direction: Direction,
    group: int,
    position: tuple[Int32, Int32, Int32],
    runs: Bool,
    mask_block: Int32,
    *,
    first: Bool,
    last: Bool,
    blocks: tuple[int, int, int],
) -> Schedule:
    """A schedule that keeps an output block in memory from ``first`` to ``last``."""
    head, q_block, kv_block = position
    heads, _, rows = blocks
    kv_head = head // group
    operands = {
        "q": np.stack([head, q_block], axis=1),
        "k": np.stack([kv_head, kv_block], axis=1),
        "v": np.stack([kv_head, kv_block], axis=1),
    }
    if (mask_block >= 0).any():
        operands["mask"] = mask_block[:, None]
    names: tuple[str, ...]
    if direction == "dkv":
        names, shape = ("dk", "dv"), (heads, rows)
        index = np.stack([head, kv_block], axis=1)  # one partial sum per query head
    else:
        names, shape = ("o",) if direction == "fwd" else ("dq",), (heads, rows)
        index = np.stack([head, q_block], axis=1)
    return Schedule(
        direction=direction,
        head=head,
        q_block=q_block,
        kv_block=kv_block,
        runs=np.asarray(runs),
        mask_block=mask_block,
        operands=operands,
        outputs=dict.fromkeys(names, index),
        initialises=dict.fromkeys(names, np.asarray(first)),
        writes=dict.fromkeys(names, np.asarray(last)),
        output_blocks=dict.fromkeys(names, shape),
    )
