"""Mutants of the residuals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Forward
from conformance.mutants.base import add
from conformance.mutants.patches import (
    numeric_mutant,
)
from conformance.problems.inputs import Inputs
from reference.arithmetic import LN_2, Real
from reference.masks import Bool
from reference.online import OnlineForward, RowState, finite_or_zero

Finished = tuple[Real, Real, Real]


class LogOfTotal(OnlineForward):
    """logsumexp without the maximum."""

    def finish(self, state: RowState) -> Finished:
        output, _, largest = super().finish(state)
        return output, self.math.from_base(self.math.log(state.total)), largest


class SinkNotInLogsumexp(OnlineForward):
    """logsumexp is taken before the sink is added."""

    before: Real

    def add_sink(self, state: RowState, sink: Real) -> None:
        shifted = finite_or_zero(state.shift) + self.math.log(state.total)
        self.before = self.math.from_base(shifted)
        super().add_sink(state, sink)

    def finish(self, state: RowState) -> Finished:
        output, logsumexp, largest = super().finish(state)
        return output, (logsumexp if self.sinks is None else self.before), largest


class MaximumOverHidden(OnlineForward):
    """max_logits includes hidden pairs."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        super().absorb(state, logits, seen, values)
        state.largest = np.maximum(state.largest, logits.max(axis=1))


class BinaryResiduals(OnlineForward):
    """A kernel that works with powers of two returns binary logarithms."""

    def finish(self, state: RowState) -> Finished:
        output, logsumexp, largest = super().finish(state)
        unit = np.float32(LN_2 if self.math.profile.base2 else 1)
        return output, logsumexp / unit, largest / unit


class ConstantNotAddedBack(OnlineForward):
    """logsumexp lacks the constant that replaced the maximum."""

    def finish(self, state: RowState) -> Finished:
        output, logsumexp, largest = super().finish(state)
        return output, logsumexp - np.float32(self.math.profile.constant_maximum or 0), largest


class NanForEmptyRows(OnlineForward):
    """logsumexp of a row that sees nothing is NaN."""

    def finish(self, state: RowState) -> Finished:
        output, logsumexp, largest = super().finish(state)
        return output, np.where(state.total == 0, np.float32(np.nan), logsumexp), largest


class MaximumForLogsumexp(OnlineForward):
    """logsumexp is the maximum."""

    def finish(self, state: RowState) -> Finished:
        output, _, largest = super().finish(state)
        return output, largest, largest


class UpperBound(OnlineForward):
    """max_logits is an upper bound."""

    def finish(self, state: RowState) -> Finished:
        output, logsumexp, largest = super().finish(state)
        return output, logsumexp, np.maximum(largest, logsumexp) + 1


class SinkInMaximum(OnlineForward):
    """max_logits is at least the sink."""

    def add_sink(self, state: RowState, sink: Real) -> None:
        super().add_sink(state, sink)
        logit = self.math.to_base(np.broadcast_to(sink, state.total.shape))
        state.largest = np.maximum(state.largest, logit)


class MaximumAsGiven(OnlineForward):
    """With a constant maximum max_logits is that constant."""

    def finish(self, state: RowState) -> tuple[Real, Real, Real]:
        output, logsumexp, largest = super().finish(state)
        fixed = self.math.profile.constant_maximum
        return output, logsumexp, largest if fixed is None else np.full_like(largest, fixed)


class ResidualsInBfloat(Numerics):
    """Residuals have the type of the arrays."""

    def forward(self, inputs: Inputs, **options: Any) -> Forward:
        return replace(super().forward(inputs, **options), residual_dtype=self.problem.dtype)


class OtherOutput(Numerics):
    """The kernel that returns residuals divides by a different sum."""

    def forward(self, inputs: Inputs, *, residuals: bool = False, **options: Any) -> Forward:
        found = super().forward(inputs, residuals=residuals, **options)
        return replace(found, output=found.output * np.float32(0.95)) if residuals else found


add(
    numeric_mutant("logsumexp-without-maximum", "RES-1", "units", LogOfTotal),
    numeric_mutant("sink-not-in-logsumexp", "RES-2", "sinks", SinkNotInLogsumexp),
    numeric_mutant("maximum-over-hidden-pairs", "RES-3", "hidden pairs", MaximumOverHidden),
    numeric_mutant("sink-in-max-logits", "RES-3", "sinks", SinkInMaximum, seen_in="tokamax 0.0.17"),
    numeric_mutant(
        "max-logits-as-given", "RES-5", "constant maximum", MaximumAsGiven, seen_in="tokamax 0.0.17"
    ),
    numeric_mutant("binary-residuals", "RES-4", "units", BinaryResiduals),
    numeric_mutant("constant-not-added-back", "RES-5", "constant maximum", ConstantNotAddedBack),
    numeric_mutant("nan-for-empty-rows", "RES-6", "rows that see nothing", NanForEmptyRows),
    numeric_mutant("maximum-for-logsumexp", "RES-7", "logarithm", MaximumForLogsumexp),
    numeric_mutant("maximum-above-logsumexp", "RES-8", "upper bound", UpperBound),
    numeric_mutant("residuals-in-bfloat16", "RES-9", "types", ResidualsInBfloat),
    numeric_mutant("other-output-beside-residuals", "RES-10", "two kernels", OtherOutput),
)
