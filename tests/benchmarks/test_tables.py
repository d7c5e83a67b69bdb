"""The tables of RESULTS.md, printed and held to what the project promises.

python -m pytest tests/benchmarks -s
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokamax", reason="the tables compare with jax and tokamax")

import jax
import jax.numpy as jnp

from pallas_impl.api import make_splash_mha
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.masks import CausalMask, ChunkedCausalMask, FullMask, LocalMask
from tests.benchmarks import bench_mask_compile
from tests.pallas_impl.fetch_oracle import fewest, one_kept, read_table

S, HEADS = 4096, 2
SIZE = (S, S)
FASTER_THAN_JAX = 1000
FASTER_THAN_JAX_DENSE = 3


def test_mask_compilation() -> None:
    found = bench_mask_compile.compare(quick=False)
    bench_mask_compile.long_masks(quick=False)
    assert all(c.ratio >= FASTER_THAN_JAX for c in found if c.structured)
    assert all(c.ratio >= FASTER_THAN_JAX_DENSE for c in found if not c.structured)


def test_bundles() -> None:
    """In a process of its own: libtpu reads its flags once."""
    command = [sys.executable, "-m", "tests.benchmarks.vliw_bundles"]
    ratios: dict[str, list[float]] = {"off": [], "on": []}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            cells = [cell.strip() for cell in line.strip("| \n").split("|")]
            if cells[0] in ("v5e", "v6e") and cells[1] in ("forward", "both"):
                ratios["off"].append(float(cells[7]))
                ratios["on"].append(float(cells[11]))
                if cells[1:4] == ["forward", "causal", "128"]:
                    assert max(ratios["off"][-1], ratios["on"][-1]) <= 0.8
    assert run.returncode == 0
    for found in ratios.values():
        assert len(found) == 48
        assert max(found) <= 1.0
        assert np.exp(np.mean(np.log(found))) <= 0.9


def _sparse() -> np.ndarray:
    return np.random.default_rng(0).random((S // 2, S // 2)) < 0.1


def _blocky() -> np.ndarray:
    coarse = np.random.default_rng(1).random((S // 128, S // 128)) < 0.3
    return np.kron(coarse, np.ones((128, 128), bool))


MASKS: dict[str, Any] = {
    "full": lambda block: FullMask(SIZE),
    "causal": lambda block: CausalMask(SIZE),
    "local 1024": lambda block: LocalMask(SIZE, (1023, 0)),
    "chunked 1024": lambda block: ChunkedCausalMask(SIZE, 1024),
    "window of one block": lambda block: LocalMask(SIZE, (block - 1, 0)),
    "random-sparse (2048 tokens)": lambda block: _sparse(),
    "three blocks of 128 in ten": lambda block: _blocky(),
}


def test_fetches() -> None:
    """K and V blocks in the forward and dq kernels, Q and dO blocks in the dkv kernel."""
    print(
        "\n| mask | block | known | kernel | fetched | one kept | fewest | ÷ one kept | ÷ fewest |"
    )
    print("|-|-|-|-|-|-|-|-|-|")
    for name, make in MASKS.items():
        for block in (128, 256, 512):
            for dynamic in (False, True):
                _fetch_rows(name, make(block), block, dynamic)


def _fetch_rows(name: str, mask: Any, block: int, dynamic: bool) -> None:
    sizes = BlockSizes(block, block, block_q_dq=block, block_kv_dq=block)
    if dynamic:
        values = jnp.asarray(np.broadcast_to(mask[:, :], (HEADS, *mask.shape)))
        plan = jax.jit(lambda m: make_splash_mha(m, block_sizes=sizes).plan)(values)
        plan = jax.tree.map(np.asarray, plan)
    else:
        plan = make_splash_mha(mask, block_sizes=sizes, storage="table").plan
    for kernel, part, kv in (("forward", plan.forward, True), ("dkv", plan.dkv, False)):
        found = read_table(part.schedule, HEADS, kv=kv)
        least = fewest(found.steps(), found.active.shape[1])
        kept = one_kept(found)
        print(
            f"| {name} | {block} | {'at run time' if dynamic else 'before'} | {kernel} | "
            f"{found.fetched} | {kept} | {least} | {found.fetched / kept:.3f} | "
            f"{found.fetched / least:.3f} |"
        )
        assert found.fetched <= kept
        assert dynamic or found.fetched == least
