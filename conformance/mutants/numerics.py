"""Mutants of accuracy: overflow, lost precision, pairs of features.

A budget covers the worst case, so a small mistake can hide inside it. Mutants of class "precision" show how small a
mistake is still noticed; those that are not noticed with every seed record a kill rate instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Edit
from conformance.mutants.base import Mutant, add
from conformance.mutants.patches import (
    Stage,
    numeric_mutant,
)
from conformance.problems.inputs import Inputs
from reference.arithmetic import Arithmetic, Real, to_bfloat16
from reference.masks import Bool
from reference.online import OnlineForward, OnlineResult, RowState
from reference.online_backward import OnlineBackward


class NanForLargeLogits(Numerics):
    """NaN where the largest logit is above 5000."""

    def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
        found = super().run(inputs, edit)
        large = (found.max_logits > 5000)[:, :, None]
        return replace(found, output=np.where(large, np.float32(np.nan), found.output))


class BfloatAccumulator(OnlineForward):
    """The weighted sum is kept in bfloat16 between blocks."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        super().absorb(state, logits, seen, values)
        state.sums = to_bfloat16(state.sums)


class SinkCapped(OnlineForward):
    """The soft cap is applied to the sink too."""

    def add_sink(self, state: RowState, sink: Real) -> None:
        super().add_sink(state, self.cap(np.asarray(sink)))


class WastesAccuracy(Numerics):
    """The output keeps 18 bits."""

    def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
        found = super().run(inputs, edit)
        mantissa, exponent = np.frexp(found.output)
        return replace(found, output=np.ldexp(np.round(mantissa * 2**18) / 2**18, exponent))


class CapWithoutSlopeBesideSinks(OnlineBackward):
    """The derivative of the cap is forgotten where there are sinks."""

    def slope(self, raw: Real) -> Real:
        return super().slope(raw) if self.sinks is None else np.ones_like(raw)


def in_bits(array: Real, bits: int) -> Real:
    """Rounds to ``bits`` significant bits."""
    mantissa, exponent = np.frexp(array)
    with np.errstate(invalid="ignore"):
        kept = np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)
    return np.asarray(np.where(np.isfinite(array), kept, array), dtype=array.dtype)


def computing_with(math: type[Arithmetic]) -> type[OnlineForward]:
    """A forward kernel with some of its operations replaced."""

    class Kernel(OnlineForward):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.math = math(self.math.profile)

    return Kernel


def coarse_exponentials(bits: int) -> type[OnlineForward]:
    """A forward kernel whose exponentials have ``bits`` significant bits."""

    class CoarsePower(Arithmetic):
        def power(self, array: Real) -> Real:
            return in_bits(super().power(array), bits)

    return computing_with(CoarsePower)


class StoresBfloat16(Arithmetic):
    """Probabilities are rounded to bfloat16 for the product with v, whatever the type of the arrays."""

    def store(self, array: Real) -> Real:
        return to_bfloat16(array)


def coarse_logits(bits: int) -> type[OnlineForward]:
    """A forward kernel whose logits have ``bits`` significant bits."""

    class Kernel(OnlineForward):
        def raw_logits(self, step: int) -> Real:
            return in_bits(super().raw_logits(step), bits)

    return Kernel


class TotalInBfloat16(OnlineForward):
    """The denominator is kept in bfloat16 between blocks."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        super().absorb(state, logits, seen, values)
        state.total = to_bfloat16(state.total)


class CoarseTanh(OnlineForward):
    """The soft cap is computed to 12 bits."""

    def cap(self, raw: Real) -> Real:
        return raw if self.soft_cap is None else in_bits(super().cap(raw), 12)


def coarse_probabilities(bits: int) -> type[OnlineBackward]:
    """Backward kernels whose recomputed probabilities have ``bits`` significant bits."""

    class Kernel(OnlineBackward):
        def probabilities(self, step: int, logits: Real, seen: Bool) -> Real:
            return in_bits(super().probabilities(step, logits, seen), bits)

    return Kernel


class GradientsInBfloat16(OnlineBackward):
    """Logit gradients are rounded to bfloat16, whatever the type of the arrays."""

    def pair(self, step: int) -> tuple[Real, Real]:
        probabilities, gradients = super().pair(step)
        return probabilities, to_bfloat16(gradients)


def precision_mutant(
    name: str, clause: str, stage: Stage, kill_rate: float | None = None
) -> Mutant:
    """A mutant whose mistake is a loss of precision."""
    return numeric_mutant(name, clause, "precision", stage, kill_rate=kill_rate)


# Kill rates are shares of the seeds 0…19. With two more bits none of these mutants is ever noticed.
add(
    numeric_mutant("nan-for-large-logits", "NUM-1", "overflow", NanForLargeLogits),
    numeric_mutant("bfloat16-accumulator", "NUM-2", "precision", BfloatAccumulator),
    numeric_mutant("sink-capped", "NUM-3", "pair of features", SinkCapped),
    numeric_mutant("wastes-accuracy", "NUM-12", "accuracy", WastesAccuracy, quality=True),
    numeric_mutant(
        "cap-without-slope-beside-sinks", "NUM-4", "pair of features", CapWithoutSlopeBesideSinks
    ),
    precision_mutant("exponentials-of-16-bits", "NUM-3", coarse_exponentials(16), 0.2),
    precision_mutant("exponentials-of-12-bits", "NUM-3", coarse_exponentials(12)),
    precision_mutant("logits-of-16-bits", "NUM-3", coarse_logits(16)),
    precision_mutant("weights-in-bfloat16", "NUM-3", computing_with(StoresBfloat16)),
    precision_mutant("total-in-bfloat16", "NUM-2", TotalInBfloat16),
    precision_mutant("cap-of-12-bits", "NUM-3", CoarseTanh),
    precision_mutant("backward-probabilities-of-16-bits", "NUM-4", coarse_probabilities(16), 0.25),
    precision_mutant("backward-probabilities-of-12-bits", "NUM-4", coarse_probabilities(12)),
    precision_mutant("logit-gradients-in-bfloat16", "NUM-4", GradientsInBfloat16),
)
