"""Static VLIW bundles of whole attention calls: ours against jax's and tokamax's kernels.

libtpu compiles the kernels for a TPU that need not be there and dumps their final bundles.  A
bundle is one instruction word of all units, so the bundles that a call executes are its issue
time in cycles; memory stalls are not in it.  Compiling is deterministic, and so are the figures.

A call executes, for each grid step, the bundles of the grid loop that no branch skips, plus the
segments that its branch takes.  Segments are found from the branches: those with matrix products
are the computing bodies (in the order of the source), those before them initialise a row, those
after them finish it; segments that start or await copies are counted in every step, for every
implementation alike.  A nested segment inside a body masks one block.

    python tests/benchmarks/vliw_bundles.py [--chips v5e v6e] [--blocks 128 256 512]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import glob
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable
from typing import Any

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
    init = finish = 0
    bodies, units = [], []
    for segment in container.children:
        size = segment.end - segment.begin
        if has_matmul(segment):
            where = [a for a in range(segment.begin, segment.end) if MATMUL.search(text(a, a + 1))]
            masks = []
            for child in segment.children:  # unlabelled kernels compute outside any branch
                size = child.end - child.begin
                if child.end <= where[0]:
                    init += size
                elif child.begin > where[-1]:
                    finish += size
                else:
                    masks.append(size)
            bodies.append((segment.own, masks))
            content = text(segment.begin, segment.end)
            units.append({n: len(re.findall(p, content)) for n, p in UNITS.items()})
        elif COPY.search(text(segment.begin, segment.end)):
            step += size
        elif not bodies:
            init += size
        else:
            finish += size
    return Kernel(step, init, bodies, finish, units)


@dataclasses.dataclass
class Counts:
    """How often a call executes each part: steps, rows, and runs of (body, masks) pairs."""

    steps: int
    rows: int
    bodies: dict[tuple[int, int], int]


def total(kernel: Kernel, counts: Counts) -> int:
    """Bundles of a whole call."""
    cost = counts.steps * kernel.step + counts.rows * (kernel.init + kernel.finish)
    for (body, masks), times in counts.bodies.items():
        own, branches = kernel.bodies[min(body, len(kernel.bodies) - 1)]
        mask = sum(branches) / len(branches) if branches else 0
        cost += times * (own + round(masks * mask))
    return cost


# ---- counting steps -----------------------------------------------------------------------


def our_counts(schedule: Any, column_block: int) -> Counts:
    """From the meta words of a table schedule."""
    import numpy as np

    from pallas_impl.branches import one_by_one

    words = np.asarray(schedule.words)[0]
    count, full = (words >> 2) & 7, (words >> 5) & 15
    slots = schedule.layout.slots
    bodies: dict[tuple[int, int], int] = {}

    def run(body: int, masks: int = 0) -> None:
        bodies[body, masks] = bodies.get((body, masks), 0) + 1

    for c, f in zip(count.tolist(), full.tolist(), strict=True):
        if c == slots and f == (1 << slots) - 1:
            run(0)
        elif c == slots and f == 0:
            run(1)
        elif one_by_one(column_block):
            for slot in range(c):
                run(2 + 2 * slot + (0 if f >> slot & 1 else 1))
        elif c:
            run(1 + c, c - f.bit_count())
    return Counts(len(words), schedule.layout.rows, bodies)


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


def ours(mask: str, block: int) -> tuple[Any, dict[str, Counts]]:
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


def jax_splash(mask: str, block: int) -> tuple[Any, dict[str, Counts]]:
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
        sm.MultiHeadMask([made]), block_sizes=sizes, head_shards=1, q_seq_shards=1
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


def tokamax_splash(mask: str, block: int) -> tuple[Any, dict[str, Counts]]:
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


def compile_call(kernel: Any, length: int, chip: str, gradient: bool) -> None:
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding

    device: Any = topologies.get_topology_desc(platform="tpu", topology_name=f"{chip}:1x1").devices[
        0
    ]
    x = jax.ShapeDtypeStruct((1, length, DIM), jnp.bfloat16, sharding=SingleDeviceSharding(device))

    def call(q: Any, k: Any, v: Any) -> Any:
        return kernel(q, k, v)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return call(q, k, v).astype(jnp.float32).sum()

    fn = jax.grad(loss, (0, 1, 2)) if gradient else call
    abstract = AbstractDevice(device_kind=device.device_kind, num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=abstract)):
        jax.jit(fn).trace(x, x, x).lower(lowering_platforms=("tpu",)).compile()


def measure(
    directory: str, name: str, mask: str, block: int, chip: str, gradient: bool
) -> tuple[int, dict[str, Kernel]]:
    """(bundles of the call, its kernels)."""
    kernel, counts = IMPLEMENTATIONS[name](mask, block)
    before = set(glob.glob(f"{directory}/*-[0-9][0-9]-final_bundles.txt"))
    compile_call(kernel, SPARSE_S if mask == "random-sparse" else S, chip, gradient)
    files = set(glob.glob(f"{directory}/*-[0-9][0-9]-final_bundles.txt")) - before
    found: dict[str, Kernel] = {}
    for key in list(counts) if gradient else list(counts)[:1]:
        matching = [f for f in files if re.search(rf"[-_]{key}", os.path.basename(f))]
        if len(matching) != 1:
            raise RuntimeError(f"{name}: {len(matching)} dumps of {key}: {sorted(files)}")
        found[key] = parse(matching[0])
    return sum(total(k, counts[n]) for n, k in found.items()), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--chips", nargs="+", default=["v5e", "v6e"])
    parser.add_argument("--blocks", nargs="+", type=int, default=[128, 256, 512])
    parser.add_argument("--masks", nargs="+", default=list(MASKS))
    parser.add_argument("--directions", nargs="+", default=["forward", "both"])
    parser.add_argument("--detail", action="store_true", help="print the parts of our kernels")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["TPU_SKIP_MDS_QUERY"] = os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
        os.environ["LIBTPU_INIT_ARGS"] = (
            f"--xla_jf_dump_to={directory} --xla_jf_dump_llo_text=true "
            "--xla_jf_dump_llo_pass_label_regex=final_bundles"
        )
        ratios = []
        print("| chip | pass | mask | block | ours | jax | tokamax | ours / best |")
        print("|-|-|-|-|-|-|-|-|")
        for chip in args.chips:
            for direction in args.directions:
                for mask in args.masks:
                    for block in args.blocks:
                        got = {
                            name: measure(directory, name, mask, block, chip, direction == "both")
                            for name in IMPLEMENTATIONS
                        }
                        best = min(got["jax"][0], got["tokamax"][0])
                        ratio = got["ours"][0] / best
                        ratios.append(ratio)
                        cells = " | ".join(f"{got[n][0]}" for n in IMPLEMENTATIONS)
                        print(
                            f"| {chip} | {direction} | {mask} | {block} | {cells} | {ratio:.3f} |",
                            flush=True,
                        )
                        if args.detail:
                            for name, (_, kernels) in got.items():
                                for key, k in kernels.items():
                                    print("   ", name, key, k, file=sys.stderr)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\ngeometric mean {mean:.3f}, worst {max(ratios):.3f}")


if __name__ == "__main__":
    main()
