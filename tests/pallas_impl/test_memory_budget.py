"""SMEM and VMEM needs are predicted, and agree with the TPU compiler at the limit."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


@pytest.mark.parametrize("chip", ["v5e:1x1", "v6e:1x1"])
@pytest.mark.parametrize("block", [128, 512])
def test_smem_limit_agrees_with_the_compiler(
    chip: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = memory_budget.SMEM_BYTES - memory_budget.SMEM_RESERVED
    words = next(n for n in range(1 << 18, 0, -64) if _with_table(n, block)[1] <= limit)
    largest = _with_table(words, block)[0]
    tpu_aot.compile_for(chip, _call, largest, X)
    above = _with_table(words + 1024, block)[0]
    with pytest.raises(memory_budget.MemoryBudgetError, match="scalar memory would hold"):
        jax.eval_shape(_call, above, X)
    monkeypatch.setattr(memory_budget, "SMEM_BYTES", 1 << 30)
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


@pytest.mark.parametrize("chip", ["v5e:1x1", "v6e:1x1"])
def test_vmem_limit_agrees_with_the_compiler(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dq of all queries of one head is kept: eight blocks more are too many."""
    fits, above = 253952, 253952 + 4096
    x = jax.ShapeDtypeStruct((1, fits, 128), jnp.bfloat16)
    tpu_aot.compile_for(chip, _gradient, _fused(fits, 512), x)
    x = jax.ShapeDtypeStruct((1, above, 128), jnp.bfloat16)
    with pytest.raises(memory_budget.MemoryBudgetError, match="vector memory would hold"):
        jax.eval_shape(_gradient, _fused(above, 512), x)
    monkeypatch.setattr(memory_budget, "VMEM_BYTES", 1 << 30)
    with pytest.raises(Exception, match="Exceeded vmem capacity"):
        tpu_aot.compile_for(chip, _gradient, _fused(above, 512), x)


@pytest.mark.parametrize(
    ("block", "fused", "chip"),
    [
        (1024, False, "v5e:1x1"),
        (2048, True, "v5e:1x1"),
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
def test_the_count_is_close_to_what_the_compiler_uses(
    dtype: Any, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between 0.7 and VMEM_SLACK times the count, and never above what is asked for."""
    counted: dict[str, int] = {}

    def check(kernel: str, prefetch: Any, vmem: Any) -> int:
        counted[kernel] = sum(item.nbytes for item in vmem)
        return memory_budget.VMEM_BYTES

    monkeypatch.setattr(kernel_call, "check_budget", check)
    x = jax.ShapeDtypeStruct((2, 1024, 256), dtype)
    compiled = tpu_aot.compile_for("v5e:1x1", _gradient, _fused(1024, 512, fused), x)
    used = tpu_aot.scoped_vmem(compiled)
    assert set(used) == set(counted)
    for name, size in used.items():
        assert 0.7 * counted[name] <= size <= memory_budget.VMEM_SLACK * counted[name], name


def test_padding_of_buffers() -> None:
    item = memory_budget.VmemItem("x", (3, 5, 100), np.dtype(np.int8), 2)
    assert item.nbytes == 3 * 32 * 128 * 2
    assert memory_budget.VmemItem("x", (1, 128), np.dtype(np.float32), 1).nbytes == 512
