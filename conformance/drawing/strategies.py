"""Hypothesis strategies for masks and problems, for the checks and for your own tests.

Hypothesis draws structure only (sizes, patterns, parameters); arrays come from seeds. Everything is
built around block boundaries, where compilers go wrong: offsets and windows that end on, just before
and just after a block edge, single visible or hidden entries in block corners, empty rows, columns and
shards, patterns that are aligned to the blocks and patterns that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from conformance.problems.mask_json import PATTERNS, Blocks, Random
from conformance.problems.problem import BlockSizes, Problem
from reference.mask_info import Shards
from reference.masks import And, Causal, ChunkedCausal, Expr, Full, Local, Mask, Or

Choice = Literal["any", "always", "never"]
#: Letters of `conformance.problems.mask_json.PATTERNS` that are drawn together.
PALETTES = ("02", "02a", "0", "2", "0ab", "2bcde", "0fghij", "rst02", "".join(PATTERNS))
DENSITIES = (0.0, 0.02, 0.1, 0.5, 0.9, 0.98, 1.0)


@dataclass(frozen=True)
class Space:
    """What `problems` may draw. Sizes are chosen small: a failing problem must fit on a screen.

    A `Choice` says whether a trait is drawn sometimes, always or never.

    Attributes:
      block_q, block_kv: block sizes to choose from, in tokens.
      blocks: largest number of blocks along either axis.
      heads: largest number of query heads.
      static, dynamic: masks known in advance, masks known at run time.
      per_head: whether heads have different masks.
      q_shards, head_shards, kv_shards: whether that axis is split.
      layouts: layouts to choose from.
      flat_only: the implementation has the flat layout only: one mask for all heads.
      shrink: values of the shrink option.
      backward_blocks: other block sizes for the backward directions.
      grouped: several query heads may share a key/value head.
      kinds: kinds of masks to choose from; None for all.
      options: implementation options and the values to choose from.
    """

    block_q: tuple[int, ...] = (1, 2, 3, 4, 8)
    block_kv: tuple[int, ...] = (1, 2, 3, 4, 8)
    blocks: int = 4
    heads: int = 4
    static: bool = True
    dynamic: bool = False
    per_head: Choice = "any"
    q_shards: Choice = "any"
    head_shards: Choice = "any"
    kv_shards: Choice = "never"
    layouts: tuple[str | None, ...] = (None,)
    flat_only: bool = False
    shrink: tuple[bool, ...] = (True, False)
    backward_blocks: bool = True
    grouped: bool = False
    kinds: tuple[str, ...] | None = None
    options: tuple[tuple[str, tuple[Any, ...]], ...] = ()


def near(edges: Sequence[int]) -> st.SearchStrategy[int]:
    """Integers on, just before and just after some edges."""
    # Of n and -n the positive one first: in the order of the set it would be up to the interpreter.
    places = {e + d for e in edges for d in (-1, 0, 1)}
    return st.sampled_from(sorted(places, key=lambda n: (abs(n), -n)))


@st.composite
def block_patterns(draw: st.DrawFn, q_len: int, kv_len: int, block_q: int, block_kv: int) -> Blocks:
    """Patterns of letters, aligned to the blocks, or to half blocks where they divide."""
    halves = [
        (q, kv)
        for q in {block_q, block_q // 2}
        for kv in {block_kv, block_kv // 2}
        if q and kv and q_len % q == 0 and kv_len % kv == 0
    ]
    size_q, size_kv = draw(st.sampled_from(sorted(halves, reverse=True)))
    rows, columns = q_len // size_q, kv_len // size_kv
    # Few letters per mask make equal stored blocks, empty rows and empty columns likely.
    drawn = draw(_drawings(draw(st.sampled_from(PALETTES)), rows, columns))
    return Blocks(tuple(drawn), size_q, size_kv)


@lru_cache(maxsize=1024)
def _drawings(palette: str, rows: int, columns: int) -> st.SearchStrategy[list[str]]:
    """Rows of letters, some of them empty."""
    row = st.lists(st.sampled_from(palette), min_size=columns, max_size=columns).map("".join)
    empty = st.just("0" * columns)
    return st.lists(st.one_of(empty, row, row), min_size=rows, max_size=rows)


def mask_strategies(
    q_len: int, kv_len: int, block_q: int, block_kv: int
) -> dict[str, st.SearchStrategy[Expr]]:
    """A strategy for every kind of mask (the kinds of `conformance.problems.mask_json`)."""
    edges = sorted(
        {0, block_q, block_kv, -block_q, -block_kv, q_len, kv_len, -q_len, kv_len - q_len}
    )
    offset = st.one_of(st.just(0), near(edges))
    side = st.one_of(st.none(), near([0, block_q, block_kv, 2 * block_kv]))
    chunk = near([1, block_q, block_kv, q_len, 3]).map(lambda n: max(1, n))
    simple: dict[str, st.SearchStrategy[Expr]] = {
        "full": st.just(Full()),
        "causal": st.builds(Causal, offset),
        "local": st.builds(Local, side, side, offset),
        "chunked_causal": st.builds(ChunkedCausal, chunk),
        "blocks": block_patterns(q_len, kv_len, block_q, block_kv),
        "random": st.builds(Random, st.sampled_from(DENSITIES), st.integers(0, 3)),
    }
    either = st.one_of(*simple.values())
    return simple | {"and": st.builds(And, either, either), "or": st.builds(Or, either, either)}


def masks(
    q_len: int, kv_len: int, block_q: int, block_kv: int, kinds: Sequence[str] | None = None
) -> st.SearchStrategy[Expr]:
    """Mask expressions of a given shape, with their boundaries near multiples of the blocks.

    Args:
      q_len, kv_len: tokens.
      block_q, block_kv: tokens a block; they divide the lengths.
      kinds: kinds to choose from; all if None. Kinds that are not ours to draw (``user``) are left out.
    """
    return _masks(q_len, kv_len, block_q, block_kv, None if kinds is None else tuple(kinds))


# Hypothesis examines every strategy object once, which takes longer than a draw from it.
@lru_cache(maxsize=1024)
def _masks(
    q_len: int, kv_len: int, block_q: int, block_kv: int, kinds: tuple[str, ...] | None
) -> st.SearchStrategy[Expr]:
    offered = mask_strategies(q_len, kv_len, block_q, block_kv)
    if kinds is None:
        return st.one_of(*offered.values(), offered["blocks"], offered["causal"])
    return st.one_of(*(offered[kind] for kind in kinds if kind in offered))


def parts(number: int, choice: Choice) -> list[int]:
    """Numbers of equal parts that ``number`` things can be split into."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return {"any": divisors, "never": [1], "always": divisors[1:]}[choice]


@st.composite
def _sizes(draw: st.DrawFn, space: Space, flat: bool) -> tuple[int, int, BlockSizes, Shards]:
    """Lengths, block sizes and shards along q and kv that fit together."""
    kv_choice = space.kv_shards if flat else "never"
    q_blocks = draw(st.integers(1 + (space.q_shards == "always"), space.blocks))
    kv_blocks = draw(st.integers(1 + (kv_choice == "always"), space.blocks))
    block_q, block_kv = draw(st.sampled_from(space.block_q)), draw(st.sampled_from(space.block_kv))
    q_shards = draw(st.sampled_from(parts(q_blocks, space.q_shards)))
    kv_shards = draw(st.sampled_from(parts(kv_blocks, kv_choice)))
    blocks = BlockSizes(block_q, block_kv)
    if space.backward_blocks and draw(st.booleans()):
        # Multiples that divide the blocks of a shard, so that shards still hold whole blocks.
        q_times = st.sampled_from(parts(q_blocks // q_shards, "any"))
        kv_times = st.sampled_from(parts(kv_blocks // kv_shards, "any"))
        blocks = BlockSizes(
            block_q,
            block_kv,
            q_dkv=block_q * draw(q_times),
            kv_dkv=block_kv * draw(kv_times),
            q_dq=block_q * draw(q_times),
            kv_dq=block_kv * draw(kv_times),
        )
    return q_blocks * block_q, kv_blocks * block_kv, blocks, Shards(1, q_shards, kv_shards)


def differs(first: Expr, q_len: int, kv_len: int) -> Callable[[Expr], bool]:
    """Whether another mask has other values: equal ones that are written differently may be one mask or two."""
    values = Mask(first, q_len, kv_len).dense()
    return lambda other: not np.array_equal(Mask(other, q_len, kv_len).dense(), values)


@st.composite
def _head_masks(
    draw: st.DrawFn,
    space: Space,
    heads: int,
    mask: st.SearchStrategy[Expr],
    shape: tuple[int, int],
) -> tuple[Expr, ...]:
    """One mask for all heads, or two that the heads choose from."""
    first = draw(mask)
    if space.per_head == "never" or (space.per_head == "any" and draw(st.booleans())):
        return (first,)
    other = draw(mask.filter(differs(first, *shape)))
    chosen = draw(st.lists(st.sampled_from((first, other)), min_size=heads, max_size=heads))
    if space.per_head == "always":
        chosen[-2:] = [first, other]
    return tuple(chosen) if len(set(chosen)) > 1 else (chosen[0],)


@st.composite
def problems(draw: st.DrawFn, space: Space = Space()) -> Problem:
    """Valid problems of a space."""
    layout = draw(st.sampled_from(space.layouts))
    flat = layout == "flat" or (layout is None and space.flat_only)
    q_len, kv_len, blocks, shards = draw(_sizes(space, flat))
    kinds = [kind for kind, wanted in ((False, space.static), (True, space.dynamic)) if wanted]
    several = "always" in (space.per_head, space.head_shards)
    heads = draw(st.integers(1 + several, space.heads))
    mask = masks(q_len, kv_len, blocks.q, blocks.kv, space.kinds)
    one_mask = replace(space, per_head="never", head_shards="never") if flat else space
    one_mask_a_head = one_mask if heads > 1 else replace(space, per_head="never")
    chosen = draw(_head_masks(one_mask_a_head, heads, mask, (q_len, kv_len)))
    head_shards = draw(st.sampled_from(parts(heads, one_mask.head_shards)))
    kv_heads = (
        [k for k in parts(heads, "any") if k % head_shards == 0] if space.grouped else [heads]
    )
    return Problem(
        q_len,
        kv_len,
        chosen,
        blocks,
        heads=heads,
        kv_heads=draw(st.sampled_from(kv_heads)),
        shards=Shards(head_shards, shards.q, shards.kv),
        dynamic=draw(st.sampled_from(kinds)),
        shrink=draw(st.sampled_from(space.shrink)),
        layout=layout,
        options=tuple((name, draw(st.sampled_from(v))) for name, v in sorted(space.options)),
    )
