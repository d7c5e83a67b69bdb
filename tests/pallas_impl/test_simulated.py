"""Kernels on simulated TPU memory: NaN where nothing was written, races and stray reads raise.

Copies take place as late as they may, when their semaphore is awaited, and two cores share the heads.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, LocalMask
from pallas_impl.ring import make_ring_attention, zigzag_order
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import attention_oracle as oracle

SIMULATED = pltpu.InterpretParams(
    uninitialized_memory="nan",
    out_of_bounds_reads="raise",
    detect_races=True,
    dma_execution_mode="on_wait",
    num_cores_or_threads=2,
)
S = 384
SEQ = P(None, "ring")


@pytest.fixture(autouse=True)
def _fresh_memory() -> Any:
    yield
    pltpu.reset_tpu_interpret_mode_state()


def _blocks(fused: bool) -> BlockSizes:
    return BlockSizes(128, 128, use_fused_bwd_kernel=fused)


def _masks() -> np.ndarray:
    """A mask for each of two heads: full, partial and empty blocks, an empty row and column."""
    rng = np.random.default_rng(2)
    labels = np.array([[[2, 0, 1], [0, 0, 0], [1, 0, 2]], [[0, 1, 2], [2, 2, 1], [0, 1, 0]]])
    coarse = np.kron(labels, np.ones((128, 128), int))
    found: np.ndarray = (coarse == 2) | ((coarse == 1) & (rng.random((2, S, S)) < 0.4))
    return found


@jax.jit
def _run(kernel: Any, q: Any, k: Any, v: Any, seg: Any, sinks: Any, do: Any) -> Any:
    out, vjp = jax.vjp(lambda q, k, v, s: kernel(q, k, v, seg, s), q, k, v, sinks)
    return out, vjp(do)


def _compare(pr: oracle.Problem, out: Any, grads: Any) -> None:
    want, gradients = oracle.forward(pr), oracle.gradients(pr)
    oracle.check("out", out, want.out, want.out_error)
    for name, got in zip(("q", "k", "v", "sinks"), grads, strict=True):
        if got is not None:
            oracle.check(f"d{name}", got, gradients.values[name], gradients.errors[name])


def _check(mask: Any, dense: np.ndarray, fused: bool, *, extras: bool = False, **more: Any) -> None:
    q, k, v, do = oracle.arrays(2, 1, S, S, 64, 64)
    seg = SegmentIds(np.arange(S) // 100, np.arange(S) // 130) if extras else None
    sinks = np.array([0.5, -3.0], np.float32) if extras else None
    cap = 1.5 if extras else None
    kernel = make_splash_mha(
        mask, block_sizes=_blocks(fused), attn_logits_soft_cap=cap, interpret=SIMULATED, **more
    )
    seen = dense & (seg.q[:, None] == seg.kv) if seg is not None else dense
    _compare(oracle.Problem(q, k, v, do, seen, sinks, cap), *_run(kernel, q, k, v, seg, sinks, do))


def _causal() -> np.ndarray:
    return np.tril(np.ones((1, S, S), bool))


@pytest.mark.parametrize(
    ("fused", "grid"), [(True, "flat"), (False, "grid2d")], ids=["fused, flat", "split, grid2d"]
)
def test_masks_of_each_head(fused: bool, grid: Any) -> None:
    _check(_masks(), _masks(), fused, grid=grid)


@pytest.mark.deep
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
@pytest.mark.parametrize("grid", ["flat", "grid2d"])
@pytest.mark.parametrize("storage", ["table", "runs"])
def test_every_schedule(storage: Any, grid: Any, fused: bool) -> None:
    _check(CausalMask((S, S)), _causal(), fused, extras=True, grid=grid, storage=storage)
    i, j = np.indices((S, S))
    near = ((j <= i) & (j >= i - 127))[None]
    _check(LocalMask((S, S), (127, 0)), near, fused, grid=grid, storage=storage)


@pytest.mark.deep
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
def test_a_mask_known_at_run_time(fused: bool) -> None:
    _check(jnp.asarray(_masks()), _masks(), fused, extras=True)


def _ring(size: int, fused: bool, layout: Any, sinks: Any = None) -> None:
    """Every device has work at every step: the simulator waits for all of them at each kernel."""
    length = (2 if layout == "zigzag" else 1) * 128 * size
    q, k, v, do = oracle.arrays(2, 1, length, length, 64, 64)
    dense = np.random.default_rng(1).random((length, length)) < 0.3
    if layout == "zigzag":
        dense = np.tril(np.ones_like(dense))
    kernel = make_ring_attention(
        CausalMask(dense.shape) if layout == "zigzag" else dense,
        ring_axis="ring", ring_size=size, layout=layout,
        block_sizes=_blocks(fused), interpret=SIMULATED,
    )  # fmt: skip
    assert not kernel.ring.some_empty
    order = zigzag_order(length, size) if layout == "zigzag" else np.arange(length)
    back = np.argsort(order)
    ring = jax.shard_map(
        lambda kernel, q, k, v, sinks: kernel(q, k, v, None, sinks),
        mesh=Mesh(np.array(jax.devices()[:size]), ("ring",)),
        in_specs=(kernel.manual_sharding_spec(), SEQ, SEQ, SEQ, P()),
        out_specs=SEQ,
        check_vma=False,
    )

    @jax.jit
    def run(kernel: Any, q: Any, k: Any, v: Any, sinks: Any, do: Any) -> Any:
        def call(q: Any, k: Any, v: Any, sinks: Any) -> Any:
            return ring(kernel, q[:, order], k[:, order], v[:, order], sinks)[:, back]

        out, vjp = jax.vjp(call, q, k, v, sinks)
        return out, vjp(do)

    _compare(oracle.Problem(q, k, v, do, dense[None], sinks), *run(kernel, q, k, v, sinks, do))


def test_a_ring() -> None:
    _ring(2, True, "contiguous")


@pytest.mark.deep
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_larger_rings(layout: Any, fused: bool) -> None:
    _ring(4, fused, layout, np.array([0.5, -3.0], np.float32))


def test_memory_that_nobody_initialised_is_seen() -> None:
    """Without the mark of a row's first step its accumulators keep what they held: NaN."""
    mask = np.ones((128, 128), bool)
    kernel = make_splash_mha(mask, block_sizes=BlockSizes(128, 128), interpret=SIMULATED)
    forward = kernel.plan.forward
    schedule = dataclasses.replace(forward.schedule, words=forward.schedule.words & ~1)
    plan = kernel.plan._replace(forward=forward._replace(schedule=schedule))
    q, k, v, _ = oracle.arrays(1, 1, 128, 128, 64, 64)
    assert np.isnan(np.asarray(dataclasses.replace(kernel, plan=plan)(q, k, v))).any()
