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

    meta    first:1 last:1 count:3 full:4 row:22    (``full``: one bit for each label-2 slot)
    entry   column:16 kind:2                        (kind: ACTIVE, NEXT or HOLD)

A slot with nothing to do carries the block that it will need next (NEXT) or, after its last use
in the head, the one it holds (HOLD): it never makes the pipeline fetch anything new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

Grid = Literal["grid2d", "flat"]
Storage = Literal["table", "runs"]

MAX_SLOTS = 4
MAX_COLUMNS = 1 << 16
ACTIVE, NEXT, HOLD = 0, 1, 2
COLUMN_BITS = 16
ROW_SHIFT = 9
TABLE_LIMIT_BYTES = 256 * 1024
"""Above this a schedule that can be stored as runs is."""
NEVER = 1 << 30


@dataclasses.dataclass(frozen=True)
class Layout:
    """The static half of a schedule; ``steps`` is the last grid dimension."""

    storage: Storage
    grid: Grid
    slots: int
    rows: int
    columns: int
    bins: int
    steps: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Schedule:
    """Scalar-memory arrays of one kernel, int32, and their layout.

    Every array is [heads, q_shards · n]; ``heads`` is 1 when all heads share a schedule.

    Attributes:
      words: ``meta`` (n = steps) in table storage, else ``extents`` (n = 2 · rows: blocks in
        the row, then first full position · 2^16 + end of the full positions).
      entries: [.., steps · slots] in table storage, else the entries of each row's first step
        [.., rows · slots].
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


def _reverse_cummin(x: Any, axis: int) -> Any:
    if isinstance(x, np.ndarray):
        return np.flip(np.minimum.accumulate(np.flip(x, axis), axis), axis)
    return jax.lax.cummin(x, axis=axis % x.ndim, reverse=True)


def _fill(values: Any, active: Any) -> tuple[Any, Any]:
    """Replaces inactive values along axis -2 by the next active one, or the last one held.

    Returns (values, kind), of the shape [..., steps, slots].
    """
    xp: Any = np if isinstance(values, np.ndarray) else jnp
    n = values.shape[-2]
    at = xp.arange(n, dtype=np.int32)[:, None]
    following = _reverse_cummin(xp.where(active, at, np.int32(n)), -2)
    last = xp.max(xp.where(active, at, np.int32(0)), axis=-2, keepdims=True)
    source = xp.where(following < n, following, last)
    kind = xp.where(active, ACTIVE, xp.where(following < n, NEXT, HOLD))
    return xp.take_along_axis(values, source, axis=-2), kind.astype(np.int32)


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


def _meta(rows: Any, labels: Any, first: Any, last: Any) -> Any:
    """Packs meta words from rows [..], labels [.., slots] and the two flags [..]."""
    xp: Any = np if isinstance(labels, np.ndarray) else jnp
    count = xp.sum(labels > 0, axis=-1).astype(np.int32)
    weights = (1 << np.arange(labels.shape[-1], dtype=np.int32)).astype(np.int32)
    full = xp.sum(xp.where(labels == 2, weights, 0), axis=-1).astype(np.int32)
    flags = first.astype(np.int32) | (last.astype(np.int32) << 1)
    word = flags | (count << 2) | (full << 5) | (rows.astype(np.int32) << ROW_SHIFT)
    return word.astype(np.int32)


def _steps_needed(labels: np.ndarray, slots: int, aligned: bool) -> np.ndarray:
    """Steps of every row [P, rows], at least 1; ``aligned`` gives all heads the same."""
    count = np.count_nonzero(labels, axis=-1)
    steps = np.maximum(1, -(-count // slots))
    return np.broadcast_to(steps.max(axis=0), steps.shape) if aligned else steps


def _pack(
    columns: Any, labels: Any, ids: Any, rows: Any, first: Any, last: Any
) -> tuple[Any, Any, Any]:
    """(words, entries, mask_ids) from [P, n, slots] arrays and [P, n] rows and flags."""
    heads = labels.shape[0]
    column, kind = _fill(columns, labels > 0)
    entries = (column | (kind << COLUMN_BITS)).reshape(heads, -1).astype(np.int32)
    mask_ids = None
    if ids is not None:
        mask_ids = _fill(ids, labels == 1)[0].reshape(heads, -1).astype(np.int32)
    return _meta(rows, labels, first, last), entries, mask_ids


def _table_grid2d(labels: Any, ids: Any, slots: int, steps: int) -> tuple[Any, Any, Any]:
    """Table of rows × ``steps``; traceable."""
    xp: Any = np if isinstance(labels, np.ndarray) else jnp
    heads, rows = labels.shape[:2]
    columns, picked, chosen = _slot_rows(labels, ids, slots, steps)
    flat = (heads, rows * steps, slots)
    row = xp.broadcast_to(xp.arange(rows, dtype=np.int32)[:, None], (heads, rows, steps))
    at = xp.broadcast_to(xp.arange(steps, dtype=np.int32), (heads, rows, steps))
    return _pack(
        columns.reshape(flat),
        picked.reshape(flat),
        None if chosen is None else chosen.reshape(flat),
        row.reshape(heads, -1),
        (at == 0).reshape(heads, -1),
        (at == steps - 1).reshape(heads, -1),
    )


def _table_flat(
    labels: np.ndarray, ids: np.ndarray | None, slots: int, needed: np.ndarray, total: int
) -> tuple[Any, Any, Any]:
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
    return _pack(out_columns, out_labels, out_ids, out_rows, first, last)


def _row_runs(labels: np.ndarray) -> np.ndarray | None:
    """[rows, 4] = (first column, count, first full position, end of the full positions).

    None when some row is not one run whose full blocks are consecutive.
    """
    width = labels.shape[-1]
    active, full = labels > 0, labels == 2

    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = np.count_nonzero(x, axis=-1)
        start = np.argmax(x, axis=-1)
        end = np.where(count > 0, width - np.argmax(x[:, ::-1], axis=-1), start)
        return start, count, end

    start, count, end = run(active)
    full_start, full_count, full_end = run(full)
    if np.any(end - start != count) or np.any(full_end - full_start != full_count):
        return None
    empty = full_count == 0
    return np.stack(
        [
            start,
            count,
            np.where(empty, 0, full_start - start),
            np.where(empty, 0, full_end - start),
        ],
        axis=-1,
    ).astype(np.int32)


def _fold(steps: np.ndarray) -> list[tuple[int, int, int]]:
    """Pairs long rows with short ones that fit behind them in the longest row's width."""
    width = int(steps.max())
    order = np.argsort(-steps, kind="stable")
    bins, low, high = [], 0, len(order) - 1
    while low <= high:
        long, short = int(order[low]), int(order[high])
        if low < high and steps[long] + steps[short] <= width:
            bins.append((long, short, int(steps[long])))
            high -= 1
        else:
            bins.append((long, long, NEVER))
        low += 1
    return bins


def _runs_arrays(
    runs: np.ndarray, slots: int, bins: list[tuple[int, int, int]], total: int
) -> tuple[Any, Any, Any]:
    """(extents, first entries, bins) of one shard; idle bins repeat the last row visited."""
    rows = len(runs)
    order = [r for a, b, _ in bins for r in ((a,) if a == b else (a, b))]
    position = np.arange(slots, dtype=np.int32)
    columns = runs[order, :1] + position
    active = position < runs[order, 1:2]
    column, kind = _fill(np.where(active, columns, 0).astype(np.int32), active)
    first = np.zeros((rows, slots), np.int32)
    first[order] = column | (kind << COLUMN_BITS)
    extents = np.stack([runs[:, 1], (runs[:, 2] << 16) | runs[:, 3]], axis=-1)
    idle = (order[-1], order[-1], -NEVER)
    words = np.array(bins + [idle] * (total - len(bins)), np.int32)
    return extents.astype(np.int32).reshape(1, -1), first.reshape(1, -1), words.reshape(1, -1)


def _concat(parts: list[tuple[Any, Any, Any]]) -> tuple[Any, Any, Any]:
    xp: Any = np if isinstance(parts[0][0], np.ndarray) else jnp
    a, b, c = zip(*parts, strict=True)
    third = None if c[0] is None else xp.concatenate(c, axis=1)
    return xp.concatenate(a, axis=1), xp.concatenate(b, axis=1), third


def build_schedule(
    shards: list[tuple[Any, Any]],
    *,
    slots: int,
    grid: Grid | None = None,
    storage: Storage | None = None,
    aligned: bool = False,
) -> Schedule:
    """Builds the schedule of one kernel.

    Args:
      shards: for each q shard (labels, mask ids): labels int[P, rows, columns] in {0, 1, 2},
        ids of the same shape or None.  Traced labels give a grid2d table.
      slots: blocks visited in one step, at most 4.
      grid: ``flat`` or ``grid2d``; None picks flat, which never has more steps.
      storage: None picks ``table`` while it is small, else ``runs`` if the mask allows it.
      aligned: give all P heads the same number of steps for the same row (needed when a
        kernel interleaves heads that share an output row).

    Raises:
      ValueError: slots out of range, more than 2^16 columns, ``flat`` with traced labels, or
        ``runs`` asked of a mask whose rows are not single runs.
    """
    if not 1 <= slots <= MAX_SLOTS:
        raise ValueError(f"slots must be between 1 and {MAX_SLOTS}, got {slots}")
    heads, rows, columns = shards[0][0].shape
    if columns >= MAX_COLUMNS:
        raise ValueError(f"a row may have fewer than {MAX_COLUMNS} blocks, got {columns}")
    traced = any(isinstance(labels, jax.Array) for labels, _ in shards)
    if traced:
        if grid == "flat" or storage == "runs":
            raise ValueError("grid must be 'grid2d' and storage 'table' for a dynamic mask")
        steps = max(1, -(-columns // slots))
        parts = [_table_grid2d(labels, ids, slots, steps) for labels, ids in shards]
        words, entries, mask_ids = _concat(parts)
        layout = Layout("table", "grid2d", slots, rows, columns, 1, rows * steps)
        return Schedule(words, entries, mask_ids, None, layout)

    grid = grid or "flat"
    needed = [_steps_needed(labels, slots, aligned) for labels, _ in shards]
    width = max(int(n.max()) for n in needed)
    total = max(int(n.sum(-1).max()) for n in needed) if grid == "flat" else rows * width
    words_each = 1 + slots * (1 if shards[0][1] is None else 2)
    if storage is None:
        large = 4 * heads * total * words_each > TABLE_LIMIT_BYTES
        storage = "runs" if large and _runs_of(shards) is not None else "table"
    if storage == "table":
        if grid == "flat":
            parts = [
                _table_flat(labels, ids, slots, n, total)
                for (labels, ids), n in zip(shards, needed, strict=True)
            ]
        else:
            parts = [_table_grid2d(labels, ids, slots, width) for labels, ids in shards]
        words, entries, mask_ids = _concat(parts)
        layout = Layout("table", grid, slots, rows, columns, 1, total)
        return Schedule(words, entries, mask_ids, None, layout)

    runs = _runs_of(shards)
    if runs is None:
        raise ValueError(
            "storage='runs' needs one mask for all heads, computed in the kernel, whose block "
            "rows are single runs"
        )
    bins = [_fold(n[0]) if grid == "flat" else [(r, r, NEVER) for r in range(rows)] for n in needed]
    count = max(map(len, bins))
    width = max(int(n.max()) for n in needed)
    parts = [_runs_arrays(r, slots, b, count) for r, b in zip(runs, bins, strict=True)]
    words, entries, folded = _concat(parts)
    layout = Layout("runs", grid, slots, rows, columns, count, width)
    return Schedule(words, entries, None, folded, layout)


def _runs_of(shards: list[tuple[Any, Any]]) -> list[np.ndarray] | None:
    if any(labels.shape[0] != 1 or ids is not None for labels, ids in shards):
        return None
    runs = []
    for labels, _ in shards:
        run = _row_runs(labels[0])
        if run is None:
            return None
        runs.append(run)
    return runs


ScalarReader = Callable[[str], Any]
