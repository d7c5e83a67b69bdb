"""Mutants of the backward kernels of `pallas_impl`: dq alone, dkv alone, and both in one."""

from __future__ import annotations

from conformance.mutants.base import add
from conformance.mutants.kernels import in_module, kernel_mutant

_KV_INDEX = """head, column = w.block(s)
            return kv_head_of(head, group), column, 0"""
_SLOPE = "                ds = ds * (1.0 - capped * capped)\n"
_Q_INDEX = """head, column = w.block(s)
            return head, column, 0"""
_STATS_INDEX = """head, column = w.block(s)
            return head, 0, column"""
_STORE_FIRST = "run_step(body, running.step._replace(last=running.step.first),"

add(
    # The dq kernel.
    kernel_mutant(
        "dq-kv-by-row",
        "SCHED-1",
        "index map",
        "long-rows-split",
        *in_module("backward_dq", (_KV_INDEX, "return w.block(s)[0] // group, w.row, 0")),
    ),
    kernel_mutant(
        "dq-kv-heads-interleaved",
        "NUM-4",
        "head map",
        "mixed-b",
        *in_module(
            "backward_dq",
            ("return kv_head_of(head, group), column, 0", "return head % kv_heads, column, 0"),
        ),
    ),
    kernel_mutant(
        "dq-label-1-unmasked",
        "BWD-11",
        "branch",
        "long-signed",
        *in_module("backward_dq", ("q_axis=0, partial=partial)", "q_axis=0, partial=False)")),
        options=(("use_fused_bwd_kernel", False),),
    ),
    kernel_mutant(
        "dq-label-2-masked",
        "NUM-4",
        "branch",
        "mixed-b",
        *in_module("backward_dq", ("q_axis=0, partial=partial)", "q_axis=0, partial=True)")),
    ),
    kernel_mutant(
        "dq-not-cleared",
        "OUT-1",
        "initialisation",
        "long-rows-split",
        *in_module("backward_dq", ('        r["acc"][...] = jnp.zeros_like(r["acc"])\n', "")),
    ),
    kernel_mutant(
        "dq-cleared-for-first-head-only",
        "OUT-1",
        "initialisation",
        "long-rows-split",
        *in_module(
            "backward_dq",
            (
                '        r["acc"][...] = jnp.zeros_like(r["acc"])\n',
                "        first = self.running.head == 0\n"
                '        r["acc"][...] = jnp.where(first, 0.0, r["acc"][...])\n',
            ),
        ),
    ),
    kernel_mutant(
        "dq-written-at-the-first-step",
        "OUT-2",
        "order",
        "long-rows-split",
        *in_module("backward_dq", ("run_step(body, running.step,", _STORE_FIRST)),
    ),
    kernel_mutant(
        "dq-lacks-slope-of-cap",
        "NUM-4",
        "soft cap",
        "mixed-b",
        *in_module("backward_dq", (_SLOPE, "")),
    ),
    # The dkv kernel.
    kernel_mutant(
        "dkv-q-by-row",
        "SCHED-1",
        "index map",
        "causal",
        *in_module("backward_dkv", (_Q_INDEX, "return w.block(s)[0], w.row, 0")),
    ),
    kernel_mutant(
        "dkv-q-index-in-seven-bits",
        "BWD-1",
        "an index in 8 bits",
        "many-q-blocks",
        *in_module("backward_dkv", (_Q_INDEX, "return w.block(s)[0], w.block(s)[1] & 127, 0")),
    ),
    kernel_mutant(
        "dkv-label-1-unmasked",
        "BWD-4",
        "branch",
        "plain-causal-signed",
        *in_module("backward_dkv", ("partial=partial,", "partial=False,")),
    ),
    kernel_mutant(
        "dkv-label-2-masked",
        "BWD-4",
        "branch",
        "plain-empty-column",
        *in_module("backward_dkv", ("partial=partial,", "partial=True,")),
    ),
    kernel_mutant(
        "dkv-two-parts-only",
        "BWD-12",
        "keys in parts",
        "long-rising",
        *in_module(
            "backward_dkv",
            (
                "for start in range(0, self.shape.block_kv, self.shape.compute):",
                "for start in {0, self.shape.block_kv - self.shape.compute}:",
            ),
        ),
    ),
    kernel_mutant(
        "dkv-mask-of-first-part",
        "BWD-12",
        "keys in parts",
        "long-rising",
        *in_module("backward_dkv", ("rows=part,", "rows=slice(0, self.shape.compute),")),
    ),
    kernel_mutant(
        "dkv-mask-not-transposed",
        "BWD-4",
        "transposition",
        "plain-stored",
        *in_module(
            "plan",
            (
                "        stack = stack.swapaxes(-1, -2)\n",
                "        stack = stack.reshape(-1, *stack.shape[:-3:-1])\n",
            ),
        ),
    ),
    kernel_mutant(
        "dk-not-cleared",
        "OUT-1",
        "initialisation",
        "causal",
        *in_module(
            "backward_dkv", ('        r["dk_acc"][...] = jnp.zeros_like(r["dk_acc"])\n', "")
        ),
    ),
    kernel_mutant(
        "dk-cleared-for-every-query-head",
        "BWD-7",
        "grouped heads",
        "gqa",
        *in_module("steps", ("first = meta.first & (self.member == 0)", "first = meta.first")),
    ),
    kernel_mutant(
        "dk-cleared-for-first-head-only",
        "OUT-1",
        "initialisation",
        "two-different-heads",
        *in_module(
            "backward_dkv",
            (
                '        r["dk_acc"][...] = jnp.zeros_like(r["dk_acc"])\n',
                "        first = self.running.head == 0\n"
                '        r["dk_acc"][...] = jnp.where(first, 0.0, r["dk_acc"][...])\n',
            ),
        ),
    ),
    kernel_mutant(
        "dkv-written-at-the-first-step",
        "OUT-2",
        "order",
        "long-rows",
        *in_module("backward_dkv", ("run_step(body, running.step,", _STORE_FIRST)),
    ),
    kernel_mutant(
        "dkv-lacks-slope-of-cap",
        "BWD-6",
        "soft cap",
        "cap-signed",
        *in_module("backward_dkv", (_SLOPE, "")),
    ),
    kernel_mutant(
        "dk-of-last-slot",
        "BWD-4",
        "accumulation",
        "plain-causal-signed",
        *in_module(
            "backward_dkv", ("dk = dk_part if dk is None else dk + dk_part", "dk = dk_part")
        ),
    ),
    # dq out of the dkv kernel.
    kernel_mutant(
        "fused-dq-at-the-row",
        "BWD-3",
        "accumulation",
        "plain-causal-signed",
        *in_module(
            "backward_dkv", ("reader.column(slot) * block", "self.running.step.row * block")
        ),
    ),
    kernel_mutant(
        "fused-dq-of-first-member",
        "BWD-7",
        "grouped heads",
        "gqa",
        *in_module(
            "backward_dkv", ('self.refs["dq"][reader.member, at, :]', 'self.refs["dq"][0, at, :]')
        ),
    ),
    kernel_mutant(
        "fused-dq-cleared-for-every-row",
        "BWD-3",
        "initialisation",
        "plain-causal-signed",
        *in_module(
            "backward_dkv",
            (
                "pl.when(bin_id + step_id + member == 0)(body.clear_dq)",
                "pl.when(running.step.first)(body.clear_dq)",
            ),
        ),
    ),
    kernel_mutant(
        "fused-dq-cleared-for-first-head-only",
        "OUT-1",
        "initialisation",
        "two-different-heads",
        *in_module(
            "backward_dkv",
            (
                "pl.when(bin_id + step_id + member == 0)",
                "pl.when(bin_id + step_id + member + running.head == 0)",
            ),
        ),
    ),
    # Statistics and sinks.
    kernel_mutant(
        "dsinks-positive",
        "BWD-5",
        "sinks",
        "sinks",
        *in_module("attention", ("return -jnp.sum(share * delta", "return jnp.sum(share * delta")),
    ),
    kernel_mutant(
        "statistics-of-empty-rows-are-infinite",
        "BWD-13",
        "rows that see nothing",
        "empty-rows-large-forward",
        *in_module(
            "attention",
            ("jnp.isneginf(logsumexp), NOTHING_VISIBLE,", "jnp.isneginf(logsumexp), -jnp.inf,"),
        ),
    ),
    kernel_mutant(
        "slope-of-logsumexp-has-other-sign",
        "BWD-16",
        "residuals",
        "plain-causal-signed",
        *in_module(
            "attention",
            ("delta = delta - cotangent[1].logsumexp", "delta = delta + cotangent[1].logsumexp"),
        ),
    ),
)
