"""Which logits of one tile are visible: partial blocks, positions and segment ids.

A tile has the kernel's output block along its rows and the visited block along its columns:
queries are rows in the forward and dq kernels and columns in the dkv kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pallas_impl import logits as lg
from pallas_impl.block_sizes import LANES
from pallas_impl.in_kernel import evaluate
from pallas_impl.kernel_call import SUBLANES, KernelCall, Running, Where, as_columns, as_rows
from pallas_impl.schedule import Schedule
from pallas_impl.segment_ids import SegmentIds


class MaskOperands(NamedTuple):
    """What the label-1 blocks of one kernel need; int32 and int8 arrays or None.

    Attributes:
      blocks: int8[.., block rows, block columns], the stack of partial blocks in the
        orientation of the kernel's tile (leading axes are flattened).
      q_starts, kv_starts: [blocks], the position of the first token of each block, if the mask
        is computed and positions inside blocks are consecutive.
      q_positions, kv_positions: [tokens], all positions, if they are not.
    """

    blocks: Any = None
    q_starts: Any = None
    kv_starts: Any = None
    q_positions: Any = None
    kv_positions: Any = None


class KernelPlan(NamedTuple):
    """The schedule of one kernel and the operands of its label-1 blocks; a pytree."""

    schedule: Schedule
    mask: MaskOperands


def add_mask_inputs(
    call: KernelCall,
    mask: MaskOperands,
    segment_ids: SegmentIds | None,
    tile: tuple[int, int],
    *,
    q_axis: int,
) -> None:
    """Adds what ``visible`` reads; ``tile`` is (block rows, block columns)."""
    slots = call.schedule.layout.slots

    def tokens(kind: str, values: tuple[Any, Any]) -> None:
        row_values, column_values = values if q_axis == 0 else values[::-1]
        call.input(f"row_{kind}", as_columns(row_values), (tile[0], LANES), lambda w: (w.row, 0))
        for slot in range(slots):

            def column(w: Where, slot: int = slot) -> tuple[Any, ...]:
                return 0, w.reader.column(slot)

            name = f"column_{kind}{slot}"
            call.input(name, as_rows(column_values), (SUBLANES, tile[1]), column)

    if call.cfg.mask_function is not None:
        if mask.q_starts is not None:
            starts = (mask.q_starts, mask.kv_starts)
            call.prefetch["row_starts"], call.prefetch["column_starts"] = (
                starts if q_axis == 0 else starts[::-1]
            )
        else:
            tokens("position", (mask.q_positions, mask.kv_positions))
    elif mask.blocks is not None:
        stack = mask.blocks.reshape(-1, *tile)
        for slot in range(slots):

            def stored(w: Where, slot: int = slot) -> tuple[Any, ...]:
                return w.reader.mask_id(slot), 0, 0

            call.input(f"mask{slot}", stack, (None, *tile), stored)
    if segment_ids is not None:
        tokens("segment", (segment_ids.q, segment_ids.kv))


def _along(running: Running, kind: str, slot: int, rows: slice, width: int) -> Any:
    """Per-token values of a tile: along its rows [rows, width] and columns [1, width]."""
    refs = running.refs
    return lg.widen(refs[f"row_{kind}"][rows, :], width), refs[f"column_{kind}{slot}"][:1, :]


def visible(
    running: Running,
    mask_function: Any,
    slot: int,
    tile: tuple[int, int],
    *,
    q_axis: int,
    partial: bool,
    rows: slice = slice(None),
    columns: slice = slice(None),
) -> jax.Array | None:
    """Which logits of a slot's tile are visible; None when all are.

    Args:
      tile: the whole tile; ``rows`` and ``columns`` cut the part that is wanted.
      q_axis: the axis of the tile that runs over queries.
      partial: whether the mask itself cuts the block (label 1).
    """
    refs = running.refs
    row_range = range(*rows.indices(tile[0]))
    column_range = range(*columns.indices(tile[1]))
    shape = (len(row_range), len(column_range))
    seen: jax.Array | None = None
    if partial and "mask0" in refs:
        seen = refs[f"mask{slot}"][rows, columns].astype(jnp.int32) != 0
    elif partial and mask_function is not None:
        if "row_starts" in refs:
            row_start = refs["row_starts"][running.step.row] + row_range.start
            column_start = refs["column_starts"][running.reader.column(slot)]
            ids = [
                lax.broadcasted_iota(jnp.int32, (shape[0], 1), 0) + row_start,
                lax.broadcasted_iota(jnp.int32, (1, shape[1]), 1)
                + (column_start + column_range.start),
            ]
        else:
            row_ids, column_ids = _along(running, "position", slot, rows, tile[1])
            ids = [row_ids[:, columns], column_ids[:, columns]]
        q_ids, kv_ids = ids if q_axis == 0 else ids[::-1]
        seen = jnp.broadcast_to(evaluate(mask_function, q_ids, kv_ids), shape)
    if "row_segment" in refs:
        row_ids, column_ids = _along(running, "segment", slot, rows, tile[1])
        same = row_ids[:, columns] == column_ids[:, columns]
        seen = same if seen is None else seen & same
    return seen
