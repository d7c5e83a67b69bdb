"""NumPy operations with the roundings of a declared arithmetic, for the blockwise executors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from reference.error_budget import (
    FLOAT64,
    U_BFLOAT16,
    U_FLOAT64,
    ArithmeticProfile,
    mxu_multiply_u,
)
from reference.summation import Real as Real
from reference.summation import Summation, summation_in_force

LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


@dataclass(frozen=True)
class Arithmetic:
    """NumPy operations with the roundings of a profile.

    Attributes:
      profile: how operations round.
      summation: in which order `matmul` and `sum` add up; the one in force when the object is made.
    """

    profile: ArithmeticProfile = FLOAT64
    summation: Summation = field(default_factory=summation_in_force)

    @property
    def dtype(self) -> DTypeLike:
        """Type of all arrays and sums."""
        return np.float64 if self.profile.accumulate_u == U_FLOAT64 else np.float32

    def matmul(self, a: Real, b: Real) -> Real:
        """``a @ b``, from bfloat16 pieces if the profile says so."""
        for passes, kept in ((1, 1), (3, 2), (6, 3)):
            if self.profile.multiply_u == mxu_multiply_u(passes):
                return self._matmul_pieces(_pieces(a, kept), _pieces(b, kept))
        return self.summation.matmul(a, b)

    def _matmul_pieces(self, left: list[Real], right: list[Real]) -> Real:
        """The products whose size is at least that of the smallest piece, small ones first."""
        kept = len(left)
        pairs = [(i, j) for i in range(kept) for j in range(kept) if i + j < kept]
        pairs.sort(key=sum, reverse=True)
        products = [self.summation.matmul(left[i], right[j]) for i, j in pairs]
        return np.asarray(sum(products[1:], products[0]))

    def sum(self, array: Real, axis: int) -> Real:
        """``array.sum(axis)``."""
        return self.summation.sum(array, axis)

    def store(self, array: Real) -> Real:
        """Probabilities, or logit gradients, as the next matrix multiplication reads them."""
        return to_bfloat16(array) if self.profile.probability_u == U_BFLOAT16 else array

    def output(self, array: Real) -> Real:
        """Result in the type that is returned."""
        return to_bfloat16(array) if self.profile.output_u == U_BFLOAT16 else array

    def power(self, array: Real) -> Real:
        """e or 2 to the array; -inf gives 0."""
        result = np.exp2(array) if self.profile.base2 else np.exp(array)
        return np.asarray(result)

    def to_base(self, array: Real) -> Real:
        """Natural logits in units of the exponent in use."""
        return np.asarray(array * array.dtype.type(LOG2_E)) if self.profile.base2 else array

    def from_base(self, array: Real) -> Real:
        """Inverse of `to_base`."""
        return np.asarray(array * array.dtype.type(LN_2)) if self.profile.base2 else array

    def log(self, array: Real) -> Real:
        """Logarithm in units of the exponent in use; 0 gives -inf."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log2(array) if self.profile.base2 else np.log(array))


def to_bfloat16(array: ArrayLike) -> NDArray[np.float32]:
    """Nearest bfloat16 values (ties to even), held in float32."""
    bits = np.array(array, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    value = rounded.view(np.float32)
    return np.where(np.isnan(array), np.float32(np.nan), value)


def _pieces(array: Real, count: int) -> list[Real]:
    """Bfloat16 arrays, largest first, whose sum approximates ``array``."""
    rest: Real = np.asarray(array, dtype=np.float32)
    pieces: list[Real] = []
    for _ in range(count):
        pieces.append(to_bfloat16(rest))
        rest = rest - pieces[-1]
    return pieces
