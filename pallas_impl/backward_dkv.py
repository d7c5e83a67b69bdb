"""The dkv kernel, and the fused backward kernel that gives dq from the same pass.

Rows are kv blocks, columns q blocks, and logits are held transposed, [block_kv, block_q], so
that the per-query statistics are rows and broadcast along sublanes for nothing.  With
P = softmax probabilities, per block:

    dv += Pᵀ dO        dS = P ∘ (dO Vᵀ - δ)        dk += dSᵀ Q        dq += dS K

where δ = rowsum(dO ∘ O) - d_logsumexp (Dao et al. 2022, "FlashAttention", appendix B.2).
Clauses BWD-1 to BWD-4, BWD-6 to BWD-15, BWD-17 to BWD-26.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pallas_impl import logits as lg
from pallas_impl.block_sizes import LANES
from pallas_impl.branches import one_by_one, run_step
from pallas_impl.config import LOG2E, KernelConfig
from pallas_impl.kernel_call import KernelCall, Running, Where
from pallas_impl.tile_mask import KernelPlan, add_mask_inputs, visible

ZERO_ROWS = 512
"""Rows of dq cleared by one iteration when a head begins."""


class _Shape(NamedTuple):
    block_q: int
    block_kv: int
    compute: int
    slots: int
    fused: bool


class _Body:
    def __init__(self, running: Running, cfg: KernelConfig, shape: _Shape) -> None:
        self.running, self.refs = running, running.refs
        self.cfg, self.shape = cfg, shape

    def init(self) -> None:
        r = self.refs
        r["dk_acc"][...] = jnp.zeros_like(r["dk_acc"])
        r["dv_acc"][...] = jnp.zeros_like(r["dv_acc"])

    def clear_dq(self) -> None:
        members, rows, dim = self.refs["dq"].shape
        chunk = next(c for c in (ZERO_ROWS, 256, LANES) if rows % c == 0)

        def clear(i: Any, _: None) -> None:
            at = pl.multiple_of(i * chunk, chunk)
            self.refs["dq"][:, pl.ds(at, chunk), :] = jnp.zeros((members, chunk, dim), jnp.float32)

        jax.lax.fori_loop(0, rows // chunk, clear, None)

    def logits(self, slot: int, part: slice) -> jax.Array:
        r = self.refs
        raw = lg.dot(r["k"][part, :], r[f"q{slot}"][...], lg.NT)
        return lg.scale_logits(raw, self.cfg.soft_cap)

    def visible(self, slot: int, part: slice, partial: bool) -> jax.Array | None:
        return visible(
            self.running,
            self.cfg.mask_function,
            slot,
            (self.shape.block_kv, self.shape.block_q),
            q_axis=1,
            partial=partial,
            rows=part,
        )

    def accumulate(self, slots: Sequence[int], tiles: list[jax.Array], part: slice) -> None:
        """Adds the contributions of logits tiles [kv part, block_q]."""
        r = self.refs
        dk = dv = None
        for slot, tile in zip(slots, tiles, strict=True):
            stats, do, q = r[f"stats{slot}"], r[f"do{slot}"][...], r[f"q{slot}"][...]
            p = jnp.exp2(tile - stats[0:1, :])
            dv_part = lg.dot(p.astype(do.dtype), do, lg.NN)
            dp = lg.dot(r["v"][part, :], do, lg.NT)
            ds = p * (dp - stats[1:2, :])
            if self.cfg.soft_cap is not None:
                # Hidden logits are far below -1; clipped they give a finite factor, times p = 0.
                capped = jnp.maximum(tile * (1.0 / (self.cfg.soft_cap * LOG2E)), -1.0)
                ds = ds * (1.0 - capped * capped)
            ds = ds.astype(q.dtype)
            dk_part = lg.dot(ds, q, lg.NN)
            dv = dv_part if dv is None else dv + dv_part
            dk = dk_part if dk is None else dk + dk_part
            if self.shape.fused:
                self.add_dq(slot, lg.dot(ds, r["k"][part, :], lg.TN))
        r["dv_acc"][part, :] += dv
        r["dk_acc"][part, :] += dk

    def add_dq(self, slot: int, dq: jax.Array) -> None:
        reader, block = self.running.reader, self.shape.block_q
        at = pl.ds(pl.multiple_of(reader.column(slot) * block, block), block)
        self.refs["dq"][reader.member, at, :] += dq

    def whole(self, slots: Sequence[int], partial: bool) -> None:
        """Slots with the same kind of mask, straight from the matmuls."""
        for start in range(0, self.shape.block_kv, self.shape.compute):
            part = slice(start, start + self.shape.compute)
            tiles = [lg.hide(self.logits(s, part), self.visible(s, part, partial)) for s in slots]
            self.accumulate(slots, tiles, part)

    def mixed(self, slots: Sequence[int], full: Any) -> None:
        """Slots of which only the label-1 ones are masked, each in its own branch."""
        r, part = self.refs, slice(0, self.shape.block_kv)
        for slot in slots:
            r["s"][slot] = lg.hide(self.logits(slot, part), self.visible(slot, part, False))
        for slot in slots:

            @pl.when((full >> slot) & 1 == 0)
            def _(slot: int = slot) -> None:
                r["s"][slot] = lg.hide(r["s"][slot], self.visible(slot, part, True))

        self.accumulate(slots, [r["s"][s] for s in slots], part)

    def finish(self) -> None:
        r = self.refs
        r["dk"][...] = r["dk_acc"][...].astype(r["dk"].dtype)
        r["dv"][...] = r["dv_acc"][...].astype(r["dv"].dtype)


def _run_step(running: Running, cfg: KernelConfig, shape: _Shape) -> None:
    body = _Body(running, cfg, shape)
    if shape.fused:
        bin_id, step_id, member = running.ids
        pl.when(bin_id + step_id + member == 0)(body.clear_dq)
    run_step(body, running.step, shape.slots, shape.block_q, body.finish)


class BackwardOperands(NamedTuple):
    """Inputs of the backward kernels.

    Attributes:
      q, do: [H, q_len, ·]; k, v: [H_kv, kv_len, ·].
      stats: float32[H, 2, q_len]: logsumexp in base-2 units (a large number in rows where
        nothing is visible, which makes every probability 0) and δ.
      segment_ids: SegmentIds or None.
    """

    q: jax.Array
    k: jax.Array
    v: jax.Array
    do: jax.Array
    stats: jax.Array
    segment_ids: Any


def dkv(
    cfg: KernelConfig,
    plan: KernelPlan,
    args: BackwardOperands,
    *,
    fused: bool,
    dtype: Any = None,
) -> tuple[jax.Array | None, jax.Array, jax.Array]:
    """Returns (dq float32 or None, dk, dv); dk and dv of ``dtype`` or their input's."""
    schedule, mask = plan
    q, k, v, do, stats, segment_ids = args
    heads, q_len, dim = q.shape
    kv_heads, _, v_dim = v.shape
    group = heads // kv_heads
    block_q, block_kv = cfg.block_sizes.dkv
    compute = cfg.block_sizes.block_kv_dkv_compute or block_kv
    slots = schedule.layout.slots
    shape = _Shape(block_q, block_kv, compute, slots, fused)
    name = "splash_bwd" if fused else "splash_dkv"
    call = KernelCall(name, cfg, schedule, kv_heads, group)

    def kv_row(w: Where) -> tuple[Any, ...]:
        return w.head, w.row, 0

    call.input("k", k, (None, block_kv, dim), kv_row)
    call.input("v", v, (None, block_kv, v_dim), kv_row)
    for s in range(slots):

        def q_index(w: Where, s: int = s) -> tuple[Any, ...]:
            head, column = w.block(s)
            return head, column, 0

        def stats_index(w: Where, s: int = s) -> tuple[Any, ...]:
            head, column = w.block(s)
            return head, 0, column

        call.input(f"q{s}", q, (None, block_q, dim), q_index)
        call.input(f"do{s}", do, (None, block_q, v_dim), q_index)
        call.input(f"stats{s}", stats, (None, 2, block_q), stats_index)
    add_mask_inputs(call, mask, segment_ids, (block_kv, block_q), q_axis=1)
    for name, x in (("dk", k), ("dv", v)):
        like = jax.ShapeDtypeStruct(x.shape, dtype or x.dtype)
        call.output(name, like, (None, block_kv, x.shape[2]), kv_row)
    if fused:
        dq_like = jax.ShapeDtypeStruct((heads, q_len, dim), jnp.float32)
        call.output("dq", dq_like, (group, q_len, dim), lambda w: (w.head, 0, 0))
    call.working_set(compute, block_q * slots, pieces=3, products=(dim, v_dim) * slots)
    call.buffer("dk_acc", (block_kv, dim))
    call.buffer("dv_acc", (block_kv, v_dim))
    if slots > 1 and not one_by_one(block_q):
        call.buffer("s", (slots, block_kv, block_q))
    got = call.run(lambda running: _run_step(running, cfg, shape))
    return got.get("dq"), got["dk"], got["dv"]
