"""Full, causal, local and chunked causal masks: one interval of kv positions for each query."""

import operator
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from pallas_impl.computable import ComputableMask, Positions
from pallas_impl.intervals import Intervals
from pallas_impl.mask_base import MAX_POSITION, BoolArray


class _BandMask(ComputableMask):
    """Visible where `lower <= kv - q <= upper`; None leaves a side open.

    Bounds beyond ±2**30 are brought back to it, which changes no entry: no two positions are
    that far apart.
    """

    def __init__(
        self,
        shape: tuple[SupportsIndex, SupportsIndex],
        lower: int | None,
        upper: int | None,
        q_sequence: ArrayLike | None,
        kv_sequence: ArrayLike | None,
    ) -> None:
        super().__init__(shape, q_sequence=q_sequence, kv_sequence=kv_sequence)
        self._lower = None if lower is None else _clamp(lower)
        self._upper = None if upper is None else _clamp(upper)

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        below = None if self._upper is None else kv_ids <= _shift(q_ids, self._upper)
        if self._lower is None:
            # Positions are never negative: true, in the shape the arguments broadcast to.
            return (q_ids | kv_ids) >= 0 if below is None else below
        above = kv_ids >= _shift(q_ids, self._lower)
        return above if below is None else above & below

    def block_bounds(
        self, q_lo: Positions, q_hi: Positions, kv_lo: Positions, kv_hi: Positions
    ) -> tuple[BoolArray, BoolArray]:
        # kv - q takes every value of [kv_lo - q_hi, kv_hi - q_lo] and no other.
        some = every = np.ones(np.broadcast_shapes(q_lo.shape, kv_lo.shape), dtype=np.bool_)
        if self._upper is not None:
            some = some & (kv_lo <= q_hi + self._upper)
            every = every & (kv_hi <= q_lo + self._upper)
        if self._lower is not None:
            some = some & (kv_hi >= q_lo + self._lower)
            every = every & (kv_lo >= q_hi + self._lower)
        if self._lower is not None and self._upper is not None and self._lower > self._upper:
            some = np.zeros_like(some)
        return some, every

    def kv_intervals(self, q_ids: Positions) -> Intervals:
        q = q_ids.astype(np.int64)[None]
        open_side = 2 * MAX_POSITION
        lower = -open_side if self._lower is None else self._lower
        upper = open_side if self._upper is None else self._upper
        return Intervals(q + lower, q + upper)


class FullMask(_BandMask):
    """Everything is visible.

    Args:
      shape: `(q_len, kv_len)`.
    """

    def __init__(self, shape: tuple[SupportsIndex, SupportsIndex]) -> None:
        super().__init__(shape, None, None, None, None)

    def parameters(self) -> object:
        return ()


class CausalMask(_BandMask):
    """Visible where `q + offset >= kv`.

    Args:
      shape: `(q_len, kv_len)`.
      offset: how many positions a query sees beyond its own; may be negative.
      q_sequence: int[q_len], positions of the rows; None for 0, 1, 2, ….
      kv_sequence: int[kv_len], positions of the columns; None for 0, 1, 2, ….

    Raises:
      ValueError, TypeError: see `ComputableMask`.
    """

    def __init__(
        self,
        shape: tuple[SupportsIndex, SupportsIndex],
        offset: SupportsIndex = 0,
        *,
        q_sequence: ArrayLike | None = None,
        kv_sequence: ArrayLike | None = None,
    ) -> None:
        self.offset = _integer("offset", offset)
        super().__init__(shape, None, self.offset, q_sequence, kv_sequence)

    def parameters(self) -> object:
        return (self.offset,)


class LocalMask(_BandMask):
    """Visible where `q + offset - left <= kv <= q + offset + right`.

    Args:
      shape: `(q_len, kv_len)`.
      window_size: `(left, right)`, in positions; None leaves that side open.
      offset: shift of the window's middle, in positions; may be negative.
      q_sequence: int[q_len], positions of the rows; None for 0, 1, 2, ….
      kv_sequence: int[kv_len], positions of the columns; None for 0, 1, 2, ….

    Raises:
      ValueError: `window_size` is not a pair; see also `ComputableMask`.
      TypeError: a size is neither an integer nor None.
    """

    def __init__(
        self,
        shape: tuple[SupportsIndex, SupportsIndex],
        window_size: tuple[SupportsIndex | None, SupportsIndex | None],
        offset: SupportsIndex = 0,
        *,
        q_sequence: ArrayLike | None = None,
        kv_sequence: ArrayLike | None = None,
    ) -> None:
        if not isinstance(window_size, tuple | list) or len(window_size) != 2:
            raise ValueError(f"window_size: expected a pair (left, right), got {window_size!r}")
        left, right = (None if n is None else _integer("window_size", n) for n in window_size)
        self.window_size = (left, right)
        self.offset = _integer("offset", offset)
        lower = None if left is None else self.offset - left
        upper = None if right is None else self.offset + right
        super().__init__(shape, lower, upper, q_sequence, kv_sequence)

    def parameters(self) -> object:
        return (self.window_size, self.offset)


class ChunkedCausalMask(ComputableMask):
    """Causal inside consecutive chunks: `q // c == kv // c` and `q >= kv`.

    Args:
      shape: `(q_len, kv_len)`.
      chunk_size: c, in positions.
      q_sequence: int[q_len], positions of the rows; None for 0, 1, 2, ….
      kv_sequence: int[kv_len], positions of the columns; None for 0, 1, 2, ….

    Raises:
      ValueError: `chunk_size` is not positive (REJECT-7); see also `ComputableMask`.
      TypeError: `chunk_size` is not an integer.
    """

    def __init__(
        self,
        shape: tuple[SupportsIndex, SupportsIndex],
        chunk_size: SupportsIndex,
        *,
        q_sequence: ArrayLike | None = None,
        kv_sequence: ArrayLike | None = None,
    ) -> None:
        self.chunk_size = _integer("chunk_size", chunk_size)
        if self.chunk_size <= 0:
            raise ValueError(f"chunk_size: must be positive, got {self.chunk_size}")
        super().__init__(shape, q_sequence=q_sequence, kv_sequence=kv_sequence)
        # A chunk longer than every position is one chunk, whatever its size.
        self._size = min(self.chunk_size, MAX_POSITION)

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return (kv_ids >= self._chunk_start(q_ids)) & (kv_ids <= q_ids)

    def block_bounds(
        self, q_lo: Positions, q_hi: Positions, kv_lo: Positions, kv_hi: Positions
    ) -> tuple[BoolArray, BoolArray]:
        size = self._size
        q_first, q_last, kv_first, kv_last = (n // size for n in (q_lo, q_hi, kv_lo, kv_hi))
        first = np.maximum(q_first, kv_first)
        last = np.minimum(q_last, kv_last)
        # Two common chunks share the last position of the first one; inside a single common
        # chunk the latest query must reach the earliest column.
        earliest_kv = np.maximum(kv_lo, q_first * size)
        latest_q = np.minimum(q_hi, kv_last * size + (size - 1))
        some = (first < last) | ((first == last) & (earliest_kv <= latest_q))
        every = (q_first == q_last) & (q_last == kv_first) & (kv_hi <= q_lo)
        return some, every

    def kv_intervals(self, q_ids: Positions) -> Intervals:
        q = q_ids.astype(np.int64)[None]
        return Intervals(self._chunk_start(q), q)

    def parameters(self) -> object:
        return (self.chunk_size,)

    def _chunk_start(self, q_ids: Any) -> Any:
        # A power of two needs no division, which is slow in a kernel.
        if self._size & (self._size - 1) == 0:
            return q_ids & -self._size
        return q_ids - q_ids % self._size


def _shift(ids: Any, by: int) -> Any:
    return ids + by if by else ids


def _clamp(bound: int) -> int:
    return max(-MAX_POSITION, min(MAX_POSITION, bound))


def _integer(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None
