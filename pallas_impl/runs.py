"""Schedules stored by rows: for block rows that are single runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pallas_impl import slots as sl

NEVER = 1 << 30


def row_runs(labels: np.ndarray) -> np.ndarray | None:
    """[rows, 4] = (first column, count, first full column, end of the full columns).

    Args:
      labels: int[rows, columns] in {0, 1, 2}.

    Returns:
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
    return np.stack([start, count, full_start, full_end], axis=-1).astype(np.int32)


def runs_of(shards: list[tuple[Any, Any]]) -> list[np.ndarray] | None:
    """``row_runs`` of every (labels, mask ids); None unless all are one mask of runs."""
    if any(labels.shape[0] != 1 or ids is not None for labels, ids in shards):
        return None
    runs = []
    for labels, _ in shards:
        run = row_runs(labels[0])
        if run is None:
            return None
        runs.append(run)
    return runs


def fold(steps: np.ndarray) -> list[tuple[int, int, int]]:
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


def _edge_entries(runs: np.ndarray, order: list[int], slots: int) -> np.ndarray:
    """Entries of each row's first and last step, int32[rows, 2, slots]; rows run in ``order``.

    Steps between are full and share no block with their neighbours, which leaves nothing to
    choose: they take their blocks in order.  One of them stands for all, since it alone decides
    what the last step of its row finds.
    """
    start, count = runs[order, 0], runs[order, 1]
    steps = np.maximum(1, -(-count // slots))
    base = np.stack([np.zeros_like(steps), (steps - 2) * slots, (steps - 1) * slots], axis=1)
    there = np.stack([steps >= 1, steps >= 3, steps >= 2], axis=1)
    position = base[:, :, None] + np.arange(slots, dtype=np.int32)
    active = (there[:, :, None] & (position < count[:, None, None])).reshape(-1, slots)
    columns = (start[:, None, None] + position).reshape(-1, slots) * active
    between = np.zeros_like(there)
    between[:, 1] = there[:, 1]
    chosen = sl.slot_order(columns[None, None], active[None, None], pinned=between.ravel())[0, 0]
    placed, used = sl.arrange(chosen, columns), sl.arrange(chosen, active)
    entries = sl.encode(placed, used, np.zeros(len(placed), np.int32)).reshape(-1, 3, slots)
    found = np.empty((len(runs), 2, slots), np.int32)
    found[order, 0] = entries[:, 0]
    found[order, 1] = np.where((steps > 1)[:, None], entries[:, 2], entries[:, 0])
    return found


def runs_arrays(
    runs: np.ndarray, slots: int, bins: list[tuple[int, int, int]], total: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(extents, entries, bins) of one shard; idle bins repeat the last row visited."""
    order = [r for a, b, _ in bins for r in ((a,) if a == b else (a, b))]
    entries = _edge_entries(runs, order, slots)
    wide = runs.astype(np.uint32)
    extents = np.stack([(wide[:, 0] << 16) | wide[:, 1], (wide[:, 2] << 16) | wide[:, 3]], axis=-1)
    idle = (order[-1], order[-1], -NEVER)
    words = np.array(bins + [idle] * (total - len(bins)), np.int32)
    return extents.view(np.int32).reshape(1, -1), entries.reshape(1, -1), words.reshape(1, -1)
