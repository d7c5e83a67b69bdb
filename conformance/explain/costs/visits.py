"""Numbers of fetches, counted per row of the block grid without writing out the schedule.

The column changes at every active block of a row, so a row of n blocks costs n - 1 fetches; only the step to the next
row needs a comparison. The counts are those of `reference.schedule` on the compiled arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.survey import Labels, batches

Counts = NDArray[np.int64]

#: Larger than any row number: never used again.
NEVER = 1 << 62


class Heads(NamedTuple):
    """Numbers of query heads and key/value heads; all share one mask."""

    q: int
    kv: int


@dataclass(frozen=True)
class Rows:
    """The active blocks of every row of the block grid.

    Attributes:
      active: blocks per row, ``[rows]``.
      first, last: first and last column, ``[rows]``; -1 in an empty row.
      begin: the first ``slots`` columns, ``[rows, slots]``; padded with -1.
      end: the columns of the last two steps of ``slots`` blocks, ``[rows, 2, slots]``; padded with -1.
      columns: of the grid.
      ends: whether the very last block of the grid is active.
    """

    active: Counts
    first: Counts
    last: Counts
    begin: Counts
    end: Counts
    columns: int
    ends: bool

    @property
    def slots(self) -> int:
        """Blocks per step."""
        return int(self.begin.shape[1])

    @property
    def steps(self) -> Counts:
        """Steps per row, at least 1."""
        return np.maximum(1, -(-self.active // self.slots))


def rows_of(labels: Labels, slots: int = 1) -> Rows:
    """The active blocks of a label grid; ``slots`` is cut to the longest row."""
    rows, columns = labels.shape
    active = np.array([np.count_nonzero(row) for row in labels], dtype=np.int64)
    slots = max(1, min(slots, int(active.max())))
    first, last = np.full((2, rows), -1, dtype=np.int64)
    begin = np.full((rows, slots), -1, dtype=np.int64)
    end = np.full((rows, 2, slots), -1, dtype=np.int64)
    for part in batches(rows, columns):
        column = np.nonzero(labels[part])[1]
        count = active[part]
        start = np.cumsum(count) - count
        some = count > 0
        first[part][some] = column[start[some]]
        last[part][some] = column[(start + count - 1)[some]]
        final = np.maximum(0, -(-count // slots) - 1) * slots
        for slot in range(slots):
            has = count > slot
            begin[part][has, slot] = column[(start + slot)[has]]
            for step, rank in enumerate((final - slots + slot, final + slot)):
                has = (rank >= 0) & (rank < count)
                end[part][has, step, slot] = column[(start + rank)[has]]
    return Rows(active, first, last, begin, end, columns, bool(labels[-1, -1]))


def _over_heads(inside: int, returns: bool, heads: Heads) -> int:
    """Fetches of all heads one after another.

    Args:
      inside: fetches of one head after its first.
      returns: whether a head ends on the block that the next one begins with.
      heads: a new key/value head always fetches.
    """
    same_kv_head = heads.q - heads.kv
    return heads.kv + heads.q * inside + (0 if returns else same_kv_head)


def flash_fetches(rows: int, columns: int, heads: Heads) -> int:
    """Fetches of k, or of v, by a kernel that visits every block."""
    return _over_heads(rows * columns - 1 if columns > 1 else 0, columns == 1, heads)


def list_fetches(rows: Rows, heads: Heads) -> int:
    """Fetches of k, or of v, by a kernel that lists active blocks only, one per step."""
    some = rows.active > 0
    first, last = rows.first[some], rows.last[some]
    if len(first) == 0:
        return heads.kv
    inside = int((rows.active[some] - 1).sum() + (first[1:] != last[:-1]).sum())
    return _over_heads(inside, bool(first[0] == last[-1]), heads)


def cached_fetches(rows: Rows, heads: Heads, order: Sequence[int] | None = None) -> int:
    """The fewest fetches of k, or of v, by a kernel whose step visits several blocks, each in a memory of its own.

    Evicts the block whose next use is furthest away (Belady). A full step evicts every block that it does not use, so
    only the ends of rows leave a choice. Reuse between heads is not counted: heads that share k and v may need fewer.

    Args:
      rows: with ``slots`` blocks per step.
      heads: query heads and key/value heads.
      order: of the rows; as they are if None.
    """
    visited = [row for row in order or range(len(rows.active)) if rows.active[row]]
    if not visited:
        return heads.kv
    begins = [[column for column in rows.begin[row].tolist() if column >= 0] for row in visited]
    memory = _Memory(begins, rows.slots)
    for n, (row, begin) in enumerate(zip(visited, begins, strict=True)):
        memory.visit(begin, n)
        size = int(rows.active[row])
        if size <= rows.slots:
            continue
        final = [column for column in rows.end[row, 1].tolist() if column >= 0]
        between = size - len(begin) - len(final)
        if between:  # full steps, whose blocks their row has not seen yet
            memory.fetched += between
            memory.held = set(rows.end[row, 0].tolist())
        memory.visit(final, n)
    return heads.q * memory.fetched


class _Memory:
    """A cache of ``slots`` blocks that evicts the block with the furthest next use."""

    def __init__(self, begins: list[list[int]], slots: int) -> None:
        self.slots, self.fetched = slots, 0
        self.held: set[int] = set()
        self.wipes = [n for n, begin in enumerate(begins) if len(begin) == slots]
        self.uses: dict[int, list[int]] = {}
        for n, begin in enumerate(begins):
            for column in begin:
                self.uses.setdefault(column, []).append(n)

    def visit(self, wanted: list[int], row: int) -> None:
        """Runs one step of a row."""
        self.fetched += sum(column not in self.held for column in wanted)
        idle = self.slots - len(wanted)
        spare = sorted(self.held - set(wanted), key=lambda column: self.next_use(column, row))
        self.held = {*wanted, *spare[:idle]}

    def next_use(self, column: int, row: int) -> int:
        """The next row that begins with a column, unless a full step evicts it before."""
        uses = self.uses.get(column, [])
        at, wipe = bisect_right(uses, row), bisect_right(self.wipes, row)
        if at == len(uses) or (wipe < len(self.wipes) and self.wipes[wipe] < uses[at]):
            return NEVER
        return uses[at]


def grid_fetches(rows: Rows, heads: Heads, *, shrunk: bool) -> int:
    """Fetches of k, or of v, by the grid layout (DATA-2, DATA-3, SHRINK-8).

    Before shrinking, positions after the last active block name the first one again.
    """
    some = rows.active > 0
    first, last = rows.first[some], rows.last[some]
    if len(first) == 0:
        return heads.kv
    inside = int((rows.active[some] - 1).sum() + (first[1:] != last[:-1]).sum())
    returns = bool(first[0] == last[-1])
    if not shrunk and not rows.ends:
        return _over_heads(inside + (not returns), True, heads)
    return _over_heads(inside, returns, heads)


def flat_rows(rows: Rows) -> Rows:
    """The rows of the flat layout: a wholly empty one visits column 0 (FLAT-4)."""
    empty = rows.active == 0
    return replace(
        rows,
        active=np.maximum(rows.active, 1),
        first=np.where(empty, 0, rows.first),
        last=np.where(empty, 0, rows.last),
    )


def mask_fetches(ids: NDArray[np.int32], heads: int, *, wraps: bool) -> int:
    """Fetches of stored mask blocks.

    Args:
      ids: the stored block of every partial block, in grid order.
      heads: query heads; they share the stored blocks.
      wraps: whether a position after the last partial block names the first one again.
    """
    if len(ids) == 0:
        return 0
    changes = int((ids[1:] != ids[:-1]).sum())
    returns = int(ids[0] != ids[-1])
    if wraps:
        return 1 + heads * (changes + returns)
    return 1 + heads * changes + (heads - 1) * returns
