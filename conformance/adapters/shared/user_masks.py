"""Mask objects of other classes, given to a library that wants masks of its own class."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


def as_library_mask(lib: Any, mask: Any) -> Any:
    """A mask as a library can take it: the object itself if it is of the library's class, else wrapped.

    A wrapper hands on ``shape``, slices, ``==``, ``hash``, and the mask function with its positions if there is one.

    Args:
      lib: the module with the library's mask classes.
      mask: an object with a ``shape`` that can be sliced.
    """
    if isinstance(mask, lib.Mask):
        return mask
    return _wrapper(lib, is_computable(mask))(mask)


def is_computable(mask: Any) -> bool:
    """Whether a mask has what a kernel needs to compute it."""
    return hasattr(mask, "mask_function") and hasattr(mask, "q_sequence")


@cache
def _wrapper(lib: Any, computable: bool) -> Any:
    """The wrapper class for a library: one of each kind, so that wrappers compare."""
    if not hasattr(lib, "ComputableMask"):
        return _with_function(lib) if computable else _plain(lib.Mask)
    return _computable(lib) if computable else _identified(lib)


def _plain(base: Any) -> Any:
    """For jax and tokamax, whose masks say themselves what equals them."""

    class WrappedMask(base):  # type: ignore[misc]
        """Hands on what every mask has."""

        def __init__(self, mask: Any) -> None:
            self.wrapped = mask

        @property
        def shape(self) -> tuple[int, ...]:
            return tuple(int(n) for n in self.wrapped.shape)

        def __getitem__(self, index: Any) -> Any:
            return self.wrapped[index]

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and bool(self.wrapped == other.wrapped)

        def __hash__(self) -> int:
            return hash(self.wrapped)

    return WrappedMask


def _with_function(lib: Any) -> Any:
    """For jax and tokamax, which look for these attributes."""

    class WrappedComputableMask(_plain(lib.Mask)):  # type: ignore[misc]
        """Hands on the mask function too."""

        def __init__(self, mask: Any) -> None:
            super().__init__(mask)
            self.q_sequence, self.mask_function = mask.q_sequence, mask.mask_function

    return WrappedComputableMask


def _identified(lib: Any) -> Any:
    """For pallas_impl, whose masks are what their parameters are."""

    class WrappedMask(lib.Mask):  # type: ignore[misc]
        """Hands on what every mask has."""

        def __init__(self, mask: Any) -> None:
            self.wrapped = mask

        @property
        def shape(self) -> tuple[int, ...]:
            return tuple(int(n) for n in self.wrapped.shape)

        def __getitem__(self, index: Any) -> Any:
            return self.wrapped[index]

        def parameters(self) -> Any:
            return (self.wrapped,)

    return WrappedMask


def _computable(lib: Any) -> Any:
    """For pallas_impl, which computes masks of this class."""

    class WrappedComputableMask(lib.ComputableMask):  # type: ignore[misc]
        """Hands on the mask function and the positions too."""

        def __init__(self, mask: Any) -> None:
            names = ("q_sequence", "kv_sequence")
            positions = {name: getattr(mask, name, None) for name in names}
            super().__init__(tuple(int(n) for n in mask.shape), **positions)
            self.wrapped = mask

        def __getitem__(self, index: Any) -> Any:
            return self.wrapped[index]

        def visible(self, q_ids: Any, kv_ids: Any) -> Any:
            return _pair_by_pair(self.wrapped.mask_function, q_ids, kv_ids)

        def parameters(self) -> Any:
            return (self.wrapped,)

    return WrappedComputableMask


def _pair_by_pair(function: Any, q_ids: Any, kv_ids: Any) -> Any:
    """The values of a mask function that may expect arrays of two axes, for arrays of any rank."""
    if q_ids.ndim <= 2:
        return function(q_ids, kv_ids)
    shape = np.broadcast_shapes(q_ids.shape, kv_ids.shape)
    q_ids, kv_ids = (np.broadcast_to(ids, shape).reshape(-1, shape[-1]) for ids in (q_ids, kv_ids))
    return np.broadcast_to(function(q_ids, kv_ids), q_ids.shape).reshape(shape)
