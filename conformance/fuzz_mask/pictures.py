"""Masks as text: ``X`` visible, ``-`` hidden."""

from __future__ import annotations

from reference.masks import Bool

#: Show only this much of larger masks.
ROWS, COLUMNS = 12, 36


def window(length: int, most: int, centre: int) -> slice:
    """At most ``most`` places of an axis, around a centre."""
    start = max(0, min(centre - most // 2, length - most))
    return slice(start, min(length, start + most))


def draw(array: Bool, centre: tuple[int, int] = (0, 0)) -> list[str]:
    """A boolean array as lines; of a large one the part around a place, and which part it is."""
    rows, columns = (
        window(array.shape[0], ROWS, centre[0]),
        window(array.shape[1], COLUMNS, centre[1]),
    )
    lines = ["".join("-X"[int(v)] for v in row) for row in array[rows, columns]]
    if (rows.stop - rows.start, columns.stop - columns.start) == array.shape:
        return lines or ["(empty)"]
    part = f"[{rows.start}:{rows.stop}, {columns.start}:{columns.stop}]"
    return [*lines, f"{part} of {array.shape[0]}×{array.shape[1]}"]


def beside(titles: tuple[str, str], left: list[str], right: list[str]) -> list[str]:
    """Two pictures side by side, each under its title."""
    width = max(len(line) for line in (titles[0], *left))
    pairs = [titles, *((a, b) for a, b in zip(left, right, strict=True))]
    return [f"{a:<{width}}   {b}".rstrip() for a, b in pairs]
