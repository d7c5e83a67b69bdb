"""Every kernel variant compiles for v5e and v6e; no TPU is needed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, FullMask
from pallas_impl.ring import make_ring_attention
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import tpu_aot

S = 1024
CHIPS = ["v5e:1x1", "v6e:1x1"]
DENSE = np.random.default_rng(0).random((S, S)) < 0.5
BF16, F32 = jnp.bfloat16, jnp.float32


def _loss(kernel: Any, *args: Any) -> Any:
    return kernel(*args).astype(F32).sum()


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
@pytest.mark.parametrize(
    ("dtype", "dim", "v_dim", "block", "grid", "storage", "mask", "extras"),
    [
        (BF16, 64, 64, 128, "flat", "table", "causal", True),
        (BF16, 128, 128, 128, "flat", "runs", "causal", False),
        (BF16, 128, 128, 256, "grid2d", "table", "dense", True),
        (BF16, 128, 128, 512, "flat", "table", "dense", False),
        (BF16, 64, 128, 512, "grid2d", "runs", "causal", True),
        (BF16, 192, 128, 256, "flat", "table", "causal", False),
        (F32, 128, 128, 128, "flat", "table", "causal", False),
        (F32, 64, 64, 256, "grid2d", "table", "dense", True),
    ],
)
def test_gradients_compile(
    chip: str, fused: bool, dtype: Any, dim: int, v_dim: int, block: int,
    grid: Any, storage: Any, mask: str, extras: bool,
) -> None:  # fmt: skip
    kernel = make_splash_mha(
        CausalMask((S, S)) if mask == "causal" else DENSE,
        block_sizes=BlockSizes(block, block, use_fused_bwd_kernel=fused),
        attn_logits_soft_cap=5.0 if extras else None,
        grid=grid,
        storage=storage,
    )
    q = jax.ShapeDtypeStruct((4, S, dim), dtype)
    k, v = (jax.ShapeDtypeStruct((2, S, d), dtype) for d in (dim, v_dim))
    ids: Any = jax.ShapeDtypeStruct((S,), jnp.int32)
    segments = SegmentIds(ids, ids) if extras else None
    sinks = jax.ShapeDtypeStruct((4,), F32) if extras else None
    compiled = tpu_aot.compile_for(
        chip, jax.grad(_loss, (1, 2, 3), allow_int=True), kernel, q, k, v, segments, sinks
    )
    names = ["splash_fwd", *(["splash_bwd"] if fused else ["splash_dq", "splash_dkv"])]
    for name in names:
        assert name in compiled.as_text()


@pytest.mark.parametrize("chip", CHIPS)
def test_forward_with_residuals_and_a_dynamic_mask_compiles(chip: str) -> None:
    def call(mask: Any, q: Any) -> Any:
        kernel = make_splash_mha(mask, block_sizes=BlockSizes(256, 256), save_residuals=True)
        return kernel(q, q, q)

    mask = jax.ShapeDtypeStruct((2, S, S), jnp.bool_)
    tpu_aot.compile_for(chip, call, mask, jax.ShapeDtypeStruct((2, S, 128), BF16))


@pytest.mark.parametrize("chip", CHIPS)
def test_causal_compiles_beyond_a_million_tokens_at_block_512(chip: str) -> None:
    length = 3 << 19
    kernel = make_splash_mha(CausalMask((length, length)), block_sizes=BlockSizes(512, 512))
    x = jax.ShapeDtypeStruct((1, length, 128), BF16)
    tpu_aot.compile_for(chip, jax.grad(_loss, (1, 2, 3), allow_int=True), kernel, x, x, x)


def _ring(mask: Any, length: int, layout: Any, gradient: bool, name: str) -> list[tuple[str, str]]:
    kernel = make_ring_attention(
        mask, ring_axis="ring", ring_size=4, layout=layout, block_sizes=BlockSizes(512, 512)
    )
    mesh, seq = tpu_aot.mesh_of(name, 4, "ring"), P(None, "ring")
    specs = (kernel.manual_sharding_spec(), seq, seq, seq)
    call = jax.shard_map(
        lambda kernel, *x: kernel(*x), mesh=mesh, in_specs=specs, out_specs=seq, check_vma=False
    )
    fn = jax.grad(lambda *a: call(*a).astype(F32).sum(), (1, 2, 3)) if gradient else call
    x = jax.ShapeDtypeStruct((2, length, 128), BF16)
    return tpu_aot.events(tpu_aot.compile_sharded(mesh, fn, (kernel, x, x, x), specs))


@pytest.mark.parametrize("topology", ["v5e:2x2", "v6e:2x2"])
@pytest.mark.parametrize("case", ["full", "causal", "zigzag"])
def test_every_forward_transfer_surrounds_a_kernel(topology: str, case: str) -> None:
    length = 16384
    mask = FullMask((length, length)) if case == "full" else CausalMask((length, length))
    layout = "zigzag" if case == "zigzag" else "contiguous"
    counts = tpu_aot.hidden(_ring(mask, length, layout, False, topology))
    assert counts == [1] * 6, "k and v, three times, each around one step's kernel"


def test_backward_transfers_surround_kernels_but_for_the_last_gradients() -> None:
    counts = tpu_aot.hidden(_ring(CausalMask((16384, 16384)), 16384, "zigzag", True, "v5e:2x2"))
    assert len(counts) == 6 + 6 + 8
    assert all(counts[:-2])
    assert counts[-2:] == [0, 0]


def test_a_transfer_that_nothing_hides_is_noticed() -> None:
    assert tpu_aot.hidden([("start", "a"), ("done", "a"), ("kernel", "k")]) == [0]
