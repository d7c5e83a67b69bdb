"""The forward kernel against float64 attention, in interpret mode."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_impl.api import make_splash_mha, make_splash_mqa
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.in_kernel import evaluate
from pallas_impl.masks import CausalMask, FullMask, LocalMask
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import attention_oracle as oracle

S = 512
CAUSAL = np.tril(np.ones((S, S), bool))


@functools.partial(jax.jit, static_argnames=("cap",))
def _call(kernel: Any, q: Any, k: Any, v: Any, seg: Any, sinks: Any, cap: None = None) -> Any:
    return kernel(q, k, v, seg, sinks)


def _check(kernel: Any, pr: oracle.Problem, seg: Any = None, dtype: Any = jnp.float32) -> None:
    q, k, v = (jnp.asarray(x, dtype) for x in (pr.q, pr.k, pr.v))
    sinks = None if pr.sinks is None else jnp.asarray(pr.sinks)
    out, stats = _call(kernel, q, k, v, seg, sinks)
    assert out.dtype == dtype
    exact = pr._replace(q=q.astype(jnp.float32), k=k.astype(jnp.float32), v=v.astype(jnp.float32))
    exact = exact._replace(stored=oracle.UBF if dtype == jnp.bfloat16 else oracle.U32)
    want = oracle.forward(exact)
    oracle.check("out", out.astype(jnp.float32), want.out, want.out_error)
    oracle.check("logsumexp", stats.logsumexp, want.logsumexp, want.logsumexp_error)
    top_error = np.broadcast_to(
        np.where(exact.mask, want.logit_error, 0).max(-1), want.max_logits.shape
    )
    oracle.check("max_logits", stats.max_logits, want.max_logits, top_error)


def _make(mask: Any, blocks: Any = (128, 128), **kwargs: Any) -> Any:
    sizes = blocks if isinstance(blocks, BlockSizes) else BlockSizes(*blocks)
    kwargs.setdefault("interpret", True)
    return make_splash_mha(mask, block_sizes=sizes, save_residuals=True, **kwargs)


@pytest.mark.parametrize(
    ("blocks", "grid", "storage"),
    [
        ((128, 128), "flat", "table"),
        ((128, 128), "flat", "runs"),
        ((128, 128), "grid2d", "table"),
        ((128, 128), "grid2d", "runs"),
        ((256, 128), "flat", "table"),
        ((128, 256), "flat", "runs"),
        ((512, 512), "grid2d", "table"),
    ],
)
def test_schedules_agree_with_the_oracle(blocks: Any, grid: Any, storage: Any) -> None:
    kernel = _make(CausalMask((S, S)), blocks, grid=grid, storage=storage)
    q, k, v, do = oracle.arrays(2, 2, S, S, 64, 64)
    _check(kernel, oracle.Problem(q, k, v, do, CAUSAL[None]))


@pytest.mark.parametrize(("dim", "v_dim"), [(64, 128), (96, 96), (192, 128), (256, 64)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_head_dims_and_dtypes(dim: int, v_dim: int, dtype: Any) -> None:
    kernel = _make(CausalMask((S, S)), (256, 256))
    q, k, v, do = oracle.arrays(2, 1, S, S, dim, v_dim)
    _check(kernel, oracle.Problem(q, k, v, do, CAUSAL[None]), dtype=dtype)


@pytest.mark.parametrize("seed", range(4))
def test_random_block_patterns(seed: int) -> None:
    """Empty, full and partial blocks in any order; whole empty rows and columns."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=(4, 4), p=[0.4, 0.3, 0.3])
    labels[rng.integers(4)] = 0
    labels[:, rng.integers(4)] = 0
    fine = rng.random((S, S)) < 0.4
    coarse = np.kron(labels, np.ones((128, 128), int))
    mask = (coarse == 2) | ((coarse == 1) & fine)
    q, k, v, do = oracle.arrays(2, 2, S, S, 64, 64, seed)
    _check(_make(mask), oracle.Problem(q, k, v, do, mask[None]))


def test_heads_with_masks_of_their_own_and_gqa() -> None:
    rng = np.random.default_rng(7)
    masks = np.stack([CAUSAL, CAUSAL.T, rng.random((S, S)) < 0.1, np.zeros((S, S), bool)])
    q, k, v, do = oracle.arrays(4, 2, S, S, 64, 64)
    _check(_make(masks), oracle.Problem(q, k, v, do, masks))


@pytest.mark.parametrize("blocks", [(128, 128), BlockSizes(256, 256, 128)])
def test_segments_soft_cap_and_sinks(blocks: Any) -> None:
    seg = SegmentIds(np.arange(S) // 100, np.arange(S) // 130)
    mask = CAUSAL & (seg.q[:, None] == seg.kv)
    sinks = np.array([0.5, -3.0, 6.0, -np.inf], np.float32)
    q, k, v, do = oracle.arrays(4, 2, S, S, 64, 128)
    kernel = _make(CausalMask((S, S)), blocks, attn_logits_soft_cap=1.5)
    assert np.any(~mask.any(-1)), "some rows must see nothing"
    _check(kernel, oracle.Problem(q, k, v, do, mask[None], sinks, 1.5), seg)
    _check(kernel, oracle.Problem(q, k, v, do, mask[None], None, 1.5), seg)


def test_rows_with_nothing_visible_are_zero_and_minus_infinity() -> None:
    mask = CAUSAL.copy()
    mask[100:300] = False
    q, k, v, _ = oracle.arrays(1, 1, S, S, 64, 64)
    out, stats = _call(_make(mask), q, k, v, None, None)
    assert np.all(np.asarray(out)[:, 100:300] == 0)
    assert np.all(np.isneginf(np.asarray(stats.logsumexp)[:, 100:300]))
    assert np.all(np.isneginf(np.asarray(stats.max_logits)[:, 100:300]))


def test_rows_hidden_in_early_blocks_ignore_them() -> None:
    """A row that sees nothing in its first blocks must not keep a trace of them."""
    mask = CAUSAL.copy()
    mask[:, :300] &= np.arange(S)[:, None] % 2 == 0
    q, k, v, do = oracle.arrays(1, 1, S, S, 64, 64)
    v[:, :300] *= 1e6
    _check(_make(mask), oracle.Problem(q, k, v, do, mask[None]))


def test_a_label_0_block_is_not_read_and_a_label_2_block_not_masked() -> None:
    q, k, v, _ = oracle.arrays(1, 1, S, S, 64, 64)
    plain, _ = _call(_make(CausalMask((S, S))), q, k, v, None, None)
    poisoned = v.copy()
    poisoned[:, 256:] = np.nan
    out, _ = _call(_make(CausalMask((S, S))), q, k, poisoned, None, None)
    np.testing.assert_array_equal(np.asarray(out)[:, :256], np.asarray(plain)[:, :256])
    mask = np.ones((S, S), bool)
    mask[0, 0] = False
    kernel = _make(mask)
    blocks = kernel.plan.forward.mask.blocks
    assert blocks.shape[0] == 1
    _check(kernel, oracle.Problem(q, k, v, v, mask[None]))


def test_uneven_lengths_and_mqa() -> None:
    shape = (256, 640)
    mask = np.tril(np.ones(shape, bool), 384)
    q, k, v, do = oracle.arrays(3, 1, *shape, 64, 64)
    kernel = make_splash_mqa(
        CausalMask(shape, 384),
        block_sizes=BlockSizes(128, 128),
        interpret=True,
        save_residuals=True,
    )
    out, _ = _call(kernel, q, k[0], v[0], None, None)
    want = oracle.forward(oracle.Problem(q, k, v, do, mask[None]))
    oracle.check("out", out, want.out, want.out_error)


def test_local_and_full_masks() -> None:
    q, k, v, do = oracle.arrays(1, 1, S, S, 64, 64)
    i, j = np.indices((S, S))
    local = (j <= i + 30) & (j >= i - 200)
    _check(_make(LocalMask((S, S), (200, 30))), oracle.Problem(q, k, v, do, local[None]))
    everything = np.ones((1, S, S), bool)
    _check(_make(FullMask((S, S))), oracle.Problem(q, k, v, do, everything))


@pytest.mark.parametrize(
    ("window", "offset"),
    [((5, 3), 0), ((0, 0), 7), ((2**40, 3), 0), ((9, -4), 0), ((3, -9), 0), ((None, 2), -5)],
)
def test_a_window_in_the_kernel_is_the_window(window: Any, offset: int) -> None:
    mask = LocalMask((64, 64), window, offset)
    q, kv = jnp.arange(64)[:, None], jnp.arange(64)[None, :]
    got = jnp.broadcast_to(evaluate(mask.mask_function, q, kv), (64, 64))
    np.testing.assert_array_equal(got, mask[:, :])


def test_positions_that_are_not_consecutive() -> None:
    order = np.random.default_rng(3).permutation(S)
    q, k, v, do = oracle.arrays(1, 1, S, S, 64, 64)
    mask = order[:, None] >= np.arange(S)
    kernel = _make(CausalMask((S, S), q_sequence=order))
    assert kernel.plan.forward.mask.q_positions is not None
    _check(kernel, oracle.Problem(q, k, v, do, mask[None]))


def test_dynamic_mask_made_inside_jit_vmap_and_scan() -> None:
    rng = np.random.default_rng(5)
    masks = rng.random((2, 1, 256, 256)) < 0.3
    masks[0, :, :, 128:] = False
    q, k, v, do = oracle.arrays(2, 2, 256, 256, 64, 64)

    def one(mask: Any) -> Any:
        kernel = make_splash_mha(mask, block_sizes=BlockSizes(128, 128), interpret=True)
        return kernel(q, k, v)

    scanned = jax.jit(lambda m: jax.lax.scan(lambda c, x: (c, one(x)), 0, m)[1])(masks)
    mapped = jax.jit(jax.vmap(one))(masks)
    for i in range(2):
        want = oracle.forward(oracle.Problem(q, k, v, do, masks[i]))
        oracle.check("scan", scanned[i], want.out, want.out_error)
        oracle.check("vmap", mapped[i], want.out, want.out_error)


def test_vmap_over_the_batch_with_segments() -> None:
    batch = [oracle.arrays(2, 1, 256, 256, 64, 64, seed) for seed in range(2)]
    q, k, v, _ = (np.stack(x) for x in zip(*batch, strict=True))
    ids = np.stack([np.arange(256) // 64, np.arange(256) // 96])
    kernel = make_splash_mha(
        CausalMask((256, 256)), block_sizes=BlockSizes(128, 128), interpret=True
    )
    out = jax.jit(jax.vmap(lambda q, k, v, s: kernel(q, k, v, SegmentIds(s, s))))(q, k, v, ids)
    causal = np.tril(np.ones((256, 256), bool))
    for b in range(2):
        mask = causal & (ids[b][:, None] == ids[b])
        want = oracle.forward(oracle.Problem(q[b], k[b], v[b], v[b], mask[None]))
        oracle.check("out", out[b], want.out, want.out_error)
