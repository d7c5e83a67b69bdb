"""Predicted memory is what the TPU compiler finds, ahead of time and without a TPU."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

from conformance.explain.costs.layouts import ScalarArray, Schedule
from conformance.explain.costs.memory import (
    CHIPS,
    GIB,
    MIB,
    Buffer,
    smem_bytes,
    smem_total,
    vmem_bytes,
    vmem_verdict,
)
from conformance.explain.costs.study import Question, Study, study
from conformance.explain.costs.visits import Heads
from conformance.explain.output.advice import remarks
from conformance.problems.mask_json import Random
from pallas_impl import BlockSizes, CausalMask, make_splash_mha
from reference.masks import Causal, Expr, Full
from tests.explain import kernels
from tests.pallas_impl import tpu_aot

TOPOLOGIES = {
    "v4": "v4:2x2x1",
    "v5e": "v5e:1x1",
    "v5p": "v5p:2x2x1",
    "v6e": "v6e:1x1",
    "v7x": "tpu7x:2x2x1",
}


@pytest.fixture(autouse=True)
def _no_other_block_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.explain.costs.study.COMPARED", 0)


def _causal(length: int, block: int, expr: Expr | None = None, **options: Any) -> Study:
    return study(Question("", expr or Causal(), length, length, block, block, **options))


def _grid(found: Study) -> Schedule:
    return [s for s in found.forward if s.layout == "grid"][-1]


def _compile_jax(found: Study, chip: str) -> Any:
    schedule = _grid(found)
    info = kernels.jax_info(found, schedule)
    forward = kernels.jax_forward(found, schedule)
    return tpu_aot.compile_for(TOPOLOGIES[chip], forward, info, *kernels.operands(found))


def _smem_error(found: Study, chip: str) -> str:
    with pytest.raises(Exception, match="smem") as caught:
        _compile_jax(found, chip)
    return str(caught.value)


def test_a_segmented_million_tokens_at_1024() -> None:
    """data_next alone takes twice what there is; the compiler says so in the same number."""
    found = _causal(1 << 20, 1024, segmented=True)
    schedule = _grid(found)
    assert [(a.name, a.shape, a.dtype, smem_bytes(a)) for a in schedule.arrays] == [
        ("data_next", (1, 1024, 1024), "int16", 2 * MIB),
        ("block_mask", (1, 1024, 1024), "int8", MIB),
    ]
    assert not any(smem_total(schedule) <= chip.smem for chip in CHIPS)
    said = " ".join(r.text for r in remarks(found) if r.kind == "limit")
    assert "data_next takes 2.0 MiB" in said
    error = _smem_error(found, "v5e")
    assert "Allocation (size=2097152) would exceed memory (size=1048576)" in error
    assert "prefetched SMEM operand 0" in error


@pytest.mark.parametrize(("block", "longest"), [(512, 278_528), (1024, 557_056)])
def test_the_longest_causal_mask_that_jax_can_run(block: int, longest: int) -> None:
    limit = CHIPS[0].smem
    assert smem_total(_grid(_causal(longest, block))) <= limit
    longer = _causal(longest + block, block)
    assert smem_total(_grid(longer)) > limit
    error = _smem_error(longer, "v5e")
    (used,) = re.findall(r"Used ([\d.]+)M of 1.00M smem", error)[:1] or [None]
    assert used is not None
    assert abs(float(used) - smem_total(_grid(longer)) / MIB) < 0.01
    if block == 512:
        _compile_jax(_causal(longest, block), "v5e")


@pytest.mark.parametrize(
    "chip", ["v6e", *(pytest.param(chip, marks=pytest.mark.deep) for chip in ("v4", "v5p", "v7x"))]
)
def test_every_generation_has_the_limit_that_is_stated(chip: str) -> None:
    error = _smem_error(_causal(1 << 20, 1024), chip)
    limit = next(c.smem for c in CHIPS if c.name == chip)
    assert f"(size={limit})" in error


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((1, 1024, 1024), "int16", 2097152),
        ((1, 1100, 1000), "int16", 2260992),
        ((1, 1100, 1000), "int8", 1130496),
        ((2, 1100, 500), "int8", 1130496),
        ((1, 601, 601), "int32", 1556480),
        ((4, 300, 700), "int16", 1867776),
        ((1, 1, 1300096), "int8", 5200384),
        ((1, 1, 650112), "int16", 2600448),
        ((1, 1, 325120), "int32", 1300480),
        ((1, 3, 433408), "int8", 1733632),
        ((1, 5, 130048), "int16", 2080768),
        ((600000,), "int32", 2400256),
        ((1200001,), "int16", 2400256),
        ((1200641,), "int8", 1201152),
    ],
)
def test_padding_of_scalar_arrays(shape: tuple[int, ...], dtype: str, size: int) -> None:
    """Sizes that libtpu 0.0.52 states where such an array does not fit."""
    assert smem_bytes(ScalarArray("x", shape, dtype)) == size


def test_a_run_time_mask_costs_an_int32_copy() -> None:
    """bool [8, 128, 128, 256, 256]: 8 GiB, and 32 GiB as the kernel reads it."""
    found = _causal(128 * 256, 256, heads=Heads(8, 8), dynamic=True)
    stack = found.stack(_grid(found))
    assert (stack.blocks, stack.stored, stack.read) == (8 * 128 * 128, 8 * GIB, 32 * GIB)
    said = " ".join(r.text for r in remarks(found))
    assert "8.0 GiB of booleans, and jax passes them to the kernel as int32, 32.0 GiB" in said
    assert "The int32 copy alone exceeds the main memory of v5e" in said
    small = _causal(16 * 256, 256, heads=Heads(2, 2), dynamic=True)
    memory = _compile_jax(small, "v5e").memory_analysis()
    read = small.stack(_grid(small)).read
    assert read == 128 * MIB
    assert read <= memory.temp_size_in_bytes < read + MIB


def test_stored_blocks_of_a_scattered_mask() -> None:
    """2048 tokens, 90 % hidden at random: every block is stored, 4 MiB of booleans."""
    found = _causal(2048, 128, Random(0.1))
    stack = found.stack(_grid(found))
    assert (stack.blocks, stack.stored, stack.read) == (256, 4 * MIB, 16 * MIB)
    said = {r.kind: r.text for r in remarks(found)}
    assert said["verdict"].startswith("This mask gains nothing at 128×128: every block is partial.")
    assert "4.0 MiB of booleans" in said["cost"]
    assert all(s.stored for s in found.forward)


def _vmem_used(compiled: Any) -> int:
    """Bytes of vector memory of the only kernel of a program."""
    (kernel,) = compiled.as_text().split('custom_call_target="tpu_custom_call"')[1:]
    pattern = r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"'
    found = re.search(pattern, kernel)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(
    ("block", "options"),
    [(512, {}), (1024, {"dtype": "float32"})],
    ids=["512", "float32"],
)
def test_vector_memory_is_estimated_on_the_safe_side(block: int, options: dict[str, Any]) -> None:
    found = _causal(8192, block, **options)
    used = _vmem_used(_compile_jax(found, "v5e"))
    assert 0.95 < vmem_bytes(_grid(found), found.question.shape) / used < 1.5


def test_vector_memory_of_stored_masks() -> None:
    """With a stack that is too large for the compiler to keep it in vector memory whole."""
    found = _causal(32768, 1024, Random(0.1))
    used = _vmem_used(_compile_jax(found, "v6e"))
    assert 0.95 < vmem_bytes(_grid(found), found.question.shape) / used < 1.5


def test_vector_memory_of_our_kernels() -> None:
    found = _causal(8192, 512)
    kernel = make_splash_mha(CausalMask((8192, 8192)), block_sizes=BlockSizes(512, 512))
    compiled = tpu_aot.compile_for(
        "v5e:1x1", lambda q, k, v: kernel(q, k, v), *kernels.operands(found)
    )
    schedule = next(s for s in found.forward if s.layout == "runs")
    estimate = vmem_bytes(schedule, found.question.shape)
    assert 0.95 < estimate / _vmem_used(compiled) < 1.5


@pytest.mark.deep
def test_what_does_not_fit_does_not_compile() -> None:
    found = _causal(8192, 2048, head_dim=256)
    v5e, v6e = (chip for chip in CHIPS if chip.name in ("v5e", "v6e"))
    assert vmem_verdict(_grid(found), found.question.shape, v5e) == "does not fit"
    assert vmem_verdict(_grid(found), found.question.shape, v6e) == "fits"
    with pytest.raises(Exception, match=r"limit 16\.00M"):
        _compile_jax(found, "v5e")


def test_padding_of_buffers() -> None:
    assert Buffer("x", 5, 100, "int8", 2).nbytes == 32 * 128 * 2
    assert Buffer("x", 5, 100, "bfloat16", 1).nbytes == 16 * 128 * 2
    assert Buffer("x", 1, 128, "float32", 1).nbytes == 512


def test_run_time_arrays_are_those_of_jax() -> None:
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as lib

    found = study(Question("", Full(), 512, 1024, 128, 256, heads=Heads(4, 4), dynamic=True))
    info, _ = lib.process_dynamic_mask(jax.numpy.ones((4, 512, 1024), bool), (128, 256))
    expected = {
        name: (np.shape(getattr(info, name)), str(getattr(info, name).dtype))
        for name in ("data_next", "block_mask", "mask_next")
    }
    assert {a.name: (a.shape, a.dtype) for a in _grid(found).arrays} == expected


@pytest.mark.tokamax
@pytest.mark.parametrize(
    ("block", "longest"),
    [(512, 204_800), pytest.param(1024, 409_600, marks=pytest.mark.deep)],
)
def test_the_longest_causal_mask_that_tokamax_can_run(block: int, longest: int) -> None:
    def flat(length: int) -> tuple[Study, Schedule]:
        found = _causal(length, block)
        return found, next(s for s in found.forward if s.layout == "flat")

    def compiled(length: int) -> Any:
        found, schedule = flat(length)
        forward = kernels.tokamax_forward(found, schedule)
        info = kernels.tokamax_info(found, schedule)
        return tpu_aot.compile_for("v5e:1x1", forward, info, *kernels.operands(found))

    assert smem_total(flat(longest)[1]) <= CHIPS[0].smem < smem_total(flat(longest + block)[1])
    found, schedule = flat(longest)
    estimate = vmem_bytes(schedule, found.question.shape)
    assert 0.95 < estimate / _vmem_used(compiled(longest)) < 1.5
    with pytest.raises(Exception, match="smem"):
        compiled(longest + block)
