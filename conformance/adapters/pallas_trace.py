"""Observes Pallas TPU kernels from outside: what every grid step fetches, computes and writes.

Nothing is executed and nothing is assumed about the kernel's own arrays. `trace_kernels` reads the
grid, the block shapes and the index maps from the traced program, evaluates the index maps at every
grid step, and follows the kernel's scalars through its body. `schedule_from_trace` turns what was
seen into the `Schedule` that the clauses are written over.

For an adapter of your own kernel::

    q = jax.ShapeDtypeStruct((heads, q_len, 128), jnp.float32)
    (trace,) = trace_kernels(my_attention, q, k, v)
    schedule = schedule_from_trace(
        trace,
        direction="fwd",
        operands={"q": BlockAxes("q_ref", (0, 1)), "k": BlockAxes("k_ref", (0, 1)),
                  "v": BlockAxes("v_ref", (0, 1))},
        outputs={"o": BlockAxes("o_ref", (0, 1))},
    )

Kernels that copy data by hand (``make_async_copy``, ``emit_pipeline``) have ``manual_copies`` set:
their index maps do not tell what is in memory, and their schedule cannot be read this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.adapters.pallas_events import Accesses
from conformance.adapters.pallas_kernel import (
    BlockTrace,
    KernelTrace,
    TraceError,
    evaluate_program,
    trace_kernels,
    trace_program,
)
from reference.blocks import Int32
from reference.mask_info import Direction
from reference.schedule import Schedule

__all__ = [
    "Accesses",
    "BlockAxes",
    "BlockTrace",
    "KernelTrace",
    "TraceError",
    "evaluate_program",
    "schedule_from_trace",
    "trace_kernels",
    "trace_program",
]


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


def schedule_from_trace(
    trace: KernelTrace,
    *,
    direction: Direction,
    operands: Mapping[str, BlockAxes],
    outputs: Mapping[str, BlockAxes],
    mask: str | None = None,
) -> Schedule:
    """The schedule of a kernel that was observed.

    Args:
      trace: what was seen.
      direction: what the kernel computes.
      operands: where ``q``, ``k``, ``v`` and any other operand of interest stand. The position of a
        step is taken from the blocks in memory: head and q block from ``q``, kv block from ``k``.
      outputs: where ``o``, ``dq``, ``dk``, ``dv`` stand. An output with one partial sum a kv block
        has more columns than (head, block), such as ``(kv block, head, q block)``.
      mask: parameter that receives the stored mask blocks; None if there is none. Its first axis
        counts the blocks.

    Raises:
      TraceError: the kernel copies data by itself, so that its blocks do not tell what it works on.
      KeyError: a name that the kernel does not have.
    """
    if trace.manual_copies:
        raise TraceError(f"{trace.name} copies data by itself; its blocks do not tell its schedule")
    index = {name: _columns(trace, where)[0] for name, where in operands.items()}
    mask_block = np.full(len(trace), -1, dtype=np.int32)
    if mask is not None:
        mask_block = trace.block(mask).index[:, 0]
        index["mask"] = mask_block[:, None]
    placed = {name: _columns(trace, where) for name, where in outputs.items()}
    kernel_names = {name: trace.block(where.name).name for name, where in outputs.items()}
    return Schedule(
        direction=direction,
        head=index["q"][:, 0],
        q_block=index["q"][:, 1],
        kv_block=index["k"][:, 1],
        runs=trace.may_compute,
        mask_block=mask_block,
        operands=index,
        outputs={name: columns for name, (columns, _) in placed.items()},
        initialises={name: trace.initialises(kernel) for name, kernel in kernel_names.items()},
        writes={name: trace.accesses[kernel].writes for name, kernel in kernel_names.items()},
        output_blocks={name: counts for name, (_, counts) in placed.items()},
    )
