"""Gradients against float64 attention, in interpret mode."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_impl.api import make_splash_mha, make_splash_mqa
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import attention_oracle as oracle

S = 512
CAUSAL = np.tril(np.ones((S, S), bool))
FUSED = BlockSizes(128, 128, use_fused_bwd_kernel=True)
SPLIT = BlockSizes(
    256,
    128,
    block_q_dkv=128,
    block_kv_dkv=256,
    block_kv_dkv_compute=128,
    block_q_dq=128,
    block_kv_dq=256,
    use_fused_bwd_kernel=False,
)


@jax.jit
def _grads(kernel: Any, q: Any, k: Any, v: Any, seg: Any, sinks: Any, do: Any) -> Any:
    return jax.vjp(lambda q, k, v, s: kernel(q, k, v, seg, s), q, k, v, sinks)[1](do)


def _check(
    mask: Any,
    pr: oracle.Problem,
    blocks: BlockSizes,
    seg: Any = None,
    dtype: Any = jnp.float32,
    **kwargs: Any,
) -> None:
    kwargs.setdefault("interpret", True)
    kernel = make_splash_mha(mask, block_sizes=blocks, attn_logits_soft_cap=pr.soft_cap, **kwargs)
    q, k, v, do = (jnp.asarray(x, dtype) for x in (pr.q, pr.k, pr.v, pr.do))
    sinks = None if pr.sinks is None else jnp.asarray(pr.sinks)
    got = dict(zip(("q", "k", "v", "sinks"), _grads(kernel, q, k, v, seg, sinks, do), strict=True))
    wide: dict[str, Any] = {
        n: np.asarray(x, np.float32) for n, x in (("q", q), ("k", k), ("v", v), ("do", do))
    }
    stored = oracle.UBF if dtype == jnp.bfloat16 else oracle.U32
    want = oracle.gradients(pr._replace(**wide, stored=stored))
    for name, value in want.values.items():
        assert got[name].dtype == (jnp.float32 if name == "sinks" else dtype)
        oracle.check(f"d{name}", got[name].astype(jnp.float32), value, want.errors[name])


@pytest.mark.parametrize(
    ("blocks", "storage"), [(FUSED, "runs"), (SPLIT, "runs"), (SPLIT, "table")]
)
def test_causal_gqa(blocks: BlockSizes, storage: Any) -> None:
    q, k, v, do = oracle.arrays(4, 2, S, S, 64, 128)
    _check(CausalMask((S, S)), oracle.Problem(q, k, v, do, CAUSAL[None]), blocks, storage=storage)


@pytest.mark.parametrize(
    "blocks", [FUSED, dataclasses.replace(SPLIT, block_q=128)], ids=["fused", "split"]
)
def test_grid2d_bf16(blocks: BlockSizes) -> None:
    q, k, v, do = oracle.arrays(2, 1, S, S, 128, 64)
    problem = oracle.Problem(q, k, v, do, CAUSAL[None])
    _check(CausalMask((S, S)), problem, blocks, dtype=jnp.bfloat16, grid="grid2d")


@pytest.mark.parametrize("blocks", [FUSED, SPLIT], ids=["fused", "split"])
def test_segments_soft_cap_and_sinks(blocks: BlockSizes) -> None:
    seg = SegmentIds(np.arange(S) // 100, np.arange(S) // 130)
    mask = CAUSAL & (seg.q[:, None] == seg.kv)
    sinks = np.array([0.5, -3.0, 6.0, 1.0], np.float32)
    q, k, v, do = oracle.arrays(4, 2, S, S, 64, 128)
    problem = oracle.Problem(q, k, v, do, mask[None], sinks, 1.5)
    _check(CausalMask((S, S)), problem, blocks, seg)


@pytest.mark.parametrize("blocks", [FUSED, SPLIT], ids=["fused", "split"])
def test_random_blocks_with_empty_rows_and_unseen_keys(blocks: BlockSizes) -> None:
    rng = np.random.default_rng(2)
    labels = rng.choice(3, size=(4, 4), p=[0.4, 0.3, 0.3])
    labels[1], labels[:, 2] = 0, 0
    coarse = np.kron(labels, np.ones((128, 128), int))
    mask = (coarse == 2) | ((coarse == 1) & (rng.random((S, S)) < 0.4))
    mask[5:20] = False
    q, k, v, do = oracle.arrays(2, 2, S, S, 64, 64)
    _check(mask, oracle.Problem(q, k, v, do, mask[None]), blocks)
    kernel = make_splash_mha(mask, block_sizes=blocks, interpret=True)
    dq, dk, dv, _ = _grads(kernel, q, k, v, None, None, do)
    assert np.all(np.asarray(dk)[:, 256:384] == 0)
    assert np.all(np.asarray(dv)[:, 256:384] == 0)
    assert np.all(np.asarray(dq)[:, 128:256] == 0)
    assert np.all(np.asarray(dq)[:, 5:20] == 0)


@pytest.mark.parametrize(("blocks", "dynamic"), [(FUSED, False), (SPLIT, False), (FUSED, True)])
def test_masks_of_each_head_share_kv_heads(blocks: BlockSizes, dynamic: bool) -> None:
    rng = np.random.default_rng(7)
    masks = np.stack([CAUSAL, CAUSAL.T, rng.random((S, S)) < 0.1, np.zeros((S, S), bool)])
    q, k, v, do = oracle.arrays(4, 2, S, S, 64, 64)
    mask = jnp.asarray(masks) if dynamic else masks
    _check(mask, oracle.Problem(q, k, v, do, masks), blocks)


def test_mqa_and_gradient_of_logsumexp() -> None:
    q, k, v, do = oracle.arrays(3, 1, 256, 256, 64, 64)
    kernel = make_splash_mqa(
        CausalMask((256, 256)), block_sizes=FUSED, interpret=True, save_residuals=True
    )
    d_lse = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)

    def loss(q: Any, k: Any, v: Any) -> Any:
        out, stats = kernel(q, k, v)
        return jnp.sum(out * do) + jnp.sum(stats.logsumexp * d_lse)

    got = jax.jit(jax.grad(loss, (0, 1, 2)))(q, k[0], v[0])
    problem = oracle.Problem(q, k, v, do, CAUSAL[None, :256, :256])
    want = oracle.gradients(problem, d_lse)
    for name, g in zip("qkv", (got[0], got[1][None], got[2][None]), strict=True):
        oracle.check(name, g, want.values[name], want.errors[name])


def test_named_residuals_are_kept_by_a_checkpoint_policy() -> None:
    q, k, v, _ = oracle.arrays(1, 1, 256, 256, 64, 64)

    def kernels(policy_name: str) -> int:
        kernel = make_splash_mha(
            CausalMask((256, 256)),
            block_sizes=FUSED,
            interpret=True,
            residual_checkpoint_name="attention",
        )
        policy = jax.checkpoint_policies.save_only_these_names(policy_name)
        loss = jax.checkpoint(lambda q: jnp.sum(kernel(q, k, v)), policy=policy)
        return str(jax.make_jaxpr(jax.grad(loss))(q)).count("splash_fwd")

    saved, recomputed = kernels("attention"), kernels("something else")
    assert saved < recomputed
