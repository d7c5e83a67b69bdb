"""Reading a schedule inside a kernel or an index map: scalar arithmetic only."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pallas_impl import schedule as sched

Refs = dict[str, Any]
"""Scalar-prefetch references by the names of ``Schedule.arrays``, flattened to 1-D."""


class Step(NamedTuple):
    """One grid step: scalars, except ``layout``."""

    row: Any
    first: Any
    last: Any
    count: Any
    full: Any


def grid_of(layout: sched.Layout, heads: int, group: int = 1) -> tuple[int, ...]:
    """The kernel's grid: heads, bins in runs storage, steps, group when it is above 1."""
    bins = (layout.bins,) if layout.storage == "runs" else ()
    return (heads, *bins, layout.steps, *((group,) if group > 1 else ()))


def grid_ids(layout: sched.Layout, ids: tuple[Any, ...], group: int = 1) -> tuple[Any, ...]:
    """(head, bin, step, member) of a grid position; what the grid lacks is 0."""
    rest = list(ids)
    head = rest.pop(0)
    in_bin = rest.pop(0) if layout.storage == "runs" else 0
    step = rest.pop(0)
    member = rest.pop(0) if group > 1 else 0
    return head, in_bin, step, member


class Reader:
    """Decodes the step at ``(head, bin, step, member)`` of the grid.

    ``member`` counts the query heads of a kv head in the dkv kernel, where it is the innermost
    grid dimension; elsewhere ``group`` is 1.
    """

    def __init__(
        self,
        layout: sched.Layout,
        refs: Refs,
        per_head: bool,
        head: Any,
        ids: tuple[Any, Any, Any],
        group: int = 1,
    ) -> None:
        self.layout, self.refs, self.group = layout, refs, group
        self.bin, self.step, self.member = ids
        self.head = head if per_head else None

    def _load(self, name: str, size: int, at: Any) -> Any:
        index = at if self.head is None else self.head * size + at
        return self.refs[name][index]

    def _locate(self) -> tuple[Any, Any]:
        """(row, step inside the row) in runs storage."""
        if self.layout.grid == "grid2d":
            return self.bin, self.step
        size = 3 * self.layout.bins
        at = 3 * self.bin
        split = self._load("bins", size, at + 2)
        behind = self.step >= split
        row = self._load("bins", size, at + behind.astype(jnp.int32))
        return row, self.step - jnp.where(behind, split, 0)

    def _row_steps(self, row: Any) -> tuple[Any, Any]:
        """(blocks in the row, steps of the row) in runs storage."""
        count = self._load("words", 2 * self.layout.rows, 2 * row)
        slots = self.layout.slots
        return count, jnp.maximum(1, jax.lax.div(count + (slots - 1), slots))

    def row(self) -> Any:
        """The output block of this step."""
        if self.layout.storage == "table":
            word = self._load("words", self.layout.steps, self.step)
            return jax.lax.shift_right_logical(word, sched.ROW_SHIFT)
        return self._locate()[0]

    def step_info(self) -> Step:
        """Everything the body needs to choose its branch."""
        if self.layout.storage == "table":
            word = self._load("words", self.layout.steps, self.step)
            first, last = (word & 1) == 1, (word & 2) == 2
            count, full = (word >> 2) & 7, (word >> 5) & 15
            row = jax.lax.shift_right_logical(word, sched.ROW_SHIFT)
        else:
            row, at = self._locate()
            blocks, steps = self._row_steps(row)
            first, last = at == 0, at == steps - 1
            base = at * self.layout.slots
            count = jnp.where(at < steps, jnp.clip(blocks - base, 0, self.layout.slots), 0)
            packed = self._load("words", 2 * self.layout.rows, 2 * row + 1)
            begin, end = packed >> 16, packed & 0xFFFF
            full = jnp.int32(0)
            for slot in range(self.layout.slots):
                inside = (base + slot >= begin) & (base + slot < end)
                full = full | (inside.astype(jnp.int32) << slot)
        if self.group > 1:
            first = first & (self.member == 0)
            last = last & (self.member == self.group - 1)
        return Step(row, first, last, count, full)

    def entry(self, slot: int) -> Any:
        """The packed entry of a slot."""
        slots = self.layout.slots
        if self.layout.storage == "table":
            size = self.layout.steps * slots
            return self._load("entries", size, self.step * slots + slot)
        row, at = self._locate()
        blocks, steps = self._row_steps(row)
        over = at >= steps  # idle steps keep what the last one had
        at = jnp.minimum(at, steps - 1)
        size = self.layout.rows * slots
        initial = self._load("entries", size, row * slots + slot)
        start = self._load("entries", size, row * slots) & 0xFFFF
        position = at * slots + slot
        idle = position >= blocks
        column = start + position - jnp.where(idle, slots, 0)
        kind = jnp.where(idle, sched.HOLD, sched.ACTIVE)
        later = column | (kind << sched.COLUMN_BITS)
        entry = jnp.where(at == 0, initial, later)
        if self.group == 1:
            return entry
        active = (entry >> sched.COLUMN_BITS) == sched.ACTIVE
        return jnp.where(over & active, entry | (sched.HOLD << sched.COLUMN_BITS), entry)

    def column(self, slot: int) -> Any:
        """Column of a slot: the block to have in memory now."""
        return self.entry(slot) & 0xFFFF

    def column_member(self, slot: int) -> tuple[Any, Any]:
        """(column, member of the group whose block is wanted) of a slot."""
        entry = self.entry(slot)
        column = entry & 0xFFFF
        if self.group == 1:
            return column, 0
        kind = entry >> sched.COLUMN_BITS
        held = jnp.where(kind == sched.NEXT, 0, self.group - 1)
        return column, jnp.where(kind == sched.ACTIVE, self.member, held)

    def mask_id(self, slot: int) -> Any:
        """Index of the partial mask block to have in memory for a slot."""
        size = self.layout.steps * self.layout.slots
        return self._load("mask_ids", size, self.step * self.layout.slots + slot)
