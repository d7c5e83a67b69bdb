"""Turns what was seen of a kernel into the `Schedule` that the clauses are written over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.adapters.tracing.kernel_trace import KernelTrace, TraceError
from reference.blocks import Int32
from reference.mask_info import Direction
from reference.masks import Bool
from reference.schedule import Schedule


@dataclass(frozen=True)
class BlockAxes:
    """Which axes of an array hold which columns of a schedule's index.

    Attributes:
      name: parameter of the kernel, or origin of the array.
      axes: axis of the array for every column, usually ``(head, sequence)``; None for a column
        that is always 0 (an array without heads). Further axes are dropped.
    """

    name: str
    axes: tuple[int | None, ...]


def _columns(trace: KernelTrace, where: BlockAxes) -> tuple[Int32, tuple[int, ...]]:
    """Block index ``[steps, columns]`` and number of blocks of every column."""
    block = trace.block(where.name)
    zero = np.zeros(len(trace), dtype=np.int32)
    columns = [zero if axis is None else block.index[:, axis] for axis in where.axes]
    counts = tuple(1 if axis is None else block.blocks[axis] for axis in where.axes)
    return np.stack(columns, axis=1), counts


@dataclass(frozen=True)
class _Steps:
    """The steps of a schedule: one for each of the ``slots`` that a step of the grid works on."""

    trace: KernelTrace
    slots: int

    def spread(self, each: Int32) -> Int32:
        """Something that holds for all slots of a step of the grid."""
        return np.repeat(each, self.slots, axis=0)

    def at_slot(self, steps: Bool, slot: int) -> Bool:
        """``steps`` of the grid, as something that happens at one slot."""
        found = np.zeros((len(steps), self.slots), dtype=np.bool_)
        found[:, slot] = steps
        return found.ravel()

    def index(self, where: Sequence[BlockAxes]) -> Int32:
        """Block index of an operand, ``[steps, columns]``."""
        each = [_columns(self.trace, place)[0] for place in where]
        if len(each) == 1:
            return self.spread(each[0])
        return np.stack(each, axis=1).reshape(-1, each[0].shape[1])

    def runs(self, moving: Sequence[Sequence[BlockAxes]]) -> Bool:
        """The steps that compute; among slots those whose own block enters a matrix product."""
        if self.slots == 1:
            return self.trace.may_compute
        found = np.zeros((len(self.trace), self.slots), dtype=np.bool_)
        for places in moving:
            for slot, place in enumerate(places):
                name = self.trace.block(place.name).name
                found[:, slot] |= self.trace.products.get(name, np.zeros(1, dtype=np.bool_))
        return found.ravel()


def _listed(where: BlockAxes | Sequence[BlockAxes]) -> tuple[BlockAxes, ...]:
    return (where,) if isinstance(where, BlockAxes) else tuple(where)


def schedule_from_trace(
    trace: KernelTrace,
    *,
    direction: Direction,
    operands: Mapping[str, BlockAxes | Sequence[BlockAxes]],
    outputs: Mapping[str, BlockAxes],
    mask: str | Sequence[str] | None = None,
) -> Schedule:
    """The schedule of a kernel that was observed.

    Args:
      trace: what was seen.
      direction: what the kernel computes.
      operands: where ``q``, ``k``, ``v`` and any other operand of interest stand. The position of a
        step is taken from the blocks in memory: head and q block from ``q``, kv block from ``k``.
        A list names the parameters of an operand of which several blocks are worked on in one step
        of the grid; all lists have one length.
      outputs: where ``o``, ``dq``, ``dk``, ``dv`` stand. An output with one partial sum a kv block
        has more columns than (head, block), such as ``(kv block, head, q block)``.
      mask: parameter that receives the stored mask blocks, or a list of them; None if there is
        none. Its first axis counts the blocks.

    Raises:
      TraceError: the kernel copies data by itself, so that its blocks do not tell what it works on.
      KeyError: a name that the kernel does not have.
      ValueError: lists of different lengths.
    """
    if trace.manual_copies:
        raise TraceError(f"{trace.name} copies data by itself; its blocks do not tell its schedule")
    places = {name: _listed(where) for name, where in operands.items()}
    if mask is not None:
        names = (mask,) if isinstance(mask, str) else mask
        places["mask"] = tuple(BlockAxes(name, (0,)) for name in names)
    several = {name: found for name, found in places.items() if len(found) > 1}
    lengths = {len(found) for found in several.values()}
    if len(lengths) > 1:
        raise ValueError(f"operands of several blocks must have one number, got {sorted(lengths)}")
    steps = _Steps(trace, max(lengths, default=1))
    index = {name: steps.index(found) for name, found in places.items()}
    mask_block = np.full(len(index["q"]), -1, dtype=np.int32)
    if mask is not None:
        mask_block = index["mask"][:, 0]
    placed = {name: _columns(trace, where) for name, where in outputs.items()}
    kernel_names = {name: trace.block(where.name).name for name, where in outputs.items()}
    buffer = np.tile(np.arange(steps.slots, dtype=np.int32), len(trace))
    return Schedule(
        direction=direction,
        head=index["q"][:, 0],
        q_block=index["q"][:, 1],
        kv_block=index["k"][:, 1],
        runs=steps.runs([found for name, found in several.items() if name != "mask"]),
        mask_block=mask_block,
        operands=index,
        outputs={name: steps.spread(columns) for name, (columns, _) in placed.items()},
        initialises={
            name: steps.at_slot(trace.initialises(kernel), 0)
            for name, kernel in kernel_names.items()
        },
        writes={
            name: steps.at_slot(trace.accesses[kernel].writes, steps.slots - 1)
            for name, kernel in kernel_names.items()
        },
        output_blocks={name: counts for name, (_, counts) in placed.items()},
        buffers=dict.fromkeys(several, buffer),
        strays=tuple(s for block in (*trace.operands, *trace.outputs) for s in block.strays),
    )
