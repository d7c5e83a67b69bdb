"""Masks of the reference against the definitions, pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.masks import (
    And,
    Causal,
    ChunkedCausal,
    Dense,
    Expr,
    Full,
    Local,
    Mask,
    Or,
    multi_head,
)
from tests.reference.oracles import dense

LENGTHS = st.integers(1, 9)
OFFSETS = st.integers(-11, 11)
SIDES = st.one_of(st.none(), st.integers(-3, 11))


def simple(q_len: int, kv_len: int) -> st.SearchStrategy[Expr]:
    arrays = st.lists(st.booleans(), min_size=q_len * kv_len, max_size=q_len * kv_len).map(
        lambda bits: Dense(np.array(bits).reshape(q_len, kv_len))
    )
    return st.one_of(
        st.just(Full()),
        st.builds(Causal, OFFSETS),
        st.builds(Local, SIDES, SIDES, OFFSETS),
        st.builds(ChunkedCausal, st.integers(1, 10)),
        arrays,
    )


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    q_len, kv_len = draw(LENGTHS), draw(LENGTHS)
    one = simple(q_len, kv_len)
    tree = st.recursive(
        one, lambda sub: st.one_of(st.builds(And, sub, sub), st.builds(Or, sub, sub)), max_leaves=4
    )
    return Mask(draw(tree), q_len, kv_len)


def slices(length: int) -> st.SearchStrategy[slice]:
    """Also empty ones, single rows, and ends beyond the mask."""
    edge = st.one_of(st.none(), st.integers(-length - 1, length + 2))
    return st.builds(slice, edge, edge, st.sampled_from((None, 1, 2, -1)))


@given(masks())
@settings(max_examples=80)
def test_every_entry_follows_the_definition(mask: Mask) -> None:
    assert mask.shape == (mask.q_len, mask.kv_len)
    assert mask.dense().dtype == np.bool_
    assert mask.dense().tolist() == dense(mask.expr, *mask.shape)


@given(masks(), st.data())
@settings(max_examples=60)
def test_a_slice_is_the_slice_of_the_dense_mask(mask: Mask, data: st.DataObject) -> None:
    rows, columns = data.draw(slices(mask.q_len)), data.draw(slices(mask.kv_len))
    expected = [row[columns] for row in dense(mask.expr, *mask.shape)[rows]]
    found = mask[rows, columns]
    assert found.tolist() == expected
    assert found.shape == (
        len(range(mask.q_len)[rows]),
        len(range(mask.kv_len)[columns]),
    )


@given(masks(), masks())
@settings(max_examples=60)
def test_equal_masks_have_equal_entries_and_hashes(one: Mask, other: Mask) -> None:
    again = Mask(one.expr, one.q_len, one.kv_len)
    assert again == one
    assert hash(again) == hash(one)
    if one == other:
        assert one.shape == other.shape
        assert one.dense().tolist() == other.dense().tolist()
        assert hash(one) == hash(other)


@given(st.lists(st.booleans(), min_size=6, max_size=6), st.integers(0, 5))
def test_dense_masks_are_keys_by_value(bits: list[bool], place: int) -> None:
    array = np.array(bits).reshape(2, 3)
    other = array.copy()
    other.flat[place] ^= True
    assert Dense(array) == Dense(array.copy())
    assert len({Dense(array), Dense(array.copy()), Dense(other)}) == 2
    assert Dense(array.reshape(3, 2)) != Dense(array)


def test_operators_build_intersections_and_unions() -> None:
    assert Causal() & Full() == And(Causal(), Full())
    assert Causal() | Full() == Or(Causal(), Full())


def test_a_dense_mask_keeps_its_own_copy() -> None:
    array = np.zeros((2, 2), dtype=np.bool_)
    mask = Dense(array)
    array[0, 0] = True
    assert not mask.array.any()
    with pytest.raises(ValueError, match="read-only"):
        mask.array[0, 0] = True


def test_computable_masks_are_those_with_a_formula_of_their_own() -> None:
    formulas: list[Expr] = [Causal(), Local(1, 1), ChunkedCausal(2)]
    stored: list[Expr] = [Full(), Dense(np.ones((1, 1), np.bool_)), Causal() & Causal()]
    assert [e.computable for e in formulas] == [True] * 3
    assert [e.computable for e in stored] == [False] * 3


def test_multi_head_stacks_masks_of_one_shape() -> None:
    stacked = multi_head((Mask(Causal(), 2, 3), Mask(Full(), 2, 3)))
    assert stacked.tolist() == [dense(Causal(), 2, 3), dense(Full(), 2, 3)]
    with pytest.raises(ValueError, match=r"masks.*one shape.*\(2, 3\)"):
        multi_head((Mask(Causal(), 2, 3), Mask(Full(), 3, 3)))
    with pytest.raises(ValueError, match="masks must hold at least one"):
        multi_head(())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Dense(np.ones(4, np.bool_)), "array must have rank 2"),
        (lambda: Dense(np.ones((1, 2, 2), np.bool_)), "array must have rank 2"),
        (lambda: Dense(np.ones((2, 2), np.int32)), "array must be boolean, got dtype int32"),
        (lambda: ChunkedCausal(0), "chunk_size must be at least 1, got 0"),
        (lambda: Mask(Full(), 0, 4), "q_len must be at least 1"),
        (lambda: Mask(Full(), 4, -1), "kv_len must be at least 1"),
        (
            lambda: Mask(Dense(np.ones((2, 2), np.bool_)), 2, 4),
            r"shape \(2, 2\), expected \(2, 4\)",
        ),
        (lambda: Mask(Full() & Dense(np.ones((2, 2), np.bool_)), 2, 4), r"expected \(2, 4\)"),
    ],
)
def test_bad_masks_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("index", [0, (0, slice(None)), slice(None), (slice(None),) * 3])
def test_an_index_is_a_pair_of_slices(index: Any) -> None:
    with pytest.raises(TypeError, match="index must be a pair of slices"):
        Mask(Causal(), 4, 4)[index]
