"""SMEM and VMEM needs are predicted, and agree with the TPU compiler at the limit."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_impl import memory_budget
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


def test_vmem_error_names_dq_and_the_split_kernels_avoid_it() -> None:
    length = 131072
    x = jax.ShapeDtypeStruct((1, length, 128), jnp.bfloat16)

    def gradient(fused: bool | None) -> Any:
        sizes = BlockSizes(1024, 1024, use_fused_bwd_kernel=fused)
        kernel = make_splash_mha(CausalMask((length, length)), block_sizes=sizes)
        return jax.eval_shape(jax.grad(lambda x: kernel(x, x, x).astype(jnp.float32).sum()), x)

    message = "vector memory would hold.*largest array is dq with 134,217,728 bytes"
    with pytest.raises(memory_budget.MemoryBudgetError, match=message):
        gradient(True)
    assert gradient(None).shape == x.shape


@pytest.mark.parametrize("chip", ["v5e:1x1", "v6e:1x1"])
def test_vmem_prediction_lets_large_kernels_compile(chip: str) -> None:
    """At the largest size that the prediction lets through, the compiler agrees."""
    length = 65536
    x = jax.ShapeDtypeStruct((1, length, 128), jnp.bfloat16)
    sizes = BlockSizes(1024, 1024, use_fused_bwd_kernel=True)
    kernel = make_splash_mha(CausalMask((length, length)), block_sizes=sizes)

    def gradient(kernel: Any, x: Any) -> Any:
        return jax.grad(lambda x: kernel(x, x, x).astype(jnp.float32).sum())(x)

    tpu_aot.compile_for(chip, gradient, kernel, x)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "split"])
def test_large_blocks_ask_for_the_memory_that_they_need(fused: bool) -> None:
    """The compiler's default limit of 16 MiB does not hold these logits."""
    x = jax.ShapeDtypeStruct((1, 4096, 128), jnp.bfloat16)
    sizes = BlockSizes(1024, 1024, use_fused_bwd_kernel=fused)
    kernel = make_splash_mha(CausalMask((4096, 4096)), block_sizes=sizes)

    def gradient(kernel: Any, x: Any) -> Any:
        return jax.grad(lambda x: kernel(x, x, x).astype(jnp.float32).sum())(x)

    tpu_aot.compile_for("v5e:1x1", gradient, kernel, x)


def test_padding_of_buffers() -> None:
    item = memory_budget.VmemItem("x", (3, 5, 100), np.dtype(np.int8), 2)
    assert item.nbytes == 3 * 32 * 128 * 2
    assert memory_budget.VmemItem("x", (1, 128), np.dtype(np.float32), 1).nbytes == 512
