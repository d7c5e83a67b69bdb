"""Every label grid of 3 × 3 blocks (19 683): the compiled arrays against a vectorised oracle.

``pytest -m deep tests/test_exhaustive.py`` does the same for every grid of 3 × 4 blocks (531 441).

The grids are compiled thousands at a time, each as one q shard of a tall mask: shards are compiled
independently of each other, so every grid meets the compiler exactly as it would alone, apart from
the common width of shrunk shards. Blocks are 1 × 2 tokens, so that a label fixes the block up to its pattern.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reference.blocks import Int32
from reference.mask_info import Direction, Shards, compile_grid
from reference.masks import Bool, Dense, Mask

ROWS = 3
CHUNK = 3**9
SCOPES = [
    pytest.param(3, chunk, marks=())
    if columns == 3
    else pytest.param(4, chunk, marks=pytest.mark.deep)
    for columns in (3, 4)
    for chunk in range(3 ** (ROWS * columns) // CHUNK)
]


def grids(columns: int, chunk: int) -> NDArray[np.int8]:
    """The labels of one chunk, ``[CHUNK, ROWS, columns]``."""
    number = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK)
    digits = number[:, None] // 3 ** np.arange(ROWS * columns) % 3
    return digits.reshape(-1, ROWS, columns).astype(np.int8)


def tall_mask(label: NDArray[np.int8]) -> Bool:
    """All grids below each other. Partial blocks alternate between two patterns."""
    columns = label.shape[2]
    odd = (np.add.outer(np.arange(ROWS), np.arange(columns)) % 2).astype(np.bool_)
    left = (label == 2) | ((label == 1) & ~odd)
    right = (label == 2) | ((label == 1) & odd)
    return np.stack([left, right], axis=-1).reshape(-1, 2 * columns)


def next_position(wanted: Bool) -> Int32:
    """Per grid and position the first wanted position at or after it, wrapping; 0 if none.

    Args:
      wanted: ``[grids, positions]`` in grid order.
    """
    count = wanted.shape[1]
    twice = np.concatenate([wanted, wanted], axis=1)
    place = np.where(twice, np.arange(2 * count), 2 * count)
    following = np.minimum.accumulate(place[:, ::-1], axis=1)[:, ::-1][:, :count] % count
    return np.where(wanted.any(axis=1, keepdims=True), following, 0).astype(np.int32)


def per_grid(array: NDArray[Any], height: int) -> NDArray[Any]:
    """A joined array ``[1, grids * height, width]`` cut into grids, in the order of its rows."""
    return np.reshape(array[0], (-1, height, array.shape[2]))


def in_order(array: NDArray[Any], direction: Direction) -> NDArray[Any]:
    """``[grids, q, kv]`` flattened in the grid order of a direction."""
    turned = array.swapaxes(1, 2) if direction == "dkv" else array
    return turned.reshape(len(array), -1)


def first_partial_is_odd(label: NDArray[np.int8]) -> bool:
    """Which of the two patterns is met first, and so is number 0 of the stack."""
    _, row, column = np.argwhere(label == 1)[0]
    return bool((row + column) % 2)


@pytest.mark.parametrize("direction", ["fwd", "dkv"])
@pytest.mark.parametrize(("columns", "chunk"), SCOPES)
def test_unshrunk_arrays_of_every_grid(columns: int, chunk: int, direction: Direction) -> None:
    label = grids(columns, chunk)
    dense = tall_mask(label)
    mask = Mask(Dense(dense), *dense.shape)
    info = compile_grid([mask], 1, 2, direction, shards=Shards(q=CHUNK), shrink=False)
    assert (per_grid(info.block_mask, ROWS) == label).all()

    axis = 1 if direction == "dkv" else 2
    own = np.broadcast_to(
        np.arange(label.shape[axis]).reshape(1, *((-1, 1) if axis == 1 else (1, -1))), label.shape
    )
    following = next_position(in_order(label > 0, direction))
    expected = np.take_along_axis(in_order(own, direction), following, axis=1)
    expected = np.where((label > 0).any(axis=(1, 2))[:, None], expected, 0)
    assert (in_order(per_grid(info.data_next, ROWS), direction) == expected).all()

    assert info.mask_next is not None
    pattern = np.add.outer(np.arange(ROWS), np.arange(columns)) % 2 ^ first_partial_is_odd(label)
    pattern = np.broadcast_to(pattern, label.shape)
    following = next_position(in_order(label == 1, direction))
    expected = np.take_along_axis(in_order(pattern, direction), following, axis=1)
    expected = np.where((label == 1).any(axis=(1, 2))[:, None], expected, 0)
    assert (in_order(per_grid(info.mask_next, ROWS), direction) == expected).all()


@pytest.mark.parametrize("direction", ["fwd", "dkv"])
@pytest.mark.parametrize(("columns", "chunk"), SCOPES)
def test_shrunk_arrays_of_every_grid(columns: int, chunk: int, direction: Direction) -> None:
    label = grids(columns, chunk)
    dense = tall_mask(label)
    mask = Mask(Dense(dense), *dense.shape)
    info = compile_grid([mask], 1, 2, direction, shards=Shards(q=CHUNK), shrink=True)
    rows = label.swapaxes(1, 2) if direction == "dkv" else label
    longest = int((rows > 0).sum(axis=2).max())
    height = longest if direction == "dkv" else ROWS
    kept = per_grid(info.block_mask, height)
    data = per_grid(info.data_next, height)
    if direction == "dkv":
        kept, data = kept.swapaxes(1, 2), data.swapaxes(1, 2)
    assert kept.shape == (*rows.shape[:2], longest)

    # Kept entries to the front by a stable sort: the same blocks, in order, each once.
    order = np.argsort(rows == 0, axis=2, kind="stable")[:, :, :longest]
    wanted = np.take_along_axis(rows, order, axis=2)
    assert (kept == wanted).all()
    assert (np.where(wanted > 0, data, 0) == np.where(wanted > 0, order, 0)).all()
