"""A problem: everything that defines one test case, as plain data with a JSON form."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, SupportsIndex

from conformance.problems.json_fields import (
    JsonObject,
    Reader,
    boolean,
    number,
    optional,
    pair_of,
    positive,
    read_object,
    string,
    tuple_of,
    whole,
)
from conformance.problems.mask_json import expr_from_json, expr_to_json
from reference.blocks import block_grid, check_parts
from reference.mask_info import Direction, Shards, check_shards
from reference.masks import Expr, Mask

FORMAT = 1
DTYPES = ("float32", "bfloat16")
LAYOUTS = ("grid", "flat")


@dataclass(frozen=True)
class BlockSizes:
    """Tokens a block, for every direction.

    Attributes:
      q, kv: forward.
      q_dkv, kv_dkv: dkv kernel; the forward sizes if None.
      q_dq, kv_dq: dq kernel; the forward sizes if None.
      kv_compute, kv_dkv_compute: keys handled at a time inside a block; the whole block if None.
    """

    q: int
    kv: int
    q_dkv: int | None = None
    kv_dkv: int | None = None
    q_dq: int | None = None
    kv_dq: int | None = None
    kv_compute: int | None = None
    kv_dkv_compute: int | None = None

    def of(self, direction: Direction) -> tuple[int, int]:
        """(block_q, block_kv) of a direction."""
        pairs = {
            "fwd": (None, None),
            "dq": (self.q_dq, self.kv_dq),
            "dkv": (self.q_dkv, self.kv_dkv),
        }
        q, kv = pairs[direction]
        return q or self.q, kv or self.kv


@dataclass(frozen=True)
class Problem:
    """One test case.

    Attributes:
      q_len, kv_len: tokens.
      masks: mask of every head, or a single one for all heads.
      blocks: block sizes.
      heads, kv_heads: query heads and key/value heads.
      head_dim, head_dim_v: of q and k, and of v.
      dtype: of q, k and v: one of `DTYPES`.
      segments: lengths of the segments of the queries and of the keys, with their ids:
        ``((id, length), …)`` for each; None without segment ids.
      sinks: sink of every head; None without sinks.
      soft_cap: logits are ``soft_cap * tanh(x / soft_cap)``; None without.
      shards: devices along heads, queries and keys.
      ring: devices in the ring; 1 without ring attention.
      dynamic: the mask's values are known only at run time.
      shrink: shrink the grid where the layout has that option.
      downcast: store index arrays in the smallest type.
      layout: ``grid`` or ``flat``; None for the implementation's own.
      options: implementation options by name.
      regime: how q, k, v are generated.
      seed: of the arrays.
    """

    q_len: int
    kv_len: int
    masks: tuple[Expr, ...]
    blocks: BlockSizes
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 128
    head_dim_v: int = 128
    dtype: str = "float32"
    segments: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]] | None = None
    sinks: tuple[float, ...] | None = None
    soft_cap: float | None = None
    shards: Shards = field(default_factory=Shards)
    ring: int = 1
    dynamic: bool = False
    shrink: bool = True
    downcast: bool = True
    layout: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    regime: str = "signed"
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.masks) not in (1, self.heads):
            raise ValueError(
                f"masks must hold 1 or heads={self.heads} masks, got {len(self.masks)}"
            )
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"kv_heads={self.kv_heads} must divide heads={self.heads}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is unknown, expected one of {DTYPES}")
        if self.layout is not None and self.layout not in LAYOUTS:
            raise ValueError(f"layout {self.layout!r} is unknown, expected one of {LAYOUTS}")
        if self.sinks is not None and len(self.sinks) != self.heads:
            raise ValueError(f"sinks must hold heads={self.heads} values, got {len(self.sinks)}")

    def check(self) -> None:
        """Checks everything that a valid problem must satisfy.

        Raises:
          ValueError: lengths or counts below 1; block sizes, parts of blocks, shard counts, mask shapes or
            segments that do not fit.
        """
        for name in ("q_len", "kv_len", "heads", "head_dim", "head_dim_v", "ring"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        directions: tuple[Direction, ...] = ("fwd", "dq", "dkv")
        for direction in directions:
            grid = block_grid(self.q_len, self.kv_len, *self.blocks.of(direction))
            check_shards(self.heads, *grid, self.shards)
        check_parts(self.blocks.kv, self.blocks.kv_compute)
        check_parts(self.blocks.of("dkv")[1], self.blocks.kv_dkv_compute)
        for expr in self.masks:
            expr.check_shape(self.q_len, self.kv_len)
        if self.segments is not None:
            for runs, length, name in zip(
                self.segments, (self.q_len, self.kv_len), ("queries", "keys"), strict=True
            ):
                if any(n < 0 for _, n in runs):
                    raise ValueError(f"segments of the {name} must not have negative lengths")
                if sum(n for _, n in runs) != length:
                    raise ValueError(f"segments of the {name} must cover {length} tokens")

    @cached_property
    def head_masks(self) -> list[Mask]:
        """The mask of every head."""
        each = self.masks * self.heads if len(self.masks) == 1 else self.masks
        return [Mask(expr, self.q_len, self.kv_len) for expr in each]

    @property
    def single_mask(self) -> bool:
        """Whether all heads share one mask."""
        return len(set(self.masks)) == 1

    def grid(self, direction: Direction = "fwd") -> tuple[int, int]:
        """(q blocks, kv blocks) of a direction, over all shards."""
        return block_grid(self.q_len, self.kv_len, *self.blocks.of(direction))

    def option(self, name: str, default: Any = None) -> Any:
        """Value of an implementation option."""
        return dict(self.options).get(name, default)

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def key(self) -> str:
        """Stable hash of the JSON form, the same on every machine."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()[:16]

    def to_json(self) -> JsonObject:
        """Plain data; fields with their default value are left out."""
        result: JsonObject = {"format": FORMAT}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "masks":
                result["masks"] = [expr_to_json(expr) for expr in value]
            elif item.name == "blocks":
                result["blocks"] = {k: v for k, v in vars(value).items() if v is not None}
            elif item.name == "shards":
                if value != Shards():
                    result["shards"] = dict(vars(value))
            elif value != item.default:
                result[item.name] = dict(value) if item.name == "options" else value
        return result

    def dumps(self) -> str:
        """Canonical JSON text."""
        return json.dumps(self.to_json(), sort_keys=True, default=_plain_number)

    @staticmethod
    def from_json(obj: object) -> Problem:
        """The problem of plain data.

        Raises:
          ValueError: not an object, another format, unknown or missing fields, invalid values.
        """
        if not isinstance(obj, dict):
            raise ValueError(f"problem must be a JSON object, got {type(obj).__name__}")
        data = dict(obj)
        version = data.pop("format", None)
        if version != FORMAT:
            raise ValueError(f"problem has format {version!r}, this version reads format {FORMAT}")
        required = ("q_len", "kv_len", "masks", "blocks")
        problem = Problem(**read_object(data, "problem", _READERS, required))
        problem.check()
        return problem

    def but(self, **changes: Any) -> Problem:
        """The same problem with some fields changed."""
        return replace(self, **changes)


def _blocks(value: Any, name: str) -> BlockSizes:
    readers: dict[str, Reader] = {item.name: optional(positive) for item in fields(BlockSizes)}
    readers |= {"q": positive, "kv": positive}
    return BlockSizes(**read_object(value, name, readers, ("q", "kv"), prefix="blocks."))


def _shards(value: Any, name: str) -> Shards:
    readers: dict[str, Reader] = {item.name: positive for item in fields(Shards)}
    return Shards(**read_object(value, name, readers, prefix="shards."))


def options_of(value: Any, name: str) -> tuple[tuple[str, Any], ...]:
    """Implementation options out of an object with their names.

    Raises:
      ValueError: not an object.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, got {value!r:.60}")
    return tuple(sorted(value.items()))


_READERS: dict[str, Reader] = {
    "q_len": positive,
    "kv_len": positive,
    "masks": tuple_of(lambda value, _: expr_from_json(value)),
    "blocks": _blocks,
    "heads": positive,
    "kv_heads": positive,
    "head_dim": positive,
    "head_dim_v": positive,
    "dtype": string,
    "segments": optional(pair_of(tuple_of(pair_of(whole)))),
    "sinks": optional(tuple_of(number)),
    "soft_cap": optional(number),
    "shards": _shards,
    "ring": positive,
    "dynamic": boolean,
    "shrink": boolean,
    "downcast": boolean,
    "layout": optional(string),
    "options": options_of,
    "regime": string,
    "seed": whole,
}


def _plain_number(value: object) -> int:
    """A block size of another integer type as JSON writes it."""
    if isinstance(value, SupportsIndex):
        return int(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
