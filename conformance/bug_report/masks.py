"""Masks as Python code: their values in NumPy, and the classes of the libraries."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from conformance.bug_report.arrays import LONGEST
from conformance.problems.mask_json import Blocks, Random
from reference.masks import And, Bool, Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask, Or

#: What the letters of a drawing are, as code; ``s`` is the shape of a block.
_LETTERS = {
    "0": "np.zeros(s, bool)",
    "2": "np.ones(s, bool)",
    "a": "np.tri(*s, dtype=bool)",
    "r": "np.random.default_rng(1).random(s) < 0.5",
    "s": "np.random.default_rng(2).random(s) < 0.5",
    "t": "np.random.default_rng(3).random(s) < 0.5",
}
#: Letters whose block is filled with one value but for a place.
_HOLES = {
    "b": ("False", "0, 0"), "c": ("False", "-1, -1"), "d": ("True", "0, 0"), "e": ("True", "-1, -1"),
    "f": ("False", "0, -1"), "g": ("True", "-1, 0"), "h": ("True", ":, -1"), "i": ("True", "-1, :"),
    "j": ("True", "0, :"), "k": ("False", "s[0] // 2, s[1] // 2"), "l": ("True", "s[0] // 2, s[1] // 2"),
}  # fmt: skip


def values(expr: Expr, q_len: int, kv_len: int) -> list[str]:
    """Statements that end with ``visible = …``, bool ``[q_len, kv_len]``.

    They may use ``i`` and ``j``, the positions of queries and keys as `np.ogrid` gives them.
    """
    dense = Mask(expr, q_len, kv_len).dense()
    lines = _statements(expr, q_len, kv_len)
    if lines is None or not np.array_equal(_run(lines, q_len, kv_len), dense):
        lines = _packed(dense)
    if any("i" in _names(line) or "j" in _names(line) for line in lines):
        lines = [f"i, j = np.ogrid[:{q_len}, :{kv_len}]", *lines]
    return lines


def _names(line: str) -> set[str]:
    return set(compile(line, "line", "exec").co_names)


def _run(lines: list[str], q_len: int, kv_len: int) -> Any:
    i, j = np.ogrid[:q_len, :kv_len]
    space: dict[str, Any] = {"np": np, "base64": base64, "zlib": zlib, "i": i, "j": j}
    exec("\n".join(lines), space)
    return space["visible"]


def _statements(expr: Expr, q_len: int, kv_len: int) -> list[str] | None:
    if isinstance(expr, Blocks):
        return _drawing(expr)
    if isinstance(expr, Dense) and expr.array.size <= LONGEST:
        return [f"visible = np.array({expr.array.astype(int).tolist()}, bool)"]
    code = condition(expr, q_len, kv_len)
    return None if code is None else [f"visible = {code}"]


def condition(expr: Expr, q_len: int, kv_len: int) -> str | None:
    """A mask as a condition on ``i`` and ``j``; None if it has no such form."""
    if isinstance(expr, Full):
        return f"np.ones(({q_len}, {kv_len}), bool)"
    if isinstance(expr, Causal):
        return f"j <= i{_offset(expr.offset)}"
    if isinstance(expr, ChunkedCausal):
        return f"(i // {expr.chunk_size} == j // {expr.chunk_size}) & (j <= i)"
    if isinstance(expr, Local):
        sides = []
        if expr.left is not None:
            sides.append(f"(i{_offset(expr.offset - expr.left)} <= j)")
        if expr.right is not None:
            sides.append(f"(j <= i{_offset(expr.offset + expr.right)})")
        return " & ".join(sides) or f"np.ones(({q_len}, {kv_len}), bool)"
    if isinstance(expr, (And, Or)):
        left, right = (condition(part, q_len, kv_len) for part in (expr.left, expr.right))
        if left is None or right is None:
            return None
        return f"({left}) {'&' if isinstance(expr, And) else '|'} ({right})"
    return None


def _offset(tokens: int) -> str:
    return f" {'+' if tokens > 0 else '-'} {abs(tokens)}" if tokens else ""


def _drawing(expr: Blocks) -> list[str]:
    used = sorted(set("".join(expr.rows)))
    lines = [f"s = ({expr.block_q}, {expr.block_kv})  # a block"]
    lines.append("b = {" + ", ".join(f'"{x}": {_LETTERS.get(x) or _hole(x)}' for x in used) + "}")
    for letter in used:
        if letter in _HOLES:
            value, place = _HOLES[letter]
            lines.append(f'b["{letter}"][{place}] = {"True" if value == "False" else "False"}')
    rows = ", ".join(f'"{row}"' for row in expr.rows)
    lines.append(f"visible = np.block([[b[x] for x in row] for row in [{rows}]])")
    return lines


def _hole(letter: str) -> str:
    return f"np.full(s, {_HOLES[letter][0]})"


def _packed(dense: Bool) -> list[str]:
    text = base64.b64encode(zlib.compress(np.packbits(dense).tobytes(), 9)).decode()
    return [
        f'bits = np.frombuffer(zlib.decompress(base64.b64decode("{text}")), np.uint8)',
        f"visible = np.unpackbits(bits, count={dense.size}).reshape{dense.shape}.astype(bool)",
    ]


def library(expr: Expr, shape: str, variable: str, chunked: bool = True) -> str:
    """A mask as an object of a library that has the classes of jax, in a module called ``masks``.

    Args:
      expr: what to express.
      shape: its shape, as code.
      variable: holds its values, for kinds that the library has no class for.
      chunked: the library has a class for chunked masks.
    """
    if isinstance(expr, Full):
        return f"masks.FullMask({shape})"
    if isinstance(expr, Causal):
        return f"masks.CausalMask({shape}, offset={expr.offset})"
    if isinstance(expr, Local):
        return f"masks.LocalMask({shape}, ({expr.left}, {expr.right}), offset={expr.offset})"
    if isinstance(expr, ChunkedCausal) and chunked:
        return f"masks.ChunkedCausalMask({shape}, chunk_size={expr.chunk_size})"
    if isinstance(expr, (And, Or)) and not any(
        isinstance(part, (Dense, Blocks, Random, And, Or)) for part in (expr.left, expr.right)
    ):
        left, right = (library(part, shape, variable, chunked) for part in (expr.left, expr.right))
        return f"{left} {'&' if isinstance(expr, And) else '|'} {right}"
    return f"masks.NumpyMask({variable})"
