"""The mask protocol: shape, indexing, identity, and/or of arbitrary masks.

A mask says which (q row, kv column) pairs attend: True means visible. Masks are lazy: only the
windows that are asked for are evaluated. They are immutable and hashable, so that a compiled
schedule can be cached under the mask it came from.
"""

import abc
import functools
import operator
from collections.abc import Hashable, Iterable
from types import EllipsisType
from typing import Any, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IndexItem = SupportsIndex | slice | EllipsisType
Index = IndexItem | tuple[IndexItem, ...]

# Positions stay below 2**30 so that position ± window never leaves int32 inside a kernel.
MAX_POSITION = 2**30


def check_shape(shape: Iterable[SupportsIndex], ndim: int = 2) -> tuple[int, ...]:
    """Returns `shape` as a tuple of `ndim` plain positive ints.

    Raises:
      ValueError: `shape` has another number of axes, or an axis that is not in [1, 2**30].
      TypeError: an axis is not an integer.
    """
    if not isinstance(shape, Iterable):
        raise TypeError(f"shape must be (q_len, kv_len), got {shape!r}")
    dims = tuple(operator.index(n) for n in shape)
    if len(dims) != ndim:
        raise ValueError(f"shape: a mask needs {ndim} axes, got {dims}")
    if not all(0 < n <= MAX_POSITION for n in dims):
        raise ValueError(f"shape: every axis must be in [1, 2**30], got {dims}")
    return dims


def normalize_index(index: Index, ndim: int) -> tuple[int | slice, ...]:
    """Expands `index` to one integer or slice for each of `ndim` axes, as NumPy would.

    Raises:
      IndexError: too many indices or more than one ellipsis.
      TypeError: an item is neither an integer nor a slice.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    ellipses = [n for n, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("index: a mask takes at most one ellipsis")
    if len(items) - len(ellipses) > ndim:
        raise IndexError(f"index: too many indices for a mask of {ndim} axes: {index!r}")
    fill = [slice(None)] * (ndim - len(items) + len(ellipses))
    at = ellipses[0] if ellipses else len(items)
    items[at : at + 1] = fill
    return tuple(_index_item(item) for item in items)


def _index_item(item: IndexItem) -> int | slice:
    if isinstance(item, slice):
        return item
    if isinstance(item, SupportsIndex) and not isinstance(item, np.ndarray):
        return operator.index(item)
    raise TypeError(f"index: masks take integers and slices, got {type(item).__name__}")


def freeze(value: object) -> Hashable:
    """Turns `value` into a hashable key; arrays are keyed by dtype, shape and content.

    Raises:
      TypeError: `value` is neither hashable, nor an array, nor a sequence or mapping of these.
    """
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(freeze(item) for item in value))
    if isinstance(value, dict):
        return ("dict", *((freeze(k), freeze(v)) for k, v in value.items()))
    if not isinstance(value, Hashable):
        raise TypeError(f"parameters: {type(value).__name__} cannot be part of a mask's identity")
    return value


class Mask(abc.ABC):
    """A lazy boolean mask; True at [q, kv] lets query row q attend to column kv.

    Two masks are equal only if they have the same class, shape and `parameters()`; equal masks
    have equal dense forms and equal hashes. Attributes can be set once and never changed.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """`(q_len, kv_len)`, or `(heads, q_len, kv_len)` for a mask per head."""

    @abc.abstractmethod
    def __getitem__(self, index: Index, /) -> BoolArray:
        """The window of the dense form that NumPy's integer and slice indexing would give."""

    def parameters(self) -> object:
        """All that the dense form depends on besides the class and the shape.

        Hashable values, arrays, and tuples of these. `None`, the default for classes that do not
        say, means that a mask equals itself only: always safe, but two instances never share a
        compiled schedule.
        """
        return None

    def _layout_key(self) -> Hashable:
        """What a subclass adds to the identity of all of its own subclasses."""
        return None

    @functools.cached_property
    def _identity(self) -> tuple[Hashable, int]:
        parameters = self.parameters()
        key = id(self) if parameters is None else freeze(parameters)
        whole = (type(self), self.shape, parameters is None, key, self._layout_key())
        return whole, hash(whole)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mask):
            return NotImplemented
        mine, theirs = self._identity, other._identity
        return mine[1] == theirs[1] and mine[0] == theirs[0]

    def __hash__(self) -> int:
        return self._identity[1]

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            raise AttributeError(f"{name}: masks are immutable")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: masks are immutable")

    def __bool__(self) -> bool:
        raise TypeError("a mask has no truth value: combine masks with & and |, not and / or")

    def __getstate__(self) -> dict[str, Any]:
        # Hashes and ids mean nothing in another process.
        return {name: value for name, value in self.__dict__.items() if name != "_identity"}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __and__(self, other: "Mask") -> "Mask":
        """Visible where both are.

        Raises:
          ValueError: the shapes differ.
        """
        if not isinstance(other, Mask):
            return NotImplemented
        return AndMask(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        """Visible where either is.

        Raises:
          ValueError: the shapes differ.
        """
        if not isinstance(other, Mask):
            return NotImplemented
        return OrMask(self, other)


class BinaryMask(Mask):
    """Base of and/or of two masks of one shape; evaluated window by window.

    Raises:
      TypeError: an operand is not a mask.
      ValueError: the shapes differ, or are not (q_len, kv_len).
    """

    left: Mask
    right: Mask

    def __init__(self, left: Mask, right: Mask) -> None:
        check_operands(left, right)
        self.left = left
        self.right = right

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape

    def parameters(self) -> object:
        return (self.left, self.right)


class AndMask(BinaryMask):
    """Visible where both operands are."""

    def __getitem__(self, index: Index, /) -> BoolArray:
        return self.left[index] & self.right[index]


class OrMask(BinaryMask):
    """Visible where either operand is."""

    def __getitem__(self, index: Index, /) -> BoolArray:
        return self.left[index] | self.right[index]


def check_operands(left: Mask, right: Mask) -> None:
    """Refuses operands of and/or that are not two (q_len, kv_len) masks of one shape.

    Raises:
      TypeError: an operand is not a mask.
      ValueError: the shapes differ, or have a head axis.
    """
    for name, operand in (("left", left), ("right", right)):
        if not isinstance(operand, Mask):
            raise TypeError(f"{name}: expected a mask, got {type(operand).__name__}")
    if left.shape != right.shape:
        raise ValueError(f"right: shape {right.shape} differs from left's {left.shape}")
    if len(left.shape) != 2:
        raise ValueError(f"left: and/or take (q_len, kv_len) masks, got shape {left.shape}")
