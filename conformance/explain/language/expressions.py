"""Mask expressions that only `explain` has: prefixes, documents, scattered blocks, and user masks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.problems.mask_json import Random
from reference.masks import And, Bool, Causal, ChunkedCausal, Dense, Expr, Full, Int, Local, Or


@dataclass(frozen=True)
class Prefix(Expr):
    """Visible iff ``kv < length``: every query sees the first tokens.

    Attributes:
      length: in tokens.

    Raises:
      ValueError: ``length`` is negative.
    """

    length: int

    def __post_init__(self) -> None:
        if self.length < 0:
            raise ValueError(f"length of a prefix must not be negative, got {self.length}")

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        shape = np.broadcast_shapes(q_ids.shape, kv_ids.shape)
        return np.broadcast_to(kv_ids < self.length, shape)


@dataclass(frozen=True)
class Documents(Expr):
    """Visible iff both positions lie in the same document; documents follow one another.

    Attributes:
      lengths: tokens of every document; the last one is repeated to the end of the sequence.

    Raises:
      ValueError: no length, or one below 1.
    """

    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"lengths of documents must be at least 1, got {list(self.lengths)}")

    def span(self, ids: Int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last position of the document of every position."""
        ends = np.cumsum(self.lengths)
        starts = ends - np.asarray(self.lengths)
        last = self.lengths[-1]
        which = np.minimum(np.searchsorted(ends, ids, side="right"), len(ends) - 1)
        repeated = np.maximum(ids - starts[-1], 0) // last * last
        first = starts[which] + np.where(which == len(ends) - 1, repeated, 0)
        return first, first + np.asarray(self.lengths)[which] - 1

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return np.asarray(self.span(q_ids)[0] == self.span(kv_ids)[0])


@dataclass(frozen=True)
class Tiles(Expr):
    """Squares of tokens, each visible with probability ``density``.

    Attributes:
      density: between 0 and 1.
      size: tokens of a square's side.
      seed: of the random choice.

    Raises:
      ValueError: ``density`` is not between 0 and 1, or ``size`` is below 1.
    """

    density: float
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size of a square must be at least 1, got {self.size}")
        Random(self.density, self.seed)

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return Random(self.density, self.seed).visible(q_ids // self.size, kv_ids // self.size)


@dataclass(frozen=True, eq=False)
class ReadOff(Dense):
    """The values of a user mask that a kernel can compute."""

    computable = True


@dataclass(frozen=True, eq=False)
class Claimed(Expr):
    """A user mask with ``block_bounds`` (MASK-20), which is trusted.

    Attributes:
      mask: has ``shape``, ``visible`` and ``block_bounds``.
      name: how it was written.
    """

    mask: Any
    name: str
    computable = True

    def check_shape(self, q_len: int, kv_len: int) -> None:
        if tuple(self.mask.shape) != (q_len, kv_len):
            raise ValueError(
                f"{self.name} has shape {tuple(self.mask.shape)}, expected {(q_len, kv_len)}"
            )

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return np.asarray(self.mask.visible(q_ids.astype(np.int32), kv_ids.astype(np.int32)))


@dataclass(frozen=True, eq=False)
class ClaimedRows(Claimed):
    """A user mask with ``kv_intervals`` too (MASK-21).

    Attributes:
      mask: as in `Claimed`, with ``kv_intervals``.
    """


@dataclass(frozen=True, eq=False)
class Function(Expr):
    """A mask that is a function of positions.

    Attributes:
      function: ``function(q_ids, kv_ids)`` gives booleans of the broadcast shape.
      name: how it was written.
    """

    function: Any
    name: str

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        shape = np.broadcast_shapes(q_ids.shape, kv_ids.shape)
        found = np.asarray(self.function(q_ids, kv_ids))
        if found.dtype != np.bool_:
            raise ValueError(f"{self.name} must give booleans, got {found.dtype}")
        return np.broadcast_to(found, shape)


#: Masks whose rows are a few intervals and whose blocks have known bounds.
STRUCTURED = (Full, Causal, Local, ChunkedCausal, Prefix, Documents, ClaimedRows)


def leaves(expr: Expr) -> list[Expr]:
    """The masks that an expression combines, from left to right."""
    if isinstance(expr, And | Or):
        return leaves(expr.left) + leaves(expr.right)
    return [expr]


def is_structured(expr: Expr) -> bool:
    """Whether everything about the mask follows from bounds and intervals, without reading entries."""
    return all(isinstance(leaf, STRUCTURED) for leaf in leaves(expr))


def grain(expr: Expr) -> int:
    """The side of squares, cut from position 0, that the mask shows or hides as a whole; 0 if every size will do."""
    if isinstance(expr, And | Or):
        return math.gcd(grain(expr.left), grain(expr.right))
    if isinstance(expr, Tiles):
        return expr.size
    if isinstance(expr, Prefix):
        return expr.length
    if isinstance(expr, Documents):
        return math.gcd(*expr.lengths)
    return 0 if isinstance(expr, Full) else 1
