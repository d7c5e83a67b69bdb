"""Mutants of the ring of `pallas_impl`, and of its kernels on several devices."""

from __future__ import annotations

from conformance.mutants.base import add
from conformance.mutants.kernels import in_module, kernel_mutant

_SHARD = "lax.rem(self.me - step + self.ring.size, self.ring.size)"

add(
    kernel_mutant(
        "ring-mask-the-other-way",
        "RING-3",
        "direction",
        "ring-flat",
        *in_module("ring_steps", (_SHARD, "lax.rem(self.me + step, self.ring.size)")),
    ),
    kernel_mutant(
        "ring-mask-one-device-on",
        "RING-3",
        "shard of a step",
        "ring-causal",
        *in_module(
            "ring_steps", (_SHARD, "lax.rem(self.me - step + 1 + self.ring.size, self.ring.size)")
        ),
    ),
    kernel_mutant(
        "ring-arrays-the-other-way",
        "RING-3",
        "direction",
        "ring-flat",
        *in_module(
            "ring_steps",
            (
                "[(i, (i + 1) % size) for i in range(size)]",
                "[((i + 1) % size, i) for i in range(size)]",
            ),
        ),
    ),
    kernel_mutant(
        "ring-last-shard-left-out",
        "RING-2",
        "loop",
        "ring-causal",
        *in_module("ring_steps", ("    state = add(state, here, ring_cfg.size - 1)\n", "")),
    ),
    kernel_mutant(
        "ring-guard-of-the-step",
        "RING-8",
        "empty shards",
        "ring-unseen-shard",
        *in_module(
            "ring_steps",
            ("jnp.ravel(self.plan.active)[shard] > 0", "jnp.ravel(self.plan.active)[step] > 0"),
        ),
    ),
    kernel_mutant(
        "ring-not-rescaled",
        "RING-4",
        "rescaling",
        "ring-rising",
        *in_module("ring_steps", ("total = a.total * scale_a[..., None] +", "total = a.total +")),
    ),
    kernel_mutant(
        "ring-nothing-has-maximum-0",
        "RING-6",
        "identity",
        "ring-window",
        *in_module(
            "ring_steps", ("jnp.full(rows, MAX_FLOOR, jnp.float32)", "jnp.zeros(rows, jnp.float32)")
        ),
    ),
    kernel_mutant(
        "ring-segments-stay",
        "RING-9",
        "segment ids",
        "ring-segments",
        *in_module(
            "ring_steps",
            (
                "            segments = _segments(q_segment, here.segment)",
                "            segments = _segments(q_segment, kv_segment)",
            ),
        ),
    ),
    kernel_mutant(
        "ring-sink-twice",
        "RING-12",
        "sinks",
        "ring-unseen-shard",
        *in_module(
            "ring_steps",
            (
                "part.weight * scale + jnp.exp2(sink - peak)",
                "part.weight * scale + 2.0 * jnp.exp2(sink - peak)",
            ),
        ),
    ),
    kernel_mutant(
        "ring-gradients-not-sent-home",
        "RING-14",
        "loop",
        "ring-rising",
        *in_module("ring_steps", ("dk, dv = ring.send(tuple(moving))", "dk, dv = moving")),
    ),
    kernel_mutant(
        "ring-gradients-with-own-segments",
        "RING-13",
        "segment ids",
        "ring-segments",
        *in_module(
            "ring_steps",
            (
                "segment_ids=_segments(q_segment, here.segment)",
                "segment_ids=_segments(q_segment, kv_segment)",
            ),
        ),
    ),
    kernel_mutant(
        "ring-logsumexp-in-base-2",
        "RING-18",
        "units",
        "ring-causal",
        *in_module(
            "ring_steps",
            (
                "jnp.log2(jnp.where(some, weight, 1.0))) * LN2",
                "jnp.log2(jnp.where(some, weight, 1.0)))",
            ),
        ),
    ),
    kernel_mutant(
        "ring-slope-of-logsumexp-has-other-sign",
        "RING-13",
        "residuals",
        "ring-sinks",
        *in_module(
            "ring_steps",
            ("delta = delta - cotangent[1].logsumexp", "delta = delta + cotangent[1].logsumexp"),
        ),
    ),
    # Several devices.
    kernel_mutant(
        "positions-of-first-device",
        "SHARD-7",
        "positions",
        "shards-causal",
        *in_module(
            "api",
            (
                "q_starts=None if mask.q_starts is None else P(rows)",
                "q_starts=None if mask.q_starts is None else P()",
            ),
        ),
    ),
)
