"""Masks: definitions, indexing, combination, identity, errors."""

import copy
import pickle
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_impl import (
    AndMask,
    CausalMask,
    ChunkedCausalMask,
    ComputableMask,
    DenseMask,
    FullMask,
    LocalMask,
    Mask,
    MultiHeadMask,
    NumpyMask,
    OrMask,
    as_mask,
)
from pallas_impl.masks import ComputableAnd, ComputableOr
from tests.pallas_impl import mask_oracle as oracle

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9))


@st.composite
def placed_trees(draw: st.DrawFn) -> tuple[oracle.Tree, oracle.Shape, Any, Any]:
    """A structured mask, its shape, and positions (or None) of its rows and columns."""
    shape = draw(SHAPES)
    ids = [
        draw(
            st.none()
            | st.permutations(range(n))
            | st.lists(st.integers(0, 20), min_size=n, max_size=n)
        )
        for n in shape
    ]
    return draw(oracle.structured_trees()), shape, ids[0], ids[1]


@settings(deadline=None)
@given(placed_trees())
def test_the_dense_form_follows_the_definitions(case: Any) -> None:
    tree, shape, q_ids, kv_ids = case
    mask = oracle.build(tree, shape, q_ids, kv_ids)
    expected = oracle.dense(tree, shape, q_ids, kv_ids)
    np.testing.assert_array_equal(mask[:, :], expected)
    assert mask[:].dtype == np.bool_
    assert isinstance(mask, ComputableMask)


@settings(deadline=None, max_examples=30)
@given(placed_trees())
def test_the_mask_function_agrees_inside_jax(case: Any) -> None:
    tree, shape, q_ids, kv_ids = case
    mask = oracle.build(tree, shape, q_ids, kv_ids)
    assert isinstance(mask, ComputableMask)
    kv_sequence = np.arange(shape[1]) if mask.kv_sequence is None else mask.kv_sequence
    q = jnp.asarray(mask.q_sequence, dtype=jnp.int32)[:, None]
    kv = jnp.asarray(kv_sequence, dtype=jnp.int32)[None]
    found = mask.mask_function(q, kv)
    assert found.dtype == jnp.bool_
    expected = oracle.dense(tree, shape, q_ids, kv_ids)
    np.testing.assert_array_equal(np.broadcast_to(np.asarray(found), shape), expected)


@settings(deadline=None)
@given(placed_trees())
def test_intervals_hold_exactly_the_visible_positions(case: Any) -> None:
    tree, shape, q_ids, kv_ids = case
    mask = oracle.build(tree, shape, q_ids, kv_ids)
    assert isinstance(mask, ComputableMask)
    found = mask.kv_intervals(mask.q_sequence)
    has_none = any(kind in str(tree) for kind in ("stripes", "prefix", "hole"))
    assert (found is None) == has_none
    if found is None:
        return
    kv = np.arange(25)
    times = ((found.lo[..., None] <= kv) & (kv <= found.hi[..., None])).sum(axis=0)
    expected = [[oracle.entry(tree, int(q), int(k), 0, 0) for k in kv] for q in mask.q_sequence]
    np.testing.assert_array_equal(times, expected)


INDICES = st.one_of(
    st.just(slice(None)),
    st.builds(
        slice,
        st.none() | st.integers(-12, 12),
        st.none() | st.integers(-12, 12),
        st.none() | st.sampled_from([-3, -1, 1, 2]),
    ),
)


@settings(deadline=None)
@given(st.data(), SHAPES)
def test_indexing_a_mask_is_indexing_its_dense_form(
    data: st.DataObject, shape: oracle.Shape
) -> None:
    tree = data.draw(oracle.trees(shape, (1, 1)))
    mask: Mask = oracle.build(tree, shape)
    expected = oracle.dense(tree, shape)
    rows, columns = (
        data.draw(INDICES | st.integers(-n, n - 1) | st.integers(0, n - 1).map(np.int64))
        for n in shape
    )
    heads = MultiHeadMask([mask, mask, FullMask(shape)])
    stack = np.stack([expected, expected, np.ones(shape, dtype=np.bool_)])
    head = data.draw(INDICES | st.integers(-3, 2))
    for found, wanted in (
        (mask[rows, columns], expected[rows, columns]),
        (mask[rows], expected[rows]),
        (mask[..., columns], expected[..., columns]),
        (heads[head, rows, columns], stack[head, rows, columns]),
        (heads[head], stack[head]),
    ):
        assert found.dtype == np.bool_
        np.testing.assert_array_equal(found, wanted)
        assert found.shape == wanted.shape


@pytest.mark.parametrize("mask", [CausalMask((3, 4)), DenseMask(np.eye(3, 4, dtype=np.bool_))])
def test_bad_indices_are_refused(mask: Mask) -> None:
    with pytest.raises(IndexError):
        mask[3, 0]
    with pytest.raises(IndexError):
        mask[0, 0, 0]
    with pytest.raises(IndexError, match="ellipsis"):
        mask[..., ...]
    with pytest.raises(TypeError, match="index"):
        mask[[0, 1], :]  # type: ignore[index]


def test_and_or_of_computable_masks_stay_computable() -> None:
    causal, local = CausalMask((4, 8)), LocalMask((4, 8), (1, 1))
    assert isinstance(causal & local, ComputableAnd)
    assert isinstance(causal | local, ComputableOr)
    both = (causal & local) | ChunkedCausalMask((4, 8), 2)
    assert isinstance(both, ComputableOr)


def test_masks_at_different_positions_combine_by_row_and_column() -> None:
    plain = CausalMask((4, 4))
    for turned in (
        CausalMask((4, 4), q_sequence=[3, 2, 1, 0]),
        CausalMask((4, 4), kv_sequence=[3, 2, 1, 0]),
    ):
        assert isinstance(turned & plain, AndMask)
        assert isinstance(turned | plain, OrMask)
        assert isinstance(turned & turned, ComputableAnd)
        np.testing.assert_array_equal((turned & plain)[:], turned[:] & plain[:])
        np.testing.assert_array_equal((turned | plain)[:], turned[:] | plain[:])


def test_masks_for_each_head_combine_head_by_head() -> None:
    a = MultiHeadMask([CausalMask((4, 4)), FullMask((4, 4))])
    b = MultiHeadMask([LocalMask((4, 4), (1, 1)), CausalMask((4, 4), -1)])
    np.testing.assert_array_equal((a & b)[:], a[:] & b[:])
    np.testing.assert_array_equal((a | b)[:], a[:] | b[:])
    with pytest.raises(ValueError, match=r"\(2, 4, 4\)"):
        a & FullMask((4, 4))


@settings(deadline=None)
@given(st.data(), st.lists(st.integers(1, 3), min_size=2, max_size=2))
def test_equality_follows_the_dense_form(data: st.DataObject, sizes: list[int]) -> None:
    shape = (sizes[0], sizes[1])
    first, second = (data.draw(oracle.trees(shape, (1, 1))) for _ in range(2))
    ids = [data.draw(st.none() | st.permutations(range(shape[0]))) for _ in range(2)]
    a, b = oracle.build(first, shape, ids[0]), oracle.build(second, shape, ids[1])
    again = oracle.build(first, shape, ids[0])
    assert a == again
    assert hash(a) == hash(again)
    if a == b:
        assert hash(a) == hash(b)
        np.testing.assert_array_equal(a[:], b[:])
    heads = MultiHeadMask([a, b])
    assert heads == MultiHeadMask([again, oracle.build(second, shape, ids[1])])
    assert (heads == MultiHeadMask([b, a])) == (a == b)


def test_masks_that_differ_are_unequal() -> None:
    eye = np.eye(4, dtype=np.bool_)
    masks: list[Mask] = [
        FullMask((4, 4)),
        FullMask((4, 5)),
        CausalMask((4, 4)),
        CausalMask((4, 4), 1),
        CausalMask((4, 4), q_sequence=[1, 0, 2, 3]),
        CausalMask((4, 4), kv_sequence=[1, 0, 2, 3]),
        LocalMask((4, 4), (1, None)),
        LocalMask((4, 4), (None, 1)),
        LocalMask((4, 4), (1, None), 1),
        ChunkedCausalMask((4, 4), 2),
        ChunkedCausalMask((4, 4), 3),
        DenseMask(eye),
        DenseMask(~eye),
        DenseMask(eye.reshape(2, 8)),
        DenseMask(eye.reshape(8, 2)),
        CausalMask((4, 4)) & FullMask((4, 4)),
        CausalMask((4, 4)) | FullMask((4, 4)),
        DenseMask(eye) & FullMask((4, 4)),
        DenseMask(eye) | FullMask((4, 4)),
        MultiHeadMask([DenseMask(eye)]),
        MultiHeadMask([DenseMask(eye), DenseMask(eye)]),
    ]
    for n, a in enumerate(masks):
        assert [a == b for b in masks] == [n == m for m in range(len(masks))]
    assert masks[0] != "full"


def test_positions_in_order_are_the_same_as_none() -> None:
    assert CausalMask((4, 4), q_sequence=np.arange(4, dtype=np.int64)) == CausalMask((4, 4))


class Diagonal(ComputableMask):
    """A user's mask that says nothing about its identity."""

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return q_ids == kv_ids


def test_pickled_masks_are_equal_by_value_and_not_by_identity() -> None:
    for mask in (CausalMask((4, 4), 1), DenseMask(np.eye(4, dtype=np.bool_)) & FullMask((4, 4))):
        hash(mask)
        again = pickle.loads(pickle.dumps(mask))
        assert again is not mask
        assert again == mask
    anonymous = Diagonal((3, 3))
    hash(anonymous)
    again = pickle.loads(pickle.dumps(anonymous))
    assert again != anonymous
    np.testing.assert_array_equal(again[:], anonymous[:])


def test_a_user_mask_without_parameters_equals_itself_only() -> None:
    a, b = Diagonal((3, 3)), Diagonal((3, 3))
    assert a != b
    assert len({a, a, b}) == 2
    assert {a: 1, b: 2}[a] == 1
    assert a.mask_function == a.mask_function
    assert hash(a.mask_function) == hash(a.mask_function)


class _Documents(ComputableMask):
    def __init__(self, ids: Any) -> None:
        super().__init__((len(ids), len(ids)))
        self.ids = np.array(ids)

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return self.ids[q_ids] == self.ids[kv_ids]

    def parameters(self) -> object:
        return {"ids": [self.ids]}


def test_arrays_can_be_parameters() -> None:
    assert _Documents([0, 0, 1]) == _Documents([0, 0, 1])
    assert hash(_Documents([0, 0, 1])) == hash(_Documents([0, 0, 1]))
    assert _Documents([0, 0, 1]) != _Documents([0, 1, 1])


def test_masks_cannot_be_changed() -> None:
    array = np.ones((2, 8), dtype=np.bool_)
    mask = DenseMask(array)
    array[0, 0] = False
    assert mask[:].all()
    mask[:][0, 0] = False
    assert mask[:].all()
    causal = CausalMask((2, 2), q_sequence=[1, 0])
    with pytest.raises(AttributeError, match="immutable"):
        causal.offset = 3
    with pytest.raises(AttributeError, match="immutable"):
        del causal.offset
    with pytest.raises(ValueError, match="read-only"):
        causal.q_sequence[0] = 5
    assert copy.deepcopy(causal) is causal
    assert copy.copy(causal) is causal


def test_dense_bytes_other_than_one_are_true() -> None:
    raw = np.array([[0, 255, 2, 1]], dtype=np.uint8).view(np.bool_)
    np.testing.assert_array_equal(DenseMask(raw)[:], [[False, True, True, True]])


def test_windows_beyond_every_position_are_open() -> None:
    far = 2**62
    np.testing.assert_array_equal(LocalMask((3, 3), (far, far))[:], np.ones((3, 3)))
    np.testing.assert_array_equal(LocalMask((3, 3), (far, 0))[:], np.tri(3, dtype=np.bool_))
    np.testing.assert_array_equal(CausalMask((3, 3), -far)[:], np.zeros((3, 3)))
    np.testing.assert_array_equal(ChunkedCausalMask((3, 3), far)[:], np.tri(3, dtype=np.bool_))
    top = 2**30 - 1
    at_the_top = CausalMask((1, 1), far, q_sequence=[top], kv_sequence=[top])
    assert at_the_top[0, 0]
    assert not CausalMask((1, 1), -1, q_sequence=[top], kv_sequence=[top])[0, 0]


def test_as_mask() -> None:
    eye = np.eye(3, dtype=np.bool_)
    assert as_mask(eye) == DenseMask(eye)
    assert as_mask(np.stack([eye, ~eye])) == MultiHeadMask([DenseMask(eye), DenseMask(~eye)])
    mask = CausalMask((2, 2))
    assert as_mask(mask) is mask
    assert NumpyMask is DenseMask


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CausalMask((0, 4)), ValueError, "shape"),
        (lambda: CausalMask((4, 4, 4)), ValueError, "shape"),  # type: ignore[arg-type]
        (lambda: FullMask((2**30 + 1, 4)), ValueError, "shape"),
        (lambda: CausalMask((4, 4), 1.5), TypeError, "offset"),  # type: ignore[arg-type]
        (lambda: LocalMask((4, 4), 3), ValueError, "window_size"),  # type: ignore[arg-type]
        (lambda: LocalMask((4, 4), (1, 0.5)), TypeError, "window_size"),  # type: ignore[arg-type]
        (lambda: ChunkedCausalMask((4, 4), 0), ValueError, "chunk_size"),
        (lambda: CausalMask((4, 4), q_sequence=[0, 1]), ValueError, "q_sequence"),
        (lambda: CausalMask((2, 4), q_sequence=[0, -1]), ValueError, "q_sequence"),
        (lambda: CausalMask((2, 4), q_sequence=[0, 2**30]), ValueError, "q_sequence"),
        (lambda: CausalMask((2, 4), q_sequence=[0.0, 1.0]), TypeError, "q_sequence"),
        (lambda: CausalMask((4, 2), kv_sequence=[[0, 1]]), ValueError, "kv_sequence"),
        (lambda: DenseMask(np.ones((2, 2))), TypeError, "array.*float64"),
        (lambda: DenseMask(np.ones(4, dtype=np.bool_)), ValueError, "axes"),
        (lambda: DenseMask(np.ones((0, 4), dtype=np.bool_)), ValueError, "shape"),
        (lambda: MultiHeadMask([]), ValueError, "masks"),
        (lambda: MultiHeadMask([np.eye(2)]), TypeError, r"masks\[0\]"),  # type: ignore[list-item]
        (lambda: MultiHeadMask([FullMask((2, 2)), FullMask((2, 3))]), ValueError, r"masks\[1\]"),
        (lambda: MultiHeadMask([MultiHeadMask([FullMask((2, 2))])]), ValueError, r"masks\[0\]"),
        (lambda: FullMask((2, 2)) & FullMask((2, 3)), ValueError, "right"),
        (lambda: FullMask((2, 2)) | DenseMask(np.eye(3, dtype=np.bool_)), ValueError, "right"),
        (lambda: FullMask((2, 2)) & np.eye(2), TypeError, "unsupported operand"),  # type: ignore[operator]
        (lambda: AndMask(FullMask((2, 2)), np.eye(2)), TypeError, "right"),  # type: ignore[arg-type]
        (
            lambda: ComputableAnd(FullMask((2, 2)), CausalMask((2, 2), q_sequence=[1, 0])),
            ValueError,
            "q_sequence",
        ),
        (lambda: bool(FullMask((2, 2))), TypeError, "&"),
    ],
)
def test_bad_arguments_are_named(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_wrong_visible_is_named() -> None:
    class Numbers(ComputableMask):
        def visible(self, q_ids: Any, kv_ids: Any) -> Any:
            return q_ids + kv_ids

    class Short(ComputableMask):
        def visible(self, q_ids: Any, kv_ids: Any) -> Any:
            return np.ones(7, dtype=np.bool_)

    with pytest.raises(TypeError, match="Numbers"):
        Numbers((2, 2))[:]
    with pytest.raises(ValueError, match="Short"):
        Short((2, 2))[:]
