"""Masks known at run time only: the same labels and the same prefetch rule, traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_impl import DenseMask, MultiHeadMask, compile_dynamic_mask, compile_mask
from tests.pallas_impl import mask_oracle as oracle

BLOCK = (2, 3)
SHAPE = (4, 8, 12)  # heads, q_len, kv_len: 4×4 blocks.


def random_masks() -> list[Any]:
    """Masks of empty, full and mixed blocks, one of them empty, one with an empty shard."""
    rng = np.random.default_rng(0)
    out = [np.zeros(SHAPE, dtype=np.bool_), np.ones(SHAPE, dtype=np.bool_)]
    for density in (0.1, 0.5, 0.9):
        kinds = rng.choice(3, size=(4, 4, 4), p=[0.5, 0.3, 0.2])
        kinds[1, :2] = 0
        fill = kinds.repeat(BLOCK[0], axis=1).repeat(BLOCK[1], axis=2)
        out.append(np.where(fill == 1, rng.random(SHAPE) < density, fill == 2))
    return out


@pytest.mark.parametrize("downcast", [True, False])
@pytest.mark.parametrize("direction", ["fwd", "dq", "dkv"])
@pytest.mark.parametrize("shards", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 2), (4, 4, 1)])
def test_dynamic_masks_follow_the_rules(direction: Any, shards: Any, downcast: bool) -> None:
    h, q, kv = shards
    options: Any = {
        "direction": direction,
        "head_shards": h,
        "q_shards": q,
        "kv_shards": kv,
        "downcast": downcast,
    }
    traced = jax.jit(lambda mask: compile_dynamic_mask(mask, BLOCK, **options))
    for mask in random_masks():
        info = traced(mask)
        blocks = np.asarray(info.partial_mask_blocks)
        stored = blocks.swapaxes(-1, -2) if direction == "dkv" else blocks
        for s_h, s_q, s_kv in np.ndindex(h, q, kv):
            heads = [
                oracle.cut(entries, (s_q, q), (s_kv, kv))
                for entries in mask[s_h * 4 // h : (s_h + 1) * 4 // h]
            ]
            # Every partial block is its own in the shard's stack: number them all.
            part = tuple(
                slice(s * 4 // n, (s + 1) * 4 // n) for s, n in ((s_h, h), (s_q, q), (s_kv, kv))
            )
            stack = stored[part].reshape(-1, *BLOCK)
            check_shard(info, part, heads, stack, direction == "dkv")
        for array, bound in ((info.data_next, 3), (info.mask_next, 64 // (h * q * kv) - 1)):
            assert array.dtype == (jnp.int8 if downcast and bound < 128 else jnp.int32)


def check_shard(info: Any, part: Any, heads: list[Any], stack: Any, dkv: bool) -> None:
    block_mask, data_next, mask_next = (
        np.asarray(array)[part] for array in (info.block_mask, info.data_next, info.mask_next)
    )
    wanted = oracle.Shard(heads, oracle.distinct_blocks(heads, BLOCK), BLOCK, dkv, shrink=False)
    labels, data, _ = wanted.arrays()
    np.testing.assert_array_equal(block_mask, labels)
    np.testing.assert_array_equal(data_next, data)
    order = list(np.ndindex(*labels.shape))
    if dkv:
        order.sort(key=lambda at: (at[2], at[0], at[1]))
    partial = [labels[at] == 1 for at in order]
    for n, at in enumerate(order):
        following = oracle.following(partial, n)
        if following is None:
            assert mask_next[at] == 0
            continue
        head, i, j = order[following]
        assert mask_next[at] == np.ravel_multi_index((head, i, j), labels.shape)
        block = oracle.block_at(heads[head], BLOCK, i, j)
        np.testing.assert_array_equal(stack[mask_next[at]], block)


def test_dynamic_and_static_agree() -> None:
    for mask in random_masks():
        # Head 0 gets an entry of its own, so that every head has its own row.
        heads = [mask[0] ^ (np.arange(12) == 0), mask[1], mask[1], ~mask[2]]
        static, _ = compile_mask(MultiHeadMask([DenseMask(m) for m in heads]), BLOCK)
        dynamic = compile_dynamic_mask(jnp.stack([jnp.asarray(m) for m in heads]), BLOCK)
        np.testing.assert_array_equal(dynamic.block_mask, static.block_mask)
        np.testing.assert_array_equal(dynamic.data_next, static.data_next)


def test_dynamic_masks_can_be_mapped_and_scanned() -> None:
    masks = jnp.stack([jnp.asarray(m) for m in random_masks()])
    mapped = jax.vmap(lambda mask: compile_dynamic_mask(mask, BLOCK))(masks)
    _, scanned = jax.lax.scan(
        lambda _, mask: (None, compile_dynamic_mask(mask, BLOCK)), None, masks
    )
    for n, mask in enumerate(masks):
        alone = compile_dynamic_mask(mask, BLOCK)
        for a, b, c in zip(alone, mapped, scanned, strict=True):
            if a is not None:
                np.testing.assert_array_equal(a, b[n])
                np.testing.assert_array_equal(a, c[n])


@pytest.mark.parametrize(
    ("mask", "options", "error", "message"),
    [
        (np.ones((8, 12), dtype=np.bool_), {}, ValueError, "mask"),
        (np.ones((0, 8, 12), dtype=np.bool_), {}, ValueError, "mask"),
        (np.ones(SHAPE), {}, TypeError, "mask.*float"),
        (np.ones(SHAPE, dtype=np.bool_), {"head_shards": 3}, ValueError, "head_shards"),
        (np.ones(SHAPE, dtype=np.bool_), {"q_shards": 8}, ValueError, "block_q"),
        (np.ones(SHAPE, dtype=np.bool_), {"direction": "up"}, ValueError, "direction"),
    ],
)
def test_bad_arguments_are_named(
    mask: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        compile_dynamic_mask(jnp.asarray(mask), BLOCK, **options)
