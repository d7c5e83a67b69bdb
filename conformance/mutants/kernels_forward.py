"""Mutants of the forward kernel of `pallas_impl`, and of what all its kernels share."""

from __future__ import annotations

from conformance.mutants.base import add
from conformance.mutants.kernels import in_module, kernel_mutant

_KV_INDEX = """head, column = w.block(s)
            return kv_head_of(head, group), column, 0"""
_SINK_TERM = """            sink = r["sinks"][0, head] * LOG2E
            peak = jnp.maximum(m, sink)
            scale = jnp.exp2(m - peak)"""

add(
    # Index maps.
    kernel_mutant(
        "fwd-kv-by-row",
        "SCHED-1",
        "index map",
        "causal",
        *in_module("forward", (_KV_INDEX, "return w.block(s)[0] // group, w.row, 0")),
    ),
    kernel_mutant(
        "fwd-kv-index-in-seven-bits",
        "FWD-1",
        "an index in 8 bits",
        "many-kv-blocks",
        *in_module("forward", (_KV_INDEX, "return w.block(s)[0] // group, w.block(s)[1] & 127, 0")),
    ),
    kernel_mutant(
        "mask-id-in-seven-bits",
        "FWD-1",
        "an index in 8 bits",
        "many-kv-blocks",
        *in_module(
            "tile_mask",
            (
                "return w.reader.mask_id(slot), 0, 0",
                "return w.reader.mask_id(slot) & 127, 0, 0",
            ),
        ),
    ),
    kernel_mutant(
        "fwd-two-parts-only",
        "FWD-12",
        "keys in parts",
        "long-rising",
        *in_module(
            "forward",
            (
                "for i in range(0, self.shape.block_kv, compute)]",
                "for i in {0, self.shape.block_kv - compute}]",
            ),
        ),
    ),
    kernel_mutant(
        "fwd-kv-heads-interleaved",
        "FWD-3",
        "head map",
        "gqa",
        *in_module(
            "forward",
            ("return kv_head_of(head, group), column, 0", "return head % kv_heads, column, 0"),
        ),
    ),
    kernel_mutant(
        "first-mask-block-for-all",
        "SCHED-4",
        "index map",
        "many-stored-blocks",
        *in_module("tile_mask", ("return w.reader.mask_id(slot), 0, 0", "return 0 * w.row, 0, 0")),
    ),
    kernel_mutant(
        "mask-id-of-next-slot",
        "SCHED-4",
        "index map",
        "many-stored-blocks",
        *in_module(
            "tile_mask",
            (
                "return w.reader.mask_id(slot), 0, 0",
                "return w.reader.mask_id((slot + 1) % slots), 0, 0",
            ),
        ),
    ),
    kernel_mutant(
        "segments-of-row-block",
        "FWD-6",
        "segment ids",
        "segments",
        *in_module("tile_mask", ("return 0, w.reader.column(slot)", "return 0, w.row")),
    ),
    kernel_mutant(
        "sink-of-first-head",
        "FWD-9",
        "sinks",
        "sinks",
        *in_module("forward", (_SINK_TERM, _SINK_TERM.replace("[0, head]", "[0, 0]"))),
    ),
    # Which pairs are visible.
    kernel_mutant(
        "fwd-label-1-unmasked",
        "FWD-2",
        "branch",
        "plain-causal",
        *in_module("forward", ("partial=partial,", "partial=False,")),
    ),
    kernel_mutant(
        "fwd-label-2-masked",
        "FWD-21",
        "branch",
        "plain-full-and-partial",
        *in_module("forward", ("partial=partial,", "partial=True,")),
    ),
    kernel_mutant(
        "fwd-labels-of-first-slot",
        "FWD-1",
        "branch",
        "plain-full-and-partial",
        *in_module("forward", ("@pl.when((full >> slot) & 1 == 0)", "@pl.when(full & 1 == 0)")),
    ),
    kernel_mutant(
        "fwd-mask-of-first-part",
        "FWD-12",
        "keys in parts",
        "long-falling",
        *in_module("forward", ("columns=part,", "columns=slice(0, self.shape.compute),")),
    ),
    kernel_mutant(
        "segments-only-in-partial-blocks",
        "FWD-6",
        "segment ids",
        "segments",
        *in_module(
            "tile_mask", ('if "row_segment" in refs:', 'if "row_segment" in refs and partial:')
        ),
    ),
    kernel_mutant(
        "segments-replace-the-mask",
        "FWD-6",
        "segment ids",
        "segments-descending",
        *in_module("tile_mask", ("seen = same if seen is None else seen & same", "seen = same")),
    ),
    kernel_mutant(
        "segments-shared-by-a-batch",
        "FWD-16",
        "vmap",
        "segments-repeating",
        *in_module(
            "segment_ids",
            (
                "class SegmentIds(NamedTuple):",
                "@jax.custom_batching.custom_vmap\n"
                "def _shared(ids: jax.Array) -> jax.Array:\n"
                "    return ids\n\n\n"
                "_shared.def_vmap(lambda size, batched, ids: (ids[0], False))\n\n\n"
                "class SegmentIds(NamedTuple):",
            ),
            (
                "checked.append(jnp.asarray(ids, jnp.int32))",
                "checked.append(_shared(jnp.asarray(ids, jnp.int32)))",
            ),
        ),
    ),
    kernel_mutant(
        "mask-value-too-small",
        "FWD-24",
        "hidden pairs",
        "sentinel",
        *in_module(
            "logits", ("jnp.where(visible, logits, MASK_VALUE)", "jnp.where(visible, logits, -1e6)")
        ),
    ),
    # Scratch memory.
    kernel_mutant(
        "fwd-sums-not-cleared",
        "OUT-1",
        "initialisation",
        "causal",
        *in_module("forward", ('        r["acc"][...] = jnp.zeros_like(r["acc"])\n', "")),
    ),
    kernel_mutant(
        "fwd-cleared-for-first-head-only",
        "OUT-1",
        "initialisation",
        "two-different-heads",
        *in_module(
            "forward",
            (
                "    run_step(body, step,",
                "    step = step._replace(first=step.first & (running.head == 0))\n"
                "    run_step(body, step,",
            ),
        ),
    ),
    kernel_mutant(
        "fwd-written-at-the-first-step",
        "OUT-2",
        "order",
        "long-rows",
        *in_module(
            "forward",
            (
                "step, finish = running.step,",
                "step, finish = running.step._replace(last=running.step.first),",
            ),
        ),
    ),
    # Online softmax.
    kernel_mutant(
        "fwd-sums-not-rescaled",
        "FWD-1",
        "rescaling",
        "long-rising",
        *in_module("forward", ('lg.widen(alpha, total.shape[1]) * r["acc"][...]', 'r["acc"][...]')),
    ),
    kernel_mutant(
        "fwd-weight-not-rescaled",
        "FWD-1",
        "rescaling",
        "long-rising",
        *in_module("forward", ('alpha * r["l"][...]', 'r["l"][...]')),
    ),
    kernel_mutant(
        "fwd-maximum-of-one-step",
        "FWD-23",
        "running maximum",
        "huge",
        *in_module(
            "forward",
            (
                "m_next = jnp.maximum(m_prev, _row_max(tiles))",
                "m_next = jnp.broadcast_to(_row_max(tiles), m_prev.shape)",
            ),
        ),
    ),
    kernel_mutant(
        "fwd-maximum-from-zero",
        "FWD-1",
        "running maximum",
        "plain-low",
        *in_module("forward", ('jnp.full_like(r["m"], MAX_FLOOR)', 'jnp.zeros_like(r["m"])')),
    ),
    kernel_mutant(
        "fwd-sums-in-bfloat16",
        "NUM-2",
        "precision",
        "positive",
        *in_module(
            "forward",
            (
                'call.buffer("acc", (block_q, v_dim))',
                'call.buffer("acc", (block_q, v_dim), jnp.bfloat16)',
            ),
            (
                'r["acc"][...] = lg.widen(alpha, total.shape[1]) * r["acc"][...] + total',
                'r["acc"][...] = (lg.widen(alpha, total.shape[1]) * r["acc"][...] + total).astype(jnp.bfloat16)',
            ),
        ),
    ),
    kernel_mutant(
        "sink-division-lacks-scale",
        "FWD-9",
        "sinks",
        "sinks",
        *in_module("forward", ("inverse = inverse if scale is None else inverse * scale", "")),
    ),
    kernel_mutant(
        "logsumexp-in-base-2",
        "RES-4",
        "units",
        "plain-causal-signed",
        *in_module(
            "forward",
            (
                "log = (peak + jnp.log2(jnp.maximum(total, 0.5))) * LN2",
                "log = peak + jnp.log2(jnp.maximum(total, 0.5))",
            ),
        ),
    ),
    kernel_mutant(
        "finite-logsumexp-of-empty-rows",
        "RES-6",
        "rows that see nothing",
        "single-key",
        *in_module(
            "forward",
            (
                'r["logsumexp"][...] = jnp.where(total > 0.0, log, -jnp.inf)',
                'r["logsumexp"][...] = log',
            ),
        ),
    ),
)
