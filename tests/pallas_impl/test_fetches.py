"""What the pipeline fetches, read from the kernels' own index maps: the fewest blocks possible."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, ChunkedCausalMask, FullMask, LocalMask
from pallas_impl.steps import by_members
from tests.pallas_impl.fetch_oracle import (
    Table,
    changes,
    fewest,
    indices,
    one_kept,
    pallas_calls,
    step_bits,
)

S, BLOCK = 1024, 128
SIZE = (S, S)
RANDOM = np.random.default_rng(0)
FUSED = BlockSizes(BLOCK, BLOCK, use_fused_bwd_kernel=True)
SPLIT = BlockSizes(BLOCK, BLOCK, block_q_dq=BLOCK, block_kv_dq=256, use_fused_bwd_kernel=False)


def _sparse() -> Any:
    coarse = RANDOM.random((S // BLOCK, S // BLOCK)) < 0.3
    coarse[3], coarse[:, 5] = False, False
    coarse[6, :7] = True
    return np.kron(coarse, np.ones((BLOCK, BLOCK), bool)) & (RANDOM.random(SIZE) < 0.5)


MASKS: dict[str, Any] = {
    "causal": CausalMask(SIZE),
    "local": LocalMask(SIZE, (500, 0)),
    "narrow": LocalMask(SIZE, (127, 0)),
    "chunked": ChunkedCausalMask(SIZE, 384),
    "full": FullMask(SIZE),
    "sparse": _sparse(),
}


OPERANDS = {"splash_fwd": (1, 2), "splash_dq": (3, 2), "splash_dkv": (2, 3), "splash_bwd": (2, 3)}
"""Inputs that follow the row, and inputs of each slot."""


def _check(
    kernel: Any, heads: int, kv_heads: int, *, fused: bool = True, known: bool = True
) -> None:
    """Every kernel of a gradient: nothing in vain, and no placement fetches fewer."""
    q = jax.ShapeDtypeStruct((heads, S, 128), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((kv_heads, S, 128), jnp.bfloat16)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return kernel(q, k, v).astype(jnp.float32).sum()

    calls = pallas_calls(jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(q, k, k).jaxpr)
    backward = ["splash_bwd"] if fused else ["splash_dkv", "splash_dq"]
    assert [c.params["name"] for c in calls] == ["splash_fwd", *backward]
    for eqn in calls:
        name = eqn.params["name"]
        plan = {"splash_fwd": kernel.plan.forward, "splash_dq": kernel.plan.dq}.get(name)
        if plan is None:
            found = _moving(eqn, kernel.plan.dkv, kv_heads, heads // kv_heads)
        else:
            found = _moving(eqn, plan, heads, 1)
        needed, slots = found.fetched - found.idle, found.active.shape[1]
        assert needed <= one_kept(found), name
        if heads == kv_heads and known:
            assert needed == fewest(found.steps(), slots), name


def _moving(eqn: Any, plan: Any, heads: int, group: int) -> Table:
    """What moves through the slots of a kernel, after a look at every input of them."""
    schedule, mask = plan
    fixed, per_slot = OPERANDS[eqn.params["name"]]
    transposed = per_slot == 3
    if group > 1 and len(schedule.words) > 1:
        schedule = by_members(schedule, group)
    prefetch = [np.ravel(a) for a in schedule.arrays().values()]
    if mask.q_starts is not None:
        starts = [mask.q_starts, mask.kv_starts]
        prefetch += starts[::-1] if transposed else starts
    slots = schedule.layout.slots
    active, full = step_bits(schedule, heads, group)
    stored = range(slots) if mask.blocks is not None else ()
    inputs = [*range(fixed, fixed + slots * per_slot)]
    found = indices(eqn, [*inputs, *(inputs[-1] + 1 + i for i in stored)], prefetch)
    for i, at in enumerate(found[: len(inputs)]):
        used = active[:, i // per_slot]
        assert changes(at) == max(1, changes(at[used])), (i, schedule.layout)
    for slot, at in enumerate(found[len(inputs) :]):
        partial = active[:, slot] & ~full[:, slot]
        assert changes(at) == max(1, changes(at[partial])), (slot, schedule.layout)
    first = np.stack(found[: len(inputs) : per_slot], 1)
    return Table(active, first[..., :2], int(np.count_nonzero(~active.any(0))))


@pytest.mark.parametrize(
    ("mask", "grid", "storage"),
    [
        ("causal", "flat", "runs"),
        ("causal", "grid2d", "runs"),
        ("causal", "flat", "table"),
        ("local", "grid2d", "table"),
        ("narrow", "flat", "table"),
        ("narrow", "flat", "runs"),
        ("chunked", "flat", "runs"),
        ("chunked", "grid2d", "table"),
        ("full", "flat", "runs"),
        ("sparse", "flat", "table"),
    ],
)
def test_nothing_is_fetched_in_vain(mask: str, grid: Any, storage: Any) -> None:
    _check(make_splash_mha(MASKS[mask], block_sizes=FUSED, grid=grid, storage=storage), 2, 2)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
@pytest.mark.parametrize("heads", ["shared", "own"])
def test_query_heads_that_share_keys(heads: str, fused: bool) -> None:
    names = ["sparse", "causal", "narrow", "sparse"]
    masks = np.stack([np.asarray(MASKS[n][:, :]) for n in names])
    masks[3] = False
    mask = MASKS["sparse"] if heads == "shared" else masks
    kernel = make_splash_mha(mask, block_sizes=FUSED if fused else SPLIT)
    _check(kernel, 4, 2, fused=fused)


def test_heads_with_masks_and_keys_of_their_own() -> None:
    masks = np.stack([np.asarray(MASKS[n][:, :]) for n in ("sparse", "narrow")])
    _check(make_splash_mha(masks, block_sizes=SPLIT), 2, 2, fused=False)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_run_time_masks(kv_heads: int) -> None:
    """They keep what the step before has, which is at least as much as one block."""
    masks = np.stack([np.asarray(MASKS[n][:, :]) for n in ("sparse", "narrow")])
    _check(make_splash_mha(jnp.asarray(masks), block_sizes=FUSED), 2, kv_heads, known=False)


def test_the_measure_sees_a_wasted_fetch() -> None:
    at = np.array([[0], [1], [0]])
    assert changes(at) == 3
    assert changes(at[[True, False, True]]) == 1
