"""Shards of the reference: what one device gets means the same as compiling its part alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.flat import compile_flat
from reference.mask_info import DIRECTIONS, Direction, Shards, compile_grid
from reference.masks import Causal, Dense, Expr, Local, Mask
from reference.sharding import Shard, every_shard, shard_masks, slice_flat, slice_grid
from tests.reference.oracles import Rows, block, dense, label_grid, transposed

EXPRS: list[Expr] = [Causal(), Causal(-3), Local(2, 1), Local(1, None, 2)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Mask], Shards, Direction]:
    """Heads over 4 × 4 blocks of 2 × 3, with at most two masks."""
    shards = Shards(*(draw(st.sampled_from((1, 2))) for _ in range(2)))
    bits = st.lists(st.sampled_from((False, False, True)), min_size=96, max_size=96)
    offered = [Mask(Dense(np.array(draw(bits)).reshape(8, 12)), 8, 12)]
    if draw(st.booleans()):
        offered.append(Mask(draw(st.sampled_from(EXPRS)), 8, 12))
    masks = draw(st.lists(st.sampled_from(offered), min_size=4, max_size=4))
    return masks, shards, draw(st.sampled_from(DIRECTIONS))


def part(mask: Mask, shards: Shards, shard: Shard) -> Rows:
    rows = dense(mask.expr, mask.q_len, mask.kv_len)
    height, width = mask.q_len // shards.q, mask.kv_len // shards.kv
    return [
        row[shard.kv * width : (shard.kv + 1) * width]
        for row in rows[shard.q * height : (shard.q + 1) * height]
    ]


def meaning(info: Any, direction: Direction) -> set[tuple[int, int, int, str]]:
    """What a device does: (head, q block, kv block, entries of its mask block), label by label."""
    found = set()
    for head, row, column in np.argwhere(info.block_mask > 0):
        at = (head, row, column)
        data = int(info.data_next[at])
        q, kv = (data, int(column)) if direction == "dkv" else (int(row), data)
        entries = "full"
        if info.block_mask[at] == 1:
            entries = "computed"
            if info.mask_next is not None:
                entries = str(info.partial_mask_blocks[info.mask_next[at]].tolist())
        found.add((int(head), q, kv, entries))
    return found


@given(cases())
@settings(max_examples=100)
def test_masks_of_a_shard_are_its_part(case: tuple[list[Mask], Shards, Direction]) -> None:
    masks, shards, _ = case
    wide = replace(shards, kv=2)
    for shard in every_shard(wide):
        mine = shard_masks(masks, wide, shard)
        first = shard.head * (4 // shards.head)
        expected = [part(mask, wide, shard) for mask in masks[first : first + 4 // shards.head]]
        assert [mask.dense().tolist() for mask in mine] == expected


@given(cases(), st.booleans())
@settings(max_examples=100)
def test_a_slice_means_what_the_part_alone_means(
    case: tuple[list[Mask], Shards, Direction], shrink: bool
) -> None:
    masks, shards, direction = case
    info = compile_grid(masks, 2, 3, direction, shards=shards, shrink=shrink)
    per_shard = 4 // shards.head
    for shard in every_shard(shards):
        mine = slice_grid(info, shards, shard, 4)
        assert len(mine.block_mask) == per_shard
        expected = set()
        for head in range(per_shard):
            rows = part(masks[shard.head * per_shard + head], shards, shard)
            for i, line in enumerate(label_grid(rows, 2, 3)):
                for j, label in enumerate(line):
                    entries = block(rows, i, j, 2, 3)
                    name = str(transposed(entries) if direction == "dkv" else entries)
                    if info.partial_mask_blocks is None:
                        name = "computed"
                    if label:
                        expected.add((head, i, j, "full" if label == 2 else name))
        assert meaning(mine, direction) == expected
        if mine.q_sequence is not None:
            height = 8 // shards.q
            assert mine.q_sequence.tolist() == list(range(shard.q * height, (shard.q + 1) * height))


def test_every_shard_once_keys_inside_queries() -> None:
    order = list(every_shard(Shards(2, 2, 2)))
    assert len(set(order)) == 8
    assert order[:4] == [Shard(0, 0, 0), Shard(1, 0, 0), Shard(0, 0, 1), Shard(1, 0, 1)]


def test_flat_slices_have_no_padding() -> None:
    shards = Shards(q=2, kv=2)
    info = compile_flat(Mask(Causal(), 8, 8), 2, 2, shards=shards)
    found = {
        shard: [
            (int(r), int(c), int(m))
            for r, c, m in zip(mine.active_rows, mine.active_cols, mine.block_mask, strict=True)
        ]
        for shard in every_shard(shards)
        for mine in [slice_flat(info, shards, shard)]
    }
    assert found == {
        Shard(0, 0, 0): [(0, 0, 1), (1, 0, 2), (1, 1, 1)],
        Shard(0, 0, 1): [(0, 0, 0), (1, 0, 0)],
        Shard(0, 1, 0): [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)],
        Shard(0, 1, 1): [(0, 0, 1), (1, 0, 2), (1, 1, 1)],
    }


def test_arrays_that_do_not_split_are_refused() -> None:
    info = compile_grid([Mask(Causal(), 6, 6)] * 2, 2, 2)
    with pytest.raises(ValueError, match="q_shards=2 must divide the array shape"):
        slice_grid(info, Shards(q=2), Shard(), 2)
    with pytest.raises(ValueError, match=r"leading axis must be 2 \(head shards\) or 4 \(heads\)"):
        slice_grid(info, Shards(head=2), Shard(), 4)
    flat = compile_flat(Mask(Causal(), 6, 6), 2, 2)
    with pytest.raises(ValueError, match="6 entries and 1 counts do not split into 3 shards"):
        slice_flat(flat, Shards(q=3), Shard())
    wrong = replace(flat, num_active_blocks=np.array([7], dtype=np.int32))
    with pytest.raises(ValueError, match=r"num_active_blocks\[0\]=7 exceeds the 6 entries"):
        slice_flat(wrong, Shards(), Shard())
