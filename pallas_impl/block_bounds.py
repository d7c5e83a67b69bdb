"""Block labels: 0 if a block has no True, 2 if it has no False, 1 otherwise; always exact.

Structured masks are decided from the bounds of each block's positions, a few vectorised
comparisons for all blocks at once. Where an and/or leaves a block open, only that block is looked
at: row by row through the intervals of visible positions, or, if a mask cannot give these,
through its entries. Dense masks take one pass over their bits. Clauses LABEL-1 to LABEL-7.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pallas_impl import intervals
from pallas_impl.block_bits import Words, all_blocks, any_all, blocks_at, deduplicate, pack_blocks
from pallas_impl.computable import ComputableAnd, ComputableBinary, ComputableMask, Positions
from pallas_impl.intervals import Intervals
from pallas_impl.mask_base import AndMask, BinaryMask, BoolArray, Mask
from pallas_impl.masks import DenseMask

BlockShape = tuple[int, int]
Labels = NDArray[np.int8]
BlockIds = NDArray[np.int64]

# Entries (or interval ends) that are evaluated at a time: bounds memory, not work.
_BATCH_ENTRIES = 2**22


class BlockFacts(NamedTuple):
    """What is certain about each block, bool[n_q, n_kv] each; False means not known.

    Attributes:
      none: no entry is True.
      full: every entry is True.
      some: at least one entry is True.
      gap: at least one entry is False.
    """

    none: BoolArray
    full: BoolArray
    some: BoolArray
    gap: BoolArray


class BlockPositions(NamedTuple):
    """The positions that the blocks of one axis hold.

    Attributes:
      lo: int32[n], least position of each block.
      hi: int32[n], greatest position of each block.
      contiguous: bool[n], whether the block holds lo, lo + 1, …, hi.
    """

    lo: Positions
    hi: Positions
    contiguous: BoolArray


def block_labels(mask: Mask, block_shape: BlockShape) -> Labels:
    """Labels every block of a (q_len, kv_len) mask.

    Args:
      mask: a mask whose shape `block_shape` divides.
      block_shape: `(block_q, block_kv)`.

    Returns:
      int8[q_len / block_q, kv_len / block_kv] of 0 (empty), 1 (partial), 2 (full).
    """
    facts = block_facts(mask, block_shape)
    labels = np.ones(facts.none.shape, dtype=np.int8)
    labels[facts.none] = 0
    labels[facts.full] = 2
    i, j = np.nonzero(~(facts.none | facts.full | (facts.some & facts.gap)))
    for part in _batches(len(i), _open_block_cost(mask, block_shape)):
        labels[i[part], j[part]] = _label_blocks(mask, block_shape, i[part], j[part])
    return labels


def block_facts(mask: Mask, block_shape: BlockShape) -> BlockFacts:
    """What bounds (and, for dense masks, bits) tell about every block of `mask`."""
    if isinstance(mask, BinaryMask | ComputableBinary):
        left = block_facts(mask.left, block_shape)
        right = block_facts(mask.right, block_shape)
        both = isinstance(mask, AndMask | ComputableAnd)
        return _and(left, right) if both else _not(_and(_not(left), _not(right)))
    if isinstance(mask, DenseMask):
        return _exact(*any_all(all_blocks(mask, block_shape), block_shape), mask, block_shape)
    if isinstance(mask, ComputableMask):
        return _bounds_facts(mask, block_shape)
    return BlockFacts(*np.zeros((4, *grid_of(mask, block_shape)), dtype=np.bool_))


def partial_blocks(
    mask: Mask, block_shape: BlockShape, i: BlockIds, j: BlockIds
) -> tuple[Words, BlockIds]:
    """The entries of the blocks (i[n], j[n]), packed, most repetitions removed.

    Returns:
      `(words, inverse)`: block n has the entries `words[inverse[n]]`; rows of `words` are in the
      order in which `inverse` first names them, and may still hold equal rows.
    """
    if isinstance(mask, DenseMask):
        at = i * grid_of(mask, block_shape)[1] + j
        return all_blocks(mask, block_shape)[at], np.arange(len(i))
    chunks: list[Words] = []
    ids: list[BlockIds] = []
    known = 0
    for part in _batches(len(i), _open_block_cost(mask, block_shape)):
        first, inverse = _distinct(mask, block_shape, i[part], j[part])
        for some in _batches(len(first), block_shape[0] * block_shape[1]):
            n = first[some]
            entries = block_entries(mask, block_shape, i[part][n], j[part][n])
            chunks.append(pack_blocks(entries))
        ids.append(inverse + known)
        known += len(first)
    if not chunks:
        return pack_blocks(np.zeros((0, *block_shape), dtype=np.bool_)), np.zeros(0, np.int64)
    return np.concatenate(chunks), np.concatenate(ids)


def block_entries(mask: Mask, block_shape: BlockShape, i: BlockIds, j: BlockIds) -> BoolArray:
    """The entries of the blocks (i[n], j[n]): bool[n, block_q, block_kv]."""
    block_q, block_kv = block_shape
    if isinstance(mask, ComputableMask):
        q_ids = _rows(mask, 0, block_q)[i]
        kv_ids = _rows(mask, 1, block_kv)[j]
        return mask.evaluate(q_ids[:, :, None], kv_ids[:, None, :])
    if isinstance(mask, BinaryMask):
        left = block_entries(mask.left, block_shape, i, j)
        right = block_entries(mask.right, block_shape, i, j)
        return left & right if isinstance(mask, AndMask) else left | right
    if isinstance(mask, DenseMask):
        return blocks_at(mask, block_shape, i, j)
    return _windows(mask, block_shape, i, j)


def _windows(mask: Mask, block_shape: BlockShape, i: BlockIds, j: BlockIds) -> BoolArray:
    """`block_entries` of a mask that can only be indexed."""
    block_q, block_kv = block_shape
    entries = np.empty((len(i), block_q, block_kv), dtype=np.bool_)
    for n, (row, col) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        q_slice = slice(row * block_q, (row + 1) * block_q)
        kv_slice = slice(col * block_kv, (col + 1) * block_kv)
        window = np.asarray(mask[q_slice, kv_slice])
        if window.dtype != np.bool_ or window.shape != block_shape:
            raise TypeError(
                f"mask: {type(mask).__name__}[{q_slice}, {kv_slice}] must be bool{block_shape},"
                f" got {window.dtype}{window.shape}"
            )
        entries[n] = window
    return entries


def grid_of(mask: Mask, block_shape: BlockShape) -> tuple[int, int]:
    """The number of q blocks and kv blocks of `mask`."""
    return mask.shape[-2] // block_shape[0], mask.shape[-1] // block_shape[1]


def block_positions(mask: ComputableMask, axis: int, block: int) -> BlockPositions:
    """Bounds of the positions in each block of `block` rows (axis 0) or columns (axis 1)."""
    if not mask.has_sequence(axis):
        lo = np.arange(0, mask.shape[axis], block, dtype=np.int32)
        return BlockPositions(lo, lo + np.int32(block - 1), np.ones(len(lo), dtype=np.bool_))
    rows = _rows(mask, axis, block)
    contiguous = (np.diff(rows, axis=1) == 1).all(axis=1)
    return BlockPositions(rows.min(axis=1), rows.max(axis=1), contiguous)


def _bounds_facts(mask: ComputableMask, block_shape: BlockShape) -> BlockFacts:
    shape = grid_of(mask, block_shape)
    q = block_positions(mask, 0, block_shape[0])
    kv = block_positions(mask, 1, block_shape[1])
    bounds = mask.block_bounds(q.lo[:, None], q.hi[:, None], kv.lo[None], kv.hi[None])
    if bounds is None:
        return BlockFacts(*np.zeros((4, *shape), dtype=np.bool_))
    some, full = (_bound(mask, bound, shape) for bound in bounds)
    # A block that skips positions may miss the entries that decided for the whole rectangle.
    sure = q.contiguous[:, None] & kv.contiguous[None]
    return BlockFacts(none=~some, full=full, some=some & (sure | full), gap=~full & (sure | ~some))


def _bound(mask: ComputableMask, bound: object, shape: tuple[int, int]) -> BoolArray:
    answer = np.asarray(bound)
    name = f"{type(mask).__name__}.block_bounds"
    if answer.dtype != np.bool_:
        raise TypeError(f"block_bounds: {name} must return booleans, got {answer.dtype}")
    try:
        return np.broadcast_to(answer, shape)
    except ValueError:
        raise ValueError(f"block_bounds: {name} returned {answer.shape} for {shape}") from None


def _exact(some: BoolArray, full: BoolArray, mask: Mask, block_shape: BlockShape) -> BlockFacts:
    shape = grid_of(mask, block_shape)
    some, full = some.reshape(shape), full.reshape(shape)
    return BlockFacts(none=~some, full=full, some=some, gap=~full)


def _and(a: BlockFacts, b: BlockFacts) -> BlockFacts:
    return BlockFacts(
        none=a.none | b.none,
        full=a.full & b.full,
        some=(a.some & b.full) | (a.full & b.some),
        gap=a.gap | b.gap,
    )


def _not(a: BlockFacts) -> BlockFacts:
    return BlockFacts(none=a.full, full=a.none, some=a.gap, gap=a.some)


def _rows(mask: ComputableMask, axis: int, block: int) -> Positions:
    return mask.positions(axis, slice(None)).reshape(-1, block)


def _block_intervals(
    mask: Mask, block_shape: BlockShape, i: BlockIds, j: BlockIds
) -> tuple[Intervals, NDArray[np.int64], NDArray[np.int64]] | None:
    """Intervals [k, n, block_q] of the blocks' rows, and the bounds [n, 1] of their columns.

    None if the mask has no intervals or a block's columns are not consecutive positions.
    """
    if not isinstance(mask, ComputableMask):
        return None
    kv = block_positions(mask, 1, block_shape[1])
    if not kv.contiguous[j].all():
        return None
    rows = mask.kv_intervals(_rows(mask, 0, block_shape[0])[i])
    if rows is None:
        return None
    lo, hi = (bound[j].astype(np.int64)[:, None] for bound in (kv.lo, kv.hi))
    return rows, lo, hi


def _label_blocks(mask: Mask, block_shape: BlockShape, i: BlockIds, j: BlockIds) -> Labels:
    found = _block_intervals(mask, block_shape, i, j)
    if found is not None:
        visible = intervals.count(*found).sum(axis=1)
        return _labels(visible > 0, visible == block_shape[0] * block_shape[1])
    labels = np.empty(len(i), dtype=np.int8)
    for part in _batches(len(i), block_shape[0] * block_shape[1]):
        entries = block_entries(mask, block_shape, i[part], j[part]).reshape(len(i[part]), -1)
        labels[part] = _labels(entries.any(axis=1), entries.all(axis=1))
    return labels


def _labels(some: BoolArray, full: BoolArray) -> Labels:
    return np.where(full, np.int8(2), some.astype(np.int8))


def _distinct(
    mask: Mask, block_shape: BlockShape, i: BlockIds, j: BlockIds
) -> tuple[BlockIds, BlockIds]:
    """Blocks that are equal because their intervals are, as `deduplicate` returns them."""
    found = _block_intervals(mask, block_shape, i, j)
    if found is None:
        return np.arange(len(i)), np.arange(len(i))
    rows, kv_lo, kv_hi = found
    # Where the intervals lie inside the block; the entries follow from that alone.
    lo = np.maximum(rows.lo, kv_lo) - kv_lo
    hi = np.minimum(rows.hi, kv_hi) - kv_lo
    ends = np.where(lo <= hi, [lo, hi], -1).astype(np.int32)
    signature = np.ascontiguousarray(np.moveaxis(ends, 2, 0).reshape(len(i), -1))
    return deduplicate(cast(Words, signature.view(np.uint64)))


def _open_block_cost(mask: Mask, block_shape: BlockShape) -> int:
    block_q, block_kv = block_shape
    if isinstance(mask, ComputableMask):
        probe = mask.kv_intervals(np.zeros(1, dtype=np.int32))
        if probe is not None:
            return block_q * len(probe.lo)
    return block_q * block_kv


def _batches(n: int, cost: int) -> Iterator[slice]:
    """Slices of range(n) that hold at most `_BATCH_ENTRIES / cost` elements, at least one."""
    step = max(1, _BATCH_ENTRIES // cost)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))
