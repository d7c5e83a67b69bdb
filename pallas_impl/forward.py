"""The forward kernel: online softmax over the blocks that a schedule visits.

Clauses FWD-1 to FWD-26, RES-1 to RES-10.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pallas_impl import logits as lg
from pallas_impl.block_sizes import LANES
from pallas_impl.branches import one_by_one, run_step
from pallas_impl.config import LN2, LOG2E, MAX_FLOOR, KernelConfig
from pallas_impl.kernel_call import KernelCall, Running, Where
from pallas_impl.steps import kv_head_of
from pallas_impl.tile_mask import KernelPlan, add_mask_inputs, visible


class ForwardResult(NamedTuple):
    """out [H, q_len, v_dim]; logsumexp and max_logits float32[H, q_len] in natural units."""

    out: jax.Array
    logsumexp: jax.Array | None
    max_logits: jax.Array | None


class PartialResult(NamedTuple):
    """A softmax sum over some of the keys, before division; see ``combine`` in ``ring``.

    Attributes:
      total: float32[H, q_len, v_dim], sum of exp2(logit - peak) · v.
      peak: float32[H, q_len], largest base-2 logit, MAX_FLOOR where nothing is visible.
      weight: float32[H, q_len], sum of exp2(logit - peak).
    """

    total: jax.Array
    peak: jax.Array
    weight: jax.Array


class _Shape(NamedTuple):
    block_q: int
    block_kv: int
    compute: int
    slots: int


def _row_max(tiles: list[jax.Array]) -> jax.Array:
    """Largest logit of each row over tiles [bq, n·128], as [bq, 1]."""
    parts = [t[:, i : i + LANES] for t in tiles for i in range(0, t.shape[1], LANES)]
    return jnp.max(functools.reduce(jnp.maximum, parts), axis=1, keepdims=True)


def _lane_sums(tiles: list[jax.Array]) -> jax.Array:
    parts = [t[:, i : i + LANES] for t in tiles for i in range(0, t.shape[1], LANES)]
    return functools.reduce(jnp.add, parts)


def _as_row(column: jax.Array) -> jax.Array:
    """[n, 128] with equal lanes -> [1, n]: the diagonals of square pieces, side by side."""
    square = (LANES, LANES)
    diagonal = jax.lax.broadcasted_iota(jnp.int32, square, 0) == jax.lax.broadcasted_iota(
        jnp.int32, square, 1
    )
    pieces = [column[i : i + LANES, :] for i in range(0, column.shape[0], LANES)]
    rows = [jnp.sum(jnp.where(diagonal, p, 0.0), axis=0, keepdims=True) for p in pieces]
    return jnp.concatenate(rows, axis=1)


class _Body:
    """The arithmetic of one step, over references bound by name."""

    def __init__(self, running: Running, cfg: KernelConfig, shape: _Shape) -> None:
        self.running, self.refs = running, running.refs
        self.cfg, self.shape = cfg, shape

    def init(self) -> None:
        r = self.refs
        r["m"][...] = jnp.full_like(r["m"], MAX_FLOOR)
        r["l"][...] = jnp.zeros_like(r["l"])
        r["acc"][...] = jnp.zeros_like(r["acc"])

    def logits(self, slot: int, part: slice) -> jax.Array:
        r = self.refs
        raw = lg.dot(r["q"][...], r[f"k{slot}"][part, :], lg.NT)
        return lg.scale_logits(raw, self.cfg.soft_cap)

    def visible(self, slot: int, part: slice, partial: bool) -> jax.Array | None:
        return visible(
            self.running,
            self.cfg.mask_function,
            slot,
            (self.shape.block_q, self.shape.block_kv),
            q_axis=0,
            partial=partial,
            columns=part,
        )

    def update(self, tiles: list[jax.Array], values: list[Any]) -> None:
        """One online-softmax step over logits tiles and their values."""
        r = self.refs
        m_prev = r["m"][...]
        m_next = jnp.maximum(m_prev, _row_max(tiles))
        probs = [jnp.exp2(t - lg.widen(m_next, t.shape[1])) for t in tiles]
        alpha = jnp.exp2(m_prev - m_next)
        r["m"][...] = m_next
        r["l"][...] = alpha * r["l"][...] + _lane_sums(probs)
        out = [lg.dot(p.astype(v.dtype), v, lg.NN) for p, v in zip(probs, values, strict=True)]
        total = functools.reduce(jnp.add, out)
        r["acc"][...] = lg.widen(alpha, total.shape[1]) * r["acc"][...] + total

    def parts(self) -> list[slice]:
        compute = self.shape.compute
        return [slice(i, i + compute) for i in range(0, self.shape.block_kv, compute)]

    def whole(self, slots: Sequence[int], partial: bool) -> None:
        """Slots with the same kind of mask, straight from the matmuls."""
        for part in self.parts():
            tiles = [lg.hide(self.logits(s, part), self.visible(s, part, partial)) for s in slots]
            self.update(tiles, [self.refs[f"v{s}"][part, :] for s in slots])

    def mixed(self, slots: Sequence[int], full: Any) -> None:
        """Slots of which only the label-1 ones are masked, each in its own branch."""
        r, width = self.refs, self.shape.block_kv
        everything = slice(0, width)
        for slot in slots:
            at = slice(slot * width, (slot + 1) * width)
            tile = lg.hide(self.logits(slot, everything), self.visible(slot, everything, False))
            r["s"][:, at] = tile
        for slot in slots:
            at = slice(slot * width, (slot + 1) * width)

            @pl.when((full >> slot) & 1 == 0)
            def _(slot: int = slot, at: slice = at) -> None:
                visible = self.visible(slot, everything, True)
                r["s"][:, at] = lg.hide(r["s"][:, at], visible)

        tiles = [r["s"][:, s * width : (s + 1) * width] for s in slots]
        self.update(tiles, [r[f"v{s}"][...] for s in slots])

    def finish(self, head: Any) -> None:
        """Divides once and writes the row's outputs; a partial result is left undivided.

        A sink joins the denominator only (FWD-9); a row that sees nothing is zero (FWD-17).
        """
        r = self.refs
        m = r["m"][...]
        total = jnp.broadcast_to(jnp.sum(r["l"][...], axis=1, keepdims=True), m.shape)
        if "total" in r:
            r["total"][...] = r["acc"][...]
            r["peak"][...], r["weight"][...] = _as_row(m), _as_row(total)
            return
        if "logsumexp" in r:
            self.write_statistics(_as_row(m), _as_row(total), head)
        scale = None
        if "sinks" in r:
            sink = r["sinks"][0, head] * LOG2E
            peak = jnp.maximum(m, sink)
            scale = jnp.exp2(m - peak)
            total = total * scale + jnp.exp2(sink - peak)
        # The largest term of a sum is 1, so that a sum is 0 or nearly 1 at least; with 0 goes 0.
        inverse = 1.0 / jnp.maximum(total, 0.5)
        inverse = inverse if scale is None else inverse * scale
        acc = r["acc"][...]
        r["o"][...] = (acc * lg.widen(inverse, acc.shape[1])).astype(r["o"].dtype)

    def write_statistics(self, m: jax.Array, total: jax.Array, head: Any) -> None:
        """Writes logsumexp and max_logits from rows [1, block_q] (RES-1 to RES-4, RES-6)."""
        r, peak = self.refs, m
        if "max_logits" in r:
            r["max_logits"][...] = jnp.where(total > 0.0, m * LN2, -jnp.inf)
        if "sinks" in r:
            sink = r["sinks"][0, head] * LOG2E
            peak = jnp.maximum(m, sink)
            total = total * jnp.exp2(m - peak) + jnp.exp2(sink - peak)
        log = (peak + jnp.log2(jnp.maximum(total, 0.5))) * LN2
        r["logsumexp"][...] = jnp.where(total > 0.0, log, -jnp.inf)


def _run_step(running: Running, cfg: KernelConfig, shape: _Shape) -> None:
    body = _Body(running, cfg, shape)
    step, finish = running.step, functools.partial(body.finish, running.head)
    run_step(body, step, shape.slots, shape.block_kv, finish)


def _call(
    cfg: KernelConfig,
    plan: KernelPlan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: Any,
) -> tuple[KernelCall, _Shape]:
    """Everything but the outputs."""
    (heads, _, dim), (kv_heads, _, v_dim) = q.shape, v.shape
    group = heads // kv_heads
    block_q, block_kv = cfg.block_sizes.forward
    schedule, mask = plan
    slots = schedule.layout.slots
    shape = _Shape(block_q, block_kv, cfg.block_sizes.block_kv_compute or block_kv, slots)
    call = KernelCall("splash_fwd", cfg, schedule, heads)
    call.input("q", q, (None, block_q, dim), lambda w: (w.head, w.row, 0))
    for s in range(slots):

        def kv_index(w: Where, s: int = s) -> tuple[Any, ...]:
            head, column = w.block(s)
            return kv_head_of(head, group), column, 0

        call.input(f"k{s}", k, (None, block_kv, dim), kv_index)
        call.input(f"v{s}", v, (None, block_kv, v_dim), kv_index)
    add_mask_inputs(call, mask, segment_ids, (block_q, block_kv), q_axis=0)
    call.working_set(block_q, shape.compute * slots, pieces=1, products=(v_dim,))
    call.buffer("m", (block_q, LANES))
    call.buffer("l", (block_q, LANES))
    call.buffer("acc", (block_q, v_dim))
    if slots > 1 and not one_by_one(block_kv):
        call.buffer("s", (block_q, slots * block_kv))
    return call, shape


def _row_outputs(call: KernelCall, names: tuple[str, ...], q: jax.Array, block_q: int) -> None:
    like = jax.ShapeDtypeStruct((q.shape[0], 1, q.shape[1]), jnp.float32)
    for name in names:
        call.output(name, like, (None, 1, block_q), lambda w: (w.head, 0, w.row))


def forward(
    cfg: KernelConfig,
    plan: KernelPlan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: Any = None,
    sinks: jax.Array | None = None,
    *,
    logsumexp: bool = False,
    max_logits: bool = False,
) -> ForwardResult:
    """Runs the forward kernel on q [H, S, D], k [H_kv, T, D], v [H_kv, T, Dv]."""
    call, shape = _call(cfg, plan, q, k, v, segment_ids)
    if sinks is not None:
        call.scalars("sinks", sinks.astype(jnp.float32)[None, :])
    out = jax.ShapeDtypeStruct((*q.shape[:2], v.shape[2]), q.dtype)
    call.output("o", out, (None, shape.block_q, v.shape[2]), lambda w: (w.head, w.row, 0))
    wanted = {"logsumexp": logsumexp, "max_logits": max_logits}
    _row_outputs(call, tuple(n for n, want in wanted.items() if want), q, shape.block_q)
    got = call.run(lambda running: _run_step(running, cfg, shape))
    rows = {n: got[n][:, 0] if n in got else None for n in wanted}
    return ForwardResult(got["o"], rows["logsumexp"], rows["max_logits"])


def forward_partial(
    cfg: KernelConfig,
    plan: KernelPlan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: Any = None,
) -> PartialResult:
    """The forward kernel on a shard of the keys, undivided: arguments as of ``forward``."""
    call, shape = _call(cfg, plan, q, k, v, segment_ids)
    total = jax.ShapeDtypeStruct((*q.shape[:2], v.shape[2]), jnp.float32)
    block = (None, shape.block_q, v.shape[2])
    call.output("total", total, block, lambda w: (w.head, w.row, 0))
    _row_outputs(call, ("peak", "weight"), q, shape.block_q)
    got = call.run(lambda running: _run_step(running, cfg, shape))
    return PartialResult(got["total"], got["peak"][:, 0], got["weight"][:, 0])
