"""Arguments of the public functions: what is accepted, what is refused and how."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pallas_impl.api import make_splash_mha, make_splash_mqa
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, MultiHeadMask
from pallas_impl.segment_ids import SegmentIds
from tests.pallas_impl import attention_oracle as oracle

S = 256
SMALL = BlockSizes(128, 128)
CAUSAL = np.tril(np.ones((S, S), bool))


def test_block_sizes_take_any_integer_and_fill_in_the_rest() -> None:
    given: tuple[Any, Any] = (np.int64(256), np.uint16(128))
    sizes = BlockSizes(*given)
    assert sizes.forward == (256, 128)
    assert sizes.dkv[1] == 128
    assert type(sizes.block_q) is int
    assert sizes.dq == (256, 128)
    assert BlockSizes(use_fused_bwd_kernel=True).dq is None
    assert BlockSizes(128, 256, use_fused_bwd_kernel=False).dq == (128, 256)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"block_q": 100}, ValueError, "block_q must be a positive multiple of 128, got 100"),
        ({"block_kv": 0}, ValueError, "block_kv must be a positive multiple of 128"),
        ({"block_kv": 128.0}, TypeError, "block_kv must be an integer"),
        ({"block_q": True}, TypeError, "block_q must be an integer"),
        ({"block_kv_compute": 384}, ValueError, "block_kv_compute must divide block_kv"),
        ({"block_kv_dkv_compute": 384}, ValueError, "block_kv_dkv_compute must divide"),
        ({"block_q_dq": 128, "use_fused_bwd_kernel": True}, ValueError, "block_q_dq must be None"),
        ({"use_fused_bwd_kernel": 1}, TypeError, "use_fused_bwd_kernel must be a bool"),
    ],
)
def test_block_sizes_refuse(kwargs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        BlockSizes(**kwargs)


def _kernel(mask: Any = None, **kwargs: Any) -> Any:
    options: dict[str, Any] = {"block_sizes": SMALL, "interpret": True} | kwargs
    return make_splash_mha(CausalMask((S, S)) if mask is None else mask, **options)


def _x(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jnp.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((_x(S, 64), _x(2, S, 64), _x(2, S, 64)), ValueError, r"q must have shape \[heads"),
        ((_x(2, S, 64), _x(2, S, 32), _x(2, S, 64)), ValueError, "k must have q's head_dim 64"),
        ((_x(2, S, 64), _x(2, S, 64), _x(1, S, 64)), ValueError, "v must have k's heads"),
        ((_x(3, S, 64), _x(2, S, 64), _x(2, S, 64)), ValueError, "k must have a number of heads"),
        ((_x(2, 128, 64), _x(2, S, 64), _x(2, S, 64)), ValueError, "q must have 256 tokens"),
        ((_x(2, S, 64), _x(2, 128, 64), _x(2, 128, 64)), ValueError, "k must have 256 tokens"),
        ((_x(2, S, 64, dtype=jnp.int32),) + (_x(2, S, 64),) * 2, TypeError, "q must be float32"),
        ((_x(2, S, 64), _x(2, S, 64, dtype=jnp.bfloat16), _x(2, S, 64)), TypeError, "k must have"),
    ],
)
def test_operands_refused(args: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        _kernel()(*args)


def test_segments_sinks_and_heads_refused() -> None:
    q = _x(2, S, 64)
    ids = np.zeros(S, np.int32)
    with pytest.raises(ValueError, match=r"segment_ids.kv must have shape \(256,\)"):
        _kernel()(q, q, q, SegmentIds(ids, ids[:100]))
    with pytest.raises(TypeError, match=r"segment_ids\.q must hold integers"):
        _kernel()(q, q, q, SegmentIds(ids.astype(np.float32), ids))
    with pytest.raises(ValueError, match=r"sinks must have shape \(2,\)"):
        _kernel()(q, q, q, None, jnp.zeros(3))
    with pytest.raises(TypeError, match="sinks must be floating"):
        _kernel()(q, q, q, None, jnp.zeros(2, jnp.int32))
    three = MultiHeadMask([CausalMask((S, S))] * 3)
    with pytest.raises(ValueError, match="q must have 3 heads"):
        _kernel(three)(q, q, q)
    mqa = make_splash_mqa(CausalMask((S, S)), block_sizes=SMALL)
    with pytest.raises(ValueError, match=r"k must have shape \[kv_len, head_dim\]"):
        mqa(q, q, q)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"attn_logits_soft_cap": 0.0}, ValueError, "attn_logits_soft_cap must be positive"),
        ({"attn_logits_soft_cap": np.nan}, ValueError, "attn_logits_soft_cap must be positive"),
        ({"attn_logits_soft_cap": "much"}, TypeError, "attn_logits_soft_cap must be a number"),
        ({"attn_logits_soft_cap": [30]}, TypeError, "attn_logits_soft_cap must be a number"),
        ({"grid": "3d"}, ValueError, r"grid must be one of \('grid2d', 'flat'\) or None"),
        ({"storage": "rows"}, ValueError, r"storage must be one of \('table', 'runs'\) or None"),
        ({"head_shards": 0}, ValueError, "head_shards must be at least 1"),
        ({"q_seq_shards": 1.5}, TypeError, "q_seq_shards must be an integer"),
        ({"q_seq_shards": 3}, ValueError, "q_shards|q_seq_shards"),
        (
            {"block_sizes": 128},
            TypeError,
            "block_sizes must be pallas_impl.BlockSizes, got builtins.int",
        ),
        ({"mask": jnp.zeros((S, S))}, TypeError, "mask must be boolean"),
        ({"mask": jnp.zeros((S,), bool)}, ValueError, "mask must have shape"),
    ],
)
def test_making_a_kernel_refuses(kwargs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        _kernel(**kwargs)


@pytest.mark.parametrize("kind", ["causal", "runs", "dense", "dynamic", "shared dynamic"])
def test_heads_and_queries_sharded(kind: str) -> None:
    if len(jax.devices()) < 4:
        pytest.skip("needs 4 host devices")
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("h", "s"))
    rng = np.random.default_rng(0)
    dense = rng.random((4, S, S)) < 0.3
    dense[2:] |= CAUSAL
    dense[:, :128, 128:] = False
    causal = CausalMask((S, S))
    if kind == "shared dynamic":
        dense = dense[:1]
    made_late = jnp.asarray(dense if kind == "dynamic" else dense[0])
    masks = {"causal": causal, "runs": causal, "dense": dense}
    mask = masks.get(kind, made_late)
    storage = "runs" if kind == "runs" else None
    kernel = _kernel(mask, head_shards=2, q_seq_shards=2, storage=storage)
    seen = CAUSAL[None] if mask is causal else dense
    spec = kernel.manual_sharding_spec(NamedSharding(mesh, P("h", "s")))
    q, k, v, do = oracle.arrays(4, 2, S, S, 64, 64)
    sharded = jax.shard_map(
        lambda kernel, q, k, v: kernel(q, k, v),
        mesh=mesh,
        in_specs=(spec, P("h", "s"), P("h"), P("h")),
        out_specs=P("h", "s"),
        check_vma=False,
    )

    @jax.jit
    def run(kernel: Any, q: Any, k: Any, v: Any) -> Any:
        out, vjp = jax.vjp(lambda q, k, v: sharded(kernel, q, k, v), q, k, v)
        return out, vjp(jnp.asarray(do))

    out, grads = run(kernel, q, k, v)
    problem = oracle.Problem(q, k, v, do, seen)
    want, gradients = oracle.forward(problem), oracle.gradients(problem)
    oracle.check("out", out, want.out, want.out_error)
    for name, got in zip("qkv", grads, strict=True):
        oracle.check(f"d{name}", got, gradients.values[name], gradients.errors[name])


def test_sharding_spec_must_match_the_shard_counts() -> None:
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("h", "s"))
    kernel = _kernel(q_seq_shards=2)
    with pytest.raises(ValueError, match="q_seq_shards is 2 but"):
        kernel.manual_sharding_spec(NamedSharding(mesh, P("h", "s")))
    with pytest.raises(ValueError, match=r"sharding\.spec must be"):
        kernel.manual_sharding_spec(NamedSharding(mesh, P("h")))
    with pytest.raises(ValueError, match=r"must be called inside jax\.shard_map"):
        kernel(*[_x(2, 128, 64)] * 3)


def test_a_kernel_passes_through_jit_and_scan_as_a_pytree() -> None:
    kernel = _kernel()
    q, k, v, do = oracle.arrays(1, 1, S, S, 64, 64)
    step = jax.jit(lambda kn, x: jax.lax.scan(lambda c, _: (kn(c, k, v), None), x, None, 2)[0])
    first = oracle.forward(oracle.Problem(q, k, v, do, CAUSAL[None]))
    once = jax.jit(lambda kn, x: kn(x, k, v))(kernel, q)
    oracle.check("out", once, first.out, first.out_error)
    again = jax.jit(lambda kn, x: kn(x, k, v))(kernel, once)
    np.testing.assert_array_equal(step(kernel, q), again)
