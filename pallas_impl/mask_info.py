"""The mask compiler: from a mask to the small arrays that are a kernel's loop structure.

Two layouts. The *grid* layout (`compile_mask`) has one entry for each position of a rectangular
grid of blocks, empty ones included unless the grid shrinks. The *flat* layout (`compile_flat`)
lists the active blocks only. Clauses PARTIAL-1 to PARTIAL-6,
COMPUTE-1 to COMPUTE-3, HEADS-1 to HEADS-3 and FLAT-1 to FLAT-6; for the others see `prefetch`,
`shrink` and `sharding`.
"""

import functools
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from pallas_impl.classify import Classified, Heads, classify, partial_mask_blocks, share_heads
from pallas_impl.computable import MaskFunction
from pallas_impl.mask_base import BoolArray, Mask
from pallas_impl.prefetch import downcast, next_index, next_values
from pallas_impl.sharding import Direction, Layout, check_layout, join, split
from pallas_impl.shrink import kept_columns

# Arrays are NumPy here, jax arrays for dynamic masks and inside traced functions.
Array = Any


class MaskInfo(NamedTuple):
    """The grid layout of a compiled mask; a pytree of read-only arrays.

    heads is the number of head shards if each head shard holds one distinct mask, which is then
    shared by its heads; otherwise the number of heads. In forward and dq, rows are q blocks and
    columns kv blocks; `n_kv` is smaller after shrinking. In dkv the arrays keep this orientation,
    but the grid visits kv blocks first, then heads, then q blocks, and shrinking makes `n_q`
    smaller. The shards of an axis follow each other along it.

    Attributes:
      data_next: int[heads, n_q, n_kv], the block to have at hand: the kv block (dkv: q block),
        counted from the start of the shard, of the first non-empty position at or after this
        one in the shard's grid order, wrapping around; 0 in an empty shard.
      mask_next: int[heads, n_q, n_kv], by the same rule over partial positions, the index in
        `partial_mask_blocks`; None if there are no partial blocks or the mask is computable.
      block_mask: int[heads, n_q, n_kv], 0 empty, 1 partial, 2 full.
      partial_mask_blocks: bool[n, block_q, block_kv] (dkv: [n, block_kv, block_q]), the distinct
        partial blocks in order of first appearance, the same for all shards; None as mask_next.
        Of a dynamic mask: all blocks, see `compile_dynamic_mask`.
      q_sequence: int32[q_len], the position of each query row, if the mask is computable.
      kv_sequence: int32[kv_len], the position of each column, if the mask is computable and
        columns do not stand at 0, 1, 2, ….
    """

    data_next: Array
    mask_next: Array | None
    block_mask: Array
    partial_mask_blocks: Array | None
    q_sequence: Array | None
    kv_sequence: Array | None


class FlatMaskInfo(NamedTuple):
    """The flat layout of a compiled mask; a pytree of read-only arrays.

    The active blocks of each shard, in grid order: output block by output block. Output blocks
    are q blocks in forward and dq, kv blocks in dkv. An output block without any active block has
    one entry of label 0, so that its output is still written. Shards with fewer than `n` entries
    are padded with copies of their last entry, with label 0. heads as in `MaskInfo`.

    Attributes:
      active_rows: int[heads, q_shards, kv_shards, n], the output block, counted from the start of
        the shard.
      active_cols: int[heads, q_shards, kv_shards, n], the block that streams past it, counted
        likewise; at label 0, the one of the next active entry, else of the last one, so that
        nothing is fetched in vain.
      block_mask: int[heads, q_shards, kv_shards, n], 0 (nothing to run), 1 partial, 2 full.
      mask_next: int[heads, q_shards, kv_shards, n], the index in `partial_mask_blocks` of the
        first partial entry at or after this one, wrapping around; None as in `MaskInfo`.
      num_active: int32[heads, q_shards, kv_shards], the number of entries before the padding.
      partial_mask_blocks, q_sequence, kv_sequence: as in `MaskInfo`.
    """

    active_rows: Array
    active_cols: Array
    block_mask: Array
    mask_next: Array | None
    num_active: Array
    partial_mask_blocks: Array | None
    q_sequence: Array | None
    kv_sequence: Array | None


def compile_mask(
    mask: Mask,
    block_shape: tuple[SupportsIndex, SupportsIndex],
    *,
    direction: Direction = "fwd",
    head_shards: SupportsIndex = 1,
    q_shards: SupportsIndex = 1,
    kv_shards: SupportsIndex = 1,
    shrink: bool = True,
    downcast: bool = True,
) -> tuple[MaskInfo, MaskFunction | None]:
    """Compiles a mask to the grid layout. Results are cached by the mask's value.

    Args:
      mask: `(q_len, kv_len)`, shared by all heads, or `MultiHeadMask`.
      block_shape: `(block_q, block_kv)`, in positions.
      direction: which kernel: "fwd", "dq" (the same arrays) or "dkv".
      head_shards, q_shards, kv_shards: the number of devices (ring: steps) that each axis is cut
        into; every shard's part of the arrays is the schedule of its part of the mask.
      shrink: drop the empty positions of each row (dkv: column) of the grid, padded to the
        longest; only if all heads share one mask.
      downcast: store each array in the smallest of int8, int16 and int32 that holds it.

    Returns:
      The arrays, and the mask as a function of positions if all heads share one computable mask.

    Raises:
      ValueError: a block size or shard count does not divide its axis, or is not positive; the
        direction is unknown.
      TypeError: `mask` is not a mask, or a size is not an integer.
    """
    _check_mask(mask)
    layout = check_layout(mask.shape, block_shape, direction, head_shards, q_shards, kv_shards)
    return _compile_grid(mask, layout, bool(shrink), bool(downcast))


def compile_flat(
    mask: Mask,
    block_shape: tuple[SupportsIndex, SupportsIndex],
    *,
    direction: Direction = "fwd",
    head_shards: SupportsIndex = 1,
    q_shards: SupportsIndex = 1,
    kv_shards: SupportsIndex = 1,
    downcast: bool = True,
) -> tuple[FlatMaskInfo, MaskFunction | None]:
    """Compiles a mask to the flat layout; arguments, errors and caching as in `compile_mask`."""
    _check_mask(mask)
    layout = check_layout(mask.shape, block_shape, direction, head_shards, q_shards, kv_shards)
    return _compile_flat(mask, layout, bool(downcast))


@functools.lru_cache(maxsize=32)
def _compile_grid(
    mask: Mask, layout: Layout, shrink: bool, small: bool
) -> tuple[MaskInfo, MaskFunction | None]:
    heads = share_heads(mask, layout.head_shards)
    found = classify(heads.unique, layout.block_shape, heads.computable is None)
    rows, inner = _distinct_rows(heads, layout)
    labels = split(found.labels[rows], inner)
    grid = labels.shape
    # [shards, outer loops, inner loop]
    labels = labels.reshape(-1, grid[3] * grid[4], grid[5])
    single = len(heads.unique) == 1
    columns, labels = kept_columns(labels) if shrink and single else (_all_columns(labels), labels)
    width = labels.shape[-1]
    steps = labels.reshape(len(labels), -1)
    data_next = next_values(steps != 0, columns.reshape(steps.shape))
    mask_next = None
    if found.partial_ids is not None:
        ids = split(found.partial_ids[rows], inner).reshape(*columns.shape[:2], grid[5])
        ids = np.take_along_axis(ids, columns, axis=-1).reshape(steps.shape)
        mask_next = next_values(steps == 1, ids)

    def whole(array: NDArray[Any]) -> NDArray[Any]:
        shards = join(array.reshape(*grid[:5], width), inner)
        return _spread(_finish(shards, small), len(heads.rows))

    info = MaskInfo(
        data_next=whole(data_next),
        mask_next=None if mask_next is None else whole(mask_next),
        block_mask=whole(labels),
        partial_mask_blocks=_blocks(heads, found, layout),
        q_sequence=None if heads.computable is None else heads.computable.q_sequence,
        kv_sequence=None if heads.computable is None else heads.computable.kv_sequence,
    )
    return info, None if heads.computable is None else heads.computable.mask_function


@functools.lru_cache(maxsize=32)
def _compile_flat(
    mask: Mask, layout: Layout, small: bool
) -> tuple[FlatMaskInfo, MaskFunction | None]:
    heads = share_heads(mask, layout.head_shards)
    found = classify(heads.unique, layout.block_shape, heads.computable is None)
    rows, inner = _distinct_rows(heads, layout)
    per_row = inner._replace(head_shards=len(rows))
    labels = split(found.labels[rows], per_row)
    shards = labels.shape[:3]
    n_rows, n_columns = (labels.shape[3], labels.shape[5]) if layout.is_dkv else labels.shape[4:]
    labels = labels.reshape(-1, n_rows, n_columns)
    at, slots, counts = _visits(labels)
    active_rows, active_columns, active_labels = _flat_steps(labels, at, slots, counts)
    mask_next = None
    if found.partial_ids is not None:
        ids = split(found.partial_ids[rows], per_row).reshape(labels.shape)
        entries = np.zeros(active_labels.shape, dtype=np.int32)
        entries[slots] = ids[at]
        mask_next = next_values(active_labels == 1, entries)

    def whole(array: NDArray[Any]) -> NDArray[Any]:
        return _spread(_finish(array.reshape(*shards, -1), small), len(heads.rows))

    info = FlatMaskInfo(
        active_rows=whole(active_rows),
        active_cols=whole(active_columns),
        block_mask=whole(active_labels),
        mask_next=None if mask_next is None else whole(mask_next),
        num_active=_spread(_finish(counts.reshape(shards), False), len(heads.rows)),
        partial_mask_blocks=_blocks(heads, found, layout),
        q_sequence=None if heads.computable is None else heads.computable.q_sequence,
        kv_sequence=None if heads.computable is None else heads.computable.kv_sequence,
    )
    return info, None if heads.computable is None else heads.computable.mask_function


_At = tuple[NDArray[np.int64], ...]


def _visits(labels: NDArray[np.int8]) -> tuple[_At, _At, NDArray[np.int64]]:
    """The blocks that are listed: where they are, which slot of the list they get, how many."""
    visited = labels != 0
    visited[..., 0] |= ~visited.any(axis=-1)
    at = np.nonzero(visited)
    counts = np.bincount(at[0], minlength=len(labels))
    starts = np.cumsum(counts) - counts
    return at, (at[0], np.arange(len(at[0])) - starts[at[0]]), counts


def _flat_steps(
    labels: NDArray[np.int8], at: _At, slots: _At, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
    """Rows, columns and labels of the listed blocks, [shards, longest list] each."""
    n = int(counts.max())
    # Every row is listed, so the last entry, which is what padding repeats, is of the last row.
    rows = np.full((len(labels), n), labels.shape[1] - 1, dtype=np.int32)
    columns = np.zeros(rows.shape, dtype=np.int32)
    steps = np.zeros(rows.shape, dtype=np.int8)
    rows[slots] = at[1]
    columns[slots] = at[2]
    steps[slots] = labels[at]
    active = steps != 0
    upcoming = next_index(active)
    last = n - 1 - np.argmax(active[:, ::-1], axis=-1).astype(np.int32)
    source = np.where(upcoming == n, last[:, None], upcoming)
    columns = np.take_along_axis(columns, source, axis=-1)
    columns[~active.any(axis=-1)] = 0
    return rows, columns, steps


def _distinct_rows(heads: Heads, layout: Layout) -> tuple[NDArray[np.int64], Layout]:
    """The rows to work on: one if all are the same, to be spread over the others at the end."""
    if len(heads.unique) == 1:
        return heads.rows[:1], layout._replace(head_shards=1)
    return heads.rows, layout


def _spread(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Repeats a single row; read-only in any case."""
    return np.broadcast_to(array, (rows, *array.shape[1:]))


def _finish(array: NDArray[Any], small: bool) -> NDArray[Any]:
    whole = array.astype(np.int32)
    return downcast(whole) if small else whole


def _all_columns(labels: NDArray[np.int8]) -> NDArray[np.int32]:
    return np.broadcast_to(np.arange(labels.shape[-1], dtype=np.int32), labels.shape)


def _blocks(heads: Heads, found: Classified, layout: Layout) -> BoolArray | None:
    if found.words is None:
        return None
    return partial_mask_blocks(heads.unique, layout.block_shape, layout.is_dkv)


def _check_mask(mask: Mask) -> None:
    if not isinstance(mask, Mask):
        raise TypeError(f"mask: expected a mask, got {type(mask).__name__}")
