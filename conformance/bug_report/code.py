"""Lines of Python that are not too long."""

from __future__ import annotations

from collections.abc import Iterable

WIDTH = 100


def folded(lines: Iterable[str]) -> list[str]:
    """The same statements, calls with long argument lists with one argument a line."""
    return [part for line in lines for part in _fold(line)]


def _fold(line: str) -> list[str]:
    """A line, or several."""
    if len(line) <= WIDTH or line.lstrip().startswith("#"):
        return [line]
    opening = line.find("(")
    if opening < 0:
        return [line]
    parts, closing = _arguments(line, opening)
    if closing is None or not any(parts):
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    inner = [f"{indent}    {part.strip()}," for part in parts]
    rest = _fold(indent + ")" + line[closing + 1 :]) if len(line) > closing + 1 else [indent + ")"]
    return [line[: opening + 1], *(piece for part in inner for piece in _fold(part)), *rest]


def _arguments(line: str, opening: int) -> tuple[list[str], int | None]:
    """What stands between commas inside of a bracket, and where the bracket ends."""
    parts: list[str] = []
    depth, start, quote = 0, opening + 1, ""
    for n in range(opening, len(line)):
        letter = line[n]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth == 0:
                return [*parts, line[start:n]], n
        elif letter == "," and depth == 1:
            parts.append(line[start:n])
            start = n + 1
    return parts, None
