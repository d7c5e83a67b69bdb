"""Run-time masks of the reference against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.dynamic import compile_dynamic
from reference.mask_info import DIRECTIONS, Direction, Shards
from reference.sharding import every_shard, slice_grid
from tests.reference.oracles import Rows, block, label_grid, source, transposed


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Rows], int, int, Shards, Direction]:
    block_q, block_kv = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    shards = Shards(draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    heads = shards.head * draw(st.integers(1, 2))
    q_len = block_q * shards.q * draw(st.integers(1, 2))
    kv_len = block_kv * draw(st.integers(1, 3))
    letters = draw(st.sampled_from(("0001", "01", "0111", "0", "1")))
    row = st.lists(st.sampled_from(letters), min_size=kv_len, max_size=kv_len)
    masks = [[[c == "1" for c in draw(row)] for _ in range(q_len)] for _ in range(heads)]
    return masks, block_q, block_kv, shards, draw(st.sampled_from(DIRECTIONS))


@given(cases())
@settings(max_examples=150)
def test_arrays_follow_their_definition(
    case: tuple[list[Rows], int, int, Shards, Direction],
) -> None:
    masks, block_q, block_kv, shards, direction = case
    info = compile_dynamic(np.array(masks), block_q, block_kv, direction, shards=shards)
    grids = [label_grid(rows, block_q, block_kv) for rows in masks]
    assert info.block_mask.tolist() == grids
    heads, q_blocks, kv_blocks = len(masks), len(grids[0]), len(grids[0][0])
    per_shard, per_q = heads // shards.head, q_blocks // shards.q
    for shard in every_shard(shards):
        mine = slice_grid(info, shards, shard, heads)
        stack = mine.partial_mask_blocks
        assert stack is not None
        assert mine.mask_next is not None
        assert len(stack) == per_shard * per_q * kv_blocks
        at = [(h, i, j) for h in range(per_shard) for i in range(per_q) for j in range(kv_blocks)]
        if direction == "dkv":
            at.sort(key=lambda p: (p[2], p[0], p[1]))
        entry = []
        for h, i, j in at:
            rows = masks[shard.head * per_shard + h]
            entries = block(rows, shard.q * per_q + i, j, block_q, block_kv)
            entry.append(entries)
            label = int(mine.block_mask[h, i, j])
            if label == 1:
                found = stack[mine.mask_next[h, i, j]].tolist()
                assert found == (transposed(entries) if direction == "dkv" else entries)
        some = [any(v for row in entries for v in row) for entries in entry]
        for n, (h, i, j) in enumerate(at):
            named = source(some, n, backwards=True)
            own = at[named][1 if direction == "dkv" else 2] if named >= 0 else 0
            assert mine.data_next[h, i, j] == own


def test_shapes_do_not_depend_on_the_values() -> None:
    shapes = set()
    for fill in (np.zeros, np.ones):
        info = compile_dynamic(fill((2, 8, 6), dtype=np.bool_), 2, 3)
        assert info.partial_mask_blocks is not None
        assert info.mask_next is not None
        shapes.add((info.block_mask.shape, info.mask_next.shape, info.partial_mask_blocks.shape))
    assert shapes == {((2, 4, 2), (2, 4, 2), (2, 4, 2, 2, 3))}


@pytest.mark.parametrize(
    ("shape", "arguments", "words"),
    [
        ((8, 8), {}, r"mask must have rank 3 \(heads, q_len, kv_len\), got shape \(8, 8\)"),
        ((1, 8, 9), {}, "block_kv=2 must divide kv_len=9"),
        ((2, 8, 8), {"shards": Shards(q=3)}, "q_shards=3 must divide"),
        ((3, 8, 8), {"shards": Shards(head=2)}, "head_shards=2 must divide"),
    ],
)
def test_bad_arguments_are_refused(
    shape: tuple[int, ...], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        compile_dynamic(np.ones(shape, dtype=np.bool_), 2, 2, **arguments)


def test_values_that_are_not_boolean_are_refused() -> None:
    with pytest.raises(ValueError, match="mask must be boolean, got dtype float32"):
        compile_dynamic(np.ones((1, 4, 4), dtype=np.float32), 2, 2)
