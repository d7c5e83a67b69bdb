"""The dq kernel of the split backward pass: rows are q blocks, columns kv blocks (BWD-3, BWD-11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pallas_impl import logits as lg
from pallas_impl.backward_dkv import BackwardOperands
from pallas_impl.block_sizes import LANES
from pallas_impl.branches import one_by_one, run_step
from pallas_impl.config import LOG2E, KernelConfig
from pallas_impl.kernel_call import KernelCall, Running, Where
from pallas_impl.steps import kv_head_of
from pallas_impl.tile_mask import KernelPlan, add_mask_inputs, visible


class _Shape(NamedTuple):
    block_q: int
    block_kv: int
    slots: int


class _Body:
    def __init__(self, running: Running, cfg: KernelConfig, shape: _Shape) -> None:
        self.running, self.refs = running, running.refs
        self.cfg, self.shape = cfg, shape

    def init(self) -> None:
        """Clears dq and turns the row's statistics into columns, once per row."""
        r = self.refs
        r["acc"][...] = jnp.zeros_like(r["acc"])
        for i, name in enumerate(("lse", "delta")):
            row = r["stats"][i : i + 1, :]
            r[name][...] = jnp.transpose(jnp.broadcast_to(row, (LANES, self.shape.block_q)))

    def logits(self, slot: int) -> jax.Array:
        raw = lg.dot(self.refs["q"][...], self.refs[f"k{slot}"][...], lg.NT)
        return lg.scale_logits(raw, self.cfg.soft_cap)

    def visible(self, slot: int, partial: bool) -> jax.Array | None:
        tile = (self.shape.block_q, self.shape.block_kv)
        function = self.cfg.mask_function
        return visible(self.running, function, slot, tile, q_axis=0, partial=partial)

    def accumulate(self, slots: Sequence[int], tiles: list[jax.Array]) -> None:
        r, width = self.refs, self.shape.block_kv
        lse, delta = (lg.widen(r[n][...], width) for n in ("lse", "delta"))
        do = r["do"][...]
        total = None
        for slot, tile in zip(slots, tiles, strict=True):
            k, v = r[f"k{slot}"][...], r[f"v{slot}"][...]
            p = jnp.exp2(tile - lse)
            ds = p * (lg.dot(do, v, lg.NT) - delta)
            if self.cfg.soft_cap is not None:
                # Hidden logits are far below -1; clipped they give a finite factor, times p = 0.
                capped = jnp.maximum(tile * (1.0 / (self.cfg.soft_cap * LOG2E)), -1.0)
                ds = ds * (1.0 - capped * capped)
            part = lg.dot(ds.astype(k.dtype), k, lg.NN)
            total = part if total is None else total + part
        r["acc"][...] += total

    def whole(self, slots: Sequence[int], partial: bool) -> None:
        """Slots with the same kind of mask, straight from the matmuls."""
        tiles = [lg.hide(self.logits(s), self.visible(s, partial)) for s in slots]
        self.accumulate(slots, tiles)

    def mixed(self, slots: Sequence[int], full: Any) -> None:
        """Slots of which only the label-1 ones are masked, each in its own branch."""
        r = self.refs
        for slot in slots:
            r["s"][slot] = lg.hide(self.logits(slot), self.visible(slot, False))
        for slot in slots:

            @pl.when((full >> slot) & 1 == 0)
            def _(slot: int = slot) -> None:
                r["s"][slot] = lg.hide(r["s"][slot], self.visible(slot, True))

        self.accumulate(slots, [r["s"][s] for s in slots])

    def finish(self) -> None:
        self.refs["dq"][...] = self.refs["acc"][...].astype(self.refs["dq"].dtype)


def _run_step(running: Running, cfg: KernelConfig, shape: _Shape) -> None:
    body = _Body(running, cfg, shape)
    run_step(body, running.step, shape.slots, shape.block_kv, body.finish)


def dq(
    cfg: KernelConfig,
    plan: KernelPlan,
    args: BackwardOperands,
    *,
    dtype: Any = None,
) -> jax.Array:
    """Returns dq, of q's shape, of ``dtype`` or q's."""
    schedule, mask = plan
    q, k, v, do, stats, segment_ids = args
    heads, _, dim = q.shape
    kv_heads, _, v_dim = v.shape
    group = heads // kv_heads
    blocks = cfg.block_sizes.dq
    assert blocks is not None
    block_q, block_kv = blocks
    slots = schedule.layout.slots
    shape = _Shape(block_q, block_kv, slots)
    call = KernelCall("splash_dq", cfg, schedule, heads)

    def row(w: Where) -> tuple[Any, ...]:
        return w.head, w.row, 0

    call.input("q", q, (None, block_q, dim), row)
    call.input("do", do, (None, block_q, v_dim), row)
    call.input("stats", stats, (None, 2, block_q), lambda w: (w.head, 0, w.row))
    for s in range(slots):

        def kv_index(w: Where, s: int = s) -> tuple[Any, ...]:
            head, column = w.block(s)
            return kv_head_of(head, group), column, 0

        call.input(f"k{s}", k, (None, block_kv, dim), kv_index)
        call.input(f"v{s}", v, (None, block_kv, v_dim), kv_index)
    add_mask_inputs(call, mask, segment_ids, (block_q, block_kv), q_axis=0)
    call.output("dq", jax.ShapeDtypeStruct(q.shape, dtype or q.dtype), (None, block_q, dim), row)
    call.working_set(block_q, block_kv * slots, pieces=3)
    call.buffer("acc", (block_q, dim))
    call.buffer("lse", (block_q, LANES))
    call.buffer("delta", (block_q, LANES))
    if slots > 1 and not one_by_one(block_kv):
        call.buffer("s", (slots, block_q, block_kv))
    return call.run(lambda running: _run_step(running, cfg, shape))["dq"]
