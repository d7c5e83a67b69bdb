"""The two-dimensional layout of the reference against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.mask_info import (
    DIRECTIONS,
    Direction,
    GridMaskInfo,
    Shards,
    compile_grid,
    downcast,
    last_at_or_before,
    next_at_or_after,
)
from reference.masks import Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask
from tests.reference.oracles import Compiled, Rows, compile_arrays, dense

NONE = Shards()


def stored(rows: Rows) -> Mask:
    return Mask(Dense(np.array(rows)), len(rows), len(rows[0]))


def first_seen(chosen: list[int]) -> list[int]:
    """The same choice with its members renamed 0, 1, … by first appearance."""
    seen = list(dict.fromkeys(chosen))
    return [seen.index(k) for k in chosen]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Masks of several heads, block sizes and shards; block rows and columns are often empty."""
    block_q, block_kv = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    q_shards, head_shards = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    q_len = block_q * q_shards * draw(st.integers(1, 3))
    kv_len = block_kv * draw(st.integers(1, 4))
    heads = head_shards * draw(st.integers(1, 2))

    def one() -> Rows:
        letters = draw(st.sampled_from(("00", "01", "0011", "1")))
        drawn = st.lists(st.sampled_from(letters), min_size=kv_len, max_size=kv_len)
        rows = [[c == "1" for c in draw(drawn)] for _ in range(q_len)]
        for i in range(0, q_len, block_q):  # make whole blocks alike, or leave the noise
            if draw(st.booleans()):
                for a in range(block_q):
                    rows[i + a] = [rows[i][j - j % block_kv] for j in range(kv_len)]
        return rows

    different = [one()]
    for _ in range(draw(st.integers(0, 1)) if heads > 1 else 0):
        other = one()
        if other not in different:
            different.append(other)
    of_head = first_seen([draw(st.integers(0, len(different) - 1)) for _ in range(heads)])
    masks = different[: max(of_head) + 1]
    return {
        "of_head": of_head,
        "masks": masks,
        "block_q": block_q,
        "block_kv": block_kv,
        "direction": draw(st.sampled_from(DIRECTIONS)),
        "head_shards": head_shards,
        "q_shards": q_shards,
        "shrink": draw(st.booleans()),
    }


def both(case: dict[str, Any]) -> tuple[GridMaskInfo, Compiled]:
    info = compile_grid(
        [stored(case["masks"][m]) for m in case["of_head"]],
        case["block_q"],
        case["block_kv"],
        case["direction"],
        shards=Shards(case["head_shards"], case["q_shards"]),
        shrink=case["shrink"],
    )
    return info, compile_arrays(**case)


@given(cases())
@settings(max_examples=150)
def test_arrays_follow_their_definition(case: dict[str, Any]) -> None:
    info, expected = both(case)
    assert info.direction == case["direction"]
    assert info.block_mask.tolist() == expected.block_mask
    assert info.data_next.tolist() == expected.data_next
    assert (info.partial_mask_blocks is None) == (info.mask_next is None) == (not expected.stack)
    if info.mask_next is not None and info.partial_mask_blocks is not None:
        assert info.mask_next.tolist() == expected.mask_next
        assert info.partial_mask_blocks.tolist() == expected.stack
    assert info.q_sequence is None
    assert info.computed_mask is None


@given(cases())
@settings(max_examples=60)
def test_small_types_hold_the_same_values(case: dict[str, Any]) -> None:
    small, _ = both(case)
    masks = [stored(case["masks"][m]) for m in case["of_head"]]
    shards = Shards(case["head_shards"], case["q_shards"])
    sizes = (case["block_q"], case["block_kv"])
    wide = compile_grid(
        masks,
        *sizes,
        case["direction"],
        shards=shards,
        shrink=case["shrink"],
        downcast_arrays=False,
    )
    for name in ("block_mask", "data_next", "mask_next"):
        a, b = getattr(small, name), getattr(wide, name)
        if b is None:
            assert a is None
        else:
            assert b.dtype == np.int32
            assert a.dtype == np.int8
            assert a.tolist() == b.tolist()


@pytest.mark.parametrize("expr", [Causal(-3), Local(2, 1, 1), ChunkedCausal(3)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_computable_masks_store_no_blocks(expr: Expr, direction: Direction) -> None:
    info = compile_grid([Mask(expr, 8, 12)] * 2, 2, 3, direction)
    assert info.mask_next is None
    assert info.partial_mask_blocks is None
    assert info.q_sequence is not None
    assert info.q_sequence.dtype == np.int32
    assert info.q_sequence.tolist() == list(range(8))
    assert info.computed_mask is not None
    assert info.computed_mask.tolist() == dense(expr, 8, 12)
    labels = compile_arrays([0, 0], [dense(expr, 8, 12)], 2, 3, direction)
    assert info.block_mask.tolist() == labels.block_mask
    assert info.data_next.tolist() == labels.data_next


def test_two_computable_masks_are_stored() -> None:
    info = compile_grid([Mask(Causal(), 4, 4), Mask(Local(0, 0), 4, 4)], 2, 2)
    assert info.partial_mask_blocks is not None
    assert info.q_sequence is None
    assert info.partial_mask_blocks.astype(int).tolist() == [[[1, 0], [1, 1]], [[1, 0], [0, 1]]]


def test_no_partial_block_no_stack() -> None:
    info = compile_grid([Mask(Full(), 8, 8)] * 2, 2, 2, shards=Shards(q=2))
    assert info.mask_next is None
    assert info.partial_mask_blocks is None
    assert info.block_mask.tolist() == [[[2] * 4] * 4]


def test_one_row_a_head_shard_only_if_every_shard_has_one_mask() -> None:
    a, b = Mask(Causal(), 4, 4), Mask(Full(), 4, 4)
    rows = {
        len(compile_grid(masks, 2, 2, shards=Shards(head=2)).block_mask)
        for masks in ([a, a, b, b], [a, a, a, a])
    }
    assert rows == {2}
    assert len(compile_grid([a, b, a, a], 2, 2, shards=Shards(head=2)).block_mask) == 4


def test_scattered_zeros_keep_every_block() -> None:
    array = np.random.default_rng(0).random((2048, 2048)) < 0.1
    info = compile_grid([Mask(Dense(array), 2048, 2048)], 128, 128)
    assert int((info.block_mask > 0).sum()) == 256
    assert int((info.block_mask == 1).sum()) == 256
    assert info.partial_mask_blocks is not None
    assert info.partial_mask_blocks.shape == (256, 128, 128)
    assert info.partial_mask_blocks.nbytes == 4 * 2**20


@pytest.mark.parametrize(
    ("largest", "type_"),
    [(0, np.int8), (127, np.int8), (128, np.int16), (32767, np.int16), (32768, np.int32)],
)
def test_downcast_boundaries(largest: int, type_: type) -> None:
    array = np.array([[0, largest, 1]], dtype=np.int32)
    small = downcast(array)
    assert small.dtype == type_
    assert small.tolist() == array.tolist()


@pytest.mark.parametrize(("columns", "type_"), [(128, np.int8), (129, np.int16)])
def test_downcast_of_compiled_arrays(columns: int, type_: type) -> None:
    array = np.zeros((1, columns), dtype=np.bool_)
    array[0, -1] = True
    info = compile_grid([Mask(Dense(array), 1, columns)], 1, 1, shrink=False)
    assert info.data_next.dtype == type_
    assert info.block_mask.dtype == np.int8
    assert (info.data_next == columns - 1).all()


def test_downcast_refuses_negative_values() -> None:
    with pytest.raises(ValueError, match="array must not be negative, got -1"):
        downcast(np.array([3, -1], dtype=np.int32))
    assert downcast(np.zeros(0, dtype=np.int32)).dtype == np.int8


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_next_and_last(wanted: list[bool]) -> None:
    ahead = next_at_or_after(np.array(wanted)).tolist()
    behind = last_at_or_before(np.array(wanted)).tolist()
    for n in range(len(wanted)):
        later = [k for k in range(n, len(wanted)) if wanted[k]]
        earlier = [k for k in range(n + 1) if wanted[k]]
        every = [k for k, w in enumerate(wanted) if w] or [0]
        assert ahead[n] == (later or every)[0]
        assert behind[n] == (earlier[-1] if earlier else every[0])


@pytest.mark.parametrize(
    ("sizes", "shards", "words"),
    [
        ((3, 2), NONE, "block_q=3 must divide q_len=8"),
        ((2, 3), NONE, "block_kv=3 must divide kv_len=8"),
        ((0, 2), NONE, "block_q must be at least 1"),
        ((2, 2), Shards(q=3), r"q_shards=3 must divide the number of q blocks \(4\)"),
        ((2, 2), Shards(head=4), r"head_shards=4 must divide the number of heads \(2\)"),
        ((2, 2), Shards(head=0), "head_shards=0"),
    ],
)
def test_bad_arguments_are_refused(sizes: tuple[int, int], shards: Shards, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compile_grid([Mask(Causal(), 8, 8)] * 2, *sizes, shards=shards)


def test_masks_of_one_shape_and_at_least_one() -> None:
    with pytest.raises(ValueError, match="masks"):
        compile_grid([Mask(Causal(), 8, 8), Mask(Causal(), 8, 4)], 2, 2)
    with pytest.raises(ValueError, match="masks"):
        compile_grid([], 2, 2)
