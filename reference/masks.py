"""Masks: which key positions each query position may see.

A mask *expression* says when the pair (query position, key position) is visible; it has no shape of
its own. A `Mask` is an expression together with ``(q_len, kv_len)`` and can be indexed, compared and
hashed. Positions start at 0. Every expression works for ``q_len != kv_len``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spec import defines

Bool = NDArray[np.bool_]
Int = NDArray[np.integer[Any]]


class Expr:
    """Base of all mask expressions.

    Subclasses are frozen dataclasses: two expressions with equal fields are the same mask.
    """

    #: True if a kernel can evaluate `visible` itself, without stored mask blocks (COMPUTE-1).
    computable: bool = False

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        """Visibility of every pair of positions.

        Args:
          q_ids: query positions, any integer shape that broadcasts with ``kv_ids``.
          kv_ids: key positions.

        Returns:
          Booleans of the broadcast shape.
        """
        raise NotImplementedError

    def check_shape(self, q_len: int, kv_len: int) -> None:
        """Raises ValueError if the expression cannot describe a (q_len, kv_len) mask."""

    def q_positions(self, q_len: int) -> NDArray[np.int32]:
        """The position of every query row: its number, unless the expression says otherwise (COMPUTE-3)."""
        return np.arange(q_len, dtype=np.int32)

    def __and__(self, other: Expr) -> And:
        return And(self, other)

    def __or__(self, other: Expr) -> Or:
        return Or(self, other)


@defines("MASK-1")
@dataclass(frozen=True)
class Full(Expr):
    """Every pair is visible."""

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return np.ones(np.broadcast_shapes(q_ids.shape, kv_ids.shape), dtype=np.bool_)


@defines("MASK-2", "MASK-3")
@dataclass(frozen=True)
class Causal(Expr):
    """Visible iff ``kv <= q + offset``.

    Attributes:
      offset: in tokens; position of the first query relative to the first key. A negative
        offset leaves the first ``-offset`` rows empty.
    """

    offset: int = 0
    computable = True

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return np.asarray(kv_ids <= q_ids + self.offset)


@defines("MASK-4", "MASK-5")
@dataclass(frozen=True)
class Local(Expr):
    """Visible iff ``q + offset - left <= kv <= q + offset + right``.

    Attributes:
      left: tokens visible before the diagonal; None for no limit.
      right: tokens visible after the diagonal; None for no limit.
      offset: in tokens, as for `Causal`.
    """

    left: int | None
    right: int | None
    offset: int = 0
    computable = True

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        diagonal = q_ids + self.offset
        seen = np.ones(np.broadcast_shapes(q_ids.shape, kv_ids.shape), dtype=np.bool_)
        if self.left is not None:
            seen &= diagonal - self.left <= kv_ids
        if self.right is not None:
            seen &= kv_ids <= diagonal + self.right
        return seen


@defines("MASK-6", "REJECT-7")
@dataclass(frozen=True)
class ChunkedCausal(Expr):
    """Visible iff both positions lie in the same chunk and ``kv <= q``.

    Attributes:
      chunk_size: tokens per chunk, at least 1.

    Raises:
      ValueError: ``chunk_size`` is below 1.
    """

    chunk_size: int
    computable = True

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1, got {self.chunk_size}")

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        same_chunk = q_ids // self.chunk_size == kv_ids // self.chunk_size
        return np.asarray(same_chunk & (kv_ids <= q_ids))


@defines("MASK-7", "REJECT-3", "REJECT-4")
@dataclass(frozen=True, eq=False)
class Dense(Expr):
    """Visible iff ``array[q, kv]``.

    Attributes:
      array: bool ``[q_len, kv_len]``; copied and made read-only.

    Raises:
      ValueError: ``array`` is not a two-dimensional boolean array.
    """

    array: Bool

    def __post_init__(self) -> None:
        array = np.asarray(self.array)
        if array.ndim != 2:
            raise ValueError(f"array must have rank 2 (q_len, kv_len), got shape {array.shape}")
        if array.dtype != np.bool_:
            raise ValueError(f"array must be boolean, got dtype {array.dtype}")
        array = array.copy()
        array.flags.writeable = False
        object.__setattr__(self, "array", array)

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return np.asarray(self.array[q_ids, kv_ids])

    def check_shape(self, q_len: int, kv_len: int) -> None:
        if self.array.shape != (q_len, kv_len):
            raise ValueError(
                f"dense mask array has shape {self.array.shape}, expected {(q_len, kv_len)}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dense) and bool(np.array_equal(self.array, other.array))

    def __hash__(self) -> int:
        return hash((self.array.shape, self.array.tobytes()))


@dataclass(frozen=True)
class _Pair(Expr):
    left: Expr
    right: Expr

    @property
    def computable(self) -> bool:  # type: ignore[override]
        return False

    def check_shape(self, q_len: int, kv_len: int) -> None:
        self.left.check_shape(q_len, kv_len)
        self.right.check_shape(q_len, kv_len)


@defines("MASK-8")
@dataclass(frozen=True)
class And(_Pair):
    """Visible iff visible in ``left`` and in ``right``."""

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return self.left.visible(q_ids, kv_ids) & self.right.visible(q_ids, kv_ids)


@defines("MASK-9")
@dataclass(frozen=True)
class Or(_Pair):
    """Visible iff visible in ``left`` or in ``right``."""

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return self.left.visible(q_ids, kv_ids) | self.right.visible(q_ids, kv_ids)


@defines(
    "CONV-1", "MASK-11", "MASK-12", "MASK-13", "MASK-14", "MASK-15", "MASK-16", "MASK-17"
)  # fmt: skip
@dataclass(frozen=True)
class Mask:
    """An expression with a shape, as implementations receive it.

    Equality and hash follow the fields, so a mask can be a cache key (MASK-14, MASK-15).

    Attributes:
      expr: when a pair is visible.
      q_len: query positions (rows).
      kv_len: key positions (columns).

    Raises:
      ValueError: a length is below 1, or ``expr`` has a different fixed shape.
    """

    expr: Expr
    q_len: int
    kv_len: int
    shape: tuple[int, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("q_len", "kv_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        self.expr.check_shape(self.q_len, self.kv_len)
        object.__setattr__(self, "shape", (self.q_len, self.kv_len))

    def __getitem__(self, index: tuple[slice, slice]) -> Bool:
        """The rows and columns of two slices, as if the dense mask were sliced.

        Raises:
          TypeError: ``index`` is not a pair of slices.
        """
        if not (isinstance(index, tuple) and len(index) == 2):
            raise TypeError(f"index must be a pair of slices, got {index!r}")
        if not all(isinstance(part, slice) for part in index):
            raise TypeError(f"index must be a pair of slices, got {index!r}")
        q_ids = np.arange(*index[0].indices(self.q_len))
        kv_ids = np.arange(*index[1].indices(self.kv_len))
        return self.expr.visible(q_ids[:, None], kv_ids[None, :])

    def dense(self) -> Bool:
        """The whole mask, bool ``[q_len, kv_len]``."""
        return self[:, :]

    @defines("MASK-18", "MASK-19")
    def at(self, q_ids: Int, kv_ids: Int) -> Bool:
        """Visibility of pairs of positions, as a kernel evaluates it; see `Expr.visible`."""
        return self.expr.visible(q_ids, kv_ids)

    @defines("MASK-20")
    def block_bounds(self, q_lo: Int, q_hi: Int, kv_lo: Int, kv_hi: Int) -> tuple[Bool, Bool]:
        """Whether any and whether all pairs of rectangles of positions are visible.

        Args:
          q_lo, q_hi, kv_lo, kv_hi: inclusive bounds that broadcast, one element per rectangle.

        Returns:
          Two arrays of the broadcast shape.
        """
        bounds = np.broadcast_arrays(q_lo, q_hi, kv_lo, kv_hi)
        some, every = (np.zeros(bounds[0].shape, dtype=np.bool_) for _ in range(2))
        for at in np.ndindex(bounds[0].shape):
            q_first, q_last, kv_first, kv_last = (int(bound[at]) for bound in bounds)
            q_ids, kv_ids = np.arange(q_first, q_last + 1), np.arange(kv_first, kv_last + 1)
            pairs = self.at(q_ids[:, None], kv_ids[None, :])
            some[at], every[at] = pairs.any(), pairs.all()
        return some, every

    @defines("MASK-21")
    def kv_intervals(self, q_ids: Int) -> tuple[Int, Int]:
        """The key positions that query positions see, as disjoint intervals with inclusive bounds.

        Args:
          q_ids: query positions.

        Returns:
          Bounds ``lo`` and ``hi``, one leading axis before those of ``q_ids``; an interval with
          ``lo > hi`` is empty.
        """
        row = np.zeros((*q_ids.shape, 1), dtype=np.int64) + np.arange(self.kv_len)
        seen = self.at(q_ids[..., None], row)
        edges = np.diff(np.pad(seen, [(0, 0)] * q_ids.ndim + [(1, 1)]).astype(np.int8))
        most = max(1, int((edges == 1).sum(axis=-1).max(initial=0)))
        lo, hi = np.ones((most, *q_ids.shape), np.int64), np.zeros((most, *q_ids.shape), np.int64)
        for at in np.ndindex(q_ids.shape):
            starts, ends = np.flatnonzero(edges[at] == 1), np.flatnonzero(edges[at] == -1)
            lo[(slice(len(starts)), *at)], hi[(slice(len(starts)), *at)] = starts, ends - 1
        return lo, hi


@defines("MASK-10", "REJECT-5")
def multi_head(masks: tuple[Mask, ...]) -> Bool:
    """One mask per head, stacked: bool ``[heads, q_len, kv_len]``.

    Raises:
      ValueError: no mask, or masks of different shapes.
    """
    check_one_shape(masks)
    return np.stack([mask.dense() for mask in masks])


def check_one_shape(masks: Sequence[Mask]) -> None:
    """Raises ValueError unless there is at least one mask and all have one shape (REJECT-5)."""
    if not masks:
        raise ValueError("masks must hold at least one mask, got none")
    shapes = {mask.shape for mask in masks}
    if len(shapes) > 1:
        raise ValueError(f"masks must all have one shape, got {sorted(shapes)}")
