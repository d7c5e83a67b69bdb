"""The grid layout against brute force: every array, every direction, shards, shrinking."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_impl import (
    CausalMask,
    ChunkedCausalMask,
    ComputableMask,
    DenseMask,
    FullMask,
    LocalMask,
    Mask,
    MultiHeadMask,
    block_bounds,
    classify,
    compile_flat,
    compile_mask,
    mask_info,
)
from tests.pallas_impl import mask_oracle as oracle
from tests.pallas_impl.mask_problems import Problem, problems


def expected_grid(problem: Problem, shrink: bool) -> tuple[Any, Any, Any]:
    """(block_mask, data_next, mask_next) of the whole problem."""
    shards = problem.shards(shrink and problem.single)
    width = max(shard.width for shard in shards.values())
    for shard in shards.values():
        shard.pad(width)
    arrays = {at: shard.arrays() for at, shard in shards.items()}
    return tuple(
        np.concatenate(
            [
                np.concatenate(
                    [
                        np.concatenate(
                            [arrays[h, q, kv][n] for kv in range(problem.kv_shards)], axis=2
                        )
                        for q in range(problem.q_shards)
                    ],
                    axis=1,
                )
                for h in range(problem.head_shards)
            ]
        )
        for n in range(3)
    )  # type: ignore[return-value]


@settings(deadline=None, max_examples=300)
@given(problems(), st.booleans(), st.booleans())
def test_every_array_is_as_defined(problem: Problem, shrink: bool, downcast: bool) -> None:
    check(problem, shrink, downcast)


@settings(deadline=None, max_examples=100)
@given(problems(), st.integers(1, 40))
def test_the_size_of_a_batch_changes_nothing(problem: Problem, entries: int) -> None:
    for cached in (mask_info._compile_grid, classify.classify, classify.partial_mask_blocks):
        cached.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_bounds, "_BATCH_ENTRIES", entries)
        check(problem, shrink=True, downcast=True)


@pytest.mark.parametrize("direction", ["fwd", "dq", "dkv"])
def test_each_shard_shrinks_by_itself(direction: str) -> None:
    """One shard has a complete row and a row with a gap, the other only short rows."""
    rows = np.array([[1, 1, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=np.bool_)
    entries = rows if direction != "dkv" else np.hsplit(rows.T, 2)
    shape = (4, 3) if direction != "dkv" else (6, 2)
    dense = np.concatenate(entries).reshape(shape)
    problem = Problem(
        trees=[("dense", tuple(tuple(row) for row in dense.tolist()))],
        shared=True,
        shape=shape,
        block_shape=(1, 1),
        direction=direction,
        head_shards=1,
        q_shards=2,
        kv_shards=1,
        positions=(None, None),
    )
    check(problem, shrink=True, downcast=True)


def check(problem: Problem, shrink: bool, downcast: bool) -> None:
    """Compares every array with brute force."""
    info, function = compile_mask(
        problem.mask,
        problem.block_shape,
        shrink=shrink,
        downcast=downcast,
        **problem.options,  # type: ignore[arg-type]
    )
    block_mask, data_next, mask_next = expected_grid(problem, shrink)
    np.testing.assert_array_equal(info.block_mask, block_mask)
    np.testing.assert_array_equal(info.data_next, data_next)
    blocks = problem.distinct_blocks()
    if problem.computable or not blocks:
        assert info.mask_next is None
        assert info.partial_mask_blocks is None
    else:
        np.testing.assert_array_equal(info.mask_next, mask_next)
        assert info.partial_mask_blocks is not None
        stack = np.stack(blocks).swapaxes(-1, -2) if problem.is_dkv else np.stack(blocks)
        np.testing.assert_array_equal(info.partial_mask_blocks, stack)
        assert info.partial_mask_blocks.dtype == np.bool_
    assert (function is not None) == problem.computable
    if function is None:
        assert info.q_sequence is None
        assert info.kv_sequence is None
    else:
        kv_ids = np.arange(problem.shape[1]) if info.kv_sequence is None else info.kv_sequence
        assert info.q_sequence is not None
        found = function(info.q_sequence[:, None], kv_ids[None])
        np.testing.assert_array_equal(np.broadcast_to(found, problem.shape), problem.dense[0])
    for array in (info.block_mask, info.data_next, info.mask_next):
        if array is not None:
            assert array.dtype == (smallest(array.max()) if downcast else np.int32)
    for array in info:
        assert array is None or not array.flags.writeable


def smallest(largest: int) -> type[np.signedinteger[Any]]:
    return np.int8 if largest < 128 else np.int16 if largest < 32768 else np.int32


@settings(deadline=None, max_examples=150)
@given(problems(computable=True))
def test_labels_from_bounds_are_labels_of_the_entries(problem: Problem) -> None:
    for tree, entries in zip(problem.trees, problem.dense, strict=True):
        mask = oracle.build(tree, problem.shape, *problem.positions)
        found, _ = compile_mask(mask, problem.block_shape, shrink=False)
        dense, _ = compile_mask(DenseMask(entries), problem.block_shape, shrink=False)
        np.testing.assert_array_equal(found.block_mask, dense.block_mask)
        np.testing.assert_array_equal(found.data_next, dense.data_next)


class _Unevaluated:
    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        raise AssertionError("compiling a structured mask looked at its entries")


class _Causal(_Unevaluated, CausalMask):
    pass


class _Local(_Unevaluated, LocalMask):
    pass


class _Chunked(_Unevaluated, ChunkedCausalMask):
    pass


S = 2**20


@pytest.mark.parametrize(
    "mask",
    [
        _Causal((S, S)),
        _Local((S, S), (5000, 17), 3),
        _Chunked((S, S), 3000),
        _Causal((S, S), -7) & _Local((S, S), (5000, None)),
        _Causal((S, S), -9000) | _Local((S, S), (3000, 200)) | _Chunked((S, S), 65536),
        (_Chunked((S, S), 7777) | _Local((S, S), (100, 100))) & _Causal((S, S), 50),
        _Local(
            (S, S), (5000, 17), q_sequence=np.arange(S).reshape(2, -1, 64).swapaxes(0, 1).ravel()
        ),
    ],
)
def test_a_million_tokens_are_labelled_without_looking_at_entries(mask: Mask) -> None:
    info, _ = compile_mask(mask, (4096, 4096), shrink=False)
    assert info.block_mask.shape == (1, 256, 256)
    # Every sixteenth row of entries of a few blocks, among them all kinds of labels.
    plain = {_Causal: CausalMask, _Local: LocalMask, _Chunked: ChunkedCausalMask}
    assert set(np.unique(info.block_mask)) <= {0, 1, 2}
    rng = np.random.default_rng(0)
    for label in np.unique(info.block_mask):
        blocks = np.argwhere(info.block_mask[0] == label)
        i, j = blocks[rng.integers(len(blocks))]
        assert label == _label(mask, plain, i * 4096, j * 4096, 4096)


def _label(mask: Any, plain: dict[Any, Any], q: int, kv: int, n: int) -> int:
    """The label of a block from its rows' entries, evaluated by the base class."""

    def entries(mask: Any) -> Any:
        if hasattr(mask, "left"):
            a, b = entries(mask.left), entries(mask.right)
            return a & b if "And" in type(mask).__name__ else a | b
        q_ids = mask.q_sequence[q : q + n, None]
        return plain[type(mask)].visible(mask, q_ids, np.arange(kv, kv + n)[None])

    found = entries(mask)
    return 2 if found.all() else 1 if found.any() else 0


def test_known_figures() -> None:
    causal, _ = compile_mask(CausalMask((8192, 8192)), (128, 128))
    assert causal.block_mask.shape == (1, 64, 64)
    assert (causal.block_mask == 0).sum() == 2016
    local, _ = compile_mask(LocalMask((8192, 8192), (1024, 0)), (128, 128))
    assert local.block_mask.shape == (1, 64, 9)
    sparse = np.random.default_rng(0).random((2048, 2048)) < 0.1
    random, _ = compile_mask(DenseMask(sparse), (128, 128))
    assert (random.block_mask == 1).sum() == 256
    assert random.partial_mask_blocks is not None
    assert random.partial_mask_blocks.nbytes == 4 * 2**20


@pytest.mark.parametrize("direction", ["fwd", "dq", "dkv"])
def test_a_mask_that_cannot_shrink_is_unchanged(direction: Any) -> None:
    for mask in (CausalMask((8, 8)), DenseMask(np.eye(4, dtype=np.bool_) | (np.arange(4) == 1))):
        for size in (1, 2):
            long, _ = compile_mask(
                mask | DenseMask(_cross(*mask.shape)), (size, size), direction=direction
            )
            same, _ = compile_mask(
                mask | DenseMask(_cross(*mask.shape)),
                (size, size),
                direction=direction,
                shrink=False,
            )
            for a, b in zip(long, same, strict=True):
                np.testing.assert_array_equal(a, b)


def _cross(q_len: int, kv_len: int) -> Any:
    """A full last row and a full first column."""
    return (np.arange(q_len)[:, None] == q_len - 1) | (np.arange(kv_len)[None] == 0)


@pytest.mark.parametrize(("blocks", "dtype"), [(128, np.int8), (129, np.int16)])
def test_data_next_is_int8_up_to_127(blocks: int, dtype: Any) -> None:
    info, _ = compile_mask(FullMask((2, blocks)), (2, 1))
    assert info.data_next.max() == blocks - 1
    assert info.data_next.dtype == dtype
    assert info.block_mask.dtype == np.int8
    np.testing.assert_array_equal(info.data_next[0, 0], np.arange(blocks))


@pytest.mark.parametrize(("blocks", "dtype"), [(32768, np.int16), (32769, np.int32)])
def test_data_next_is_int16_up_to_32767(blocks: int, dtype: Any) -> None:
    info, _ = compile_mask(FullMask((2, blocks)), (2, 1))
    assert info.data_next.max() == blocks - 1
    assert info.data_next.dtype == dtype
    np.testing.assert_array_equal(info.data_next[0, 0], np.arange(blocks))


@pytest.mark.parametrize(("blocks", "dtype"), [(128, np.int8), (129, np.int16)])
def test_mask_next_is_int8_up_to_127(blocks: int, dtype: Any) -> None:
    # Block n spells n + 1: all blocks differ, and none is empty or full.
    bits = (np.arange(1, blocks + 1)[:, None] >> np.arange(9)) & 1
    info, _ = compile_mask(DenseMask(bits.reshape(1, -1).astype(np.bool_)), (1, 9))
    assert info.mask_next is not None
    assert info.partial_mask_blocks is not None
    assert info.mask_next.max() == blocks - 1
    assert info.mask_next.dtype == dtype
    np.testing.assert_array_equal(info.partial_mask_blocks[:, 0], bits)


def test_one_mask_for_each_head_shard_is_one_row_for_each() -> None:
    a, b = CausalMask((4, 4)), LocalMask((4, 4), (0, 0))
    info, function = compile_mask(MultiHeadMask([a, a, b, b]), (2, 2), head_shards=2)
    assert info.block_mask.shape == (2, 2, 2)
    assert function is None
    info, _ = compile_mask(MultiHeadMask([a, b, a, b]), (2, 2), head_shards=2)
    assert info.block_mask.shape == (4, 2, 2)
    info, function = compile_mask(MultiHeadMask([a, a, a, a]), (2, 2), head_shards=2)
    assert info.block_mask.shape == (2, 2, 2)
    assert function == a.mask_function


def test_equal_masks_share_one_compilation() -> None:
    array = np.random.default_rng(1).random((8, 8)) < 0.5
    first = compile_mask(DenseMask(array), (2, 2))
    assert compile_mask(DenseMask(array.copy()), (2, 2)) is first
    assert compile_mask(DenseMask(~array), (2, 2)) is not first


def test_index_like_sizes_are_accepted() -> None:
    eight = np.int64(8)
    info, _ = compile_mask(
        CausalMask((eight, eight), np.int32(0)), (np.int16(2), np.uint8(4)), q_shards=np.int64(2)
    )
    assert info.block_mask.shape == (1, 4, 2)


class _Gaps(ComputableMask):
    def __init__(self, bounds: Any) -> None:
        super().__init__((4, 4))
        self.bounds = bounds

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return q_ids >= kv_ids

    def block_bounds(self, q_lo: Any, q_hi: Any, kv_lo: Any, kv_hi: Any) -> Any:
        return self.bounds


class _Windowless(Mask):
    @property
    def shape(self) -> tuple[int, int]:
        return (4, 4)

    def __getitem__(self, index: Any) -> Any:
        return np.ones((2, 2))


EIGHT = CausalMask((8, 8))


@pytest.mark.parametrize(
    ("mask", "block_shape", "options", "error", "message"),
    [
        (EIGHT, (3, 2), {}, ValueError, "block_q 3"),
        (EIGHT, (2, 3), {}, ValueError, "block_kv 3"),
        (EIGHT, (0, 2), {}, ValueError, "block_q"),
        (EIGHT, (2, -2), {}, ValueError, "block_kv"),
        (EIGHT, (2, 2.0), {}, TypeError, "block_kv"),
        (EIGHT, (2, 2, 2), {}, ValueError, "block_shape"),
        (EIGHT, 2, {}, ValueError, "block_shape"),
        (EIGHT, (2, 2), {"q_shards": 3}, ValueError, "q_shards: 3"),
        (EIGHT, (2, 2), {"kv_shards": 3}, ValueError, "kv_shards: 3"),
        (EIGHT, (4, 2), {"q_shards": 4}, ValueError, "block_q 4"),
        (EIGHT, (2, 2), {"q_shards": 0}, ValueError, "q_shards"),
        (EIGHT, (2, 2), {"head_shards": "2"}, TypeError, "head_shards"),
        (MultiHeadMask([EIGHT] * 3), (2, 2), {"head_shards": 2}, ValueError, "head_shards: 2"),
        (EIGHT, (2, 2), {"direction": "dv"}, ValueError, "direction"),
        (np.eye(8), (2, 2), {}, TypeError, "mask"),
        (_Gaps((1, 0)), (2, 2), {}, TypeError, "_Gaps.block_bounds"),
        (_Gaps((np.ones(3, dtype=np.bool_), False)), (2, 2), {}, ValueError, "_Gaps.block_bounds"),
        (_Windowless(), (2, 2), {}, TypeError, "_Windowless"),
    ],
)
def test_bad_arguments_are_named(
    mask: Any, block_shape: Any, options: Any, error: type[Exception], message: str
) -> None:
    for compiler in (compile_mask, compile_flat):
        with pytest.raises(error, match=message):
            compiler(mask, block_shape, **options)
