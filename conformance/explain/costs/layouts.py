"""Steps, fetches and scalar arrays of a compiled mask in three layouts: the grid, the flat list, and our kernels'."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.survey import Labels
from conformance.explain.costs.visits import (
    Counts,
    Heads,
    Rows,
    cached_fetches,
    flat_rows,
    grid_fetches,
    list_fetches,
    mask_fetches,
    rows_of,
)
from conformance.explain.language.expressions import leaves
from reference.blocks import FULL, PARTIAL
from reference.masks import Bool, Expr, Full

#: Layouts, and the library that uses each.
LAYOUTS = {"grid": "jax", "flat": "tokamax", "runs": "pallas_impl"}

#: Blocks per step of `pallas_impl`, by block width in tokens; 1 if not listed.
SLOTS = {128: 4, 256: 2, 512: 2}
#: `pallas_impl` stores a larger schedule (bytes) by rows, if it can.
TABLE_BYTES = 256 << 10


@dataclass(frozen=True)
class ScalarArray:
    """An array in scalar memory.

    Attributes:
      name: in that layout.
      shape: as it is handed to the kernel.
      dtype: ``int8``, ``int16`` or ``int32``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Schedule:
    """The schedule of one kernel in one layout.

    Attributes:
      layout: a key of `LAYOUTS`.
      form: description for people.
      grid: of one head, as the kernel launches it.
      steps: of one head.
      k_fetches: fetched blocks of k (and as many of v) over all heads; None for dkv.
      mask_fetches: fetched mask blocks over all heads.
      stored: whether partial blocks are read from memory.
      computed: whether the kernel computes the mask.
      arrays: in scalar memory.
      slots: blocks per step.
      k_at_most, mask_at_most: whether the number of fetches is an upper bound; otherwise it is exact.
    """

    layout: str
    form: str
    grid: tuple[int, ...]
    steps: int
    k_fetches: int | None
    mask_fetches: int
    stored: bool
    computed: bool
    arrays: tuple[ScalarArray, ...]
    slots: int = 1
    k_at_most: bool = False
    mask_at_most: bool = False


@dataclass(frozen=True)
class Compiled:
    """A mask cut into labelled blocks.

    Attributes:
      expr: the mask.
      labels: int8 ``[q blocks, kv blocks]``.
      ids: int32, the distinct block that every partial block is, row-major.
      distinct: number of distinct partial blocks.
      block_q, block_kv: tokens per block.
    """

    expr: Expr
    labels: Labels
    ids: NDArray[np.int32]
    distinct: int
    block_q: int
    block_kv: int

    @property
    def q_len(self) -> int:
        """Query positions."""
        return int(self.labels.shape[0]) * self.block_q

    @property
    def kv_len(self) -> int:
        """Key positions."""
        return int(self.labels.shape[1]) * self.block_kv

    def is_computed(self, layout: str) -> bool:
        """Whether a kernel of a layout computes the mask: a single computable one (COMPUTE-1).

        `pallas_impl` computes combinations of computable masks too.
        """
        if layout == "runs":
            return all(part.computable or isinstance(part, Full) for part in leaves(self.expr))
        return self.expr.computable

    def is_stored(self, layout: str) -> bool:
        """Whether a kernel of a layout reads partial blocks from memory."""
        return self.distinct > 0 and not self.is_computed(layout)


def final_schedule(schedules: list[Schedule], layout: str) -> Schedule:
    """The last schedule of a layout; for the grid, the one after shrinking."""
    return [schedule for schedule in schedules if schedule.layout == layout][-1]


def fitting(largest: int) -> str:
    """The smallest integer type that holds a value (DOWNCAST-1)."""
    return next((f"int{n}" for n in (8, 16) if largest < 1 << (n - 1)), "int32")


def schedules(found: Compiled, heads: Heads, direction: str = "fwd") -> list[Schedule]:
    """A mask in every layout.

    Args:
      found: the mask.
      heads: all with this mask.
      direction: ``fwd`` or ``dkv``; the arrays of ``dq`` are those of ``fwd``.
    """
    labels, ids = found.labels, found.ids
    if direction == "dkv":
        place = np.zeros(labels.shape, dtype=np.int32)
        place[labels == PARTIAL] = ids
        labels = np.ascontiguousarray(labels.T)
        ids = place.T[labels == PARTIAL]
    seen = Compiled(found.expr, labels, ids, found.distinct, found.block_q, found.block_kv)
    turned = direction == "dkv"
    slots = SLOTS.get(found.block_q if turned else found.block_kv, 1)
    rows = rows_of(labels, slots)
    return [
        _grid(seen, rows, heads, shrunk=False, turned=turned),
        _grid(seen, rows, heads, shrunk=True, turned=turned),
        _flat(seen, flat_rows(rows), heads, turned=turned),
        _ours(seen, rows, heads, turned=turned),
    ]


def _grid(found: Compiled, rows: Rows, heads: Heads, *, shrunk: bool, turned: bool) -> Schedule:
    height = len(rows.active)
    width = max(1, int(rows.active.max())) if shrunk else rows.columns
    shape = (1, width, height) if turned else (1, height, width)
    some = rows.active > 0
    largest = int(rows.last[some].max(initial=0))
    stored = found.is_stored("grid")
    label = FULL if (found.labels == FULL).any() else int(some.any())
    arrays = [
        ScalarArray("data_next", shape, fitting(largest)),
        ScalarArray("block_mask", shape, fitting(label)),
    ]
    wraps = not shrunk and bool(found.labels[-1, -1] != PARTIAL)
    if stored:
        arrays.append(ScalarArray("mask_next", shape, fitting(found.distinct - 1)))
    return Schedule(
        layout="grid",
        form="grid after shrinking" if shrunk else "grid before shrinking",
        grid=(height, width),
        steps=height * width,
        k_fetches=None if turned else grid_fetches(rows, heads, shrunk=shrunk),
        mask_fetches=mask_fetches(found.ids, heads.q, wraps=wraps) if stored and not turned else 0,
        stored=stored,
        computed=found.is_computed("grid"),
        arrays=tuple(arrays),
    )


def _flat(found: Compiled, rows: Rows, heads: Heads, *, turned: bool) -> Schedule:
    entries = int(rows.active.sum())
    stored = found.is_stored("flat")
    types = {
        "active_rows": fitting(len(rows.active) - 1),
        "active_cols": fitting(int(rows.last.max())),
        "block_mask": "int8",
        "bounds_start": "int32",
        "bounds_end": "int32",
    }
    if stored:
        types["mask_next"] = fitting(found.distinct - 1)
    ending = found.labels[-1][found.labels[-1] > 0]
    wraps = len(ending) == 0 or bool(ending[-1] != PARTIAL)
    return Schedule(
        layout="flat",
        form="flat list",
        grid=(entries,),
        steps=entries,
        k_fetches=None if turned else list_fetches(rows, heads),
        mask_fetches=mask_fetches(found.ids, heads.q, wraps=wraps) if stored and not turned else 0,
        stored=stored,
        computed=found.is_computed("flat"),
        arrays=tuple(ScalarArray(name, (entries,), dtype) for name, dtype in types.items()),
    )


def _ours(found: Compiled, rows: Rows, heads: Heads, *, turned: bool) -> Schedule:
    """A flat list with several blocks per step, or, where every row is one run of blocks, a few words per row."""
    slots = rows.slots
    stored = found.is_stored("runs")
    steps = int(rows.steps.sum())
    words = 1 + slots * (2 if stored else 1)
    by_rows = 4 * steps * words > TABLE_BYTES and not stored and _single_runs(found.labels)
    sizes: dict[str, int]
    grid: tuple[int, ...]
    if by_rows:
        pairs, longest = folded(rows.steps), int(rows.steps.max())
        order = [row for pair in pairs for row in pair]
        sizes = {"words": 2 * len(order), "entries": 2 * slots * len(order), "bins": 3 * len(pairs)}
        grid, steps = (len(pairs), longest), len(pairs) * longest
    else:
        sizes = {"words": steps, "entries": steps * slots}
        if stored:
            sizes["mask_ids"] = steps * slots
        grid, order = (steps,), list(range(len(rows.active)))
    if found.is_computed("runs"):
        q_blocks, kv_blocks = found.labels.shape
        sizes |= {"row_starts": q_blocks, "column_starts": kv_blocks}
    reads_masks = stored and not turned
    return Schedule(
        layout="runs",
        form="rows of runs, folded" if by_rows else f"flat list, {slots} blocks per step",
        grid=grid,
        steps=steps,
        k_fetches=None if turned else _visits(rows, heads, order),
        mask_fetches=_slot_mask_fetches(found, slots, heads.q) if reads_masks else 0,
        k_at_most=slots > 1 and heads.q > heads.kv,
        mask_at_most=slots > 1 and reads_masks,
        stored=stored,
        computed=found.is_computed("runs"),
        arrays=tuple(ScalarArray(name, (size,), "int32") for name, size in sizes.items()),
        slots=slots,
    )


def _single_runs(labels: Labels) -> bool:
    """Whether the active blocks of every row are consecutive, and so are the full ones among them."""

    def one_run(chosen: Bool) -> bool:
        begins = chosen.copy()
        begins[:, 1:] &= ~chosen[:, :-1]
        return bool((begins.sum(axis=1) <= 1).all())

    return one_run(labels > 0) and one_run(labels == FULL)


def folded(steps: Counts) -> list[tuple[int, ...]]:
    """Pairs rows into lines of the grid: a long row, and the shortest remaining one that fits after it.

    Args:
      steps: of every row.
    """
    longest = int(steps.max())
    order = np.argsort(-steps, kind="stable").tolist()
    pairs: list[tuple[int, ...]] = []
    low, high = 0, len(order) - 1
    while low <= high:
        long, short = order[low], order[high]
        low += 1
        if low <= high and steps[long] + steps[short] <= longest:
            pairs.append((long, short))
            high -= 1
        else:
            pairs.append((long,))
    return pairs


def _visits(rows: Rows, heads: Heads, order: list[int]) -> int:
    if rows.slots > 1:
        return cached_fetches(rows, heads, order)
    moved = replace(rows, active=rows.active[order], first=rows.first[order], last=rows.last[order])
    return list_fetches(moved, heads)


def _slot_mask_fetches(found: Compiled, slots: int, heads: int) -> int:
    if slots == 1:
        return mask_fetches(found.ids, heads, wraps=False)
    return (
        heads * len(found.ids) + slots - 1
    )  # no slot keeps a block, and all but one slot stay idle
