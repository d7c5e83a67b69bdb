"""Masks that a kernel computes from positions instead of loading them from memory."""

import abc
import dataclasses
from collections.abc import Hashable
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pallas_impl import intervals
from pallas_impl.intervals import Intervals
from pallas_impl.mask_base import (
    MAX_POSITION,
    BoolArray,
    Index,
    Mask,
    check_operands,
    check_shape,
    normalize_index,
)

Positions = NDArray[np.int32]


class ComputableMask(Mask):
    """A mask given by a function of positions; subclass it to define your own.

    Row r of the mask stands at position `q_sequence[r]` and column c at `kv_sequence[c]`;
    `visible` is asked about positions, never about rows and columns. A subclass calls
    `super().__init__(shape)`, defines `visible`, and should define

    - `parameters`, so that equal masks share one compiled schedule;
    - `block_bounds` and/or `kv_intervals`, so that compiling costs time per block and not per
      entry. Without both, every entry of the mask is evaluated once.

    Args:
      shape: `(q_len, kv_len)`.
      q_sequence: int[q_len], the position of each query row, for example of a zig-zag layout;
        None for 0, 1, 2, ….
      kv_sequence: int[kv_len], the position of each column; None for 0, 1, 2, ….

    Raises:
      ValueError: a shape or sequence of the wrong size, or a position outside [0, 2**30).
      TypeError: positions or sizes that are not integers.
    """

    def __init__(
        self,
        shape: tuple[SupportsIndex, SupportsIndex],
        *,
        q_sequence: ArrayLike | None = None,
        kv_sequence: ArrayLike | None = None,
    ) -> None:
        dims = check_shape(shape)
        self._shape = dims
        self._q_sequence = _check_sequence("q_sequence", q_sequence, dims[0])
        self._kv_sequence = _check_sequence("kv_sequence", kv_sequence, dims[1])

    @abc.abstractmethod
    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        """Whether position `q_ids` sees position `kv_ids`.

        Called on NumPy arrays while compiling and on jax arrays inside a kernel, so it must use
        operators that both have. Arguments: int32 arrays that broadcast against each other, as a
        rule a column [block_q, 1] and a row [1, block_kv]; result: bool, of the broadcast shape.
        """

    def block_bounds(
        self, q_lo: Positions, q_hi: Positions, kv_lo: Positions, kv_hi: Positions
    ) -> tuple[BoolArray, BoolArray] | None:
        """Whether (any, all) of the pairs of a rectangle of positions are visible.

        All four bounds are inclusive int32 arrays that broadcast against each other, one element
        a rectangle `q_lo..q_hi × kv_lo..kv_hi`. Both answers must be exact. None: not offered.
        """
        return None

    def kv_intervals(self, q_ids: Positions) -> Intervals | None:
        """The kv positions that each query position sees, as disjoint intervals.

        Args:
          q_ids: int32[...], query positions.

        Returns:
          `Intervals` of int64[k, ...] inclusive bounds; None: not offered.
        """
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def q_sequence(self) -> Positions:
        """int32[q_len], the position of each query row; read-only."""
        return _sequence_or_range(self._q_sequence, self.shape[0])

    @property
    def kv_sequence(self) -> Positions | None:
        """int32[kv_len], the position of each column, or None for 0, 1, 2, …; read-only."""
        return self._kv_sequence

    @property
    def mask_function(self) -> "MaskFunction":
        """`visible` as a callable that is equal and hashes equal for equal masks."""
        return MaskFunction(self)

    def _layout_key(self) -> Hashable:
        return tuple(
            None if sequence is None else sequence.tobytes()
            for sequence in (self._q_sequence, self._kv_sequence)
        )

    def __getitem__(self, index: Index, /) -> BoolArray:
        q_item, kv_item = normalize_index(index, 2)
        q_ids = self.positions(0, q_item)
        kv_ids = self.positions(1, kv_item)
        window = self.evaluate(q_ids.reshape(-1, 1), kv_ids.reshape(1, -1))
        return window.reshape(q_ids.shape + kv_ids.shape)

    def __and__(self, other: Mask) -> Mask:
        if isinstance(other, ComputableMask) and self.same_positions(other):
            return ComputableAnd(self, other)
        return super().__and__(other)

    def __or__(self, other: Mask) -> Mask:
        if isinstance(other, ComputableMask) and self.same_positions(other):
            return ComputableOr(self, other)
        return super().__or__(other)

    def positions(self, axis: int, item: int | slice) -> Positions:
        """The positions of the rows (axis 0) or columns (axis 1) that `item` selects."""
        sequence = (self._q_sequence, self._kv_sequence)[axis]
        if sequence is not None:
            return np.asarray(sequence[item])
        chosen = range(self.shape[axis])[item]
        if isinstance(chosen, int):
            return np.asarray(chosen, dtype=np.int32)
        return np.arange(chosen.start, chosen.stop, chosen.step, dtype=np.int32)

    def has_sequence(self, axis: int) -> bool:
        """Whether the rows (axis 0) or columns (axis 1) stand elsewhere than at 0, 1, 2, …."""
        return (self._q_sequence, self._kv_sequence)[axis] is not None

    def same_positions(self, other: "ComputableMask") -> bool:
        """Whether rows and columns of both masks stand at the same positions."""
        return (
            self.shape == other.shape
            and _same(self._q_sequence, other._q_sequence)
            and _same(self._kv_sequence, other._kv_sequence)
        )

    def evaluate(self, q_ids: Positions, kv_ids: Positions) -> BoolArray:
        """`visible` on NumPy arrays, its result checked and broadcast.

        Raises:
          TypeError: `visible` did not return booleans.
          ValueError: `visible` returned another shape than the arguments broadcast to.
        """
        name = type(self).__name__
        result = np.asarray(self.visible(q_ids, kv_ids))
        if result.dtype != np.bool_:
            raise TypeError(f"visible: {name}.visible must return bool, got {result.dtype}")
        shape = np.broadcast_shapes(q_ids.shape, kv_ids.shape)
        try:
            return np.broadcast_to(result, shape)
        except ValueError:
            raise ValueError(
                f"visible: {name}.visible returned shape {result.shape} for {shape}"
            ) from None


@dataclasses.dataclass(frozen=True)
class MaskFunction:
    """`mask.visible` as a hashable function, usable as a static argument of a traced function."""

    mask: ComputableMask

    def __call__(self, q_ids: Any, kv_ids: Any) -> Any:
        """Whether positions see each other; see `ComputableMask.visible`."""
        return self.mask.visible(q_ids, kv_ids)


class ComputableBinary(ComputableMask):
    """Base of and/or of two computable masks that stand at the same positions.

    Raises:
      TypeError: an operand is not a computable mask.
      ValueError: the shapes or the positions differ.
    """

    left: ComputableMask
    right: ComputableMask

    def __init__(self, left: ComputableMask, right: ComputableMask) -> None:
        check_operands(left, right)
        for name, operand in (("left", left), ("right", right)):
            if not isinstance(operand, ComputableMask):
                raise TypeError(f"{name}: expected a computable mask, got {type(operand).__name__}")
        if not left.same_positions(right):
            raise ValueError("right: q_sequence or kv_sequence differs from left's")
        q_len, kv_len = left.shape
        super().__init__(
            (q_len, kv_len), q_sequence=left._q_sequence, kv_sequence=left._kv_sequence
        )
        self.left = left
        self.right = right

    def parameters(self) -> object:
        return (self.left, self.right)

    def _operand_intervals(self, q_ids: Positions) -> tuple[Intervals, Intervals] | None:
        left = self.left.kv_intervals(q_ids)
        right = None if left is None else self.right.kv_intervals(q_ids)
        return None if left is None or right is None else (left, right)


class ComputableAnd(ComputableBinary):
    """Visible where both operands are; computed inside the kernel."""

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return self.left.visible(q_ids, kv_ids) & self.right.visible(q_ids, kv_ids)

    def kv_intervals(self, q_ids: Positions) -> Intervals | None:
        both = self._operand_intervals(q_ids)
        if both is None or len(both[0].lo) * len(both[1].lo) > intervals.MAX_INTERVALS:
            return None
        return intervals.intersect(*both)


class ComputableOr(ComputableBinary):
    """Visible where either operand is; computed inside the kernel."""

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return self.left.visible(q_ids, kv_ids) | self.right.visible(q_ids, kv_ids)

    def kv_intervals(self, q_ids: Positions) -> Intervals | None:
        both = self._operand_intervals(q_ids)
        if both is None or len(both[0].lo) + len(both[1].lo) > intervals.MAX_INTERVALS:
            return None
        return intervals.unite(*both)


def _same(a: Positions | None, b: Positions | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)


def _sequence_or_range(sequence: Positions | None, size: int) -> Positions:
    if sequence is not None:
        return sequence
    positions = np.arange(size, dtype=np.int32)
    positions.flags.writeable = False
    return positions


def _check_sequence(name: str, value: ArrayLike | None, size: int) -> Positions | None:
    """Returns a read-only int32 copy of the positions; None if they are 0, 1, 2, …."""
    if value is None:
        return None
    given = np.asarray(value)
    if given.shape != (size,):
        raise ValueError(f"{name}: expected shape ({size},), got {given.shape}")
    if not np.issubdtype(given.dtype, np.integer):
        raise TypeError(f"{name}: expected integer positions, got {given.dtype}")
    if given.min() < 0 or given.max() >= MAX_POSITION:
        raise ValueError(f"{name}: positions must be in [0, 2**30)")
    sequence = np.array(given, dtype=np.int32)
    if np.array_equal(sequence, np.arange(size)):
        return None
    sequence.flags.writeable = False
    return sequence
