"""SMEM and VMEM needs are predicted, and agree with the TPU compiler at the limit."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pallas_impl import kernel_call, memory_budget
from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask
from tests.pallas_impl import tpu_aot


def _with_table(words: int, block: int) -> tuple[Any, Any]:
    """A kernel whose schedule tables hold ``words`` words each."""
    kernel = make_splash_mha(
        CausalMask((1024, 1024)), block_sizes=BlockSizes(block, block), storage="table"
    )
    forward = kernel.plan.forward
    slots = forward.schedule.layout.slots
    steps = words // slots
    schedule = dataclasses.replace(
        forward.schedule,
        words=np.zeros((1, steps), np.int32),
        entries=np.zeros((1, steps * slots), np.int32),
        layout=dataclasses.replace(forward.schedule.layout, steps=steps),
    )
    plan = kernel.plan._replace(forward=forward._replace(schedule=schedule))
    used = sum(memory_budget.smem_bytes(a) for a in schedule.arrays().values())
    return dataclasses.replace(kernel, plan=plan), used + 2 * memory_budget.SMEM_GRANULE


X = jax.ShapeDtypeStruct((1, 1024, 128), jnp.bfloat16)


def _call(kernel: Any, x: Any) -> Any:
    return kernel(x, x, x)


CHIPS = {
    "v4:2x2x1": memory_budget.CORES["TPU v4"],
    "v5e:1x1": memory_budget.CORES["TPU v5 lite"],
    "v5p:2x2x1": memory_budget.CORES["TPU v5"],
    "v6e:1x1": memory_budget.CORES["TPU v6 lite"],
    "tpu7x:2x2x1": memory_budget.CORES["TPU7x"],
}


def _chips(*quick: str) -> list[Any]:
    """All generations; those that are not ``quick`` in deep runs only."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.deep) for n in CHIPS]


def _endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the compiler find out what does not fit."""
    monkeypatch.setattr(memory_budget, "this_core", lambda: memory_budget.Core(1 << 30, 1 << 30))


@pytest.mark.parametrize("chip", CHIPS)
def test_the_core_is_the_one_that_is_traced_for(chip: str) -> None:
    assert memory_budget.this_core() is memory_budget.ROOMIEST
    with tpu_aot.chip(chip):
        assert memory_budget.this_core() is CHIPS[chip]


def test_inside_shard_map_the_core_is_that_of_the_mesh() -> None:
    seen = []

    def local(x: Any) -> Any:
        seen.append(memory_budget.this_core())
        return x

    mesh = tpu_aot.mesh_of("v5p:2x2x1", 4, "x")
    traced: Any = jax.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    jax.jit(traced).trace(jax.ShapeDtypeStruct((4,), jnp.float32))
    assert seen[0] is CHIPS["v5p:2x2x1"]


@pytest.mark.parametrize("chip", _chips("v5e:1x1", "v6e:1x1"))
@pytest.mark.parametrize("block", [128, 512])
def test_smem_limit_agrees_with_the_compiler(
    chip: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = CHIPS[chip].smem - memory_budget.SMEM_RESERVED
    words = next(n for n in range(1 << 18, 0, -64) if _with_table(n, block)[1] <= limit)
    largest = _with_table(words, block)[0]
    tpu_aot.compile_for(chip, _call, largest, X)
    above = _with_table(words + 1024, block)[0]
    with (
        tpu_aot.chip(chip),
        pytest.raises(memory_budget.MemoryBudgetError, match="scalar memory would hold"),
    ):
        jax.eval_shape(_call, above, X)
    _endless(monkeypatch)
    with pytest.raises(Exception, match="smem"):
        tpu_aot.compile_for(chip, _call, above, X)


def test_smem_error_names_array_bytes_limit_and_remedy() -> None:
    kernel = _with_table(1 << 19, 512)[0]
    message = r"splash_fwd.*of at most 1,048,576.*largest array is entries with 2,097,152 bytes"
    with pytest.raises(memory_budget.MemoryBudgetError, match=message) as caught:
        jax.eval_shape(_call, kernel, X)
    assert "larger blocks, shard" in str(caught.value)


def _gradient(kernel: Any, x: Any) -> Any:
    return jax.grad(lambda x: kernel(x, x, x).astype(jnp.float32).sum())(x)


def _fused(length: int, block: int, fused: bool | None = True) -> Any:
    sizes = BlockSizes(block, block, use_fused_bwd_kernel=fused)
    return make_splash_mha(CausalMask((length, length)), block_sizes=sizes)


def test_vmem_error_names_dq_and_the_split_kernels_avoid_it() -> None:
    length = 131072
    x = jax.ShapeDtypeStruct((2, length, 128), jnp.bfloat16)
    message = "vector memory would hold.*largest array is dq with 134,217,728 bytes"
    with pytest.raises(memory_budget.MemoryBudgetError, match=message):
        jax.eval_shape(_gradient, _fused(length, 1024), x)
    assert jax.eval_shape(_gradient, _fused(length, 1024, None), x).shape == x.shape


def _counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, int]]:
    """Filled with the buffers, in bytes, of each kernel that is traced from now on."""
    found: dict[str, dict[str, int]] = {}

    def check(kernel: str, prefetch: Any, vmem: Any) -> int:
        found[kernel] = {}
        for item in vmem:
            found[kernel][item.name] = found[kernel].get(item.name, 0) + item.nbytes
        return memory_budget.this_core().vmem

    monkeypatch.setattr(kernel_call, "check_budget", check)
    jax.clear_caches()  # what was traced before is not traced again
    return found


def test_the_fused_kernel_is_chosen_where_all_of_it_fits() -> None:
    x = jax.ShapeDtypeStruct((2, 3072, 256), jnp.bfloat16)

    def kernels(chip: str, fused: bool | None) -> str:
        with tpu_aot.chip(chip):
            return str(jax.make_jaxpr(_gradient)(_fused(3072, 1024, fused), x))

    assert "splash_bwd" in kernels("v5e:1x1", None)
    assert "splash_bwd" not in kernels("v4:2x2x1", None), "dq would fit, what is beside it not"
    with pytest.raises(memory_budget.MemoryBudgetError, match="use_fused_bwd_kernel=False"):
        kernels("v4:2x2x1", True)


@pytest.mark.parametrize("chip", _chips("v4:2x2x1", "v5e:1x1"))
def test_vmem_limit_agrees_with_the_compiler(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dq of all queries of one head is kept: the longest sequence compiles, 2 MiB more do not."""
    block, token = 512, 128 * 4
    with monkeypatch.context() as patch:
        found = _counted(patch)
        x = jax.ShapeDtypeStruct((1, 2 * block, 128), jnp.bfloat16)
        jax.eval_shape(_gradient, _fused(2 * block, block), x)
    besides = sum(found["splash_bwd"].values()) - found["splash_bwd"]["dq"]
    fits = (CHIPS[chip].vmem - besides) // token // block * block
    above = fits + (2 << 20) // token
    x = jax.ShapeDtypeStruct((1, fits, 128), jnp.bfloat16)
    tpu_aot.compile_for(chip, _gradient, _fused(fits, block), x)
    x = jax.ShapeDtypeStruct((1, above, 128), jnp.bfloat16)
    with (
        tpu_aot.chip(chip),
        pytest.raises(memory_budget.MemoryBudgetError, match="vector memory would hold"),
    ):
        jax.eval_shape(_gradient, _fused(above, block), x)
    _endless(monkeypatch)
    with pytest.raises(Exception, match=r"Exceeded vmem capacity|would exceed memory"):
        tpu_aot.compile_for(chip, _gradient, _fused(above, block), x)


def test_blocks_are_too_large_for_small_cores_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2048 × 2048 the forward kernel keeps some 24 MiB."""
    x = jax.ShapeDtypeStruct((1, 4096, 128), jnp.bfloat16)
    kernel = _fused(4096, 2048)
    message = "splash_fwd.*of at most 16,777,216; the largest array is logits tiles"
    with (
        tpu_aot.chip("v4:2x2x1"),
        pytest.raises(memory_budget.MemoryBudgetError, match=message),
    ):
        jax.eval_shape(_call, kernel, x)
    tpu_aot.compile_for("v5p:2x2x1", _call, kernel, x)
    _endless(monkeypatch)
    with pytest.raises(Exception, match=r"Exceeded vmem capacity|would exceed memory"):
        tpu_aot.compile_for("v4:2x2x1", _call, kernel, x)


@pytest.mark.parametrize(
    ("block", "fused", "chip"),
    [
        (1024, False, "v5e:1x1"),
        pytest.param(2048, True, "v5e:1x1", marks=pytest.mark.deep),
        pytest.param(2048, True, "v6e:1x1", marks=pytest.mark.deep),
        pytest.param(2048, False, "v5e:1x1", marks=pytest.mark.deep),
        pytest.param(2048, False, "v6e:1x1", marks=pytest.mark.deep),
    ],
)
def test_large_blocks_ask_for_the_memory_that_they_need(block: int, fused: bool, chip: str) -> None:
    """The compiler's default limit of 16 MiB does not hold these logits."""
    x = jax.ShapeDtypeStruct((1, 2 * block, 128), jnp.bfloat16)
    tpu_aot.compile_for(chip, _gradient, _fused(2 * block, block, fused), x)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(jnp.float32, marks=pytest.mark.deep)])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
@pytest.mark.parametrize("chip", _chips("v5e:1x1"))
def test_the_count_is_close_to_what_the_compiler_uses(
    chip: str, dtype: Any, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a quarter, which is why more is asked for."""
    found = _counted(monkeypatch)
    x = jax.ShapeDtypeStruct((2, 1024, 256), dtype)
    used = tpu_aot.scoped_vmem(tpu_aot.compile_for(chip, _gradient, _fused(1024, 512, fused), x))
    assert set(used) == set(found)
    for name, size in used.items():
        assert 0.8 <= size / sum(found[name].values()) <= 1.25, name


def test_padding_of_buffers() -> None:
    item = memory_budget.VmemItem("x", (3, 5, 100), np.dtype(np.int8), 2)
    assert item.nbytes == 3 * 32 * 128 * 2
    assert memory_budget.VmemItem("x", (1, 128), np.dtype(np.float32), 1).nbytes == 512
