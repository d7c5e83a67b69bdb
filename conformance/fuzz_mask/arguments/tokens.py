"""Strategies of arrays with one entry per token: ids of documents and segments, positions, flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from conformance.fuzz_mask.arguments.names import Content
from conformance.fuzz_mask.arguments.settings import Setting

#: Arrays of fewer tokens are drawn entry by entry, longer ones as runs that end near block edges.
SHORT = 12

Array = NDArray[Any]


def places(length: int, block: int) -> list[int]:
    """Where runs may end: on, just before or just after block edges, at 1 and in the middle."""
    edges = {b + d for b in range(block, length + 1, block) for d in (-1, 0, 1)}
    return sorted(n for n in edges | {1, length // 2} if 0 < n < length)


def cuts(length: int, block: int) -> st.SearchStrategy[list[int]]:
    """At most three different places, in order."""
    offered = places(length, block)
    return st.sets(st.sampled_from(offered), max_size=3).map(sorted) if offered else st.just([])


@st.composite
def runs(draw: st.DrawFn, length: int, block: int, values: st.SearchStrategy[int]) -> Array:
    """Few runs of equal values, with their ends on, just before or just after block edges."""
    ends = draw(cuts(length, block))
    each = draw(st.lists(values, min_size=len(ends) + 1, max_size=len(ends) + 1))
    if draw(st.booleans()):
        each.sort()
    return np.repeat(np.array(each), np.diff([0, *ends, length]))


def lengths(length: int, block: int) -> st.SearchStrategy[Array]:
    """Lengths of up to four parts that make up all tokens."""
    return cuts(length, block).map(lambda ends: _as_ids(np.diff([0, *ends, length])))


def indices(length: int, block: int) -> st.SearchStrategy[Array]:
    """A few tokens in order; every third time with 0, every third with 0 and the end."""
    between = cuts(length, block)
    return st.one_of(
        between, between.map(lambda ends: [0, *ends]), between.map(lambda ends: [0, *ends, length])
    ).map(_as_ids)


def ids(length: int, block: int) -> st.SearchStrategy[Array]:
    """Small ids, in ascending order or not."""
    values = st.integers(0, 3)
    if length > SHORT:
        return runs(length, block, values).map(_as_ids)
    each = st.lists(values, min_size=length, max_size=length)
    return st.one_of(each.map(sorted), each).map(_as_ids)


def _as_ids(values: Any) -> Array:
    return np.array(values, dtype=np.int32)


def flags(length: int, block: int) -> st.SearchStrategy[Array]:
    """Booleans."""
    return ids(length, block).map(lambda array: array % 2 == 1)


def zigzag(length: int, parts: int) -> Array:
    """Positions of a load-balanced layout: chunk 0 and the last, chunk 1 and the last but one, and so on."""
    chunks = np.array_split(np.arange(length), 2 * parts)
    pairs = [chunks[n] for i in range(parts) for n in (i, 2 * parts - 1 - i)]
    return np.concatenate(pairs).astype(np.int32)


def positions(length: int, block: int) -> st.SearchStrategy[Array]:
    """Positions of tokens: in order, shifted, reversed, dealt out in zig-zag, or any permutation."""
    natural = np.arange(length, dtype=np.int32)
    ways = [
        st.just(natural),
        st.sampled_from((1, block)).map(lambda shift: natural + np.int32(shift)),
        st.just(natural[::-1].copy()),
        st.sampled_from((1, 2, 4)).map(lambda parts: zigzag(length, parts)),
    ]
    if length <= SHORT:
        ways.append(st.permutations(range(length)).map(_as_ids))
    return st.one_of(*ways)


@st.composite
def matrices(draw: st.DrawFn, q_len: int, kv_len: int, block: int) -> NDArray[np.bool_]:
    """Boolean ``[q_len, kv_len]``: any entries if it is small, else triangles and bands of whole rows."""
    if q_len * kv_len <= SHORT * SHORT:
        bits = draw(st.integers(0, 2 ** (q_len * kv_len) - 1))
        flat = [bits >> n & 1 == 1 for n in range(q_len * kv_len)]
        return np.array(flat, dtype=np.bool_).reshape(q_len, kv_len)
    rows, columns = draw(flags(q_len, block)), draw(flags(kv_len, block))
    parts = (rows[:, None] & columns[None, :], np.tri(q_len, kv_len, dtype=np.bool_))
    both = parts[0] | parts[1], parts[0] & parts[1]
    return np.array(draw(st.sampled_from((*parts, *both))))


def holding(content: Content, axis: str, setting: Setting) -> st.SearchStrategy[Array]:
    """Arrays of a content.

    Args:
      content: what `conformance.fuzz_mask.arguments.names` says about the name of a parameter.
      axis: ``q``, ``kv``, or ``""`` where nothing tells which: it may be either.
      setting: what the mask is wanted for.
    """
    if content == "matrix":
        return matrices(setting.q_len, setting.kv_len, setting.block_kv)
    kinds: dict[str, Callable[[int, int], st.SearchStrategy[Array]]] = {
        "lengths": lengths,
        "indices": indices,
        "positions": positions,
        "ids": ids,
        "flags": flags,
    }
    sizes = {"q": (setting.q_len, setting.block_q), "kv": (setting.kv_len, setting.block_kv)}
    chosen = [sizes[axis]] if axis else list(dict.fromkeys(sizes.values()))
    return st.one_of(*(kinds[content](*size) for size in chosen))
