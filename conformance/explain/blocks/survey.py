"""Labels and distinct partial blocks of a mask of any length, in memory that grows with its blocks.

All three methods are exact. Bounds decide a structured mask; where they leave a block open, the intervals of its rows
decide. A stored mask is read. Any other mask is probed first: one visible and one hidden pair prove a block partial,
and one difference proves two blocks distinct. Only the blocks that remain open are read in full.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.bounds import Box, Positions, facts
from conformance.explain.blocks.intervals import clip, intervals, visible_between
from conformance.explain.language.expressions import grain, is_structured, leaves
from reference.blocks import EMPTY, FULL, PARTIAL, block_grid
from reference.masks import Bool, Dense, Expr

Labels = NDArray[np.int8]

#: Elements processed at a time, to bound memory.
BATCH = 1 << 21
#: Masks with at most this many entries are read once and kept.
SMALL = 1 << 26
#: Read at most this many entries of a mask that is neither structured nor stored.
READABLE = 1 << 30
#: Probe at most this many blocks of such a mask.
OPEN = 1 << 22
#: Probes per block, in rounds of increasing size: to label blocks, and to tell partial blocks apart.
PROBES, TELLING = (8, 64, 512), (64, 512)
#: Skip a round that would take more probes than this over all blocks.
MORE_PROBES = 1 << 27


class TooManyEntries(ValueError):
    """The mask has too many entries to read one by one."""


def prepared(expr: Expr, q_len: int, kv_len: int) -> Expr:
    """The mask in its fastest form: stored if it is small or already partly stored."""
    stored = any(isinstance(leaf, Dense) for leaf in leaves(expr))
    if isinstance(expr, Dense) or is_structured(expr) or not (stored or q_len * kv_len <= SMALL):
        return expr
    array = np.empty((q_len, kv_len), dtype=np.bool_)
    kv_ids = np.arange(kv_len)[None, :]
    for rows in batches(q_len, kv_len):
        array[rows] = expr.visible(np.arange(q_len)[rows, None], kv_ids)
    return Dense(array)


@dataclass(frozen=True)
class Cut:
    """A mask cut into blocks.

    Attributes:
      expr: what is visible.
      q_len, kv_len: tokens.
      block_q, block_kv: tokens per block; they divide the lengths.
    """

    expr: Expr
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int

    @property
    def grid(self) -> tuple[int, int]:
        """q blocks and kv blocks.

        Raises:
          ValueError: a block size does not divide its length.
        """
        return block_grid(self.q_len, self.kv_len, self.block_q, self.block_kv)

    @property
    def stride(self) -> int:
        """Reading every ``stride``-th position is enough to know a block: see `grain`."""
        return math.gcd(grain(self.expr), self.block_q, self.block_kv)

    @property
    def area(self) -> int:
        """Pairs to read in order to know a block."""
        return self.block_q * self.block_kv // self.stride**2

    def labels(self) -> Labels:
        """Label of every block, int8 ``[q blocks, kv blocks]``.

        Raises:
          TooManyEntries: see the class.
        """
        if isinstance(self.expr, Dense):
            return self._stored_labels(self.expr.array)
        rows, columns = self.grid
        result = np.empty((rows, columns), dtype=np.int8)
        unclear, number = [], 0
        for part in batches(rows, columns):
            result[part], i, j = self._strip(part)
            if is_structured(self.expr):
                for some in batches(len(i), self.block_q * 4):
                    result[i[some], j[some]] = self._counted(i[some], j[some])
                continue
            number += len(i)
            if number > OPEN:
                raise TooManyEntries(
                    f"more than {OPEN:,} blocks of this mask need probing: use larger blocks"
                )
            unclear.append((i, j))
        if number:
            i, j = (np.concatenate(side) for side in zip(*unclear, strict=True))
            result[i, j] = self._probed(i * self.block_q, j * self.block_kv)
        return result

    def partial_ids(self, labels: Labels) -> tuple[NDArray[np.int32], int]:
        """Numbers the partial blocks so that equal blocks have equal numbers.

        Args:
          labels: of this cut.

        Returns:
          int32 in row-major order of the partial blocks, numbered by first appearance, and how many
          distinct ones there are.
        """
        i, j = (at.astype(np.int64) for at in np.nonzero(labels == PARTIAL))
        if len(i) == 0:
            return np.zeros(0, dtype=np.int32), 0
        if is_structured(self.expr):
            return _numbered(_keys(self._interval_key, i, j, self.block_q * 4))
        if isinstance(self.expr, Dense):
            return _numbered(_keys(self._content_key, i, j, self.area))
        return self._told_apart(i, j)

    def entries_of(self, i: int, j: int) -> Bool:
        """The entries of one block, bool ``[block_q, block_kv]``."""
        rows, columns = np.arange(self.block_q), np.arange(self.block_kv)
        return self.expr.visible(
            i * self.block_q + rows[:, None], j * self.block_kv + columns[None, :]
        )

    def _stored_labels(self, array: Bool) -> Labels:
        rows, columns = self.grid
        result = np.empty((rows, columns), dtype=np.int8)
        for i in range(rows):
            strip = array[i * self.block_q : (i + 1) * self.block_q]
            some = strip.any(axis=0).reshape(columns, -1).any(axis=1)
            every = strip.all(axis=0).reshape(columns, -1).all(axis=1)
            result[i] = np.where(every, FULL, np.where(some, PARTIAL, EMPTY))
        return result

    def _strip(self, rows: slice) -> tuple[Labels, Positions, Positions]:
        """Labels of some rows of blocks by bounds, and the blocks that these do not decide."""
        count, columns = self.grid
        q_lo = (np.arange(count)[rows] * self.block_q)[:, None]
        kv_lo = (np.arange(columns) * self.block_kv)[None, :]
        known = facts(
            self.expr, Box(q_lo, q_lo + self.block_q - 1, kv_lo, kv_lo + self.block_kv - 1)
        )
        result = np.full(known.some.shape, PARTIAL, dtype=np.int8)
        result[known.none] = EMPTY
        result[known.full] = FULL
        i, j = np.nonzero(~(known.none | known.full | (known.some & known.gap)))
        return result, i + rows.start, j

    def _counted(self, i: Positions, j: Positions) -> Labels:
        q_at, kv_at = i * self.block_q, j * self.block_kv
        seen = intervals(self.expr, q_at[:, None] + np.arange(self.block_q))
        ends = kv_at[:, None] + self.block_kv - 1
        total = visible_between(seen, kv_at[:, None], ends).sum(axis=1)
        return np.where(
            total == self.block_q * self.block_kv, FULL, np.where(total > 0, PARTIAL, EMPTY)
        ).astype(np.int8)

    def _probed(self, q_at: Positions, kv_at: Positions) -> Labels:
        some, gap = np.zeros((2, len(q_at)), dtype=np.bool_)
        open_ = np.arange(len(q_at))
        for probes in PROBES:
            if probes >= self.area or probes * len(open_) > MORE_PROBES:
                break
            for part in batches(len(open_), probes):
                at = open_[part]
                seen = self._look(q_at[at], kv_at[at], probes)
                some[at] |= seen.any(axis=1)
                gap[at] |= ~seen.all(axis=1)
            open_ = np.flatnonzero(~(some & gap))
        self._afford(len(open_))
        for part in batches(len(open_), self.area):
            at = open_[part]
            entries = self._entries(q_at[at], kv_at[at]).reshape(len(at), -1)
            some[at], gap[at] = entries.any(axis=1), ~entries.all(axis=1)
        return np.where(gap, np.where(some, PARTIAL, EMPTY), FULL).astype(np.int8)

    def _afford(self, blocks: int) -> None:
        if blocks * self.area > READABLE:
            raise TooManyEntries(
                f"{blocks * self.area:,} entries of this mask need reading one by one: use larger "
                "blocks, a shorter sequence, or masks with known bounds (causal, local, chunked, prefix, "
                "documents)"
            )

    def _look(self, q_at: Positions, kv_at: Positions, probes: int) -> Bool:
        """A fixed sample of every block, bool ``[blocks, probes]``."""
        rng = np.random.default_rng(0)
        rows, columns = (rng.integers(0, size, probes) for size in (self.block_q, self.block_kv))
        return self.expr.visible(q_at[:, None] + rows, kv_at[:, None] + columns)

    def _entries(self, q_at: Positions, kv_at: Positions) -> Bool:
        """The entries that determine a block, bool ``[blocks, block_q / stride, block_kv / stride]``."""
        rows = (q_at[:, None] + np.arange(0, self.block_q, self.stride))[:, :, None]
        columns = (kv_at[:, None] + np.arange(0, self.block_kv, self.stride))[:, None, :]
        return self.expr.visible(rows, columns)

    def _interval_key(self, i: Positions, j: Positions) -> list[bytes]:
        rows = intervals(self.expr, (i * self.block_q)[:, None] + np.arange(self.block_q))
        first = (j * self.block_kv)[:, None]
        inside = np.stack(clip(rows, first, first + self.block_kv - 1), axis=1)
        # The last intervals are empty where another block of the batch has more: they do not count.
        used = (inside[:, 0] <= inside[:, 1]).any(axis=2).sum(axis=0)
        return [inside[:count, :, n].tobytes() for n, count in enumerate(used.tolist())]

    def _content_key(self, i: Positions, j: Positions) -> NDArray[np.uint8]:
        entries = self._entries(i * self.block_q, j * self.block_kv).reshape(len(i), -1)
        return np.packbits(entries, axis=1)

    def _told_apart(self, i: Positions, j: Positions) -> tuple[NDArray[np.int32], int]:
        """`partial_ids` by probes; blocks with equal probes are compared in full."""
        group = np.zeros(len(i), dtype=np.int64)
        for probes in TELLING:
            if probes >= self.area:
                break

            def probe(i: Positions, j: Positions, probes: int = probes) -> NDArray[np.uint8]:
                seen = self._look(i * self.block_q, j * self.block_kv, probes)
                return np.packbits(seen, axis=1)

            same = _alike(group)
            _refine(group, same, _keys(probe, i[same], j[same], probes))
        same = _alike(group)
        self._afford(len(same))
        _refine(group, same, _keys(self._content_key, i[same], j[same], self.area))
        return _numbered(group)


def visible_pairs(expr: Expr, q_len: int, kv_len: int) -> int | None:
    """Number of visible pairs; None if that needs every entry."""
    if isinstance(expr, Dense):
        return int(np.count_nonzero(expr.array))
    if not is_structured(expr):
        return None
    first, last = np.zeros(1, dtype=np.int64), np.full(1, kv_len - 1, dtype=np.int64)
    total = 0
    for rows in batches(q_len, 4):
        seen = intervals(expr, np.arange(q_len)[rows])
        total += int(visible_between(seen, first, last).sum())
    return total


def batches(count: int, cost: int) -> Iterator[slice]:
    """Slices of ``range(count)`` of about `BATCH` elements, ``cost`` each."""
    step = max(1, BATCH // max(1, cost))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


_Key = Callable[[Positions, Positions], NDArray[np.uint8] | list[bytes]]


def _keys(key: _Key, i: Positions, j: Positions, cost: int) -> NDArray[np.int64]:
    """Numbers blocks by their ``key``: equal keys have equal numbers."""
    found = []
    for part in batches(len(i), cost):
        rows = key(i[part], j[part])
        if isinstance(rows, np.ndarray) and rows.shape[1] == 8:
            found.append(np.ascontiguousarray(rows).view(np.uint64))
            continue
        digests = b"".join(hashlib.blake2b(row, digest_size=16).digest() for row in rows)
        found.append(np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2))
    if not found:
        return np.zeros(0, dtype=np.int64)
    whole = np.concatenate(found)
    number = np.zeros(len(whole), dtype=np.int64)
    for column in whole.T:
        number = _paired(number, np.unique(column, return_inverse=True)[1])
    return number


def _paired(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers pairs of numbers below 2**31."""
    pairs = a * (b.max(initial=0) + 1) + b
    return np.asarray(np.unique(pairs, return_inverse=True)[1])


def _refine(group: NDArray[np.int64], at: NDArray[np.int64], number: NDArray[np.int64]) -> None:
    """Splits the groups of the blocks ``at`` by ``number``, keeping groups apart from one another."""
    group[at] = group.max(initial=0) + 1 + _paired(group[at], number)


def _alike(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The blocks that share their group with another."""
    _, inverse, count = np.unique(group, return_inverse=True, return_counts=True)
    return np.flatnonzero(count[inverse] > 1)


def _numbered(number: NDArray[np.int64]) -> tuple[NDArray[np.int32], int]:
    """The same numbers, counted by first appearance."""
    _, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int32)
    place[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return place[inverse], len(first)
