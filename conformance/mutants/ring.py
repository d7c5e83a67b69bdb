"""Mutants of the ring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Forward
from conformance.mutants.base import add
from conformance.mutants.patches import (
    numeric_mutant,
)
from conformance.problems.inputs import Inputs
from reference.attention import Float, SegmentIds
from reference.masks import Bool
from reference.online import OnlineResult
from reference.ring import Partial, combine, empty_partial, sink_partial

RingGradients = tuple[Float, Float, Float, Float | None]


class DevicesReversed(Numerics):
    """The devices' rows come out in reverse order."""

    def ring_forward(self, inputs: Inputs) -> OnlineResult:
        found = super().ring_forward(inputs)
        parts = np.split(found.output, self.problem.ring, axis=1)
        return replace(found, output=np.concatenate(parts[::-1], axis=1))


class NextShard(Numerics):
    """Every step reads the shard after the one whose mask it uses."""

    def ring_part(self, inputs: Inputs, device: int, shard: int) -> Partial:
        shift = -(self.problem.kv_len // self.problem.ring)
        k, v = (np.roll(array, shift, axis=1) for array in (inputs.k, inputs.v))
        return super().ring_part(replace(inputs, k=k, v=v), device, shard)


class MaskOfTheFirstShards(Numerics):
    """Every step uses the mask of device 0 and shard 0."""

    def ring_mask(self, segment_ids: SegmentIds | None, device: int, shard: int) -> Bool:
        return super().ring_mask(segment_ids, 0, 0)


class CombineWithoutRescaling(Numerics):
    """Partial results are added as they are."""

    def ring_combine(self, a: Partial, b: Partial) -> Partial:
        return Partial(np.maximum(a.maximum, b.maximum), a.total + b.total, a.sums + b.sums)


class OldSumsNotRescaled(Numerics):
    """Earlier sums keep their scale when the maximum rises."""

    def ring_combine(self, a: Partial, b: Partial) -> Partial:
        maximum = np.maximum(a.maximum, b.maximum)
        factor = np.exp(b.maximum - np.where(maximum == -np.inf, 0, maximum))
        return Partial(maximum, a.total + factor * b.total, a.sums + factor[:, :, None] * b.sums)


class EmptyShardContributes(Numerics):
    """A shard of which a device sees nothing counts as if its logits were 0."""

    def empty_part(self, q: Float, k: Float, v: Float) -> Partial:
        shape = q.shape[:2]
        sums = np.zeros((*shape, v.shape[2]))
        return Partial(np.zeros(shape), np.full(shape, float(k.shape[1])), sums)


class DivisionLeftIn(Numerics):
    """Every step divides its sums."""

    def ring_part(self, inputs: Inputs, device: int, shard: int) -> Partial:
        part = super().ring_part(inputs, device, shard)
        divisor = np.where(part.total == 0, 1, part.total)
        return replace(part, sums=part.sums / divisor[:, :, None])


class EmptyShardTimesZero(Numerics):
    """A shard of which a device sees nothing is multiplied by 0 and added."""

    def empty_part(self, q: Float, k: Float, v: Float) -> Partial:
        part = super().empty_part(q, k, v)
        return replace(part, sums=part.sums + 0 * v.sum())


class SegmentsStay(Numerics):
    """The keys' segment ids do not travel with their shard."""

    def ring_mask(self, segment_ids: SegmentIds | None, device: int, shard: int) -> Bool:
        if segment_ids is not None:
            shift = (shard - device) * (self.problem.kv_len // self.problem.ring)
            segment_ids = segment_ids[0], np.roll(segment_ids[1], shift)
        return super().ring_mask(segment_ids, device, shard)


class OneQueryHead(Numerics):
    """With one kv head every query head reads q of head 0."""

    def ring_part(self, inputs: Inputs, device: int, shard: int) -> Partial:
        if self.problem.kv_heads == 1:
            inputs = replace(inputs, q=np.broadcast_to(inputs.q[:1], inputs.q.shape))
        return super().ring_part(inputs, device, shard)


class NarrowValues(Numerics):
    """Sums are as wide as q: further columns of v stay 0."""

    def ring_part(self, inputs: Inputs, device: int, shard: int) -> Partial:
        part = super().ring_part(inputs, device, shard)
        part.sums[:, :, self.problem.head_dim :] = 0
        return part


class SinkAtEveryStep(Numerics):
    """Every step adds the sink."""

    def ring_part(self, inputs: Inputs, device: int, shard: int) -> Partial:
        part = super().ring_part(inputs, device, shard)
        if inputs.sinks is None:
            return part
        sinks = inputs.sinks.astype(np.float64)
        return combine(part, sink_partial(sinks, part.total.shape[1], part.sums.shape[2]))


class SinksIgnored(Numerics):
    """The ring silently ignores sinks."""

    def ring_forward(self, inputs: Inputs) -> OnlineResult:
        return super().ring_forward(replace(inputs, sinks=None))


class LogsumexpOfOneShard(Numerics):
    """The backward pass uses the logsumexp of the device's own shard."""

    def ring_backward(
        self,
        inputs: Inputs,
        found: OnlineResult,
        d_out: NDArray[np.float32],
        d_logsumexp: NDArray[np.float32] | None = None,
    ) -> RingGradients:
        parts = [self.ring_part(inputs, device, device) for device in range(self.problem.ring)]
        with np.errstate(divide="ignore"):
            own = np.concatenate([part.maximum + np.log(part.total) for part in parts], axis=1)
        return super().ring_backward(inputs, replace(found, logsumexp=own), d_out, d_logsumexp)


class GradientsMoveOn(Numerics):
    """dk and dv end up on the next device."""

    def ring_backward(
        self,
        inputs: Inputs,
        found: OnlineResult,
        d_out: NDArray[np.float32],
        d_logsumexp: NDArray[np.float32] | None = None,
    ) -> RingGradients:
        dq, dk, dv, dsinks = super().ring_backward(inputs, found, d_out, d_logsumexp)
        shift = self.problem.kv_len // self.problem.ring
        return dq, np.roll(dk, shift, axis=1), np.roll(dv, shift, axis=1), dsinks


class UnseeingRowDropsStep(Numerics):
    """A step in which some row sees nothing is dropped for all rows."""

    def ring_part(self, inputs: Inputs, device: int, shard: int) -> Partial:
        part = super().ring_part(inputs, device, shard)
        if (part.maximum == -np.inf).any():
            return empty_partial(*part.sums.shape)
        return part


class UnitsMixed(Numerics):
    """With powers of two inside, partial results in natural units are combined by powers of two."""

    def ring_combine(self, a: Partial, b: Partial) -> Partial:
        return combine(a, b, power=np.exp2 if self.profile().base2 else np.exp)


class MaximumForLogsumexp(Numerics):
    """logsumexp of the ring is the maximum."""

    def ring_forward(self, inputs: Inputs) -> OnlineResult:
        found = super().ring_forward(inputs)
        return replace(found, logsumexp=found.max_logits)


class ResidualsIgnored(Numerics):
    """The ring accepts the option to return residuals, but does not return them."""

    def forward(self, inputs: Inputs, **options: Any) -> Forward:
        found = super().forward(inputs, **options)
        return replace(found, logsumexp=None, max_logits=None) if self.problem.ring > 1 else found


add(
    numeric_mutant("devices-reversed", "RING-1", "order of devices", DevicesReversed),
    numeric_mutant("next-shard", "RING-2", "off by one", NextShard),
    numeric_mutant("mask-of-first-shards", "RING-3", "mask of a step", MaskOfTheFirstShards),
    numeric_mutant(
        "combine-without-rescaling", "RING-4", "online softmax", CombineWithoutRescaling
    ),
    numeric_mutant("old-sums-not-rescaled", "RING-5", "online softmax", OldSumsNotRescaled),
    numeric_mutant("empty-shard-contributes", "RING-6", "empty shard", EmptyShardContributes),
    numeric_mutant("division-left-in", "RING-7", "division", DivisionLeftIn),
    numeric_mutant("empty-shard-times-zero", "RING-8", "empty shard", EmptyShardTimesZero),
    numeric_mutant("segments-stay", "RING-9", "segment ids", SegmentsStay),
    numeric_mutant("one-query-head-in-ring", "RING-10", "head map", OneQueryHead),
    numeric_mutant("narrow-values-in-ring", "RING-11", "head dimensions", NarrowValues),
    numeric_mutant("sink-at-every-step", "RING-12", "sinks", SinkAtEveryStep),
    numeric_mutant(
        "sinks-ignored-in-ring", "RING-12", "sinks", SinksIgnored, without=("ring:sinks",)
    ),
    numeric_mutant("logsumexp-of-one-shard", "RING-13", "probabilities", LogsumexpOfOneShard),
    numeric_mutant("gradients-move-on", "RING-14", "off by one", GradientsMoveOn),
    numeric_mutant(
        "unseeing-row-drops-step", "RING-15", "rows that see nothing", UnseeingRowDropsStep
    ),
    numeric_mutant("units-mixed-in-ring", "RING-16", "units", UnitsMixed, seen_in="tokamax 0.0.17"),
    numeric_mutant("maximum-for-logsumexp-in-ring", "RING-18", "logarithm", MaximumForLogsumexp),
    numeric_mutant(
        "residuals-ignored-in-ring",
        "RING-18",
        "ignored argument",
        ResidualsIgnored,
        seen_in="tokamax 0.0.17",
    ),
)
