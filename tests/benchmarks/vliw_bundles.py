"""Static VLIW bundles of whole attention calls: ours against jax's and tokamax's kernels.

libtpu compiles the kernels for a TPU that need not be there and dumps their final bundles.  A
bundle is one instruction word of all units, so the bundles that a call executes are its issue
time in cycles; memory stalls are not in it.  Compiling is deterministic, and so are the figures.

A call executes, for each grid step, the bundles of the grid loop that no branch skips, plus the
segments that its branch takes.  Segments are found from the branches: those with matrix products
are the computing bodies (in the order of the source), those before them initialise a row, those
after them finish it; segments that start or await copies are counted in every step, for every
implementation alike.  A nested segment inside a body masks one block.

Figures are for one head of a call with 16: the operands of a call with one are so small that XLA
may copy them to vector memory beforehand, which it does for some implementations and not for
others, depending on what stands before the call, and the steps of a kernel then lack the copies.
The pipeline's checks of bounds and semaphores are off, then on, for all alike.

    python -m tests.benchmarks.vliw_bundles [--chips v5e v6e] [--blocks 128 256 512]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import glob
import itertools
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

RECORD = re.compile(r"^\s*(0x[0-9a-f]+|0)\s+(?:[A-Z]{2}\s*)?:\s*(?:>\s*)*\{(.*)$")
LABEL = re.compile(r"Start(?:/End empty)? region (\d+)")
BRANCH = re.compile(r"sbr\.(?:rel|abs)\s*(?:\([^)]*\))?\s*target = \$region(\d+)")
DELAY_SLOTS = 4
MATMUL, COPY = re.compile(r"vmatmul"), re.compile(r"= dma\.|dma\.done\.wait")
UNITS = {
    "matmul": r"vmatmul",
    "eup": r"vpow2|vrcp|vtanh|vlog2|vrsqrt",
    "xlu": r"\.xlane|vxpose|vrot|vperm",
    "load": r"= vld ",
    "store": r"= vst ",
    "spill": r"_spill",
}
S, SPARSE_S, DIM = 4096, 2048, 128
HEADS = 16
"""Heads of the compiled call; figures are for one."""
MASKS = ("full", "causal", "local1024", "random-sparse")


@dataclasses.dataclass
class Segment:
    """Bundles [begin, end) that a branch may skip."""

    begin: int
    end: int
    children: list[Segment] = dataclasses.field(default_factory=list)

    @property
    def own(self) -> int:
        return self.end - self.begin - sum(c.end - c.begin for c in self.children)


@dataclasses.dataclass
class Kernel:
    """Bundles of one compiled kernel, by what executes them."""

    step: int
    init: int
    bodies: list[tuple[int, list[int]]]
    finish: int
    units: list[dict[str, int]]
    choices: list[int]


def parse(path: str) -> Kernel:
    """Reads a ``final_bundles`` dump."""
    records: list[tuple[int, str]] = []
    with open(path, errors="replace") as file:
        for line in file:
            match = RECORD.match(line)
            if match:
                records.append((int(match[1], 16), match[2]))
            elif records:
                records[-1] = records[-1][0], records[-1][1] + line
    regions: dict[str, int] = {}
    for address, body in records:
        for label in LABEL.findall(body):
            regions.setdefault(label, address)
    texts = dict(records)
    jumps = [(a, regions[n]) for a, t in records for n in BRANCH.findall(t) if n in regions]
    loops = [(to, at + DELAY_SLOTS + 1) for at, to in jumps if to <= at]

    def text(begin: int, end: int) -> str:
        return " ".join(texts.get(a, "") for a in range(begin, end))

    begin, end = max((lp for lp in loops if MATMUL.search(text(*lp))), key=lambda lp: lp[1] - lp[0])
    spans = sorted(
        {(a + DELAY_SLOTS + 1, to) for a, to in jumps if begin <= a < end and to > a + 5},
        key=lambda s: (s[0], -s[1]),
    )
    root = Segment(begin, end)
    for span in spans:
        parent = root
        while True:
            inside = [c for c in parent.children if c.begin <= span[0] and span[1] <= c.end]
            if not inside:
                break
            parent = inside[0]
        parent.children.append(Segment(*span))
    return _classify(root, text)


def _classify(root: Segment, text: Callable[[int, int], str]) -> Kernel:
    def has_matmul(s: Segment) -> bool:
        return bool(MATMUL.search(text(s.begin, s.end)))

    container, step = root, root.own
    while True:
        with_matmul = [c for c in container.children if has_matmul(c)]
        around = with_matmul[0] if len(with_matmul) == 1 else None
        if around is None or not any(has_matmul(c) for c in around.children):
            break
        step += sum(c.end - c.begin for c in container.children if c is not around) + around.own
        container = around
    kernel = Kernel(step, 0, [], 0, [], [])
    for segment in container.children:
        size = segment.end - segment.begin
        if has_matmul(segment):
            _add_bodies(kernel, segment, text)
        elif COPY.search(text(segment.begin, segment.end)):
            kernel.step += size
        elif not kernel.bodies:
            kernel.init += size
        else:
            kernel.finish += size
    return kernel


def _add_bodies(kernel: Kernel, segment: Segment, text: Callable[[int, int], str]) -> None:
    """The bodies in a segment: itself, or those among which it chooses."""
    inner = [c for c in segment.children if MATMUL.search(text(c.begin, c.end))]
    if inner:
        size = segment.end - segment.begin
        kernel.choices.append(size - sum(c.end - c.begin for c in inner))
        for body in inner:
            _add_bodies(kernel, body, text)
        return
    where = [a for a in range(segment.begin, segment.end) if MATMUL.search(text(a, a + 1))]
    masks = []
    for child in segment.children:  # unlabelled kernels compute outside any branch
        size = child.end - child.begin
        if child.end <= where[0]:
            kernel.init += size
        elif child.begin > where[-1]:
            kernel.finish += size
        else:
            masks.append(size)
    kernel.bodies.append((segment.own, masks))
    content = text(segment.begin, segment.end)
    kernel.units.append({n: len(re.findall(p, content)) for n, p in UNITS.items()})


@dataclasses.dataclass
class Counts:
    """How often a call executes each part: steps, rows, (body, masks) pairs, choosing segments."""

    steps: int
    rows: int
    bodies: dict[tuple[int, int], int]
    choices: tuple[int, ...] = ()


def total(kernel: Kernel, counts: Counts) -> int:
    """Bundles of a whole call."""
    cost = counts.steps * kernel.step + counts.rows * (kernel.init + kernel.finish)
    cost += sum(a * b for a, b in zip(kernel.choices, counts.choices, strict=True))
    for (body, masks), times in counts.bodies.items():
        own, branches = kernel.bodies[min(body, len(kernel.bodies) - 1)]
        mask = sum(branches) / len(branches) if branches else 0
        cost += times * (own + round(masks * mask))
    return cost


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
        lists = (args.chips, args.directions, args.masks, args.blocks)
        for cell in itertools.starmap(Cell, itertools.product(*lists)):
            row = []
            for setting in args.checks:
                with checks(setting):
                    got = {n: measure(directory, n, cell, args.heads) for n in IMPLEMENTATIONS}
                bundles = {name: count for name, (count, _) in got.items()}
                ratios[setting].append(ratio(bundles))
                row += [*map(str, bundles.values()), f"{ratios[setting][-1]:.3f}"]
                if args.detail:
                    for name, (_, kernels) in got.items():
                        for key, kernel in kernels.items():
                            print("   ", name, key, kernel, file=sys.stderr)
            print(f"| {' | '.join(map(str, cell))} | {' | '.join(row)} |", flush=True)
        for setting, found in ratios.items():
            print(f"\nchecks {setting}: geometric mean {mean(found):.3f}, worst {max(found):.3f}")


if __name__ == "__main__":
    main()
