"""Mutants of what the kernels of `pallas_impl` read: labels, stored blocks and schedules."""

from __future__ import annotations

from conformance.mutants.base import add
from conformance.mutants.kernels import in_module, kernel_mutant

add(
    # The mask compiler.
    kernel_mutant(
        "labels-by-corners",
        "FWD-1",
        "labels",
        "plain-inside",
        *in_module(
            "block_bounds",
            (
                "return _exact(*any_all(all_blocks(mask, block_shape), block_shape), mask, block_shape)",
                "from pallas_impl.block_bits import unpack_blocks\n\n"
                "        entries = unpack_blocks(all_blocks(mask, block_shape), block_shape)\n"
                "        corners = entries[:, :: block_shape[0] - 1, :: block_shape[1] - 1]\n"
                "        return _exact(corners.any((1, 2)), corners.all((1, 2)), mask, block_shape)",
            ),
        ),
    ),
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
    kernel_mutant(
        "dynamic-dkv-ids-in-forward-order",
        "DYNAMIC-2",
        "order of stored blocks",
        "dynamic-empty-columns",
        *in_module(
            "dynamic_mask",
            ("return ids.transpose(2, 0, 1)", "return ids.reshape(n_kv, heads, n_q)"),
        ),
    ),
    # Slots.
    kernel_mutant(
        "slots-filled-one-step-early",
        "SCHED-3",
        "prefetch",
        "long-rows",
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
        "full-run-one-too-long",
        "FWD-23",
        "runs",
        "huge",
        *in_module(
            "steps", ("(column >= begin) & (column < end)", "(column >= begin) & (column <= end)")
        ),
        options=(("storage", "runs"),),
    ),
    kernel_mutant(
        "steps-behind-a-fold-not-shifted",
        "FWD-23",
        "folded rows",
        "huge",
        *in_module(
            "steps",
            ("return row, self.step - jnp.where(behind, split, 0)", "return row, self.step"),
        ),
        options=(("storage", "runs"),),
    ),
    # Rows of the flat grid.
    kernel_mutant(
        "last-row-unwritten",
        "OUT-3",
        "flat grid",
        "sliding-window",
        *in_module(
            "schedule",
            (
                "last[h, :n] = at == needed[h][row] - 1",
                "last[h, :n] = (at == needed[h][row] - 1) & (row < rows - 1)",
            ),
        ),
    ),
    kernel_mutant(
        "empty-rows-without-a-step",
        "FWD-19",
        "flat grid",
        "empty-first-q-block",
        *in_module(
            "schedule",
            (
                "steps = np.maximum(1, -(-count // slots))",
                "steps = np.maximum(count.max() == 0, -(-count // slots))",
            ),
        ),
    ),
    kernel_mutant(
        "idle-steps-start-their-row-again",
        "SHARD-7",
        "flat grid",
        "shards-causal",
        *in_module(
            "schedule",
            (
                "first, last = np.zeros((2, heads, total), bool)",
                "first, last = np.ones((2, heads, total), bool)",
            ),
        ),
    ),
    kernel_mutant(
        "row-ends-one-step-early",
        "OUT-2",
        "grid of equal rows",
        "long-rows",
        *in_module(
            "schedule",
            (
                "(at == steps - 1).reshape(heads, -1)",
                "(at == max(0, steps - 2)).reshape(heads, -1)",
            ),
        ),
    ),
    kernel_mutant(
        "schedule-of-first-head",
        "SCHED-1",
        "masks of heads",
        "long-rows",
        *in_module(
            "steps", ("index = self.head * size + at if self.per_head else at", "index = at")
        ),
    ),
)
