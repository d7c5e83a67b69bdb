"""Mask compilation: seconds and ratios against jax's and tokamax's `process_mask`.

    python -m tests.benchmarks.bench_mask_compile [--quick]

Every figure is from this run: construction of the mask from its description (or its array)
and its compilation for the forward kernel, one head, nothing cached. Ours is the median of
several runs; the others run once where one run takes seconds. `--quick` takes a smaller problem.
A second table compiles long masks, with the peak of allocated memory.
"""

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as jax_mask
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as jax_info
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask as tokamax_mask,
)
from tokamax._src.ops.experimental.tpu.splash_attention import (
    splash_attention_mask_info as tokamax_info,
)

from pallas_impl import classify, mask_info, masks

# Runs that take longer than this many seconds are not repeated.
REPEAT_BELOW = 1.0
REPEATS = 7


class Found(NamedTuple):
    """How many times as fast as jax our grid layout is, and whether the mask is structured."""

    ratio: float
    structured: bool


class Case(NamedTuple):
    """One mask, described so that each library's mask module can build it.

    Attributes:
      name: what the table calls it.
      size: `(q_len, kv_len)`, in positions.
      block: block_q and block_kv, in positions.
      build: from a mask module to its mask.
    """

    name: str
    size: tuple[int, int]
    block: int
    build: Callable[[Any], Any]


def cases(quick: bool) -> list[Case]:
    """The masks that are compared."""
    n, dense = (16384, 2048) if quick else (131072, 8192)
    size = (n, n)
    array = np.random.default_rng(0).random((dense, dense)) < 0.1
    return [
        Case("causal", size, 512, lambda lib: lib.CausalMask(size)),
        Case("local 1024", size, 512, lambda lib: lib.LocalMask(size, (1024, 0), 0)),
        Case("chunked 8192", size, 512, lambda lib: lib.ChunkedCausalMask(size, 8192)),
        Case("dense, 90 % zeros", array.shape, 128, lambda lib: lib.NumpyMask(array)),
    ]


def ours(case: Case) -> None:
    """Compiles to our grid layout."""
    mask_info.compile_mask(case.build(masks), (case.block, case.block))


def ours_flat(case: Case) -> None:
    """Compiles to our list of active blocks."""
    mask_info.compile_flat(case.build(masks), (case.block, case.block))


def jax(case: Case) -> None:
    """Compiles with jax."""
    mask = jax_mask.MultiHeadMask([case.build(jax_mask)])
    jax_info.process_mask(mask, (case.block, case.block))


def tokamax(case: Case) -> None:
    """Compiles with tokamax."""
    tokamax_info.process_mask(case.build(tokamax_mask), (case.block, case.block))


def forget() -> None:
    """Empties every library's cache."""
    for cached in (
        classify.classify,
        classify.partial_mask_blocks,
        mask_info._compile_grid,
        mask_info._compile_flat,
        jax_info.process_mask.func,
        tokamax_info.process_mask.func,
    ):
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def seconds(compiler: Callable[[Case], None], case: Case) -> float:
    """Median processor time of a compilation: other work on the machine does not count."""
    times: list[float] = []
    while len(times) < REPEATS:
        forget()
        start = time.process_time()
        compiler(case)
        times.append(time.process_time() - start)
        if times[0] > REPEAT_BELOW:
            break
    return statistics.median(times)


def compare(quick: bool) -> list[Found]:
    """Prints the table of ratios."""
    found = []
    print(
        "| mask | size | block | ours, ms | flat, ms | jax, s | tokamax, s | jax ÷ ours |", end=""
    )
    print(" tokamax ÷ ours flat |\n|-|-|-|-|-|-|-|-|-|")
    for case in cases(quick):
        grid, flat = seconds(ours, case), seconds(ours_flat, case)
        peers = [seconds(jax, case), seconds(tokamax, case)]
        found.append(Found(peers[0] / grid, not case.name.startswith("dense")))
        print(
            f"| {case.name} | {case.size[0]} | {case.block} | {grid * 1e3:.2f} | {flat * 1e3:.2f} |"
            f" {peers[0]:.3f} | {peers[1]:.3f} | {peers[0] / grid:.1f} | {peers[1] / flat:.1f} |",
            flush=True,
        )
    return found


def long_masks(quick: bool) -> None:
    """Prints time and memory of long masks."""
    n, block = 2**17 if quick else 2**20, 512
    blocks = (n // block) ** 2
    size = (n, n)

    def both(lib: Any) -> Any:
        return lib.CausalMask(size, -5000) | lib.LocalMask(size, (1000, 300))

    def two_heads(lib: Any) -> Any:
        return lib.MultiHeadMask([lib.CausalMask(size), lib.LocalMask(size, (1024, 0))])

    print(f"\n| {n} tokens, block {block} | layout | s | peak MiB | bytes a block |\n|-|-|-|-|-|")
    for name, build in (
        ("causal", lambda lib: lib.CausalMask(size)),
        ("local 1024", lambda lib: lib.LocalMask(size, (1024, 0), 0)),
        ("chunked 8192", lambda lib: lib.ChunkedCausalMask(size, 8192)),
        ("causal -5000 or local (1000, 300)", both),
        ("two heads: causal, local 1024", two_heads),
    ):
        case = Case(name, size, block, build)
        for layout, compiler in (("grid", ours), ("flat", ours_flat)):
            taken = seconds(compiler, case)
            forget()
            tracemalloc.start()
            compiler(case)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            print(
                f"| {name} | {layout} | {taken:.3f} | {peak / 2**20:.0f} | {peak / blocks:.1f} |",
                flush=True,
            )


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smaller problem, in seconds")
    quick = parser.parse_args().quick
    compare(quick)
    long_masks(quick)


if __name__ == "__main__":
    main()
