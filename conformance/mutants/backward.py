"""Mutants of the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Gradients
from conformance.mutants.base import add
from conformance.mutants.patches import (
    FirstMask,
    LastStepLost,
    numeric_mutant,
)
from conformance.problems.inputs import Inputs
from reference.arithmetic import Real
from reference.attention import Float
from reference.mask_info import Direction
from reference.masks import Bool
from reference.online import OnlineResult
from reference.online_backward import OnlineBackward

Dkv = tuple[Real, Real, Real]


class DvTwice(OnlineBackward):
    """dv is accumulated twice."""

    def run_dkv(self) -> Dkv:
        dk, dv, dq = super().run_dkv()
        return dk, 2 * dv, dq


class WithoutDi(OnlineBackward):
    """``ds = p dp``."""

    def load(self, forward: OnlineResult, d_out: ArrayLike, d_logsumexp: ArrayLike | None) -> None:
        super().load(forward, d_out, d_logsumexp)
        self.row_dot = np.zeros_like(self.row_dot)


class BinaryDq(OnlineBackward):
    """dq is in units of powers of two."""

    def run_dq(self) -> Real:
        return super().run_dq() * np.float32(np.log(2))


class LastQBlockMissing(OnlineBackward):
    """dk lacks the contribution of the last q block."""

    def pair(self, step: int) -> tuple[Real, Real]:
        p, ds = super().pair(step)
        schedule = self.program.schedule
        last = schedule.direction == "dkv" and schedule.q_block[step] == schedule.q_block.max()
        return p, (np.zeros_like(ds) if last else ds)


class SinkSign(OnlineBackward):
    """dsinks has the other sign."""

    def sink_gradient(self) -> Real | None:
        found = super().sink_gradient()
        return None if found is None else -found


class CapWithoutSlope(OnlineBackward):
    """The derivative of the cap is forgotten."""

    def slope(self, raw: Real) -> Real:
        return np.ones_like(raw)


class LastHeadOnly(OnlineBackward):
    """Only the last query head of a group reaches dk and dv."""

    def pair(self, step: int) -> tuple[Real, Real]:
        p, ds = super().pair(step)
        schedule, group = self.program.schedule, len(self.q) // len(self.k)
        lost = schedule.direction == "dkv" and schedule.head[step] % group != group - 1
        return (np.zeros_like(p), np.zeros_like(ds)) if lost else (p, ds)


class SegmentsForwardOnly(OnlineBackward):
    """The backward kernels ignore segment ids."""

    def visible(self, step: int) -> Bool:
        self.segment_ids = None
        return super().visible(step)


class UnseenKeysUnwritten(OnlineBackward):
    """kv blocks without a running step are not stored."""

    def run_dkv(self) -> Dkv:
        dk, dv, dq = super().run_dkv()
        schedule, size = self.program.schedule, self.program.block_kv
        group = len(self.q) // len(self.k)
        for head in range(len(self.k)):
            mine = schedule.runs & (schedule.head // group == head)
            for block in set(range(dk.shape[1] // size)) - set(schedule.kv_block[mine].tolist()):
                rows = slice(block * size, (block + 1) * size)
                dk[head, rows] = dv[head, rows] = np.nan
        return dk, dv, dq


class FusedDqTwice(Numerics):
    """The fused kernel adds its parts of dq twice."""

    def backward(self, inputs: Inputs, d_out: NDArray[np.float32], **options: Any) -> Gradients:
        found = super().backward(inputs, d_out, **options)
        return replace(found, dq=2 * found.dq) if self.problem.option("fused_backward") else found


class LargeBlocksCut(OnlineBackward):
    """Only the first eight rows of a q block are read."""

    def visible(self, step: int) -> Bool:
        seen = super().visible(step).copy()
        seen[8:] = False
        return seen


class EmptyRowsUniform(OnlineBackward):
    """Rows that see nothing have the same probability everywhere."""

    def probabilities(self, step: int, logits: Real, seen: Bool) -> Real:
        p = super().probabilities(step, logits, seen)
        empty = (self.q_rows(self.logsumexp, step) == -np.inf)[:, None]
        return np.where(empty, np.float32(1 / self.k.shape[1]), p)


class EmptyRowsNan(OnlineBackward):
    """di of a row that sees nothing is ``0 * NaN``."""

    def load(self, forward: OnlineResult, d_out: ArrayLike, d_logsumexp: ArrayLike | None) -> None:
        super().load(forward, d_out, d_logsumexp)
        self.row_dot = np.where(self.logsumexp == -np.inf, np.float32(np.nan), self.row_dot)


class NoGradientBesideResiduals(Numerics):
    """dq of a call that returns residuals is 0."""

    def backward(
        self,
        inputs: Inputs,
        d_out: NDArray[np.float32],
        *,
        with_residuals: bool = False,
        **options: Any,
    ) -> Gradients:
        found = super().backward(inputs, d_out, **options)
        return replace(found, dq=0 * found.dq) if with_residuals else found


class LogsumexpLossDropped(Numerics):
    """A loss on logsumexp is ignored."""

    def backward(
        self, inputs: Inputs, d_out: NDArray[np.float32], *, d_logsumexp: Any = None, **options: Any
    ) -> Gradients:
        return super().backward(inputs, d_out, **options)


class Descends(Numerics):
    """All gradients have the other sign."""

    def backward(self, inputs: Inputs, d_out: NDArray[np.float32], **options: Any) -> Gradients:
        found = super().backward(inputs, d_out, **options)
        return replace(found, dq=-found.dq, dk=-found.dk, dv=-found.dv)


class DoutClipped(Numerics):
    """d_out is clipped at 1."""

    def backward(self, inputs: Inputs, d_out: NDArray[np.float32], **options: Any) -> Gradients:
        return super().backward(inputs, d_out.clip(-1, 1), **options)


class NarrowDv(OnlineBackward):
    """dp and dv are as wide as q."""

    def load(self, forward: OnlineResult, d_out: ArrayLike, d_logsumexp: ArrayLike | None) -> None:
        super().load(forward, d_out, d_logsumexp)
        self.d_out = self.d_out.copy()
        self.d_out[:, :, self.q.shape[2] :] = 0


class FirstMaskBackward(FirstMask):
    """The backward kernels give every head the mask of head 0."""

    directions: tuple[Direction, ...] = ("dkv", "dq")


class HiddenLowered(OnlineBackward):
    """Hidden logits are lowered by 12 instead of dropped."""

    def probabilities(self, step: int, logits: Real, seen: Bool) -> Real:
        lowered = np.where(seen, logits, logits - np.float32(12))
        return super().probabilities(step, lowered, np.ones_like(seen))


class EmptyBlocksUnwritten(OnlineBackward):
    """q blocks without a running step are not stored."""

    def run_dq(self) -> Real:
        dq, schedule, size = super().run_dq(), self.program.schedule, self.program.block_q
        running = {tuple(at) for at in schedule.outputs["dq"][schedule.runs].tolist()}
        for head, block in schedule.outputs["dq"].tolist():
            if (head, block) not in running:
                dq[head, block * size : (block + 1) * size] = np.nan
        return dq


class LastStepLostBackward(LastStepLost):
    """A backward grid that is not shrunk ends one step early."""

    directions: tuple[Direction, ...] = ("dkv", "dq")


class SinkNotInProbabilities(Numerics):
    """Probabilities of the backward pass omit the sink."""

    def sharded_backward(
        self,
        inputs: Inputs,
        found: OnlineResult,
        d_out: NDArray[np.float32],
        d_logsumexp: NDArray[np.float32] | None,
    ) -> tuple[Float, Float, Float, Float | None]:
        if inputs.sinks is not None:
            found = replace(found, logsumexp=self.run(replace(inputs, sinks=None)).logsumexp)
        return super().sharded_backward(inputs, found, d_out, d_logsumexp)


class CotangentOfFirstElement(Numerics):
    """Every element of a batch gets the gradient of the output of the first."""

    def backward_batch(
        self, batch: Sequence[Inputs], d_outs: Sequence[NDArray[np.float32]]
    ) -> list[Gradients]:
        return super().backward_batch(batch, [d_outs[0]] * len(batch))


class GradientsInFloat32(Numerics):
    """Gradients are float32 whatever the type of the arrays."""

    def backward(self, inputs: Inputs, d_out: NDArray[np.float32], **options: Any) -> Gradients:
        found = super().backward(inputs, d_out, **options)
        return replace(found, dtypes=("float32", "float32", "float32"))


class GradientOfSinksInTypeOfOutput(Numerics):
    """dsinks is rounded to the type of the output."""

    def backward(self, inputs: Inputs, d_out: NDArray[np.float32], **options: Any) -> Gradients:
        found = super().backward(inputs, d_out, **options)
        return replace(found, dtype_of_dsinks=self.problem.dtype)


add(
    numeric_mutant("dv-twice", "BWD-1", "accumulation", DvTwice),
    numeric_mutant("ds-without-di", "BWD-2", "formula", WithoutDi),
    numeric_mutant("binary-dq", "BWD-3", "units", BinaryDq),
    numeric_mutant("dk-lacks-last-q-block", "BWD-4", "off by one", LastQBlockMissing),
    numeric_mutant("dsinks-sign", "BWD-5", "sinks", SinkSign),
    numeric_mutant("cap-without-slope", "BWD-6", "soft cap", CapWithoutSlope),
    numeric_mutant("last-head-of-group-only", "BWD-7", "head map", LastHeadOnly),
    numeric_mutant("last-head-only", "BWD-8", "head map", LastHeadOnly),
    numeric_mutant("segments-forward-only", "BWD-9", "segment ids", SegmentsForwardOnly),
    numeric_mutant("unseen-keys-unwritten", "BWD-10", "unwritten output", UnseenKeysUnwritten),
    numeric_mutant("fused-dq-twice", "BWD-11", "fused kernel", FusedDqTwice),
    numeric_mutant("large-backward-blocks-cut", "BWD-12", "block sizes", LargeBlocksCut),
    numeric_mutant("empty-rows-uniform", "BWD-13", "rows that see nothing", EmptyRowsUniform),
    numeric_mutant(
        "empty-rows-nan",
        "BWD-14",
        "rows that see nothing",
        EmptyRowsNan,
        "jax 0.12.0.1, tokamax 0.0.17",
    ),
    numeric_mutant(
        "no-gradient-beside-residuals", "BWD-15", "two kernels", NoGradientBesideResiduals
    ),
    numeric_mutant(
        "logsumexp-loss-dropped",
        "BWD-16",
        "cotangent of the residual",
        LogsumexpLossDropped,
        "tokamax 0.0.17",
    ),
    numeric_mutant("descends", "BWD-17", "sign", Descends),
    numeric_mutant("d-out-clipped", "BWD-18", "linearity", DoutClipped),
    numeric_mutant("narrow-dv", "BWD-19", "head dimensions", NarrowDv),
    numeric_mutant("first-mask-backward", "BWD-20", "several masks", FirstMaskBackward),
    numeric_mutant("hidden-lowered-backward", "BWD-21", "leak", HiddenLowered),
    numeric_mutant("empty-q-blocks-unwritten", "BWD-22", "unwritten output", EmptyBlocksUnwritten),
    numeric_mutant("last-backward-step-lost", "BWD-23", "skipping", LastStepLostBackward),
    numeric_mutant("cotangent-of-first-element", "BWD-26", "batch", CotangentOfFirstElement),
    numeric_mutant("sink-not-in-probabilities", "BWD-24", "sinks", SinkNotInProbabilities),
    numeric_mutant("gradients-in-float32", "BWD-25", "types", GradientsInFloat32),
    numeric_mutant(
        "dsinks-in-type-of-output", "BWD-25", "types", GradientOfSinksInTypeOfOutput, "jax 0.11.2"
    ),
)
