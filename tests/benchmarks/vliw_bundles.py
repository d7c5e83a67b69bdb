"""Static VLIW bundles of whole attention calls: ours against jax's and tokamax's kernels.

libtpu compiles the kernels for a TPU that need not be there and dumps their final bundles.  A
bundle is one instruction word of all units, so the bundles that a call executes are its issue
time in cycles; memory stalls are not in it.  Compiling is deterministic, and so are the figures.

Figures are for one head of a call with 16: the operands of a call with one are so small that XLA
may copy them to vector memory beforehand, which it does for some implementations and not for
others, depending on what stands before the call, and the steps of a kernel then lack the copies.
The pipeline's checks of bounds and semaphores are off, then on, for all alike.

    python -m tests.benchmarks.vliw_bundles [--chips v5e v6e] [--blocks 128 256 512]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import glob
import itertools
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

from tests.benchmarks.bundles import Counts, Kernel, parse, total

MACS = {"v5e": 4 * 128 * 128, "v6e": 2 * 256 * 256}
"""Multiplications of one bundle in which all matrix units are busy."""
S, SPARSE_S, DIM = 4096, 2048, 128
HEADS = 16
"""Heads of the compiled call; figures are for one."""
MASKS = ("full", "causal", "local1024", "random-sparse")


class Cell(NamedTuple):
    """One line of the table."""

    chip: str
    direction: str
    mask: str
    block: int


# ---- counting steps -----------------------------------------------------------------------


def our_counts(schedule: Any, column_block: int) -> Counts:
    """From the meta words of a table schedule."""
    import numpy as np

    from pallas_impl.branches import one_by_one, pairs
    from pallas_impl.schedule import unpack_meta

    meta = unpack_meta(np.asarray(schedule.words)[0])
    slots = schedule.layout.slots
    ones = (1 << slots) - 1
    alike = (meta.active == ones) & ((meta.full == ones) | (meta.full == 0))
    unlike = ~alike & (meta.active != 0)
    choices: tuple[int, ...] = (int(alike.sum()), int(unlike.sum()))
    if not one_by_one(column_block):
        choices += (int(np.count_nonzero(meta.active[unlike] != ones)),)
    bodies: dict[tuple[int, int], int] = {}

    def run(body: int, masks: int = 0) -> None:
        bodies[body, masks] = bodies.get((body, masks), 0) + 1

    for active, full in zip(meta.active.tolist(), meta.full.tolist(), strict=True):
        if active == ones and full in (0, ones):
            run(0 if full else 1)
        elif one_by_one(column_block):
            for slot in (s for s in range(slots) if active >> s & 1):
                run(2 + 2 * slot + (0 if full >> slot & 1 else 1))
        elif active == ones:
            run(2, slots - full.bit_count())
        else:
            for body, (first, wanted, chosen) in enumerate(pairs(slots)):
                if active >> first & 3 == wanted:
                    run(3 + body, sum(not full >> s & 1 for s in chosen))
    return Counts(len(meta.active), schedule.layout.rows, bodies, () if slots == 1 else choices)


def label_counts(labels: Any, steps: int, rows: int, both_bodies: bool) -> Counts:
    """For kernels with one branch for label 2 and one for label 1."""
    import numpy as np

    full, partial = (int(np.count_nonzero(labels == x)) for x in (2, 1))
    bodies = {(0, 0): full, (1, 0): partial} if both_bodies else {(0, 0): full + partial}
    return Counts(steps, rows, bodies)


# ---- the three implementations ------------------------------------------------------------


def dense_mask(name: str) -> Any:
    import numpy as np

    length = SPARSE_S if name == "random-sparse" else S
    i, j = np.indices((length, length), dtype=np.int32)
    if name == "full":
        return np.ones((length, length), bool)
    if name == "causal":
        return i >= j
    if name == "local1024":
        return (i >= j) & (i - j < 1024)
    return np.random.default_rng(0).random((length, length)) < 0.1


def ours(mask: str, block: int, heads: int) -> tuple[Any, dict[str, Counts]]:
    from pallas_impl.api import make_splash_mha
    from pallas_impl.block_sizes import BlockSizes
    from pallas_impl.masks import CausalMask, FullMask, LocalMask

    made: Any = {
        "full": lambda: FullMask((S, S)),
        "causal": lambda: CausalMask((S, S)),
        "local1024": lambda: LocalMask((S, S), (1023, 0)),
        "random-sparse": lambda: dense_mask(mask),
    }[mask]()
    sizes = BlockSizes(block, block, use_fused_bwd_kernel=True)
    kernel = make_splash_mha(made, block_sizes=sizes, storage="table")
    plan = kernel.plan
    return kernel, {
        "splash_fwd": our_counts(plan.forward.schedule, block),
        "splash_bwd": our_counts(plan.dkv.schedule, block),
    }


def _labels(mask: str, block: int) -> Any:
    import numpy as np

    dense = dense_mask(mask)
    n = len(dense) // block
    tiles = dense.reshape(n, block, n, block)
    return np.where(tiles.all((1, 3)), 2, np.where(tiles.any((1, 3)), 1, 0))


def jax_splash(mask: str, block: int, heads: int) -> tuple[Any, dict[str, Counts]]:
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as sk,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_mask as sm,
    )

    made: Any = {
        "full": lambda: sm.FullMask((S, S)),
        "causal": lambda: sm.CausalMask((S, S)),
        "local1024": lambda: sm.LocalMask((S, S), (1023, 0), 0),
        "random-sparse": lambda: sm.NumpyMask(dense_mask(mask)),
    }[mask]()
    sizes = sk.BlockSizes(
        block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block,
        block_kv_dkv=block, block_kv_dkv_compute=block, use_fused_bwd_kernel=True,
    )  # fmt: skip
    kernel = sk.make_splash_mha(
        sm.MultiHeadMask([made] * heads), block_sizes=sizes, head_shards=1, q_seq_shards=1
    )
    labels = _labels(mask, block)
    rows = len(labels)

    def steps(info: Any) -> int:
        shape = rows * rows if info.data_next is None else math.prod(info.data_next.shape)
        return int(shape)

    count = functools.partial(label_counts, labels, rows=rows)
    return kernel, {
        "splash_mha_fwd": count(steps(kernel.fwd_mask_info), both_bodies=True),
        "splash_mha_dkv": count(steps(kernel.dkv_mask_info), both_bodies=True),
    }


def tokamax_splash(mask: str, block: int, heads: int) -> tuple[Any, dict[str, Counts]]:
    from tokamax._src.ops.experimental.tpu.splash_attention import (
        splash_attention_kernel as tk,
    )
    from tokamax._src.ops.experimental.tpu.splash_attention import (
        splash_attention_mask as tm,
    )

    made = {
        "full": lambda: tm.FullMask((S, S)),
        "causal": lambda: tm.CausalMask((S, S)),
        "local1024": lambda: tm.LocalMask((S, S), (1023, 0), 0),
        "random-sparse": lambda: tm.NumpyMask(dense_mask(mask)),
    }[mask]()
    config = tk.SplashConfig(
        block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block,
        block_kv_dkv=block, block_kv_dkv_compute=block,
    )  # fmt: skip
    kernel = tk.make_splash_mha_single_device(made, config=config)
    labels = _labels(mask, block)
    rows, active = len(labels), int((labels > 0).sum())
    count = label_counts(labels, active, rows, True)
    return kernel, {"splash_mha_fwd": count, "splash_mha_dkv": count}


IMPLEMENTATIONS = {"ours": ours, "jax": jax_splash, "tokamax": tokamax_splash}


# ---- compiling -----------------------------------------------------------------------------


def compile_call(kernel: Any, shape: tuple[int, ...], chip: str, gradient: bool) -> None:
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding

    device: Any = topologies.get_topology_desc(platform="tpu", topology_name=f"{chip}:1x1").devices[
        0
    ]
    x = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=SingleDeviceSharding(device))

    def call(q: Any, k: Any, v: Any) -> Any:
        return kernel(q, k, v)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return call(q, k, v).astype(jnp.float32).sum()

    fn = jax.grad(loss, (0, 1, 2)) if gradient else call
    abstract = AbstractDevice(device_kind=device.device_kind, num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=abstract)):
        jax.jit(fn).trace(x, x, x).lower(lowering_platforms=("tpu",)).compile()


@contextlib.contextmanager
def checks(wanted: str) -> Iterator[None]:
    """Compiles every kernel with the pipeline's checks of bounds and semaphores ``on`` or ``off``."""
    import jax
    from jax.experimental.pallas import tpu as pltpu

    real, off = pltpu.CompilerParams, wanted == "off"
    settings = {"disable_bounds_checks": off, "disable_semaphore_checks": off}

    def params(**kwargs: Any) -> Any:
        return real(**(kwargs | settings))

    jax.clear_caches()  # what was traced before has the other setting in it
    with mock.patch.object(pltpu, "CompilerParams", params):
        yield


@functools.cache
def made(name: str, mask: str, block: int, heads: int) -> tuple[Any, dict[str, Counts]]:
    """A kernel, and how often one head of a call executes its parts."""
    return IMPLEMENTATIONS[name](mask, block, heads)


def measure(
    directory: str, name: str, cell: Cell, heads: int = HEADS
) -> tuple[int, dict[str, Kernel]]:
    """(bundles of one head of the call, its kernels)."""
    mask, gradient = cell.mask, cell.direction == "both"
    kernel, counts = made(name, mask, cell.block, heads)
    before = set(glob.glob(f"{directory}/*-[0-9][0-9]-final_bundles.txt"))
    length = SPARSE_S if mask == "random-sparse" else S
    compile_call(kernel, (heads, length, DIM), cell.chip, gradient)
    files = set(glob.glob(f"{directory}/*-[0-9][0-9]-final_bundles.txt")) - before
    found: dict[str, Kernel] = {}
    for key in list(counts) if gradient else list(counts)[:1]:
        matching = [f for f in files if re.search(rf"[-_]{key}", os.path.basename(f))]
        if len(matching) != 1:
            raise RuntimeError(f"{name}: {len(matching)} dumps of {key}: {sorted(files)}")
        found[key] = parse(matching[0])
    return sum(total(k, counts[n]) for n, k in found.items()), found


def fill(cell: Cell, key: str, kernel: Kernel, slots: int) -> str:
    """A line that says how full the units are in the body of full blocks."""
    bundles, masks = kernel.bodies[0]
    products = {"splash_fwd": 2, "splash_bwd": 5}[key]
    bundles += sum(masks)
    floor = products * cell.block**2 * DIM * slots / MACS[cell.chip] / bundles
    units = kernel.units[0]
    shares = [f"{floor:.0%}"]
    for unit in ("vector", "transcendental", "cross-lane", "load", "store"):
        total, most = units.used.get(unit, (0, 1))
        shares.append(f"{total / (most * bundles):.0%}")
    step = kernel.step / slots
    row = [cell.chip, key, cell.block, slots, f"{bundles / slots:.0f}", f"{step:.0f}", *shares]
    return f"| {' | '.join(map(str, row))} | {units.spills / slots:.0f} |"


def ratio(got: dict[str, int]) -> float:
    """Ours ÷ the best other."""
    return got["ours"] / min(count for name, count in got.items() if name != "ours")


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--chips", nargs="+", default=["v5e", "v6e"])
    parser.add_argument("--blocks", nargs="+", type=int, default=[128, 256, 512])
    parser.add_argument("--masks", nargs="+", default=list(MASKS))
    parser.add_argument("--directions", nargs="+", default=["forward", "both"])
    parser.add_argument("--checks", nargs="+", choices=["off", "on"], default=["off", "on"])
    parser.add_argument("--heads", type=int, default=HEADS, help="heads of the compiled call")
    parser.add_argument("--detail", action="store_true", help="print the parts of all kernels")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["TPU_SKIP_MDS_QUERY"] = os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
        os.environ["LIBTPU_INIT_ARGS"] = (
            f"--xla_jf_dump_to={directory} --xla_jf_dump_llo_text=true "
            "--xla_jf_dump_llo_pass_label_regex=final_bundles"
        )
        ratios: dict[str, list[float]] = {c: [] for c in args.checks}
        columns = " | ".join(f"ours, checks {c} | jax | tokamax | ours / best" for c in args.checks)
        print(f"| chip | pass | mask | block | {columns} |\n|{'-|' * (4 + 4 * len(args.checks))}")
        lines = []
        lists = (args.chips, args.directions, args.masks, args.blocks)
        for cell in itertools.starmap(Cell, itertools.product(*lists)):
            row = []
            for setting in args.checks:
                with checks(setting):
                    got = {n: measure(directory, n, cell, args.heads) for n in IMPLEMENTATIONS}
                bundles = {name: count for name, (count, _) in got.items()}
                ratios[setting].append(ratio(bundles))
                row += [*map(str, bundles.values()), f"{ratios[setting][-1]:.3f}"]
                if setting == "off" and cell.mask == "full":
                    key = "splash_bwd" if cell.direction == "both" else "splash_fwd"
                    plan = made("ours", cell.mask, cell.block, args.heads)[0].plan
                    part = plan.dkv if key == "splash_bwd" else plan.forward
                    slots = part.schedule.layout.slots
                    lines.append(fill(cell, key, got["ours"][1][key], slots))
                if args.detail:
                    for name, (_, kernels) in got.items():
                        for key, kernel in kernels.items():
                            print("   ", name, key, kernel, file=sys.stderr)
            print(f"| {' | '.join(map(str, cell))} | {' | '.join(row)} |", flush=True)
        for setting, found in ratios.items():
            print(f"\nchecks {setting}: geometric mean {mean(found):.3f}, worst {max(found):.3f}")
        print("\nBodies of full blocks, for one block: bundles, and how full each unit is\n")
        print("| chip | kernel | block | blocks a step | bundles | step | matrix | vector ", end="")
        print("| transcendental | cross-lane | load | store | spills |\n|" + "-|" * 13)
        print("\n".join(lines))


if __name__ == "__main__":
    main()
