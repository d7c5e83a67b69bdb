"""The picture of the rooms of `conformance`: one under another, with a line for every room that one imports.

It is drawn from the imports in the sources, also those inside functions, so it cannot be out of date.
"""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from graphlib import TopologicalSorter
from html import escape
from math import log2
from pathlib import Path

from docs.generate.api import summary

ROOT = Path(__file__).parents[2]
PACKAGE = "conformance"

#: Pixels: where boxes begin, their size, from one to the next, and where their descriptions begin.
LEFT, BOX_WIDTH, BOX_HEIGHT, STEP, TEXT = 280, 110, 34, 48, 404
WIDTH = 860
#: Characters in a line of a description, and lines.
CHARACTERS, LINES = 72, 2
#: Hues of rooms that follow each other differ by this angle.
HUE = 137

#: How often one room imports another, by (importer, imported).
Imports = Counter[tuple[str, str]]


def room_imports() -> Imports:
    """Import statements between the rooms, wherever they stand."""
    names = rooms()
    found: Imports = Counter()
    for room in names:
        for path in (ROOT / PACKAGE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                found.update((room, other) for other in _imported(node) if other in names)
    return Counter({pair: n for pair, n in found.items() if pair[0] != pair[1]})


def rooms() -> list[str]:
    """The folders of the package."""
    return sorted(path.parent.name for path in (ROOT / PACKAGE).glob("*/__init__.py"))


def _imported(node: ast.AST) -> set[str]:
    """The rooms that a statement imports from."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return set()
    return {name.split(".")[1] for name in names if name.startswith(f"{PACKAGE}.")}


def order(imports: Imports) -> list[str]:
    """The rooms in one line: every room stands below all that it imports.

    Raises:
      graphlib.CycleError: there is no such line.
    """
    needs = {room: {b for a, b in imports if a == room} for room in rooms()}
    levels: dict[str, int] = {}
    for room in TopologicalSorter(needs).static_order():
        levels[room] = 1 + max((levels[other] for other in needs[room]), default=0)
    return sorted(levels, key=lambda room: (levels[room], room))


def picture() -> str:
    """The rooms and their imports as SVG."""
    imports = room_imports()
    line = order(imports)
    place = {room: n for n, room in enumerate(line)}
    height = STEP * len(line)
    words = f"The rooms of {PACKAGE} and their imports: every room imports only rooms above it."
    out = [
        f'<svg class="rooms" role="img" viewBox="0 0 {WIDTH} {height}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{words}</title>',
        f"<style>{_highlighting(line)}</style>",
    ]
    ports = _ports(imports, place)
    for (importer, imported), number in sorted(imports.items()):
        (start, end), hue = ports[importer, imported], HUE * place[importer] % 360
        out.append(
            f'<path class="import from-{importer} to-{imported}" d="{_arc(start, end, height)}" fill="none" '
            f'stroke="hsl({hue} 60% 48%)" stroke-width="{1 + log2(number) / 3:.1f}">'
            f"<title>{importer} imports {imported}: {number} statements</title></path>"
        )
    for room in line:
        out.append(_box(room, place[room]))
    return "".join([*out, "</svg>"])


def _ports(imports: Imports, place: dict[str, int]) -> dict[tuple[str, str], tuple[float, float]]:
    """Heights at which the lines begin and end, by import.

    At every box the lines that go up leave above those that come from below, short ones inside of long ones, so that
    lines of one box do not cross.
    """
    ends: dict[tuple[str, str], list[float]] = {pair: [0.0, 0.0] for pair in imports}
    for room, n in place.items():
        up = sorted((pair for pair in imports if pair[0] == room), key=lambda p: -place[p[1]])
        down = sorted((pair for pair in imports if pair[1] == room), key=lambda p: -place[p[0]])
        lines = [(pair, 0) for pair in up] + [(pair, 1) for pair in down]
        for k, (pair, side) in enumerate(lines, start=1):
            ends[pair][side] = STEP * n + 4 + BOX_HEIGHT * k / (len(lines) + 1)
    return {pair: (start, end) for pair, (start, end) in ends.items()}


def _arc(start: float, end: float, height: float) -> str:
    """A line to the left and back; the longest possible one nearly reaches the edge of the picture."""
    left = LEFT - 20 - 340 * (start - end) / height
    return f"M{LEFT} {start:.1f}C{left:.1f} {start:.1f} {left:.1f} {end:.1f} {LEFT} {end:.1f}"


def _box(room: str, number: int) -> str:
    top, hue = STEP * number + 4, HUE * number % 360
    centre, middle = LEFT + BOX_WIDTH / 2, top + BOX_HEIGHT / 2
    lines = textwrap.wrap(summary(f"{PACKAGE}.{room}").replace("``", ""), CHARACTERS)
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], lines[LINES - 1].rstrip(",;:") + " …"]
    first = middle + 4 - 7.5 * (len(lines) - 1)
    text = "".join(
        f'<text x="{TEXT}" y="{first + 15 * n:g}" font-size="12">{escape(line)}</text>'
        for n, line in enumerate(lines)
    )
    return (
        f'<g class="room" id="room-{room}" fill="currentColor"><rect x="{LEFT}" y="{top}" '
        f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="hsl({hue} 60% 48% / 15%)" '
        f'stroke="hsl({hue} 60% 48%)"/><text x="{centre:g}" y="{middle + 5:g}" '
        f'text-anchor="middle" font-size="14">{room}</text>{text}</g>'
    )


def _highlighting(line: list[str]) -> str:
    """Pointing at a room leaves only its own lines in full."""
    rules = ["svg.rooms:has(.room:hover) .import{opacity:.08}"]
    for room in line:
        hover = f"svg.rooms:has(#room-{room}:hover)"
        rules.append(f"{hover} .from-{room},{hover} .to-{room}{{opacity:1}}")
    return "".join(rules)
