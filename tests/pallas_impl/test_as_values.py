"""Kernels as values: equality, hash, pickling, static arguments, export, and JAX's strict modes.

Protects what frameworks do with a kernel besides calling it: keeping it in a cache, closing over it on several devices,
exporting it from a host without a TPU, and running with promotions of types or ranks switched off.
"""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, LocalMask, MultiHeadMask
from pallas_impl.ring import make_ring_attention
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import attention_oracle as oracle

S = 256
SMALL = BlockSizes(128, 128)
CAUSAL = np.tril(np.ones((S, S), bool))


def _kernel(mask: Any, **options: Any) -> Any:
    chosen: dict[str, Any] = {"block_sizes": SMALL, "interpret": True}
    return make_splash_mha(mask, **(chosen | options))


def test_kernels_of_equal_masks_and_settings_are_equal() -> None:
    one, other = _kernel(CausalMask((S, S))), _kernel(CausalMask((S, S)))
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other, _kernel(CAUSAL), _kernel(CAUSAL.copy())}) == 2
    for different in (
        _kernel(CausalMask((S, S), 1)),
        _kernel(LocalMask((S, S), (128, 0))),
        _kernel(CausalMask((S, S)), attn_logits_soft_cap=2.0),
        _kernel(CausalMask((S, S)), block_sizes=BlockSizes(256, 128)),
    ):
        assert one != different
    assert one != "a kernel"


def test_kernels_of_run_time_masks_equal_themselves() -> None:
    mask = jnp.asarray(CAUSAL)
    one, other = _kernel(mask), _kernel(mask)
    assert one == one
    assert hash(one) == hash(one)
    assert one != other


def test_a_kernel_is_a_static_argument() -> None:
    traced = []

    def call(kernel: Any, q: Any) -> Any:
        traced.append(kernel)
        return kernel(q, q, q)

    run = jax.jit(call, static_argnums=0)
    q = oracle.arrays(1, 1, S, S, 64, 64)[0]
    first, second = (run(_kernel(CausalMask((S, S))), q) for _ in range(2))
    assert len(traced) == 1
    np.testing.assert_array_equal(first, second)


def test_a_kernel_survives_pickling() -> None:
    kernel = _kernel(CAUSAL)
    hash(kernel)
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel
    q = oracle.arrays(1, 1, S, S, 64, 64)[0]
    np.testing.assert_array_equal(again(q, q, q), kernel(q, q, q))


@pytest.mark.parametrize("kind", ["causal", "dense", "run-time", "run-time, per head"])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize(
    ("mode", "value"), [("numpy_dtype_promotion", "strict"), ("numpy_rank_promotion", "raise")]
)
def test_nothing_is_promoted_behind_the_scenes(
    mode: str, value: str, kv_heads: int, kind: str
) -> None:
    masks: dict[str, Any] = {
        "causal": CausalMask((S, S)),
        "dense": CAUSAL,
        "run-time": jnp.asarray(CAUSAL),
        "run-time, per head": jnp.asarray(np.stack([CAUSAL, CAUSAL | CAUSAL.T])),
    }
    q, k, v, _ = oracle.arrays(2, kv_heads, S, S, 64, 64)
    ids = jnp.zeros(S, jnp.int32)

    def loss(q: Any, k: Any, v: Any, sinks: Any) -> Any:
        kernel = _kernel(masks[kind], attn_logits_soft_cap=5.0, save_residuals=True)
        out, stats = kernel(q, k, v, SegmentIds(ids, ids), sinks)
        return out.sum() + stats.logsumexp.sum()

    gradient = jax.grad(loss, argnums=(0, 1, 2, 3))
    expected = gradient(q, k, v, jnp.zeros(2))
    with getattr(jax, mode)(value):
        found = gradient(q, k, v, jnp.zeros(2))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["causal", "dense", "run-time"])
def test_a_host_without_a_tpu_exports_for_one(kind: str) -> None:
    masks: dict[str, Any] = {"causal": CausalMask((S, S)), "dense": CAUSAL}
    kernel = _kernel(masks.get(kind, jnp.asarray(CAUSAL)), interpret=False)
    q, k = jnp.zeros((2, S, 64)), jnp.zeros((1, S, 64))
    for call in (
        lambda q, k: kernel(q, k, k),
        jax.grad(lambda q, k: kernel(q, k, k).sum(), argnums=(0, 1)),
    ):
        exported = jax.export.export(jax.jit(call), platforms=["tpu"])(q, k)
        again = jax.export.deserialize(exported.serialize())
        assert again.platforms == ("tpu",)
        assert "tpu_custom_call" in again.mlir_module()


def test_second_derivatives_are_refused_with_a_text() -> None:
    q = oracle.arrays(1, 1, S, S, 64, 64)[0]
    kernel = _kernel(CausalMask((S, S)))

    def slope(q: Any) -> Any:
        return jax.grad(lambda q: kernel(q, q, q).sum())(q).sum()

    with pytest.raises(NotImplementedError, match="first derivatives only"):
        jax.grad(slope)(q)


MASKS_PER_HEAD = MultiHeadMask([CausalMask((S, S)), LocalMask((S, S), (64, 64))] * 2)


@pytest.mark.parametrize("how", ["closed over", "replicated"])
@pytest.mark.parametrize("run_time", [False, True], ids=["compiled", "run-time"])
def test_masks_of_all_heads_on_every_device_are_refused(how: str, run_time: bool) -> None:
    if len(jax.devices()) < 2:
        pytest.skip("needs 2 host devices")
    mesh = Mesh(np.array(jax.devices()[:2]), ("h",))
    mask: Any = MASKS_PER_HEAD
    if run_time:
        mask = jnp.asarray(MASKS_PER_HEAD[:, :, :])
    kernel = _kernel(mask, head_shards=2)
    q = jnp.zeros((4, S, 64))
    heads = P("h")

    def call(q: Any, given: Any = kernel) -> Any:
        return given(q, q, q)

    arguments, specs = ((q,), (heads,)) if how == "closed over" else ((q, kernel), (heads, P()))
    sharded = jax.shard_map(call, mesh=mesh, in_specs=specs, out_specs=heads, check_vma=False)
    with pytest.raises(
        ValueError, match=r"head_shards=2: this device has 2 heads, but the kernel came"
    ):
        jax.jit(sharded)(*arguments)


def test_a_ring_without_its_head_axis_is_refused() -> None:
    if len(jax.devices()) < 4:
        pytest.skip("needs 4 host devices")
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("h", "ring"))
    kernel = make_ring_attention(
        MASKS_PER_HEAD,
        ring_axis="ring",
        ring_size=2,
        head_shards=2,
        block_sizes=SMALL,
        interpret=True,
    )
    cut = P("h", "ring")
    sharded = jax.shard_map(
        lambda kernel, q: kernel(q, q, q),
        mesh=mesh,
        in_specs=(kernel.manual_sharding_spec(), cut),
        out_specs=cut,
        check_vma=False,
    )
    with pytest.raises(
        ValueError, match="manual_sharding_spec, which cuts its arrays over the heads"
    ):
        jax.jit(sharded)(kernel, jnp.zeros((4, S, 64)))


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (None, TypeError, "mask must be a pallas_impl.Mask or a boolean array, got None"),
        ([CausalMask((S, S))], TypeError, r"a list of masks: write MultiHeadMask\(masks\)"),
        (
            np.ones((1, 1, S, S), bool),
            ValueError,
            r"mask must have shape .*, got \(1, 1, 256, 256\)",
        ),
    ],
    ids=["None", "list", "four axes"],
)
def test_what_is_no_mask_is_refused_by_name(mask: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        _kernel(mask)


def test_objects_of_other_libraries_are_refused_or_taken_by_what_they_hold() -> None:
    splash = "jax.experimental.pallas.ops.tpu.splash_attention"
    masks = pytest.importorskip(f"{splash}.splash_attention_mask")
    theirs = pytest.importorskip(f"{splash}.splash_attention_kernel")
    with pytest.raises(TypeError, match=r"splash_attention_mask\.CausalMask; build the mask from"):
        _kernel(masks.CausalMask((S, S)))
    with pytest.raises(TypeError, match=r"must be pallas_impl\.BlockSizes, got jax\..*same names"):
        _kernel(CausalMask((S, S)), block_sizes=theirs.BlockSizes(128, 128))
    q = oracle.arrays(1, 1, S, S, 64, 64)[0]
    ids = jnp.asarray(np.arange(S) // 100, jnp.int32)
    kernel = _kernel(CausalMask((S, S)))
    np.testing.assert_array_equal(
        kernel(q, q, q, theirs.SegmentIds(ids, ids)), kernel(q, q, q, SegmentIds(ids, ids))
    )
    with pytest.raises(TypeError, match=r"segment_ids\.q must be an array of integers, got None"):
        kernel(q, q, q, SegmentIds(None, None))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"segment_ids must be SegmentIds\(q, kv\), got int"):
        kernel(q, q, q, 3)


def test_a_shape_is_a_pair() -> None:
    with pytest.raises(TypeError, match=r"shape must be \(q_len, kv_len\), got 256"):
        CausalMask(256)  # type: ignore[arg-type]
