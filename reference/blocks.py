"""Block labels: cutting a mask into blocks the size of one grid step (LABEL clauses)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from reference.masks import Bool, Mask
from spec import defines

EMPTY, PARTIAL, FULL = 0, 1, 2

Int32 = NDArray[np.int32]

#: Pairs processed at a time (at least one row of blocks), to bound memory.
STRIP = 2**20


@defines("REJECT-1", "REJECT-2")
def block_grid(q_len: int, kv_len: int, block_q: int, block_kv: int) -> tuple[int, int]:
    """Number of q blocks and kv blocks.

    Args:
      q_len, kv_len: tokens.
      block_q, block_kv: tokens per block.

    Raises:
      ValueError: a block size is below 1 or does not divide its length (REJECT-1, REJECT-2).
    """
    for size_name, size, length_name, length in (
        ("block_q", block_q, "q_len", q_len),
        ("block_kv", block_kv, "kv_len", kv_len),
    ):
        if size < 1:
            raise ValueError(f"{size_name} must be at least 1, got {size}")
        if length % size:
            raise ValueError(f"{size_name}={size} must divide {length_name}={length}")
    return q_len // block_q, kv_len // block_kv


@defines("REJECT-19")
def check_parts(block_kv: int, block_kv_compute: int | None) -> None:
    """Checks the number of keys computed at a time inside a block.

    Args:
      block_kv: keys of a block.
      block_kv_compute: keys of a part; None for the whole block.

    Raises:
      ValueError: it does not divide the block.
    """
    if block_kv_compute is not None and block_kv % block_kv_compute:
        raise ValueError(f"block_kv_compute={block_kv_compute} must divide block_kv={block_kv}")


@defines("LABEL-1", "LABEL-2", "LABEL-3", "LABEL-4", "LABEL-5", "LABEL-6", "LABEL-7")
def labels(mask: Mask, block_q: int, block_kv: int) -> Int32:
    """Label of every block: 0 if no entry is visible, 2 if all are, 1 otherwise.

    Args:
      mask: what to cut.
      block_q, block_kv: tokens per block.

    Returns:
      int32 ``[q blocks, kv blocks]``.

    Raises:
      ValueError: block sizes that do not divide the mask's shape.
    """
    q_blocks, kv_blocks = block_grid(mask.q_len, mask.kv_len, block_q, block_kv)
    result = np.empty((q_blocks, kv_blocks), dtype=np.int32)
    for i, tiles in strips(mask, block_q, block_kv):
        some = tiles.any(axis=(2, 3))
        every = tiles.all(axis=(2, 3))
        result[i : i + len(tiles)] = np.where(every, FULL, np.where(some, PARTIAL, EMPTY))
    return result


def strips(mask: Mask, block_q: int, block_kv: int) -> Iterator[tuple[int, Bool]]:
    """A mask in blocks, some rows of blocks at a time.

    Yields:
      The first row of blocks, and bool ``[rows, kv blocks, block_q, block_kv]``.
    """
    at_once = max(1, STRIP // (block_q * mask.kv_len))
    for i in range(0, mask.q_len // block_q, at_once):
        strip = mask[i * block_q : (i + at_once) * block_q, :]
        yield i, strip.reshape(-1, block_q, mask.kv_len // block_kv, block_kv).swapaxes(1, 2)


def block_of(mask: Mask, i: int, j: int, block_q: int, block_kv: int) -> Bool:
    """Entries of block (i, j), bool ``[block_q, block_kv]``."""
    return mask[i * block_q : (i + 1) * block_q, j * block_kv : (j + 1) * block_kv]


@defines("PARTIAL-1", "PARTIAL-2", "PARTIAL-3")
def partial_stack(
    masks: Sequence[Mask], grids: Sequence[Int32], block_q: int, block_kv: int
) -> tuple[Bool | None, Int32]:
    """The stack of distinct partial blocks, in order of first appearance.

    Args:
      masks: the distinct masks, by first appearance over the heads.
      grids: their label grids, each int32 ``[q blocks, kv blocks]``.
      block_q, block_kv: tokens per block.

    Returns:
      The stack, bool ``[n, block_q, block_kv]`` (None if there is no partial block), and for every
      mask and block its place in the stack, int32 ``[masks, q blocks, kv blocks]`` (-1 where the
      label is not 1).
    """
    place: dict[bytes, int] = {}
    stack: list[Bool] = []
    ids = np.full((len(masks), *grids[0].shape), -1, dtype=np.int32)
    for m, (mask, grid) in enumerate(zip(masks, grids, strict=True)):
        for first, tiles in strips(mask, block_q, block_kv):
            for i, j in np.argwhere(grid[first : first + len(tiles)] == PARTIAL):
                key = tiles[i, j].tobytes()
                if key not in place:
                    place[key] = len(stack)
                    stack.append(tiles[i, j].copy())
                ids[m, first + i, j] = place[key]
    return (np.stack(stack) if stack else None), ids
