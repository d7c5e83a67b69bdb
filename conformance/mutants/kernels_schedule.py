"""Mutants of what the kernels of `pallas_impl` read: labels, stored blocks and schedules."""

from __future__ import annotations

from conformance.mutants.base import add
from conformance.mutants.kernels import in_module, kernel_mutant

add(
    # The mask compiler.
    kernel_mutant(
        "dynamic-blocks-column-by-column",
        "DYNAMIC-5",
        "order of stored blocks",
        "dynamic",
        *in_module(
            "plan",
            (
                "MaskOperands(blocks=stack.astype(jnp.int8))",
                "MaskOperands(blocks=stack.swapaxes(1, 2).astype(jnp.int8))",
            ),
        ),
    ),
    # Slots.
    kernel_mutant(
        "slots-filled-one-step-early",
        "SCHED-3",
        "prefetch",
        "two-different-heads",
        *in_module(
            "slots",
            (
                "following = _reverse_cummin(xp.where(active, at, np.int32(n)), -2)",
                "following = _reverse_cummin(xp.where(active, at, np.int32(n)), -2)\n"
                "    following = xp.concatenate([following[..., 1:, :], following[..., -1:, :]], axis=-2)",
            ),
        ),
    ),
    kernel_mutant(
        "idle-slot-runs",
        "SCHED-2",
        "branch",
        "causal",
        *in_module(
            "branches",
            (
                "(step.active >> first) & 3 == wanted",
                "((step.active >> first) & 3 != 0) & (wanted == 3)",
            ),
        ),
    ),
    kernel_mutant(
        "second-pair-of-slots-forgotten",
        "SCHED-1",
        "branch",
        "causal",
        *in_module("branches", ("for first in range(0, slots, 2)", "for first in range(0, 2, 2)")),
    ),
    # Rows of the flat grid.
    kernel_mutant(
        "schedule-of-first-head",
        "SCHED-1",
        "masks of heads",
        "two-different-heads",
        *in_module(
            "steps", ("index = self.head * size + at if self.per_head else at", "index = at")
        ),
    ),
)
