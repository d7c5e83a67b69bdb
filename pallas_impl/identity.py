"""Equality and hash of kernels by what they hold, so that they can be static arguments and cache keys."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np


class ComparedByContent:
    """Base of pytrees that are equal if their structure, settings and arrays are.

    NumPy arrays, which kernels of masks known beforehand hold, are compared by type, shape and
    content. Arrays of JAX, which kernels of run-time masks hold, are compared by identity: their
    values may be on a device, or not known yet.
    """

    @functools.cached_property
    def _identity(self) -> tuple[Hashable, int]:
        leaves, structure = jax.tree.flatten(self)
        key = (structure, tuple(_leaf_key(leaf) for leaf in leaves))
        return key, hash(key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, ComparedByContent)
        return self._identity == other._identity

    def __hash__(self) -> int:
        return self._identity[1]

    def __getstate__(self) -> dict[str, Any]:
        # Hashes and ids mean nothing in another process.
        return {name: value for name, value in self.__dict__.items() if name != "_identity"}


def _leaf_key(leaf: Any) -> Hashable:
    if isinstance(leaf, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(leaf)).digest()
        return leaf.dtype.str, leaf.shape, digest
    if isinstance(leaf, jax.Array):
        return "array", id(leaf)
    return leaf if isinstance(leaf, Hashable) else id(leaf)
