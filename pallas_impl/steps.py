"""Reading a schedule inside a kernel or an index map: scalar arithmetic only."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_impl import schedule as sched
from pallas_impl import slots as sl

Refs = dict[str, Any]
"""Scalar-prefetch references by the names of ``Schedule.arrays``, flattened to 1-D."""


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


def kv_head_of(head: Any, group: int) -> Any:
    """The kv head that a query head reads, ``head // group`` (SCHED-3).

    ``lax.div``: heads are not negative, and lowering ``//`` asks for the kind of the TPU, which a
    host without one cannot answer (``jax.export``).
    """
    return head if group == 1 else jax.lax.div(head, jnp.int32(group))


class Reader:
    """Decodes the step at ``(head, bin, step, member)`` of the grid.

    ``head`` is the first grid dimension.  ``member`` counts the query heads of a kv head in the
    dkv kernel, where it is the innermost grid dimension; elsewhere ``group`` is 1.
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
        self.layout, self.refs, self.per_head, self.group = layout, refs, per_head, group
        self.bin, self.step, self.member = ids
        self.first_head = head if group == 1 else head * group
        self.head = head if group == 1 else self.first_head + self.member

    def _load(self, name: str, size: int, at: Any) -> Any:
        index = self.head * size + at if self.per_head else at
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

    def _extent(self, row: Any) -> tuple[Any, Any]:
        """(first column, steps) of a row in runs storage."""
        word = self._load("words", 2 * self.layout.rows, 2 * row)
        slots = self.layout.slots
        steps = jax.lax.div((word & 0xFFFF) + (slots - 1), slots)
        return jax.lax.shift_right_logical(word, 16), jnp.maximum(1, steps)

    def row(self) -> Any:
        """The output block of this step."""
        if self.layout.storage == "table":
            return sched.unpack_meta(self._load("words", self.layout.steps, self.step)).row
        return self._locate()[0]

    def step_info(self) -> sched.Meta:
        """Everything the body needs to choose its branch."""
        if self.layout.storage == "table":
            meta = sched.unpack_meta(self._load("words", self.layout.steps, self.step))
        else:
            meta = self._run_info()
        if self.group > 1:
            first = meta.first & (self.member == 0)
            last = meta.last & (self.member == self.group - 1)
            meta = meta._replace(first=first, last=last)
        return meta

    def _run_info(self) -> sched.Meta:
        row, at = self._locate()
        _, steps = self._extent(row)
        packed = self._load("words", 2 * self.layout.rows, 2 * row + 1)
        begin, end = jax.lax.shift_right_logical(packed, 16), packed & 0xFFFF
        active = full = jnp.int32(0)
        for slot in range(self.layout.slots):
            entry = self.entry(slot)
            column, busy = sl.column_of(entry), sl.kind_of(entry) == sl.ACTIVE
            inside = busy & (column >= begin) & (column < end)
            active = active | (busy.astype(jnp.int32) << slot)
            full = full | (inside.astype(jnp.int32) << slot)
        return sched.Meta(row, at == 0, at == steps - 1, active, full)

    def entry(self, slot: int) -> Any:
        """The packed entry of a slot."""
        slots = self.layout.slots
        if self.layout.storage == "table":
            size = self.layout.steps * slots
            return self._load("entries", size, self.step * slots + slot)
        row, at = self._locate()
        start, steps = self._extent(row)
        edge = (2 * row + (at > 0).astype(jnp.int32)) * slots + slot
        stored = self._load("entries", 2 * self.layout.rows * slots, edge)
        between = (at > 0) & (at < steps - 1)
        entry = jnp.where(between, start + at * slots + slot, stored)
        # Steps after a row's last keep what that had.
        over = (at >= steps) & (sl.kind_of(stored) == sl.ACTIVE)
        return jnp.where(over, stored | (sl.HOLD << sl.COLUMN_BITS), entry)

    def column(self, slot: int) -> Any:
        """Column of a slot: the block to have in memory now."""
        return sl.column_of(self.entry(slot))

    def block(self, slot: int) -> tuple[Any, Any]:
        """(query head, column) of the block that a slot has in memory now."""
        entry = self.entry(slot)
        column, kind = sl.column_of(entry), sl.kind_of(entry)
        if self.per_head:
            return self.head + sl.head_offset(entry), column
        head = self.head
        if self.group > 1:
            held = jnp.where(kind == sl.NEXT, 0, self.group - 1)
            head = self.first_head + jnp.where(kind == sl.ACTIVE, self.member, held)
        return (jnp.where(kind == sl.NEVER, 0, head) if self.layout.spare else head), column

    def mask_id(self, slot: int) -> Any:
        """Index of the partial mask block to have in memory for a slot."""
        size = self.layout.steps * self.layout.slots
        return self._load("mask_ids", size, self.step * self.layout.slots + slot)


def by_members(schedule: sched.Schedule, group: int) -> sched.Schedule:
    """The schedule of heads that take turns: at each step one query head of a kv head after another.

    What a slot without work holds depends on who comes before and after.  Schedules are made for
    heads that run one by one, since masks do not tell how many share a kv head.
    """
    heads, slots = schedule.words.shape[0], schedule.layout.slots
    n = schedule.words.shape[1]

    def turns(x: Any) -> Any:
        return x.reshape(heads // group, group, n, slots).swapaxes(1, 2).reshape(1, -1, slots)

    def back(x: Any) -> Any:
        return x.reshape(heads // group, n, group, slots).swapaxes(1, 2).reshape(heads, -1)

    xp: Any = np if isinstance(schedule.words, np.ndarray) else jnp
    owner = turns(
        np.broadcast_to(np.arange(heads, dtype=np.int32)[:, None, None], (heads, n, slots))
    )
    meta = sched.unpack_meta(xp.asarray(schedule.words)[:, :, None])
    bits = (1 << np.arange(slots, dtype=np.int32))[None, None, :]
    active, full = turns(meta.active & bits) > 0, turns(meta.full & bits) > 0
    columns = turns(sl.column_of(xp.asarray(schedule.entries)))
    entries = back(sl.encode(columns, active, owner[0, :, 0]))
    mask_ids = schedule.mask_ids
    if mask_ids is not None:
        mask_ids = back(sl.fill(turns(xp.asarray(mask_ids)), active & ~full))
    return dataclasses.replace(schedule, entries=entries, mask_ids=mask_ids)
