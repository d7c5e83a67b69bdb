"""In which order a simulated arithmetic adds up: the one thing that floating-point hardware leaves open.

A budget holds for every order of summation [H, 4.2], with products rounded or not. `BLAS` adds up as the machine's
library does, which differs from machine to machine; the other orders are the same everywhere, so that tests can show
that no result depends on the library:

    with summation_order(PAIRWISE):
        online_forward(...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.floating[Any]]

#: The bits of a float64 that a float32 has not, and their value halfway between two float32 numbers.
_BELOW_FLOAT32, _TIE = 2**29 - 1, 2**28


@dataclass(frozen=True)
class Summation:
    """An order of summation.

    Attributes:
      name: for reports and test ids.
      fold: adds up the first axis; None to leave it to NumPy and its BLAS.
      exact_products: ``fold`` gets the products of float32 numbers in float64, where they are exact, and rounds
        to float32 itself. Products of float64 numbers are rounded in every order: nothing wider is everywhere.
    """

    name: str
    fold: Callable[[Real], Real] | None = None
    exact_products: bool = False

    def matmul(self, a: Real, b: Real) -> Real:
        """``a @ b``, ``[..., m, k]`` times ``[..., k, n]``, rounded to the type of ``a``."""
        if self.fold is None:
            return np.asarray(a @ b)
        left, right = np.moveaxis(a, -1, 0)[..., :, None], np.moveaxis(b, -2, 0)[..., None, :]
        if self.exact_products:
            left = left.astype(np.float64)
        terms = left * right
        return self._rounded(terms, a) if len(terms) else np.zeros(terms.shape[1:], a.dtype)

    def sum(self, array: Real, axis: int) -> Real:
        """``array.sum(axis)``, rounded to the type of the array."""
        if self.fold is None:
            return np.asarray(array.sum(axis=axis))
        terms = np.moveaxis(array, axis, 0)
        return self._rounded(terms.astype(np.float64) if self.exact_products else terms, array)

    def _rounded(self, terms: Real, like: Real) -> Real:
        assert self.fold is not None
        # Float64 arrays are not rounded to float32: whoever asks for float64 gets it.
        fold = _forwards if self.exact_products and like.dtype == np.float64 else self.fold
        return np.asarray(fold(terms), dtype=like.dtype)


def _forwards(terms: Real) -> Real:
    if terms[0].size == 1:
        return np.asarray(np.add.accumulate(terms, axis=0)[-1])
    # NumPy adds up the outermost axis in memory one after another, and faster than `accumulate`;
    # along the innermost axis it would not.
    return np.asarray(np.add.reduce(np.ascontiguousarray(terms), axis=0))


def _backwards(terms: Real) -> Real:
    return _forwards(terms[::-1])


def _pairwise(terms: Real) -> Real:
    while len(terms) > 1:
        pairs = terms[: len(terms) // 2 * 2]
        terms = np.concatenate([pairs[::2] + pairs[1::2], terms[len(pairs) :]])
    return np.asarray(terms[0])


def _fused(terms: Real) -> Real:
    total = np.zeros(terms.shape[1:], dtype=np.float32)
    for term in terms:
        total = add_rounding_once(term, total)
    return total


def _once(terms: Real) -> Real:
    # The float64 sum is off by n 2**-53, and rounded twice: together far below one float32 rounding.
    return _forwards(terms).astype(np.float32)


def add_rounding_once(product: Real, total: Real) -> NDArray[np.float32]:
    """``product + total`` in float32, rounded once, as a fused multiply-add does.

    A float64 sum rounded to float32 would be rounded twice. Rounding the float64 sum to odd instead makes the
    second rounding right, since 53 >= 24 + 2 (Boldo and Melquiond, Emulation of FMA and correctly rounded sums,
    IEEE Trans. Comput. 57, 2008). What the first rounding lost comes from Knuth's TwoSum [H, 4.3].

    Args:
      product: exact in float64.
      total: float32.
    """
    wide = total.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        nearest = np.asarray(product + wide)
        bits = nearest.view(np.int64)
        # Rounded twice matters only at a tie of float32, or where denormals move the tie.
        doubtful = (bits & _BELOW_FLOAT32) == _TIE
        doubtful |= (np.abs(nearest) < 2.0**-125) & (nearest != 0)
        if not doubtful.any():
            return nearest.astype(np.float32)
        other = nearest - product
        lost = (product - (nearest - other)) + (wide - other)
        # Infinities and NaN stay what they are: what is lost is then NaN, and no comparison holds.
        outwards = np.where((lost > 0) == (nearest > 0), 1, -1)
        moves = ((lost > 0) | (lost < 0)) & (bits & 1 == 0)
        odd = (bits + np.where(moves, outwards, 0)).view(np.float64)
        return odd.astype(np.float32)


def blocked(size: int) -> Summation:
    """Sums of ``size`` consecutive terms, then the sum of these sums."""

    def fold(terms: Real) -> Real:
        rest = -len(terms) % size
        padded = np.concatenate([terms, np.zeros((rest, *terms.shape[1:]), dtype=terms.dtype)])
        blocks = padded.reshape(-1, size, *terms.shape[1:])
        return _forwards(_forwards(blocks.swapaxes(0, 1)))

    return Summation(f"blocks of {size}", fold)


def _mixed(terms: Real) -> Real:
    half = terms.shape[-1] // 2
    halves = (_forwards(terms[..., :half]), _pairwise(terms[..., half:]))
    return np.concatenate(halves, axis=-1)


BLAS = Summation("BLAS")
FORWARDS = Summation("forwards", _forwards)
BACKWARDS = Summation("backwards", _backwards)
PAIRWISE = Summation("pairwise", _pairwise)
#: Products are not rounded, partial sums are: fused multiply-add.
FUSED = Summation("fused multiply-add", _fused, exact_products=True)
#: One rounding of the whole sum.
ONCE = Summation("rounded once", _once, exact_products=True)
#: Columns of the result in different orders, as libraries do at the edge of a tile: in blocks of another size the
#: same product is another number.
MIXED = Summation("mixed", _mixed)
#: Every order that does not depend on the machine.
SUMMATIONS = (
    FORWARDS,
    BACKWARDS,
    PAIRWISE,
    blocked(4),
    blocked(8),
    blocked(64),
    FUSED,
    ONCE,
    MIXED,
)

_in_force: ContextVar[Summation] = ContextVar("summation", default=BLAS)


def summation_in_force() -> Summation:
    """The order that the innermost `summation_order` chose; `BLAS` outside of all."""
    return _in_force.get()


@contextmanager
def summation_order(order: Summation) -> Iterator[None]:
    """Every `reference.arithmetic.Arithmetic` made inside adds up in this order unless told otherwise."""
    token = _in_force.set(order)
    try:
        yield
    finally:
        _in_force.reset(token)
