"""The flat layout of the reference against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.flat import active_entries, compile_flat
from reference.mask_info import DIRECTIONS, Direction, Shards
from reference.masks import Causal, Dense, Full, Mask
from tests.reference.oracles import Rows, block, dense, label_grid, transposed


@st.composite
def cases(draw: st.DrawFn) -> tuple[Rows, int, int, Shards, Direction]:
    block_q, block_kv = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    shards = Shards(1, draw(st.integers(1, 3)), draw(st.integers(1, 2)))
    q_len = block_q * shards.q * draw(st.integers(1, 2))
    kv_len = block_kv * shards.kv * draw(st.integers(1, 2))
    letters = draw(st.sampled_from(("0001", "01", "0111", "0", "1")))
    row = st.lists(st.sampled_from(letters), min_size=kv_len, max_size=kv_len)
    rows = [[c == "1" for c in draw(row)] for _ in range(q_len)]
    return rows, block_q, block_kv, shards, draw(st.sampled_from(DIRECTIONS))


@given(cases())
@settings(max_examples=200)
def test_list_follows_its_definition(case: tuple[Rows, int, int, Shards, Direction]) -> None:
    rows, block_q, block_kv, shards, direction = case
    info = compile_flat(
        Mask(Dense(np.array(rows)), len(rows), len(rows[0])),
        block_q,
        block_kv,
        direction,
        shards=shards,
    )
    grid = label_grid(rows, block_q, block_kv)
    height, width = len(grid) // shards.q, len(grid[0]) // shards.kv
    per_shard = []
    for s in range(shards.q):
        for t in range(shards.kv):
            listed = []
            outer, inner = (width, height) if direction == "dkv" else (height, width)
            for a in range(outer):
                line = []
                for b in range(inner):
                    i, j = (b, a) if direction == "dkv" else (a, b)
                    i, j = s * height + i, t * width + j
                    if grid[i][j]:
                        line.append((a, b, grid[i][j], (i, j)))
                listed += line or [(a, 0, 0, (-1, -1))]
            per_shard.append(listed)
    longest = max(map(len, per_shard))
    assert info.num_active_blocks.tolist() == [len(listed) for listed in per_shard]
    assert len(info.block_mask) == longest * len(per_shard)
    for place, listed in enumerate(per_shard):
        part = slice(place * longest, place * longest + longest)
        filling = [-1] * (longest - len(listed))
        assert info.active_rows[part].tolist() == [e[0] for e in listed] + filling
        assert info.active_cols[part].tolist() == [e[1] for e in listed] + filling
        assert info.block_mask[part].tolist() == [e[2] for e in listed] + filling
        for n, (_, _, label, (i, j)) in enumerate(listed):
            if label == 1:
                assert info.mask_next is not None
                assert info.partial_mask_blocks is not None
                found = info.partial_mask_blocks[info.mask_next[part][n]].tolist()
                entries = block(rows, i, j, block_q, block_kv)
                assert found == (transposed(entries) if direction == "dkv" else entries)
    assert (info.partial_mask_blocks is None) == all(label != 1 for row in grid for label in row)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_computable_masks_store_nothing(direction: Direction) -> None:
    info = compile_flat(Mask(Causal(-1), 6, 4), 2, 2, direction)
    assert info.mask_next is None
    assert info.partial_mask_blocks is None
    assert info.q_sequence is not None
    assert info.computed_mask is not None
    assert info.computed_mask.tolist() == dense(Causal(-1), 6, 4)


def test_every_row_is_listed_even_an_empty_one() -> None:
    grid = np.array([[0, 0], [0, 2], [1, 0]], dtype=np.int32)
    at = active_entries(grid[None])
    (_, rows, columns), label = at, grid[None][at]
    assert list(zip(rows.tolist(), columns.tolist(), label.tolist(), strict=True)) == [
        (0, 0, 0),
        (1, 1, 2),
        (2, 0, 1),
    ]


@pytest.mark.parametrize(("columns", "type_"), [(128, np.int8), (129, np.int16)])
def test_small_types(columns: int, type_: type) -> None:
    info = compile_flat(Mask(Full(), 1, columns), 1, 1)
    assert info.active_cols.dtype == type_
    assert info.active_cols.tolist() == list(range(columns))
    wide = compile_flat(Mask(Full(), 1, columns), 1, 1, downcast_arrays=False)
    assert wide.active_cols.dtype == np.int32


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        (Shards(q=3), "q_shards=3 must divide the number of q blocks"),
        (Shards(kv=4), "kv_shards=4 must divide the number of kv blocks"),
    ],
)
def test_shards_that_do_not_divide_are_refused(shards: Shards, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compile_flat(Mask(Causal(), 8, 4), 2, 2, shards=shards)
