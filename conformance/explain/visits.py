"""How often kernels fetch: counted over rows of the block grid, without writing the schedule out.

Along the active blocks of a row the column always changes, so that a row of n blocks costs n - 1 fetches and only
the step to the next row needs a look. The counts are those of `reference.schedule` on the compiled arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conformance.explain.survey import BATCH, Labels

Counts = NDArray[np.int64]


class Heads(NamedTuple):
    """Query heads and key/value heads; all share one mask."""

    q: int
    kv: int


@dataclass(frozen=True)
class Rows:
    """The active blocks of every row of the block grid, dealt out to the slots of a step.

    Attributes:
      active: blocks a row, ``[rows]``.
      first, last: first and last column that every slot visits, ``[rows, slots]``; -1 for none.
      columns: of the grid.
      ends: whether the very last block of the grid is active.
    """

    active: Counts
    first: Counts
    last: Counts
    columns: int
    ends: bool

    @property
    def slots(self) -> int:
        """Blocks that a step visits."""
        return int(self.first.shape[1])

    def single(self) -> Rows:
        """The same blocks, one a step."""
        return Rows(
            self.active,
            self.first[:, :1],
            self.last.max(axis=1, keepdims=True),
            self.columns,
            self.ends,
        )

    @property
    def steps(self) -> Counts:
        """Steps that every row needs, at least 1."""
        return np.maximum(1, -(-self.active // self.slots))


def rows_of(labels: Labels, slots: int = 1) -> Rows:
    """Reads off the active blocks of a label grid."""
    rows, columns = labels.shape
    active = np.zeros(rows, dtype=np.int64)
    first, last = np.full((2, rows, slots), -1, dtype=np.int64)
    for part in _strips(rows, columns):
        at, column = np.nonzero(labels[part])
        count = np.bincount(at, minlength=part.stop - part.start)
        start = np.cumsum(count) - count
        active[part] = count
        for slot in range(slots):
            has = count > slot
            final = slot + (count - 1 - slot) // slots * slots
            first[part][has, slot] = column[(start + slot)[has]]
            last[part][has, slot] = column[(start + final)[has]]
    return Rows(active, first, last, columns, bool(labels[-1, -1]))


def _strips(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, BATCH // columns)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


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


def slot_fetches(rows: Rows, heads: Heads) -> int:
    """Fetches by a kernel that lists active blocks only, every slot with a memory of its own.

    Idle slots keep what they hold or name what they need next.
    """
    total = 0
    for slot in range(rows.slots):
        some = rows.first[:, slot] >= 0
        first, last = rows.first[some, slot], rows.last[some, slot]
        if len(first) == 0:
            total += heads.kv
            continue
        blocks = np.maximum(0, -(-(rows.active[some] - slot) // rows.slots))
        inside = int((blocks - 1).sum() + (first[1:] != last[:-1]).sum())
        total += _over_heads(inside, bool(first[0] == last[-1]), heads)
    return total


def grid_fetches(rows: Rows, heads: Heads, *, shrunk: bool) -> int:
    """Fetches of k, or of v, by the grid layout (DATA-2, DATA-3, SHRINK-8).

    Before shrinking, positions after the last active block name the first one again.
    """
    some = rows.active > 0
    first, last = rows.first[some, 0], rows.last[some, 0]
    if len(first) == 0:
        return heads.kv
    inside = int((rows.active[some] - 1).sum() + (first[1:] != last[:-1]).sum())
    returns = bool(first[0] == last[-1])
    if not shrunk and not rows.ends:
        return _over_heads(inside + (not returns), True, heads)
    return _over_heads(inside, returns, heads)


def flat_rows(rows: Rows) -> Rows:
    """The rows of the flat layout: a wholly empty one visits column 0 (FLAT-4)."""
    empty = (rows.active == 0)[:, None]
    return Rows(
        np.maximum(rows.active, 1),
        np.where(empty, 0, rows.first),
        np.where(empty, 0, rows.last),
        rows.columns,
        rows.ends,
    )


def mask_fetches(ids: NDArray[np.int32], heads: int, *, wraps: bool) -> int:
    """Fetches of stored mask blocks.

    Args:
      ids: which block of the stack every partial block of the mask is, in grid order.
      heads: query heads; the stack has none.
      wraps: whether a position after the last partial block names the first one again.
    """
    if len(ids) == 0:
        return 0
    changes = int((ids[1:] != ids[:-1]).sum())
    returns = int(ids[0] != ids[-1])
    if wraps:
        return 1 + heads * (changes + returns)
    return 1 + heads * changes + (heads - 1) * returns
