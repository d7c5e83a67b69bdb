"""What the kernels read from scalar memory: which blocks each grid step visits.

The compiled mask says what each block *is*; a schedule says what each grid step *does*.  A
step belongs to one output block (a *row*: a q block in the forward and dq kernels, a kv block
in the dkv kernel) and visits up to ``slots`` of that row's non-empty blocks (*columns*).  Every
row has at least one step, so that an empty row is still initialised and written.

Two storages hold the same information:

* ``table``: one ``meta`` word for each step and one ``entries`` word for each slot;
* ``runs``: a few words for each row, for masks whose rows are one run of consecutive blocks of
  which the full ones are consecutive too (causal, local, chunked, full).  It is O(rows): causal
  attention over a million tokens needs tens of kilobytes.

and two grids walk it: ``grid2d`` gives every row the steps of the longest one, ``flat`` visits
active steps only.  In ``runs`` storage the flat grid folds a short row behind a long one, so
that a causal triangle becomes a rectangle of half its height.

Word formats, least significant bit first:

    meta    first:1 last:1 active:4 full:4 row:21   (one bit for each slot: label above 0; label 2)
    entry   column:16 kind:2 head offset:14         (see ``slots``)

A slot with nothing to do carries the block that it will need next or, after its last use, the one
that it holds: it never makes the pipeline fetch anything new.

Clauses SCHED-1 to SCHED-6, OUT-1 to OUT-4.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pallas_impl import runs as by_row
from pallas_impl import slots as sl

Grid = Literal["grid2d", "flat"]
Storage = Literal["table", "runs"]

MAX_SLOTS = 4
MAX_COLUMNS = 1 << 16
ACTIVE_SHIFT, FULL_SHIFT, ROW_SHIFT = 2, 2 + MAX_SLOTS, 2 + 2 * MAX_SLOTS
TABLE_LIMIT_BYTES = 256 * 1024
"""Above this a schedule that can be stored as runs is."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The static half of a schedule; ``steps`` is the last grid dimension.

    ``spare``: some slot may be idle for a whole head that shares its schedule with others.
    """

    storage: Storage
    grid: Grid
    slots: int
    rows: int
    columns: int
    bins: int
    steps: int
    spare: bool


class Meta(NamedTuple):
    """What a step does; ``active`` and ``full`` have one bit for each slot."""

    row: Any
    first: Any
    last: Any
    active: Any
    full: Any


def unpack_meta(word: Any) -> Meta:
    """Takes meta words apart."""
    ones = (1 << MAX_SLOTS) - 1
    active, full = (word >> ACTIVE_SHIFT) & ones, (word >> FULL_SHIFT) & ones
    return Meta(word >> ROW_SHIFT, (word & 1) == 1, (word & 2) == 2, active, full)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Schedule:
    """Scalar-memory arrays of one kernel, int32, and their layout.

    Every array is [heads, q_shards · n]; ``heads`` is 1 when all heads share a schedule.

    Attributes:
      words: ``meta`` (n = steps) in table storage, else ``extents`` (n = 2 · rows: first column
        · 2^16 + blocks in the row, then first full column · 2^16 + end of the full columns).
      entries: [.., steps · slots] in table storage, else the entries of each row's first and
        last step [.., rows · 2 · slots]; slot s of a step between gets the s-th of its blocks.
      mask_ids: [.., steps · slots], index into ``partial_mask_blocks``; None without them.
      bins: [.., 3 · bins] (first row, second row, step at which the second begins) in runs
        storage, else None.
    """

    words: Any
    entries: Any
    mask_ids: Any
    bins: Any
    layout: Layout = dataclasses.field(metadata={"static": True})

    def arrays(self) -> dict[str, Any]:
        """The arrays that exist, by name, in prefetch order."""
        names = ("words", "entries", "mask_ids", "bins")
        return {n: getattr(self, n) for n in names if getattr(self, n) is not None}


def _slot_rows(labels: Any, ids: Any, slots: int, steps: int) -> tuple[Any, Any, Any]:
    """Compacts each row's non-empty blocks: (columns, labels, ids), [P, rows, steps, slots]."""
    xp: Any = np if isinstance(labels, np.ndarray) else jnp
    order = xp.argsort(labels == 0, axis=-1, stable=True).astype(np.int32)
    width = steps * slots
    pad = max(0, width - labels.shape[-1])

    def take(x: Any) -> Any:
        x = x[..., :width]
        x = xp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, pad)])
        return x.reshape(*x.shape[:-1], steps, slots)

    picked = take(xp.take_along_axis(labels, order, axis=-1))
    chosen = None if ids is None else take(xp.take_along_axis(ids, order, axis=-1))
    return take(order), picked.astype(np.int32), chosen


def _bits(flags: Any) -> Any:
    """bool[.., slots] -> int32[..]."""
    xp: Any = np if isinstance(flags, np.ndarray) else jnp
    weights = 1 << np.arange(flags.shape[-1], dtype=np.int32)
    return xp.sum(xp.where(flags, weights, 0), axis=-1).astype(np.int32)


def _meta(rows: Any, labels: Any, first: Any, last: Any) -> Any:
    """Packs meta words from rows [..], labels [.., slots] and the two flags [..]."""
    flags = first.astype(np.int32) | (last.astype(np.int32) << 1)
    slots = (_bits(labels > 0) << ACTIVE_SHIFT) | (_bits(labels == 2) << FULL_SHIFT)
    return (flags | slots | (rows.astype(np.int32) << ROW_SHIFT)).astype(np.int32)


def _steps_needed(labels: np.ndarray, slots: int, aligned: bool) -> np.ndarray:
    """Steps of every row [P, rows], at least 1; ``aligned`` gives all heads the same."""
    count = np.count_nonzero(labels, axis=-1)
    steps = np.maximum(1, -(-count // slots))
    return np.broadcast_to(steps.max(axis=0), steps.shape) if aligned else steps


class _Steps(NamedTuple):
    """Steps of all heads: [P, n, slots], but rows and the flags [P, n]; ids may be None."""

    columns: Any
    labels: Any
    ids: Any
    rows: Any
    first: Any
    last: Any


def _pack(steps: _Steps, device_heads: int) -> tuple[Any, Any, Any]:
    """(words, entries, mask_ids); ``device_heads`` consecutive heads run on one device."""
    heads, n, slots = steps.labels.shape
    devices = (heads // device_heads, device_heads, n, slots)
    order = sl.slot_order(steps.columns.reshape(devices), (steps.labels > 0).reshape(devices))
    order = order.reshape(heads, n, slots)
    flat = (devices[0], device_heads * n, slots)
    columns, labels = (sl.arrange(order, x).reshape(flat) for x in (steps.columns, steps.labels))
    owner = np.repeat(np.arange(device_heads, dtype=np.int32), n)
    entries = sl.encode(columns, labels > 0, owner).reshape(heads, -1)
    ids = None
    if steps.ids is not None:
        ids = sl.fill(sl.arrange(order, steps.ids).reshape(flat), labels == 1)
        ids = ids.reshape(heads, -1).astype(np.int32)
    words = _meta(steps.rows, labels.reshape(heads, n, slots), steps.first, steps.last)
    return words, entries, ids


def _table_grid2d(labels: Any, ids: Any, slots: int, steps: int) -> _Steps:
    """Table of rows × ``steps``; traceable."""
    xp: Any = np if isinstance(labels, np.ndarray) else jnp
    heads, rows = labels.shape[:2]
    columns, picked, chosen = _slot_rows(labels, ids, slots, steps)
    flat = (heads, rows * steps, slots)
    row = xp.broadcast_to(xp.arange(rows, dtype=np.int32)[:, None], (heads, rows, steps))
    at = xp.broadcast_to(xp.arange(steps, dtype=np.int32), (heads, rows, steps))
    return _Steps(
        columns.reshape(flat),
        picked.reshape(flat),
        None if chosen is None else chosen.reshape(flat),
        row.reshape(heads, -1),
        (at == 0).reshape(heads, -1),
        (at == steps - 1).reshape(heads, -1),
    )


def _table_flat(
    labels: np.ndarray, ids: np.ndarray | None, slots: int, needed: np.ndarray, total: int
) -> _Steps:
    """Table of active steps only; heads with fewer than ``total`` end in idle steps."""
    heads, rows = labels.shape[:2]
    columns, picked, chosen = _slot_rows(labels, ids, slots, int(needed.max()))
    out_columns = np.zeros((heads, total, slots), np.int32)
    out_labels = np.zeros_like(out_columns)
    out_ids = None if chosen is None else np.zeros_like(out_columns)
    out_rows = np.full((heads, total), rows - 1, np.int32)
    first, last = np.zeros((2, heads, total), bool)
    for h in range(heads):
        row = np.repeat(np.arange(rows), needed[h])
        n = row.size
        start = np.cumsum(needed[h]) - needed[h]
        at = np.arange(n) - start[row]
        out_columns[h, :n] = columns[h, row, at]
        out_labels[h, :n] = picked[h, row, at]
        if out_ids is not None and chosen is not None:
            out_ids[h, :n] = chosen[h, row, at]
        out_rows[h, :n] = row
        first[h, :n] = at == 0
        last[h, :n] = at == needed[h][row] - 1
    return _Steps(out_columns, out_labels, out_ids, out_rows, first, last)


def _concat(parts: list[tuple[Any, Any, Any]]) -> tuple[Any, Any, Any]:
    xp: Any = np if isinstance(parts[0][0], np.ndarray) else jnp
    a, b, c = zip(*parts, strict=True)
    third = None if c[0] is None else xp.concatenate(c, axis=1)
    return xp.concatenate(a, axis=1), xp.concatenate(b, axis=1), third


def _spare(entries: np.ndarray, device_heads: int) -> bool:
    return device_heads == 1 and bool(np.any(sl.kind_of(entries) == sl.NEVER))


def _stored_as_runs(shards: list[tuple[Any, Any]], slots: int, grid: Grid) -> Schedule:
    rows, columns = shards[0][0].shape[1:]
    runs = by_row.runs_of(shards)
    if runs is None:
        raise ValueError(
            "storage='runs' needs one mask for all heads, computed in the kernel, whose block "
            "rows are single runs"
        )
    needed = [_steps_needed(labels, slots, False)[0] for labels, _ in shards]
    unfolded = [(r, r, by_row.NEVER) for r in range(rows)]
    bins = [by_row.fold(n) if grid == "flat" else unfolded for n in needed]
    count = max(map(len, bins))
    parts = [by_row.runs_arrays(r, slots, b, count) for r, b in zip(runs, bins, strict=True)]
    words, entries, folded = _concat(parts)
    width = max(int(n.max()) for n in needed)
    layout = Layout("runs", grid, slots, rows, columns, count, width, _spare(entries, 1))
    return Schedule(words, entries, None, folded, layout)


def _dynamic(shards: list[tuple[Any, Any]], slots: int, device_heads: int) -> Schedule:
    rows, columns = shards[0][0].shape[1:]
    steps = max(1, -(-columns // slots))
    tables = [_table_grid2d(labels, ids, slots, steps) for labels, ids in shards]
    words, entries, mask_ids = _concat([_pack(table, device_heads) for table in tables])
    spare = device_heads == 1 and slots > 1
    layout = Layout("table", "grid2d", slots, rows, columns, 1, rows * steps, spare)
    return Schedule(words, entries, mask_ids, None, layout)


def _check(
    slots: int, columns: int, device_heads: int, grid: Grid | None, storage: Storage | None
) -> None:
    for name, value, choices in (("grid", grid, Grid), ("storage", storage, Storage)):
        if value is not None and value not in get_args(choices):
            raise ValueError(f"{name} must be one of {get_args(choices)} or None, got {value!r}")
    if not 1 <= slots <= MAX_SLOTS:
        raise ValueError(f"slots must be between 1 and {MAX_SLOTS}, got {slots}")
    if columns >= MAX_COLUMNS:
        raise ValueError(f"a row may have fewer than {MAX_COLUMNS} blocks, got {columns}")
    if device_heads > sl.MAX_HEADS:
        raise ValueError(
            f"at most {sl.MAX_HEADS} heads of a device may have masks of their own, "
            f"got {device_heads}"
        )


def build_schedule(
    shards: list[tuple[Any, Any]],
    *,
    slots: int,
    grid: Grid | None = None,
    storage: Storage | None = None,
    device_heads: int = 1,
    aligned: bool = False,
) -> Schedule:
    """Builds the schedule of one kernel.

    Args:
      shards: for each q shard (labels, mask ids): labels int[P, rows, columns] in {0, 1, 2},
        ids of the same shape or None.  Traced labels give a grid2d table.
      slots: blocks visited in one step, at most 4; fewer if no row has as many.
      grid: ``flat`` or ``grid2d``; None picks flat, which never has more steps.
      storage: None picks ``table`` while it is small, else ``runs`` if the mask allows it.
      device_heads: how many of the P heads run on one device, consecutive ones.
      aligned: give all P heads the same number of steps for the same row (needed when a
        kernel interleaves heads that share an output row).

    Raises:
      ValueError: unknown grid or storage, slots out of range, too many columns or heads, ``flat``
        with traced labels, or ``runs`` asked of a mask whose rows are not single runs.
    """
    heads, rows, columns = shards[0][0].shape
    _check(slots, columns, device_heads, grid, storage)
    if any(isinstance(labels, jax.Array) for labels, _ in shards):
        if grid == "flat" or storage == "runs":
            raise ValueError("grid must be 'grid2d' and storage 'table' for a dynamic mask")
        return _dynamic(shards, min(slots, columns), device_heads)

    grid = grid or "flat"
    longest = max(int(np.count_nonzero(labels, axis=-1).max()) for labels, _ in shards)
    slots = max(1, min(slots, longest))
    needed = [_steps_needed(labels, slots, aligned) for labels, _ in shards]
    width = max(int(n.max()) for n in needed)
    total = max(int(n.sum(-1).max()) for n in needed) if grid == "flat" else rows * width
    words_each = 1 + slots * (1 if shards[0][1] is None else 2)
    if storage is None:
        large = 4 * heads * total * words_each > TABLE_LIMIT_BYTES
        storage = "runs" if large and by_row.runs_of(shards) is not None else "table"
    if storage == "runs":
        return _stored_as_runs(shards, slots, grid)
    if grid == "flat":
        tables = [
            _table_flat(labels, ids, slots, n, total)
            for (labels, ids), n in zip(shards, needed, strict=True)
        ]
    else:
        tables = [_table_grid2d(labels, ids, slots, width) for labels, ids in shards]
    words, entries, mask_ids = _concat([_pack(table, device_heads) for table in tables])
    spare = _spare(entries, device_heads)
    layout = Layout("table", grid, slots, rows, columns, 1, total, spare)
    return Schedule(words, entries, mask_ids, None, layout)
