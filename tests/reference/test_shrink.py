"""Shrinking in the reference against plain loops, and the figures of well-known masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.mask_info import Shards, compile_grid
from reference.masks import Causal, Dense, Local, Mask
from reference.shrink import kept_columns, shrunk_width

GRIDS = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 2), min_size=width, max_size=width), min_size=1, max_size=5
    )
)


@given(GRIDS, st.integers(0, 2))
def test_kept_columns_are_the_non_empty_ones_then_padding(grid: list[list[int]], more: int) -> None:
    kept = [[j for j in range(len(row)) if row[j] != 0] for row in grid]
    width = max([1, *map(len, kept)])
    array = np.array(grid, dtype=np.int32)
    assert shrunk_width(array) == width
    for wanted, columns in ((None, width), (width + more, width + more)):
        found = kept_columns(array, wanted).tolist()
        assert found == [row + [-1] * (columns - len(row)) for row in kept]


def test_a_width_that_drops_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"width must be at least 2 \(the longest row\), got 1"):
        kept_columns(np.array([[1, 0, 2], [0, 0, 1]], dtype=np.int32), 1)


def test_a_window_of_1024_needs_9_of_64_columns() -> None:
    info = compile_grid([Mask(Local(1024, 0), 8192, 8192)], 128, 128)
    assert info.block_mask.shape == (1, 64, 9)
    wide = compile_grid([Mask(Local(1024, 0), 8192, 8192)], 128, 128, shrink=False)
    assert wide.block_mask.shape == (1, 64, 64)


@pytest.mark.parametrize("direction", ["fwd", "dq", "dkv"])
def test_causal_keeps_64_columns(direction: str) -> None:
    info = compile_grid([Mask(Causal(), 8192, 8192)], 128, 128, direction)  # type: ignore[arg-type]
    assert info.block_mask.shape == (1, 64, 64)
    assert int((info.block_mask > 0).sum()) == 4096 - 2016


def test_an_empty_mask_keeps_one_column() -> None:
    info = compile_grid([Mask(Dense(np.zeros((6, 8), np.bool_)), 6, 8)], 2, 2, shards=Shards(q=3))
    assert info.block_mask.tolist() == [[[0], [0], [0]]]
    assert info.data_next.tolist() == [[[0], [0], [0]]]


def test_shards_shrink_by_themselves_to_the_widest() -> None:
    array = np.zeros((4, 4), dtype=np.bool_)
    array[0, 3] = array[2, :3] = array[3, 1] = True
    info = compile_grid([Mask(Dense(array), 4, 4)], 1, 1, shards=Shards(q=2))
    assert info.block_mask.tolist() == [[[2, 0, 0], [0, 0, 0], [2, 2, 2], [2, 0, 0]]]
    assert info.data_next.tolist() == [[[3, 3, 3], [3, 3, 3], [0, 1, 2], [1, 1, 1]]]
    backward = compile_grid([Mask(Dense(array), 4, 4)], 1, 1, "dkv", shards=Shards(q=2))
    # Two rows a shard: column 1 of the second shard is seen by both of its queries.
    assert backward.block_mask.tolist() == [[[0, 0, 0, 2], [0] * 4, [2, 2, 2, 0], [0, 2, 0, 0]]]
    assert backward.data_next[0, 2:].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
