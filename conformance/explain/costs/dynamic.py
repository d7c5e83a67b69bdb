"""Schedules of run-time masks: nothing shrinks and every block is stored."""

from __future__ import annotations

from conformance.explain.costs.layouts import SLOTS, Compiled, ScalarArray, Schedule, fitting
from conformance.explain.costs.visits import Heads


def dynamic_schedules(found: Compiled, heads: Heads, direction: str = "fwd") -> list[Schedule]:
    """The schedules of a run-time mask; fetches depend on its values and are not counted.

    Args:
      found: the blocks of the values given.
      heads: the grid and our kernels keep arrays for every head; the flat list has one mask for all.
      direction: ``fwd`` or ``dkv``.
    """
    q_blocks, kv_blocks = found.labels.shape
    rows, columns = (kv_blocks, q_blocks) if direction == "dkv" else (q_blocks, kv_blocks)
    blocks = rows * columns
    shape = (heads.q, q_blocks, kv_blocks)
    grid = {
        "data_next": fitting(columns),
        "block_mask": "int8",
        "mask_next": fitting(heads.q * blocks),
    }
    flat = {
        "active_rows": "int32",
        "active_cols": "int32",
        "block_mask": "int8",
        "mask_next": fitting(blocks),
        "bounds_start": "int32",
        "bounds_end": "int32",
    }
    width = found.block_q if direction == "dkv" else found.block_kv
    slots = min(columns, SLOTS.get(width, 1))
    steps = rows * max(1, -(-columns // slots))
    ours = {"words": steps, "entries": steps * slots, "mask_ids": steps * slots}

    def made(layout: str, form: str, size: int, arrays: list[ScalarArray], slots: int) -> Schedule:
        return Schedule(
            layout=layout,
            form=form,
            grid=(rows, size // rows) if layout != "flat" else (size,),
            steps=size,
            k_fetches=None,
            mask_fetches=0,
            stored=True,
            computed=False,
            arrays=tuple(arrays),
            slots=slots,
        )

    return [
        made("grid", "grid", blocks, [ScalarArray(n, shape, t) for n, t in grid.items()], 1),
        made(
            "flat", "flat list", blocks, [ScalarArray(n, (blocks,), t) for n, t in flat.items()], 1
        ),
        made(
            "runs",
            f"grid, {slots} blocks per step",
            steps,
            [ScalarArray(n, (heads.q * size,), "int32") for n, size in ours.items()],
            slots,
        ),
    ]
