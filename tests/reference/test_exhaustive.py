"""Every label grid of 3 × 3 blocks (19 683) and of 3 × 4 blocks (531 441) against vectorised oracles.

Both mask compilers of this project are tried: the reference and `pallas_impl`. Thousands of grids are
compiled at a time, each as one q shard of a tall mask: shards are compiled independently of each other,
so every grid meets the compiler as it would alone. Only the width of a shrunk grid is shared; so grids
are shrunk together with those that need the same width. Blocks are 1 × 2 tokens, so that a label fixes
the block up to its pattern.

``pytest -m deep tests/reference/test_exhaustive.py`` tries each 27th part of all grids of 4 × 4 blocks as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pallas_impl import NumpyMask
from pallas_impl import compile_flat as pallas_compile_flat
from pallas_impl import compile_mask as pallas_compile_mask
from reference.blocks import Int32
from reference.flat import compile_flat
from reference.mask_info import DIRECTIONS, Direction, Shards, compile_grid
from reference.masks import Bool, Dense, Mask

Labels = NDArray[np.int8]

#: Grids that are compiled together.
CHUNK = 3**9
#: Rows, columns, number of the chunk.
SCOPES = [
    pytest.param(3, 3, 0),
    *(pytest.param(3, 4, n) for n in range(27)),
    *(pytest.param(4, 4, n, marks=pytest.mark.deep) for n in range(0, 3**7, 27)),
]
EVERY_GRID = pytest.mark.parametrize(("rows", "columns", "chunk"), SCOPES)


@dataclass(frozen=True)
class Arrays:
    """What a compiler made of many grids, each array ``[grids, q, kv]``; the stack of all of them."""

    block_mask: NDArray[Any]
    data_next: NDArray[Any]
    mask_next: NDArray[Any] | None
    stack: Bool | None


def by_reference(dense: Bool, shards: int, direction: Direction, shrink: bool) -> Arrays:
    mask = Mask(Dense(dense), *dense.shape)
    info = compile_grid([mask], 1, 2, direction, shards=Shards(q=shards), shrink=shrink)
    return arrays_of(info, shards)


def by_pallas_impl(dense: Bool, shards: int, direction: Direction, shrink: bool) -> Arrays:
    info, function = pallas_compile_mask(
        NumpyMask(dense), (1, 2), direction=direction, q_shards=shards, shrink=shrink
    )
    assert function is None
    return arrays_of(info, shards)


def arrays_of(info: Any, shards: int) -> Arrays:
    def split(array: Any) -> Any:
        return None if array is None else array[0].reshape(shards, -1, array.shape[2])

    return Arrays(
        split(info.block_mask),
        split(info.data_next),
        split(info.mask_next),
        info.partial_mask_blocks,
    )


Compiler = Callable[[Bool, int, Direction, bool], Arrays]
COMPILERS: dict[str, Compiler] = {"reference": by_reference, "pallas_impl": by_pallas_impl}


def grids(rows: int, columns: int, chunk: int) -> Labels:
    """The labels of one chunk, ``[CHUNK, rows, columns]``."""
    number = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK)
    digits = number[:, None] // 3 ** np.arange(rows * columns) % 3
    return digits.reshape(-1, rows, columns).astype(np.int8)


def odd_blocks(label: Labels) -> Bool:
    """Which of the two patterns of partial blocks stands where, ``[rows, columns]``."""
    _, rows, columns = label.shape
    return (np.add.outer(np.arange(rows), np.arange(columns)) % 2).astype(np.bool_)


def tall_mask(label: Labels) -> Bool:
    """All grids below each other. Partial blocks alternate between two patterns."""
    odd = odd_blocks(label)
    left = (label == 2) | ((label == 1) & ~odd)
    right = (label == 2) | ((label == 1) & odd)
    return np.stack([left, right], axis=-1).reshape(-1, 2 * label.shape[2])


def in_order(array: NDArray[Any], direction: Direction) -> NDArray[Any]:
    """``[grids, q, kv]`` flattened in the grid order of a direction."""
    turned = array.swapaxes(1, 2) if direction == "dkv" else array
    return turned.reshape(len(array), -1)


def at_next(wanted: Bool, values: NDArray[Any]) -> Int32:
    """Per grid and position the value at the first wanted position at or after it, wrapping; 0 if none.

    Args:
      wanted, values: ``[grids, positions]`` in grid order.
    """
    count = wanted.shape[1]
    twice = np.concatenate([wanted, wanted], axis=1)
    place = np.where(twice, np.arange(2 * count), 2 * count)
    following = np.minimum.accumulate(place[:, ::-1], axis=1)[:, ::-1][:, :count] % count
    found = np.take_along_axis(values, following, axis=1)
    return np.where(wanted.any(axis=1, keepdims=True), found, 0).astype(np.int32)


def at_last(wanted: Bool, values: NDArray[Any]) -> Int32:
    """The value at the last wanted position at or before each, else at the first wanted one; 0 if none."""
    count = wanted.shape[1]
    place = np.maximum.accumulate(np.where(wanted, np.arange(count), -1), axis=1)
    place = np.where(place < 0, wanted.argmax(axis=1)[:, None], place)
    found = np.take_along_axis(values, place, axis=1)
    return np.where(wanted.any(axis=1, keepdims=True), found, 0).astype(np.int32)


def own_blocks(shape: tuple[int, ...], direction: Direction) -> NDArray[Any]:
    """The block that moves from step to step, at every position: kv blocks, or q blocks for dkv."""
    axis = 1 if direction == "dkv" else 2
    index = np.arange(shape[axis]).reshape(1, *((-1, 1) if axis == 1 else (1, -1)))
    return np.broadcast_to(index, shape)


def stack_numbers(label: Labels) -> NDArray[Any]:
    """The place in the stack of the pattern of every position: the first that is met is number 0."""
    odd = np.broadcast_to(odd_blocks(label), label.shape)
    partial = np.flatnonzero(label == 1)
    first_is_odd = bool(odd.ravel()[partial[0]]) if len(partial) else False
    return (odd ^ first_is_odd).astype(np.int32)


def check_stack(found: Arrays, label: Labels, direction: Direction) -> None:
    """Two patterns, in the order in which they are met, turned for dkv; none if no block is partial."""
    if not (label == 1).any():
        assert found.stack is None
        assert found.mask_next is None
        return
    assert found.stack is not None
    used = np.unique(stack_numbers(label)[label == 1])
    odd = odd_blocks(label)[tuple(np.argwhere(label == 1)[0][1:])]
    patterns = [[False, True], [True, False]] if odd else [[True, False], [False, True]]
    expected = np.array(patterns)[: len(used), None, :]
    expected = expected.swapaxes(1, 2) if direction == "dkv" else expected
    assert (found.stack == expected).all()


@pytest.mark.parametrize("compiler", COMPILERS)
@EVERY_GRID
def test_unshrunk_arrays(rows: int, columns: int, chunk: int, compiler: str) -> None:
    label = grids(rows, columns, chunk)
    dense, numbers = tall_mask(label), stack_numbers(label)
    for direction in DIRECTIONS:
        found = COMPILERS[compiler](dense, CHUNK, direction, False)
        assert (found.block_mask == label).all()
        own, active = own_blocks(label.shape, direction), in_order(label > 0, direction)
        expected = at_next(active, in_order(own, direction))
        assert (in_order(found.data_next, direction) == expected).all()
        assert found.mask_next is not None
        expected = at_next(in_order(label == 1, direction), in_order(numbers, direction))
        assert (in_order(found.mask_next, direction) == expected).all()
        check_stack(found, label, direction)


#: What the entries of a shrunk grid without a block of their own name: either fetches nothing new.
PADDING: dict[str, Callable[[Bool, NDArray[Any]], Int32]] = {
    "reference": at_last,
    "pallas_impl": at_next,
}


def of_one_width(label: Labels, direction: Direction) -> Iterator[tuple[int, Labels]]:
    """The grids by the length of their longest row (column for dkv)."""
    lengths = (label > 0).sum(axis=1 if direction == "dkv" else 2).max(axis=1)
    for length in np.unique(lengths):
        yield max(1, int(length)), label[lengths == length]


@pytest.mark.parametrize("compiler", COMPILERS)
@EVERY_GRID
def test_shrunk_arrays(rows: int, columns: int, chunk: int, compiler: str) -> None:
    rule = PADDING[compiler]
    for direction in DIRECTIONS:
        for width, label in of_one_width(grids(rows, columns, chunk), direction):
            found = COMPILERS[compiler](tall_mask(label), len(label), direction, True)
            turn = direction == "dkv"
            lines = label.swapaxes(1, 2) if turn else label
            kept, data = (
                array.swapaxes(1, 2) if turn else array
                for array in (found.block_mask, found.data_next)
            )
            assert kept.shape == (*lines.shape[:2], width)
            # The same blocks, in order, each once, in every line; everything else is empty.
            assert (packed(kept, kept > 0) == packed(lines, lines > 0, width)).all()
            own = own_blocks(label.shape, direction)
            own = own.swapaxes(1, 2) if turn else own
            assert (packed(data, kept > 0) == packed(own, lines > 0, width)).all()
            active = in_order(found.block_mask > 0, direction)
            at = in_order(found.data_next, direction)
            assert (at == rule(active, at)).all()
            if found.mask_next is not None:
                numbers = stack_numbers(label)
                numbers = numbers.swapaxes(1, 2) if turn else numbers
                place = found.mask_next.swapaxes(1, 2) if turn else found.mask_next
                assert (packed(place, kept == 1) == packed(numbers, lines == 1, width)).all()
                wanted = in_order(found.block_mask == 1, direction)
                at = in_order(found.mask_next, direction)
                assert (at == rule(wanted, at)).all()
            check_stack(found, label, direction)


def packed(array: NDArray[Any], wanted: Bool, width: int | None = None) -> NDArray[Any]:
    """The wanted entries of every line at its beginning, then -1."""
    order = np.argsort(~wanted, axis=2, kind="stable")[:, :, :width]
    chosen, kept = (np.take_along_axis(a, order, axis=2) for a in (array, wanted))
    return np.where(kept, chosen.astype(np.int32), -1)


@pytest.mark.parametrize("compiler", COMPILERS)
@EVERY_GRID
def test_lists_of_active_blocks(rows: int, columns: int, chunk: int, compiler: str) -> None:
    """The flat layout: active blocks in grid order, and one entry for a line without any."""
    label = grids(rows, columns, chunk)
    dense = tall_mask(label)
    for direction in DIRECTIONS:
        lists = flat(compiler, dense, direction)
        lines = label.swapaxes(1, 2) if direction == "dkv" else label
        listed = lines > 0
        listed[:, :, 0] |= ~listed.any(axis=2)
        grid, row, column = np.nonzero(listed)
        assert (lists.count == listed.sum(axis=(1, 2))).all()
        inside = np.arange(lists.rows.shape[1]) < lists.count[:, None]
        assert (lists.rows[inside] == row).all()
        kinds = lines[grid, row, column]
        assert (lists.labels[inside] == kinds).all()
        # At an entry without a block any column will do that is in range.
        columns_found = lists.columns[inside]
        assert (columns_found[kinds > 0] == column[kinds > 0]).all()
        assert ((columns_found >= 0) & (columns_found < lines.shape[2])).all()
        numbers = stack_numbers(label)
        numbers = numbers.swapaxes(1, 2) if direction == "dkv" else numbers
        partial = kinds == 1
        assert (lists.places[inside][partial] == numbers[grid, row, column][partial]).all()


@dataclass(frozen=True)
class Lists:
    """The flat layout of many grids, each array ``[grids, longest list]``."""

    rows: NDArray[Any]
    columns: NDArray[Any]
    labels: NDArray[Any]
    places: NDArray[Any]
    count: NDArray[Any]


def flat(compiler: str, dense: Bool, direction: Direction) -> Lists:
    info: Any
    if compiler == "reference":
        mask = Mask(Dense(dense), *dense.shape)
        info = compile_flat(mask, 1, 2, direction, shards=Shards(q=CHUNK))
        count = info.num_active_blocks
    else:
        info, _ = pallas_compile_flat(NumpyMask(dense), (1, 2), direction=direction, q_shards=CHUNK)
        count = info.num_active.ravel()
    assert info.mask_next is not None
    names = ("active_rows", "active_cols", "block_mask", "mask_next")
    rows, columns, labels, places = (getattr(info, name).reshape(CHUNK, -1) for name in names)
    return Lists(rows, columns, labels, places, count)
