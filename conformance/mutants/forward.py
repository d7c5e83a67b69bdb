"""Mutants of the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Edit, Forward
from conformance.mutants.base import add
from conformance.mutants.patches import (
    FirstMask,
    LastStepLost,
    numeric_mutant,
)
from conformance.problems.inputs import Inputs
from reference.arithmetic import Real
from reference.blocks import FULL
from reference.masks import Bool
from reference.online import OnlineForward, OnlineResult, RowState


class AccumulatorNotRescaled(OnlineForward):
    """The weighted sum keeps its scale when the maximum rises."""

    def rescale(self, state: RowState, shift: Real) -> None:
        sums = state.sums
        super().rescale(state, shift)
        state.sums = sums


class MaximumFromZero(OnlineForward):
    """The running maximum starts at 0."""

    def start(self) -> RowState:
        state = super().start()
        state.shift = np.zeros_like(state.shift)
        return state


class LeaksNextKey(OnlineForward):
    """One key past the edge of a partial block is visible."""

    def visible(self, step: int) -> Bool:
        seen = super().visible(step).copy()
        if self.program.labels[step] != FULL:
            seen[:, 1:] |= seen[:, :-1]
        return seen


class InterleavedHeads(OnlineForward):
    """Query head h reads kv head ``h % kv_heads``."""

    def kv_rows(self, array: Real, name: str, step: int) -> Real:
        _, block = self.program.schedule.operands[name][step]
        size = self.program.block_kv
        head = self.program.schedule.head[step] % len(self.k)
        return np.asarray(array[head, block * size : (block + 1) * size])


class OneQueryHead(OnlineForward):
    """With one kv head every query head reads q of head 0."""

    def q_rows(self, array: Real, step: int) -> Real:
        if len(self.k) == 1:
            block = self.program.schedule.operands["q"][step][1]
            return np.asarray(array[0, block * self.program.block_q :][: self.program.block_q])
        return super().q_rows(array, step)


class SegmentsNotInFullBlocks(OnlineForward):
    """Full blocks ignore segment ids."""

    def visible(self, step: int) -> Bool:
        seen = super().visible(step)
        return np.ones_like(seen) if self.program.labels[step] == FULL else seen


class SegmentsOrdered(OnlineForward):
    """Segment ids are compared with <=."""

    def visible(self, step: int) -> Bool:
        ids, self.segment_ids = self.segment_ids, None
        seen = super().visible(step)
        self.segment_ids = ids
        if ids is None:
            return seen
        rows, columns = self.tokens(step)
        return np.asarray(seen & (ids[0][rows, None] <= ids[1][None, columns]))


class ZeroIsPadding(OnlineForward):
    """Tokens with segment id 0 see no token."""

    def visible(self, step: int) -> Bool:
        seen = super().visible(step)
        if self.segment_ids is None:
            return seen
        return np.asarray(seen & (self.segment_ids[0][self.tokens(step)[0], None] != 0))


class CapAfterMask(OnlineForward):
    """The mask is applied first, and the cap brings hidden logits back to -cap."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        if self.soft_cap is not None:
            hidden = self.math.to_base(np.full_like(logits, -self.soft_cap))
            logits, seen = np.where(seen, logits, hidden), np.ones_like(seen)
        super().absorb(state, logits, seen, values)


class SinkAsKey(OnlineForward):
    """The sink is a key with the value 1."""

    def add_sink(self, state: RowState, sink: Real) -> None:
        super().add_sink(state, sink)
        logit = self.math.to_base(np.broadcast_to(sink, state.total.shape))
        shift = np.where(state.shift == -np.inf, 0, state.shift)
        state.sums = state.sums + self.math.power(logit - shift)[:, None]


class SinkIsMaximum(OnlineForward):
    """The sink is used as the maximum of the row."""

    def add_sink(self, state: RowState, sink: Real) -> None:
        logit = self.math.to_base(np.broadcast_to(sink, state.total.shape))
        with np.errstate(over="ignore", invalid="ignore"):
            self.rescale(state, logit)
        state.total = state.total + 1


class NarrowValues(OnlineForward):
    """The output is as wide as q: further columns of v stay 0."""

    def finish(self, state: RowState) -> tuple[Real, Real, Real]:
        output, logsumexp, largest = super().finish(state)
        output[:, self.q.shape[2] :] = 0
        return output, logsumexp, largest


class LargeBlocksCut(OnlineForward):
    """Only the first eight keys of a block are read."""

    def visible(self, step: int) -> Bool:
        seen = super().visible(step).copy()
        seen[:, 8:] = False
        return seen


class HiddenLowered(OnlineForward):
    """Hidden logits are lowered by 12 instead of dropped."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        lowered = np.where(seen, logits, logits - logits.dtype.type(12))
        super().absorb(state, lowered, np.ones_like(seen), values)


class FirstHeadScaled(OnlineForward):
    """Head 0 scales its logits."""

    def raw_logits(self, step: int) -> Real:
        raw = super().raw_logits(step)
        return raw * raw.dtype.type(1.001) if self.program.schedule.head[step] == 0 else raw


class SegmentsOfFirstElement(Numerics):
    """Every element of a batch gets the segment ids of the first."""

    def forward_batch(self, batch: Sequence[Inputs]) -> list[Forward]:
        return [self.forward(replace(inputs, segment_ids=batch[0].segment_ids)) for inputs in batch]


class EmptyRowsDivide(OnlineForward):
    """Rows that see nothing divide 0 by 0."""

    def finish(self, state: RowState) -> tuple[Real, Real, Real]:
        output, logsumexp, largest = super().finish(state)
        output[state.total == 0] = np.nan
        return output, logsumexp, largest


class EmptyRowEmptiesBlock(OnlineForward):
    """A block with an empty row counts as an empty block."""

    def finish(self, state: RowState) -> tuple[Real, Real, Real]:
        output, logsumexp, largest = super().finish(state)
        return (output * 0 if (state.total == 0).any() else output), logsumexp, largest


class EmptyBlocksUnwritten(OnlineForward):
    """q blocks without a running step are not stored."""

    def run(self) -> OnlineResult:
        result, schedule, size = super().run(), self.program.schedule, self.program.block_q
        running = {tuple(at) for at in schedule.outputs["o"][schedule.runs].tolist()}
        for head, block in schedule.outputs["o"].tolist():
            if (head, block) not in running:
                result.output[head, block * size : (block + 1) * size] = np.nan
        return result


class CountsCalls(Numerics):
    """Every call rounds differently."""

    calls = 0

    def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
        CountsCalls.calls += 1
        found = super().run(inputs, edit)
        return replace(found, output=found.output * np.float32(1 + CountsCalls.calls * 2.0**-23))


class FullBlocksMasked(OnlineForward):
    """Full blocks apply the mask block in memory."""

    def visible(self, step: int) -> Bool:
        seen, program = super().visible(step), self.program
        if program.labels[step] == FULL and program.mask_blocks is not None:
            block: Bool = program.mask_blocks[program.schedule.mask_block[step]]
            return np.asarray(seen & block)
        return seen


class ReadsEverything(Numerics):
    """Blocks that no query sees are read and multiplied by 0."""

    def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
        found = super().run(inputs, edit)
        with np.errstate(invalid="ignore"):
            return replace(found, output=found.output + 0 * inputs.v.sum())


class NoMaximum(OnlineForward):
    """Exponentials without subtracting a maximum."""

    def start(self) -> RowState:
        state = super().start()
        state.shift = np.zeros_like(state.shift)
        return state

    def rescale(self, state: RowState, shift: Real) -> None:
        del state, shift

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            super().absorb(state, logits, seen, values)


class Sentinel(OnlineForward):
    """Hidden logits are -1e30 instead of -inf."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        shown = np.where(seen, logits, logits.dtype.type(-1e30))
        super().absorb(state, shown, np.ones_like(seen), values)


class LanesCut(OnlineForward):
    """A head dimension of 96 loses its last 32 lanes."""

    def raw_logits(self, step: int) -> Real:
        if self.q.shape[2] != 96:
            return super().raw_logits(step)
        keys = self.kv_rows(self.k, "k", step)
        return self.math.matmul(self.q_rows(self.q, step)[:, :64], keys[:, :64].T)


class OutputInFloat32(Numerics):
    """bfloat16 arrays give a float32 output."""

    def forward(self, inputs: Inputs, **options: Any) -> Forward:
        return replace(super().forward(inputs, **options), dtype="float32")


add(
    numeric_mutant("accumulator-not-rescaled", "FWD-1", "online softmax", AccumulatorNotRescaled),
    numeric_mutant("maximum-from-zero", "FWD-1", "online softmax", MaximumFromZero),
    numeric_mutant("leaks-next-key", "FWD-2", "off by one", LeaksNextKey),
    numeric_mutant("interleaved-head-map", "FWD-3", "head map", InterleavedHeads),
    numeric_mutant("one-query-head", "FWD-4", "head map", OneQueryHead),
    numeric_mutant("first-mask-for-all", "FWD-5", "several masks", FirstMask),
    numeric_mutant("segments-not-in-full-blocks", "FWD-6", "segment ids", SegmentsNotInFullBlocks),
    numeric_mutant("segments-compared-in-order", "FWD-7", "segment ids", SegmentsOrdered),
    numeric_mutant("segments-at-most", "FWD-6", "segment ids", SegmentsOrdered),
    numeric_mutant("segment-zero-is-padding", "FWD-7", "segment ids", ZeroIsPadding),
    numeric_mutant("cap-after-mask", "FWD-8", "soft cap", CapAfterMask),
    numeric_mutant("sink-as-key", "FWD-9", "sinks", SinkAsKey),
    numeric_mutant("sink-is-maximum", "FWD-10", "overflow", SinkIsMaximum),
    numeric_mutant("narrow-values", "FWD-11", "head dimensions", NarrowValues),
    numeric_mutant("large-blocks-cut", "FWD-12", "block sizes", LargeBlocksCut),
    numeric_mutant("last-step-lost", "FWD-13", "skipping", LastStepLost),
    numeric_mutant("hidden-logits-lowered", "FWD-14", "leak", HiddenLowered),
    numeric_mutant("first-head-scaled", "FWD-15", "heads", FirstHeadScaled),
    numeric_mutant("segments-of-first-element", "FWD-16", "batch", SegmentsOfFirstElement),
    numeric_mutant("empty-rows-divide", "FWD-17", "rows that see nothing", EmptyRowsDivide),
    numeric_mutant(
        "empty-row-empties-block", "FWD-18", "rows that see nothing", EmptyRowEmptiesBlock
    ),
    numeric_mutant(
        "empty-blocks-unwritten",
        "FWD-19",
        "unwritten output",
        EmptyBlocksUnwritten,
        seen_in="tokamax 0.0.17",
    ),
    numeric_mutant("counts-calls", "FWD-20", "determinism", CountsCalls),
    numeric_mutant("full-blocks-masked", "FWD-21", "mask block of a full block", FullBlocksMasked),
    numeric_mutant("reads-everything", "FWD-22", "reads what nobody sees", ReadsEverything),
    numeric_mutant("no-maximum", "FWD-23", "overflow", NoMaximum),
    numeric_mutant(
        "sentinel-for-hidden",
        "FWD-24",
        "stand-in for hidden pairs",
        Sentinel,
        seen_in="jax 0.12.0.1, tokamax 0.0.17",
    ),
    numeric_mutant("lanes-cut", "FWD-25", "head dimensions", LanesCut),
    numeric_mutant("output-in-float32", "FWD-26", "types", OutputInFloat32),
)
