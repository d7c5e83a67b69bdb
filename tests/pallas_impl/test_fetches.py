"""What the pipeline fetches, read from the kernels' own index maps.

The pipeline copies a block when its index differs from the step before.  The least that a
visiting order needs is one copy for each change among the steps that use the operand.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import core
from jax._src.state import discharge

from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, FullMask, LocalMask
from pallas_impl.steps import Reader, grid_ids, grid_of

S, BLOCK = 1024, 128
RANDOM = np.random.default_rng(0)


def _sparse() -> Any:
    coarse = RANDOM.random((S // BLOCK, S // BLOCK)) < 0.2
    coarse[3], coarse[:, 5] = False, False
    coarse[6, :7] = True
    return np.kron(coarse, np.ones((BLOCK, BLOCK), bool)) & (RANDOM.random((S, S)) < 0.5)


MASKS = {
    "causal": CausalMask((S, S)),
    "local": LocalMask((S, S), (500, 0)),
    "full": FullMask((S, S)),
    "sparse": _sparse(),
}


def _pallas_calls(jaxpr: Any) -> list[Any]:
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "pallas_call":
            found.append(eqn)
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns") and eqn.primitive.name != "pallas_call":
                found += _pallas_calls(inner)
    return found


def _indices(eqn: Any, operands: list[int], prefetch: list[Any]) -> list[np.ndarray]:
    """Block index of some inputs at every grid step, in order: [steps, dimensions] each."""
    mapping = eqn.params["grid_mapping"]
    maps = [mapping.block_mappings[i].index_map_jaxpr for i in operands]
    plain = [discharge.discharge_state(closed) for closed in maps]
    points = np.array(list(itertools.product(*map(range, mapping.grid))), np.int32)

    def one(point: Any) -> Any:
        args = [*point, *map(jnp.asarray, prefetch)]
        found = []
        for closed, jaxpr in zip(maps, plain, strict=True):
            consts = getattr(jaxpr, "consts", ())
            out = core.eval_jaxpr(getattr(jaxpr, "jaxpr", jaxpr), consts, *args)
            wanted = out[: len(closed.jaxpr.outvars)]
            found.append(jnp.stack([jnp.asarray(x, jnp.int32) for x in wanted]))
        return found

    return [np.asarray(x) for x in jax.jit(jax.vmap(one))(points)]


def _counts(schedule: Any, heads: int, group: int) -> np.ndarray:
    """How many slots are computed, at every grid step in order."""
    layout = schedule.layout
    refs = {n: jnp.ravel(jnp.asarray(a)) for n, a in schedule.arrays().items()}
    sizes = grid_of(layout, heads, group)
    points = np.array(list(itertools.product(*map(range, sizes))), np.int32)

    def one(point: Any) -> Any:
        head, *ids = grid_ids(layout, tuple(point), group)
        return Reader(layout, refs, False, head, tuple(ids), group).step_info().count

    return np.asarray(jax.jit(jax.vmap(one))(points))


def _changes(indices: np.ndarray) -> int:
    return 1 + int((indices[1:] != indices[:-1]).any(1).sum())


def _check(kernel: Any, heads: int, kv_heads: int) -> None:
    q = jax.ShapeDtypeStruct((heads, S, 128), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((kv_heads, S, 128), jnp.bfloat16)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return kernel(q, k, v).astype(jnp.float32).sum()

    calls = _pallas_calls(jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(q, k, k).jaxpr)
    assert len(calls) == 2
    plans = (kernel.plan.forward, kernel.plan.dkv)
    for eqn, plan, fixed, per_slot in zip(calls, plans, (1, 2), (2, 3), strict=True):
        schedule, mask = plan
        prefetch = [np.ravel(a) for a in schedule.arrays().values()]
        if mask.q_starts is not None:
            starts = [mask.q_starts, mask.kv_starts]
            prefetch += starts if fixed == 1 else starts[::-1]
        group = 1 if fixed == 1 else heads // kv_heads
        first = heads if fixed == 1 else kv_heads
        slots = schedule.layout.slots
        counts = _counts(schedule, first, group)
        found = _indices(eqn, list(range(fixed, fixed + slots * per_slot)), prefetch)
        for i, at in enumerate(found):
            used = counts > i // per_slot
            assert _changes(at) == (_changes(at[used]) if used.any() else 1), (i, schedule.layout)


@pytest.mark.parametrize(
    ("mask", "grid", "storage"),
    [
        ("causal", "flat", "runs"),
        ("causal", "grid2d", "runs"),
        ("causal", "flat", "table"),
        ("local", "grid2d", "table"),
        ("full", "flat", "runs"),
        ("sparse", "flat", "table"),
    ],
)
def test_nothing_is_fetched_in_vain(mask: str, grid: Any, storage: Any) -> None:
    sizes = BlockSizes(BLOCK, BLOCK, use_fused_bwd_kernel=True)
    _check(make_splash_mha(MASKS[mask], block_sizes=sizes, grid=grid, storage=storage), 4, 2)


def test_dynamic_mask_fetches_nothing_in_vain() -> None:
    dense = np.asarray(MASKS["sparse"])[None]
    sizes = BlockSizes(BLOCK, BLOCK, use_fused_bwd_kernel=True)
    _check(make_splash_mha(jnp.asarray(dense), block_sizes=sizes), 2, 1)


def test_the_measure_sees_a_wasted_fetch() -> None:
    at = np.array([[0], [1], [0]])
    assert _changes(at) == 3
    assert _changes(at[[True, False, True]]) == 1
