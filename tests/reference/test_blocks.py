"""Block labels and stored blocks of the reference against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.blocks import EMPTY, FULL, PARTIAL, block_grid, block_of, labels, partial_stack
from reference.masks import Causal, Dense, Mask
from tests.reference.oracles import Rows, block, label_grid, stored_blocks


@st.composite
def blocky_arrays(draw: st.DrawFn) -> tuple[Rows, int, int]:
    """Arrays whose blocks are empty, full, or one entry away from it, or anything."""
    block_q, block_kv = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    nq, nkv = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    array = np.zeros((nq * block_q, nkv * block_kv), dtype=np.bool_)
    for i in range(nq):
        for j in range(nkv):
            part = array[i * block_q : (i + 1) * block_q, j * block_kv : (j + 1) * block_kv]
            kind = draw(st.sampled_from(["empty", "full", "lone", "hole", "any"]))
            part[:] = kind in ("full", "hole")
            if kind in ("lone", "hole"):
                part[draw(st.sampled_from((0, -1))), draw(st.sampled_from((0, -1)))] ^= True
            if kind == "any":
                for a in range(block_q):
                    for b in range(block_kv):
                        part[a, b] = draw(st.booleans())
    rows: Rows = array.tolist()
    return rows, block_q, block_kv


def as_mask(rows: Rows) -> Mask:
    return Mask(Dense(np.array(rows)), len(rows), len(rows[0]))


@given(blocky_arrays())
@settings(max_examples=150)
def test_labels_are_exact_at_every_block(case: tuple[Rows, int, int]) -> None:
    rows, block_q, block_kv = case
    found = labels(as_mask(rows), block_q, block_kv)
    assert found.dtype == np.int32
    assert found.tolist() == label_grid(rows, block_q, block_kv)


@given(st.lists(blocky_arrays(), min_size=1, max_size=3))
@settings(max_examples=100)
def test_stack_is_deduplicated_in_first_seen_order(cases: list[tuple[Rows, int, int]]) -> None:
    first, block_q, block_kv = cases[0]
    shape = np.shape(first)
    arrays = [rows for rows, *_ in cases if np.shape(rows) == shape]
    masks = [as_mask(rows) for rows in arrays]
    grids = [labels(mask, block_q, block_kv) for mask in masks]
    stack, places = partial_stack(masks, grids, block_q, block_kv)
    expected, expected_places = stored_blocks(arrays, block_q, block_kv)
    assert places.tolist() == expected_places
    assert (stack is None) == (not expected)
    if stack is not None:
        assert stack.dtype == np.bool_
        assert stack.tolist() == expected


@given(blocky_arrays(), st.data())
def test_block_of_is_the_block(case: tuple[Rows, int, int], data: st.DataObject) -> None:
    rows, block_q, block_kv = case
    i = data.draw(st.integers(0, len(rows) // block_q - 1))
    j = data.draw(st.integers(0, len(rows[0]) // block_kv - 1))
    found = block_of(as_mask(rows), i, j, block_q, block_kv)
    assert found.tolist() == block(rows, i, j, block_q, block_kv)


def test_one_entry_decides() -> None:
    array = np.zeros((4, 6), dtype=np.bool_)
    array[:2, 3:] = True
    array[1, 5] = False
    array[3, 0] = True
    assert labels(Mask(Dense(array), 4, 6), 2, 3).tolist() == [[EMPTY, PARTIAL], [PARTIAL, EMPTY]]
    array[1, 5] = True
    assert labels(Mask(Dense(array), 4, 6), 2, 3)[0, 1] == FULL


def test_causal_8192_skips_almost_half() -> None:
    grid = labels(Mask(Causal(), 8192, 8192), 128, 128)
    assert grid.size == 4096
    assert int((grid == EMPTY).sum()) == 2016
    assert int((grid == PARTIAL).sum()) == 64


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((8, 8, 3, 2), "block_q=3 must divide q_len=8"),
        ((8, 9, 2, 2), "block_kv=2 must divide kv_len=9"),
        ((8, 8, 16, 2), "block_q=16 must divide q_len=8"),
        ((8, 8, 0, 2), "block_q must be at least 1, got 0"),
        ((8, 8, 2, -2), "block_kv must be at least 1, got -2"),
    ],
)
def test_block_sizes_that_do_not_fit_are_refused(
    sizes: tuple[int, int, int, int], words: str
) -> None:
    assert block_grid(8, 6, 2, 3) == (4, 2)
    with pytest.raises(ValueError, match=words):
        block_grid(*sizes)
