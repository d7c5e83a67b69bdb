"""Mask expressions as JSON, and mask patterns that are written block by block.

A mask in JSON is an object with a ``kind``::

    {"kind": "causal", "offset": 0}
    {"kind": "local", "left": 1023, "right": 0, "offset": 0}
    {"kind": "chunked_causal", "chunk_size": 256}
    {"kind": "full"}
    {"kind": "dense", "rows": ["10", "11"]}
    {"kind": "blocks", "rows": ["2a", "0b"], "block_q": 128, "block_kv": 128}
    {"kind": "random", "density": 0.1, "seed": 3}
    {"kind": "and", "left": {…}, "right": {…}}      (also "or")
    {"kind": "user", "call": "Mine((4, 4))", "family": 1}     (of another class; in its own process only)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.problems.json_fields import (
    JsonObject,
    Reader,
    number,
    optional,
    read_object,
    string,
    tuple_of,
    whole,
)
from conformance.problems.user_mask import UserMask, user_mask_of
from reference.masks import (
    And,
    Bool,
    Causal,
    ChunkedCausal,
    Dense,
    Expr,
    Full,
    Int,
    Local,
    Or,
)


def _filled(value: bool, index: Any, shape: tuple[int, int]) -> Bool:
    block = np.full(shape, value)
    block[index] = not value
    return block


def _noise(seed: int) -> Callable[[tuple[int, int]], Bool]:
    return lambda shape: np.random.default_rng(seed).random(shape) < 0.5


#: What a letter of a block pattern looks like inside its block. Corners and edges are where
#: compilers go wrong, and entries that no corner or edge tells of (k and l); the noise patterns
#: make stored blocks that differ from each other.
PATTERNS: dict[str, Callable[[tuple[int, int]], Bool]] = {
    "0": lambda shape: np.zeros(shape, dtype=np.bool_),
    "2": lambda shape: np.ones(shape, dtype=np.bool_),
    "a": lambda shape: np.tri(*shape, dtype=np.bool_),
    "b": lambda shape: _filled(False, (0, 0), shape),
    "c": lambda shape: _filled(False, (-1, -1), shape),
    "d": lambda shape: _filled(True, (0, 0), shape),
    "e": lambda shape: _filled(True, (-1, -1), shape),
    "f": lambda shape: _filled(False, (0, -1), shape),
    "g": lambda shape: _filled(True, (-1, 0), shape),
    "h": lambda shape: _filled(True, (slice(None), -1), shape),
    "i": lambda shape: _filled(True, (-1, slice(None)), shape),
    "j": lambda shape: _filled(True, (0, slice(None)), shape),
    "k": lambda shape: _filled(False, (shape[0] // 2, shape[1] // 2), shape),
    "l": lambda shape: _filled(True, (shape[0] // 2, shape[1] // 2), shape),
    "r": _noise(1),
    "s": _noise(2),
    "t": _noise(3),
}


@dataclass(frozen=True)
class Blocks(Expr):
    """A mask drawn block by block, one letter of `PATTERNS` a block.

    Attributes:
      rows: one string a row of blocks, all of one length.
      block_q, block_kv: tokens a letter stands for.

    Raises:
      ValueError: no rows, rows of different lengths, an unknown letter, or a size below 1.
    """

    rows: tuple[str, ...]
    block_q: int
    block_kv: int

    def __post_init__(self) -> None:
        if not self.rows or not self.rows[0]:
            raise ValueError("rows must hold at least one block")
        if len({len(row) for row in self.rows}) != 1:
            raise ValueError(f"rows must all have one length, got {list(self.rows)}")
        unknown = set("".join(self.rows)) - PATTERNS.keys()
        if unknown:
            raise ValueError(f"rows: unknown pattern {sorted(unknown)}, know {''.join(PATTERNS)}")
        for name in ("block_q", "block_kv"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def dense(self) -> Bool:
        """bool ``[rows*block_q, columns*block_kv]``."""
        shape = (self.block_q, self.block_kv)
        return np.block([[PATTERNS[letter](shape) for letter in row] for row in self.rows])

    def check_shape(self, q_len: int, kv_len: int) -> None:
        own = (len(self.rows) * self.block_q, len(self.rows[0]) * self.block_kv)
        if own != (q_len, kv_len):
            raise ValueError(f"block pattern covers {own}, expected {(q_len, kv_len)}")

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return np.asarray(self.dense()[q_ids, kv_ids])


@dataclass(frozen=True)
class Random(Expr):
    """Every pair visible with probability ``density``, by a counter-based hash of the pair.

    Attributes:
      density: between 0 and 1.
      seed: another seed gives another mask.

    Raises:
      ValueError: ``density`` is not between 0 and 1.
    """

    density: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.density <= 1:
            raise ValueError(f"density must be between 0 and 1, got {self.density}")

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        # splitmix64 of the pair: the same entry whatever slice it is read from, on any machine.
        with np.errstate(over="ignore"):
            pair = q_ids.astype(np.uint64) * np.uint64(1 << 32) + kv_ids.astype(np.uint64)
            x = pair + np.uint64(self.seed) * np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
        return np.asarray((x >> np.uint64(11)) * 2.0**-53 < self.density)


def expr_to_json(expr: Expr) -> JsonObject:
    """JSON form of a mask expression.

    Raises:
      ValueError: an expression class of somebody else, which has no JSON form.
    """
    if isinstance(expr, Full):
        return {"kind": "full"}
    if isinstance(expr, Causal):
        return {"kind": "causal", "offset": expr.offset}
    if isinstance(expr, Local):
        return {"kind": "local", "left": expr.left, "right": expr.right, "offset": expr.offset}
    if isinstance(expr, ChunkedCausal):
        return {"kind": "chunked_causal", "chunk_size": expr.chunk_size}
    if isinstance(expr, Dense):
        rows = ["".join("01"[int(v)] for v in row) for row in expr.array]
        return {"kind": "dense", "rows": rows}
    if isinstance(expr, Blocks):
        sizes = {"block_q": expr.block_q, "block_kv": expr.block_kv}
        return {"kind": "blocks", "rows": list(expr.rows), **sizes}
    if isinstance(expr, Random):
        return {"kind": "random", "density": expr.density, "seed": expr.seed}
    if isinstance(expr, (And, Or)):
        kind = "and" if isinstance(expr, And) else "or"
        return {"kind": kind, "left": expr_to_json(expr.left), "right": expr_to_json(expr.right)}
    if isinstance(expr, UserMask):
        return expr.to_json()
    raise ValueError(f"mask expression {type(expr).__name__} has no JSON form")


def _dense(rows: tuple[str, ...]) -> Dense:
    if not rows or len({len(row) for row in rows}) != 1 or set("".join(rows)) - {"0", "1"}:
        raise ValueError("rows of a dense mask must be strings of 0 and 1 of one length")
    return Dense(np.array([[c == "1" for c in row] for row in rows]))


_OFFSET: dict[str, Reader] = {"offset": whole}
_SIDES: dict[str, Reader] = {"left": optional(whole), "right": optional(whole)}
_ROWS: dict[str, Reader] = {"rows": tuple_of(string)}
_BOTH: dict[str, Reader] = {
    "left": lambda value, _: expr_from_json(value),
    "right": lambda value, _: expr_from_json(value),
}
#: By kind: how to make the mask, its required fields and the others.
_KINDS: dict[str, tuple[Callable[..., Expr], dict[str, Reader], dict[str, Reader]]] = {
    "full": (Full, {}, {}),
    "causal": (Causal, {}, _OFFSET),
    "local": (Local, _SIDES, _OFFSET),
    "chunked_causal": (ChunkedCausal, {"chunk_size": whole}, {}),
    "dense": (_dense, _ROWS, {}),
    "blocks": (Blocks, _ROWS | {"block_q": whole, "block_kv": whole}, {}),
    "random": (Random, {"density": number}, {"seed": whole}),
    "and": (And, _BOTH, {}),
    "or": (Or, _BOTH, {}),
    "user": (user_mask_of, {"family": whole, "call": string}, {}),
}


def expr_from_json(obj: object) -> Expr:
    """The mask expression of a JSON object.

    Raises:
      ValueError: not an object, an unknown kind, a missing, unknown or wrong field; the message names it.
    """
    if not isinstance(obj, dict) or "kind" not in obj:
        raise ValueError(f"mask must be an object with a 'kind', got {obj!r:.80}")
    kind = obj["kind"]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"mask kind {kind!r} is unknown, expected one of {sorted(_KINDS)}")
    make, required, more = _KINDS[kind]
    own = {name: value for name, value in obj.items() if name != "kind"}
    return make(**read_object(own, f"mask of kind {kind!r}", required | more, required))


def kind_of(expr: Expr) -> str:
    """The ``kind`` of an expression, as in its JSON form (``user`` for foreign classes)."""
    try:
        return str(expr_to_json(expr)["kind"])
    except ValueError:
        return "user"
