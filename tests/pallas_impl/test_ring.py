"""Ring attention on simulated host devices, in interpret mode."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pallas_impl.block_sizes import BlockSizes
from pallas_impl.config import MAX_FLOOR
from pallas_impl.forward import PartialResult
from pallas_impl.masks import CausalMask
from pallas_impl.ring import make_ring_attention, zigzag_order
from pallas_impl.ring_steps import combine, nothing
from pallas_impl.schedule import unpack_meta
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import attention_oracle as oracle

SEQ = P(None, "ring")


def _devices(count: int) -> Any:
    if len(jax.devices()) < count:
        pytest.skip(f"needs {count} host devices")
    return np.array(jax.devices()[:count])


def _check(
    size: int,
    mask: Any,
    dense: Any,
    *,
    layout: Any = "contiguous",
    fused: bool = True,
    extras: bool = False,
    storage: Any = None,
) -> Any:
    length = dense.shape[-1]
    mesh = Mesh(_devices(size), ("ring",))
    q, k, v, do = oracle.arrays(4, 2, length, length, 64, 128)
    blocks = BlockSizes(128, 128, use_fused_bwd_kernel=fused)
    kernel = make_ring_attention(
        mask, ring_axis="ring", ring_size=size, layout=layout, block_sizes=blocks,
        interpret=True, attn_logits_soft_cap=2.0 if extras else None, save_residuals=True,
        storage=storage,
    )  # fmt: skip
    ids = np.arange(length) // 100
    sinks = np.array([0.5, -3.0, 6.0, 1.0], np.float32) if extras else None
    order = zigzag_order(length, size) if layout == "zigzag" else np.arange(length)
    back = np.argsort(order)

    def local(kernel: Any, q: Any, k: Any, v: Any, ids: Any, sinks: Any) -> Any:
        segments = SegmentIds(ids, ids) if extras else None
        out, stats = kernel(q, k, v, segments, sinks)
        return out, stats.logsumexp

    ring = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(kernel.manual_sharding_spec(), SEQ, SEQ, SEQ, P("ring"), P()),
        out_specs=(SEQ, SEQ),
        check_vma=False,
    )

    @jax.jit
    def run(kernel: Any, q: Any, k: Any, v: Any, sinks: Any, do: Any) -> Any:
        def call(q: Any, k: Any, v: Any, sinks: Any) -> Any:
            out, lse = ring(kernel, q[:, order], k[:, order], v[:, order], ids[order], sinks)
            return out[:, back], lse[:, back]

        (out, lse), vjp = jax.vjp(call, q, k, v, sinks)
        return out, lse, vjp((do, jnp.zeros_like(lse)))

    out, lse, grads = run(kernel, q, k, v, sinks, do)
    seen = dense & (ids[:, None] == ids) if extras else dense
    problem = oracle.Problem(q, k, v, do, seen, sinks, 2.0 if extras else None)
    want, gradients = oracle.forward(problem), oracle.gradients(problem)
    oracle.check("out", out, want.out, want.out_error)
    oracle.check("logsumexp", lse, want.logsumexp, want.logsumexp_error)
    for name, got in zip(("q", "k", "v", "sinks"), grads, strict=True):
        if got is not None:
            oracle.check(f"d{name}", got, gradients.values[name], gradients.errors[name])
    return kernel


def _causal(length: int) -> Any:
    return np.tril(np.ones((1, length, length), bool))


@pytest.mark.parametrize(("size", "storage"), [(2, "table"), (8, "runs")])
def test_causal_ring_skips_future_shards(size: int, storage: Any) -> None:
    length = 256 * size if storage == "table" else 128 * size
    kernel = _check(size, CausalMask((length, length)), _causal(length), storage=storage)
    assert kernel.ring.some_empty
    np.testing.assert_array_equal(kernel.plan.active, np.tril(np.ones((size, size), int)))


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
def test_zigzag_gives_every_device_the_same_work(fused: bool) -> None:
    kernel = _check(
        2, CausalMask((1024, 1024)), _causal(1024), layout="zigzag", fused=fused, extras=True
    )
    assert not kernel.ring.some_empty
    forward = kernel.plan.kernels.forward.schedule
    active = unpack_meta(np.asarray(forward.words).reshape(2, 2, -1)).active
    visited = np.bitwise_count(active).sum((1, 2))
    assert visited[0] == visited[1]


def test_masks_of_each_head_with_shards_that_are_empty_for_some() -> None:
    rng = np.random.default_rng(3)
    dense = rng.random((4, 512, 512)) < 0.3
    dense[:, :256, :128] = False
    dense[1, 128:256] = False
    _check(4, dense, dense, extras=True)


def test_dynamic_mask() -> None:
    dense = np.random.default_rng(4).random((4, 256, 256)) < 0.3
    dense[:, :128, 128:] = False
    _check(2, jnp.asarray(dense), dense)


def test_no_kernel_runs_for_an_empty_shard() -> None:
    """The branch of an empty pair of shards holds no kernel at all."""
    kernel = make_ring_attention(
        CausalMask((256, 256)), ring_axis="ring", ring_size=2, block_sizes=BlockSizes(128, 128)
    )
    mesh = Mesh(_devices(2), ("ring",))
    ring = jax.shard_map(
        lambda kernel, q, k, v: kernel(q, k, v),
        mesh=mesh,
        in_specs=(kernel.manual_sharding_spec(), SEQ, SEQ, SEQ),
        out_specs=SEQ,
        check_vma=False,
    )
    x = jnp.zeros((1, 256, 64))
    conditionals: list[list[int]] = []

    def walk(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "cond":
                conditionals.append([str(b).count("splash_fwd") for b in eqn.params["branches"]])
            for value in eqn.params.values():
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    walk(inner)

    walk(jax.make_jaxpr(ring)(kernel, x, x, x).jaxpr)
    assert conditionals
    assert all(min(c) == 0 and max(c) > 0 for c in conditionals)


def test_combination_is_associative_commutative_and_has_an_identity() -> None:
    rng = np.random.default_rng(0)
    peaks = [np.float32(x) for x in (-5.0, 0.0, 700.0, MAX_FLOOR)]
    parts = []
    for peak in peaks:
        weight = rng.random((1, 8)).astype(np.float32) * (peak != MAX_FLOOR)
        total = rng.standard_normal((1, 8, 4)).astype(np.float32) * weight[..., None]
        parts.append(PartialResult(jnp.asarray(total), jnp.full((1, 8), peak), jnp.asarray(weight)))
    empty = nothing(jnp.zeros((1, 8, 4)), 4)

    def same(a: PartialResult, b: PartialResult) -> None:
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=4 * 2.0**-24, atol=4 * 2.0**-24)

    for a in parts:
        same(combine(a, empty), a)
        same(combine(empty, a), a)
        for b in parts:
            same(combine(a, b), combine(b, a))
            for c in parts:
                same(combine(combine(a, b), c), combine(a, combine(b, c)))


def test_zigzag_order_is_a_permutation_with_balanced_chunks() -> None:
    order = zigzag_order(np.int64(16), np.int32(2))
    assert order.tolist() == [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11]
    with pytest.raises(ValueError, match="length must be a multiple of 8, got 12"):
        zigzag_order(12, 4)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"ring_size": 3}, "block_sizes: 128 must divide"),
        ({"ring_size": 0}, "ring_size must be at least 1"),
        ({"layout": "spiral"}, "layout must be"),
        ({"mask": np.ones((256, 512), bool)}, "mask must have q_len = kv_len"),
        ({"layout": "zigzag", "ring_size": 4}, "must divide the consecutive chunks"),
    ],
)
def test_rejects(kwargs: Any, message: str) -> None:
    settings = {
        "mask": CausalMask((512, 512)),
        "ring_axis": "ring",
        "ring_size": 4,
        "block_sizes": BlockSizes(128, 128),
    } | kwargs
    with pytest.raises(ValueError, match=message):
        make_ring_attention(settings.pop("mask"), **settings)
