"""Reads the final bundles that libtpu dumps: which parts a kernel has, and how long they are.

A call executes, for each grid step, the bundles of the grid loop that no branch skips, plus the
segments that its branch takes.  Segments are found from the branches: those with matrix products
are the computing bodies (in the order of the source), those before them initialise a row, those
after them finish it; segments that start or await copies are counted in every step, for every
implementation alike.  A nested segment inside a body masks one block.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

RECORD = re.compile(r"^\s*(0x[0-9a-f]+|0)\s+(?:[A-Z]{2}\s*)?:\s*(?:>\s*)*\{(.*)$")
LABEL = re.compile(r"Start(?:/End empty)? region (\d+)")
BRANCH = re.compile(r"sbr\.(?:rel|abs)\s*(?:\([^)]*\))?\s*target = \$region(\d+)")
DELAY_SLOTS = 4
MATMUL, COPY = re.compile(r"vmatmul"), re.compile(r"= dma\.|dma\.done\.wait")
MNEMONIC = re.compile(r"= (v[\w.]+|dma\.\w+)")
UNITS = {
    "matrix": re.compile(r"vmatmul"),
    "transcendental": re.compile(r"vexp|vpow|vrcp|vtanh|vlog|vrsqrt"),
    "cross-lane": re.compile(r".*xlane|vxpose|vrot|vperm|vbcast"),
    "load": re.compile(r"vld"),
    "store": re.compile(r"vst"),
    "queue": re.compile(r"vpop|vmatp|vsync"),
    "vector": re.compile(r"v"),
}
"""Units by mnemonic; what fits none before counts as vector arithmetic."""


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
class Units:
    """Instructions of a body by unit: (how many, the most in one bundle); register spills."""

    used: dict[str, tuple[int, int]]
    spills: int


@dataclasses.dataclass
class Kernel:
    """Bundles of one compiled kernel, by what executes them."""

    step: int
    init: int
    bodies: list[tuple[int, list[int]]]
    finish: int
    units: list[Units]
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
    kernel.units.append(count_units([text(a, a + 1) for a in range(segment.begin, segment.end)]))


def count_units(bundles: list[str]) -> Units:
    """What a body asks of each unit."""
    used: dict[str, tuple[int, int]] = {}
    for bundle in bundles:
        here: dict[str, int] = {}
        for mnemonic in MNEMONIC.findall(bundle):
            unit = next((u for u, pattern in UNITS.items() if pattern.match(mnemonic)), None)
            if unit is not None:
                here[unit] = here.get(unit, 0) + 1
        for unit, count in here.items():
            total, most = used.get(unit, (0, 0))
            used[unit] = total + count, max(most, count)
    return Units(used, sum(bundle.count("_spill]") for bundle in bundles))


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
