"""Gradients through vmap, scan, checkpoint and jit, of kernels alone and of rings."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, LocalMask
from pallas_impl.ring import make_ring_attention, zigzag_order
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import attention_oracle as oracle

S = 256
CAUSAL = np.tril(np.ones((S, S), bool))
BATCH = 2


def _sizes(fused: bool) -> BlockSizes:
    return BlockSizes(128, 128, use_fused_bwd_kernel=fused)


def _batch(heads: int, kv_heads: int, length: int = S) -> Any:
    many = [oracle.arrays(heads, kv_heads, length, length, 64, 64, seed) for seed in range(BATCH)]
    return [np.stack(x) for x in zip(*many, strict=True)]


def _check(problem: oracle.Problem, out: Any, grads: Any) -> None:
    want, gradients = oracle.forward(problem), oracle.gradients(problem)
    oracle.check("out", out, want.out, want.out_error)
    for name, got in zip("qkv", grads, strict=True):
        oracle.check(f"d{name}", got, gradients.values[name], gradients.errors[name])


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
def test_gradients_of_a_batch_with_segments_and_sinks(fused: bool) -> None:
    q, k, v, do = _batch(2, 1)
    ids = np.stack([np.arange(S) // 64, np.arange(S) // 96])
    sinks = jnp.array([0.5, -1.0], jnp.float32)
    kernel = make_splash_mha(CausalMask((S, S)), block_sizes=_sizes(fused), interpret=True)

    def one(q: Any, k: Any, v: Any, ids: Any, do: Any) -> Any:
        out, vjp = jax.vjp(lambda q, k, v: kernel(q, k, v, SegmentIds(ids, ids), sinks), q, k, v)
        return out, vjp(do)

    out, grads = jax.jit(jax.vmap(one))(q, k, v, ids, do)
    for b in range(BATCH):
        seen = CAUSAL & (ids[b][:, None] == ids[b])
        problem = oracle.Problem(q[b], k[b], v[b], do[b], seen[None], sinks)
        _check(problem, out[b], [g[b] for g in grads])


def test_gradients_of_masks_made_inside_jit_and_vmap() -> None:
    q, k, v, do = _batch(2, 1)
    masks = np.random.default_rng(5).random((BATCH, 2, S, S)) < 0.3
    masks[0, :, :, 128:] = False

    def one(mask: Any, q: Any, k: Any, v: Any, do: Any) -> Any:
        kernel = make_splash_mha(mask, block_sizes=_sizes(True), interpret=True)
        out, vjp = jax.vjp(kernel, q, k, v)
        return out, vjp(do)

    out, grads = jax.jit(jax.vmap(one))(masks, q, k, v, do)
    for b in range(BATCH):
        problem = oracle.Problem(q[b], k[b], v[b], do[b], masks[b])
        _check(problem, out[b], [g[b] for g in grads])


def _layers(name: str | None) -> Any:
    """Gradient of two layers that are scanned, each rematerialised but for what has a name."""
    kernel = make_splash_mha(
        LocalMask((S, S), (100, 0)),
        block_sizes=_sizes(True),
        interpret=True,
        residual_checkpoint_name="attention",
    )

    def layer(x: Any, w: Any) -> Any:
        return x + kernel(x @ w, x, x), None

    if name is not None:
        policy = jax.checkpoint_policies.save_only_these_names(name)
        layer = jax.checkpoint(layer, policy=policy, prevent_cse=False)

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jax.lax.scan(layer, x, w)[0] ** 2)

    return jax.grad(loss)


def test_scanned_layers_keep_what_the_policy_names() -> None:
    rng = np.random.default_rng(1)
    w = rng.standard_normal((2, 64, 64)).astype(np.float32) / 8
    x = rng.standard_normal((1, S, 64)).astype(np.float32) / 4
    runs = {
        n: str(jax.make_jaxpr(_layers(n))(w, x)).count("splash_fwd") for n in ("attention", "-")
    }
    assert runs["attention"] < runs["-"]
    plain = jax.jit(_layers(None))(w, x)
    for name in runs:
        # The same kernels on the same numbers: only XLA's own sums may be ordered otherwise.
        again = jax.jit(_layers(name))(w, x)
        np.testing.assert_allclose(again, plain, rtol=0, atol=1e-5 * np.abs(plain).max())


# ---- rings ---------------------------------------------------------------------------------


def _ring_mesh(heads: int = 1) -> Mesh:
    if len(jax.devices()) < 2 * heads:
        pytest.skip(f"needs {2 * heads} host devices")
    return Mesh(np.array(jax.devices()[: 2 * heads]).reshape(heads, 2), ("heads", "ring"))


def _ring(mask: Any, **options: Any) -> Any:
    return make_ring_attention(
        mask, ring_axis="ring", ring_size=2, block_sizes=_sizes(True), interpret=True, **options
    )


def _sharded(
    mesh: Mesh, kernel: Any, spec: P, heads: str | None = None, batched: bool = False
) -> Any:
    def local(kernel: Any, *x: Any) -> Any:
        return jax.vmap(kernel)(*x) if batched else kernel(*x)

    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(kernel.manual_sharding_spec(heads), spec, spec, spec),
        out_specs=spec,
        check_vma=False,
    )


def test_a_ring_under_vmap() -> None:
    mesh = _ring_mesh()
    q, k, v, do = _batch(2, 1)
    kernel = _ring(CausalMask((S, S)))
    ring = _sharded(mesh, kernel, P(None, None, "ring"), batched=True)

    @jax.jit
    def run(kernel: Any, q: Any, k: Any, v: Any, do: Any) -> Any:
        out, vjp = jax.vjp(lambda *x: ring(kernel, *x), q, k, v)
        return out, vjp(do)

    out, grads = run(kernel, q, k, v, do)
    for b in range(BATCH):
        problem = oracle.Problem(q[b], k[b], v[b], do[b], CAUSAL[None])
        _check(problem, out[b], [g[b] for g in grads])


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        ("own", "contiguous"),
        ("own", "zigzag"),
        ("dynamic", "contiguous"),
        ("dynamic", "zigzag"),
        ("shared dynamic", "contiguous"),
    ],
)
def test_a_ring_whose_heads_are_cut_as_well(kind: str, layout: Any) -> None:
    """A mask known at run time is traced: its kernel is made inside jit."""
    mesh = _ring_mesh(heads=2)
    length = 512 if layout == "zigzag" else S
    dense = np.random.default_rng(2).random((2, length, length)) < 0.3
    dense[:, :128, 128:] = False
    if kind == "shared dynamic":
        dense = dense[:1]
    q, k, v, do = oracle.arrays(2, 2, length, length, 64, 64)
    order = zigzag_order(length, 2) if layout == "zigzag" else np.arange(length)
    back = np.argsort(order)

    @jax.jit
    def run(traced: Any, q: Any, k: Any, v: Any, do: Any) -> Any:
        kernel = _ring(dense if kind == "own" else traced, head_shards=2, layout=layout)
        ring = _sharded(mesh, kernel, P("heads", "ring"), "heads")

        def call(*x: Any) -> Any:
            return ring(kernel, *(a[:, order] for a in x))[:, back]

        out, vjp = jax.vjp(call, q, k, v)
        return out, vjp(do)

    out, grads = run(jnp.asarray(dense), q, k, v, do)
    _check(oracle.Problem(q, k, v, do, dense), out, grads)


def test_a_checkpoint_policy_keeps_what_a_ring_names() -> None:
    mesh = _ring_mesh()
    kernel = _ring(CausalMask((S, S)), residual_checkpoint_name="attention")
    ring = _sharded(mesh, kernel, P(None, "ring"))
    q, k, v, _ = oracle.arrays(1, 1, S, S, 64, 64)

    def kernels(policy_name: str) -> int:
        policy = jax.checkpoint_policies.save_only_these_names(policy_name)
        loss = jax.checkpoint(lambda q: jnp.sum(ring(kernel, q, k, v)), policy=policy)
        return str(jax.make_jaxpr(jax.grad(loss))(q)).count("splash_fwd")

    assert kernels("attention") < kernels("something else")
