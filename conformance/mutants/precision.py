"""Mutants whose mistake is a factor above what rounding does: how small a factor is noticed, and how often.

A budget holds for the worst case, and a small mistake can hide inside it. So some of these mutants have a
recorded kill rate instead of the promise that they are noticed with every seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.mutants.base import Mutant, add
from reference.arithmetic import Arithmetic, Real, to_bfloat16
from reference.masks import Bool
from reference.online import OnlineForward, RowState
from reference.online_backward import OnlineBackward


def in_bits(array: Real, bits: int) -> Real:
    """The nearest numbers with so many significant bits."""
    mantissa, exponent = np.frexp(array)
    with np.errstate(invalid="ignore"):
        kept = np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)
    return np.asarray(np.where(np.isfinite(array), kept, array), dtype=array.dtype)


def computing_with(math: type[Arithmetic]) -> type[Numerics]:
    """A forward kernel with some of its operations replaced."""

    class Kernel(OnlineForward):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.math = math(self.math.profile)

    return type(math.__name__, (Numerics,), {"forward_kernel": Kernel})


def coarse_exponentials(bits: int) -> type[Numerics]:
    """A forward kernel whose exponentials have so many bits."""

    class CoarsePower(Arithmetic):
        def power(self, array: Real) -> Real:
            return in_bits(super().power(array), bits)

    return computing_with(CoarsePower)


class StoresBfloat16(Arithmetic):
    """Probabilities are rounded to bfloat16 for the product with v, whatever the type of the arrays."""

    def store(self, array: Real) -> Real:
        return to_bfloat16(array)


def coarse_logits(bits: int) -> type[Numerics]:
    """A forward kernel whose logits have so many bits."""

    class Kernel(OnlineForward):
        def raw_logits(self, step: int) -> Real:
            return in_bits(super().raw_logits(step), bits)

    return type("CoarseLogits", (Numerics,), {"forward_kernel": Kernel})


class TotalInBfloat16(OnlineForward):
    """The denominator is kept in bfloat16 between blocks."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        super().absorb(state, logits, seen, values)
        state.total = to_bfloat16(state.total)


class CoarseTanh(OnlineForward):
    """The soft cap is computed to 12 bits."""

    def cap(self, raw: Real) -> Real:
        return raw if self.soft_cap is None else in_bits(super().cap(raw), 12)


def coarse_probabilities(bits: int) -> type[Numerics]:
    """Backward kernels whose recomputed probabilities have so many bits."""

    class Kernel(OnlineBackward):
        def probabilities(self, step: int, logits: Real, seen: Bool) -> Real:
            return in_bits(super().probabilities(step, logits, seen), bits)

    return type("CoarseProbabilities", (Numerics,), {"backward_kernel": Kernel})


class GradientsInBfloat16(OnlineBackward):
    """Logit gradients are rounded to bfloat16, whatever the type of the arrays."""

    def pair(self, step: int) -> tuple[Real, Real]:
        probabilities, gradients = super().pair(step)
        return probabilities, to_bfloat16(gradients)


def _forward(kernel: type[OnlineForward]) -> type[Numerics]:
    return type(kernel.__name__, (Numerics,), {"forward_kernel": kernel})


def _backward(kernel: type[OnlineBackward]) -> type[Numerics]:
    return type(kernel.__name__, (Numerics,), {"backward_kernel": kernel})


def _mutant(
    name: str, clause: str, numerics: type[Numerics], kill_rate: float | None = None
) -> Mutant:
    return Mutant(name, clause, "precision", numerics=numerics, kill_rate=kill_rate)


# Rates are shares of the seeds 0…19. Two bits more, and none of these is ever noticed.
add(
    _mutant("exponentials-of-16-bits", "NUM-3", coarse_exponentials(16), 0.2),
    _mutant("exponentials-of-12-bits", "NUM-3", coarse_exponentials(12)),
    _mutant("logits-of-16-bits", "NUM-3", coarse_logits(16)),
    _mutant("weights-in-bfloat16", "NUM-3", computing_with(StoresBfloat16)),
    _mutant("total-in-bfloat16", "NUM-2", _forward(TotalInBfloat16)),
    _mutant("cap-of-12-bits", "NUM-3", _forward(CoarseTanh)),
    _mutant("backward-probabilities-of-16-bits", "NUM-4", coarse_probabilities(16), 0.25),
    _mutant("backward-probabilities-of-12-bits", "NUM-4", coarse_probabilities(12)),
    _mutant("logit-gradients-in-bfloat16", "NUM-4", _backward(GradientsInBfloat16)),
)
