"""Labels and distinct partial blocks of all heads of a mask, whatever shards and direction."""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pallas_impl.block_bits import Words, deduplicate, unpack_blocks
from pallas_impl.block_bounds import BlockShape, Labels, block_labels, partial_blocks
from pallas_impl.computable import ComputableMask
from pallas_impl.mask_base import BoolArray, Mask
from pallas_impl.masks import heads_of


class Heads(NamedTuple):
    """Which heads share a mask.

    Attributes:
      unique: the distinct masks, in order of first appearance over the heads.
      rows: int[heads or head_shards], the index in `unique` of each row of the compiled arrays.
    """

    unique: tuple[Mask, ...]
    rows: NDArray[np.int64]

    @property
    def computable(self) -> ComputableMask | None:
        """The mask that all heads share, if a kernel can compute it."""
        shared = self.unique[0]
        return shared if len(self.unique) == 1 and isinstance(shared, ComputableMask) else None


class Classified(NamedTuple):
    """What the block grid of each distinct mask holds.

    Attributes:
      labels: int8[unique, n_q, n_kv] of 0, 1, 2.
      partial_ids: int32[unique, n_q, n_kv], the index of each partial block among the distinct
        ones, 0 elsewhere; None if there is no partial block or it is not needed.
      words: the distinct partial blocks, packed, in first-seen order; None likewise.
    """

    labels: Labels
    partial_ids: NDArray[np.int32] | None
    words: Words | None


def share_heads(mask: Mask, head_shards: int) -> Heads:
    """Finds the distinct masks, and the rows that the compiled arrays need.

    One row for each head shard if every head shard holds a single distinct mask, which its heads
    then share; one row for each head otherwise. A mask without a head axis is shared by all.
    """
    masks = heads_of(mask)
    ids: dict[Mask, int] = {}
    per_head = np.array([ids.setdefault(head, len(ids)) for head in masks])
    if len(masks) == 1:
        return Heads(tuple(ids), np.zeros(head_shards, dtype=np.int64))
    per_shard = per_head.reshape(head_shards, -1)
    shared = bool((per_shard == per_shard[:, :1]).all())
    return Heads(tuple(ids), per_shard[:, 0] if shared else per_head)


@functools.lru_cache(maxsize=16)
def classify(masks: tuple[Mask, ...], block_shape: BlockShape, materialize: bool) -> Classified:
    """Labels every block of every mask, and collects the partial blocks if `materialize`.

    Shared by all directions and shardings of a mask, hence cached. The arrays are read-only.
    """
    labels = np.stack([block_labels(mask, block_shape) for mask in masks])
    labels.flags.writeable = False
    partial = labels == 1
    if not materialize or not partial.any():
        return Classified(labels, None, None)
    words: list[Words] = []
    ids: list[NDArray[np.int64]] = []
    known = 0
    for mask, where in zip(masks, partial, strict=True):
        found, inverse = partial_blocks(mask, block_shape, *np.nonzero(where))
        words.append(found)
        ids.append(inverse + known)
        known += len(found)
    stacked = words[0] if len(words) == 1 else np.concatenate(words)
    first, inverse = deduplicate(stacked)
    partial_ids = np.zeros(labels.shape, dtype=np.int32)
    partial_ids[partial] = inverse[np.concatenate(ids)]
    distinct = stacked if len(first) == len(stacked) else stacked[first]
    for array in (partial_ids, distinct):
        array.flags.writeable = False
    return Classified(labels, partial_ids, distinct)


@functools.lru_cache(maxsize=4)
def partial_mask_blocks(
    masks: tuple[Mask, ...], block_shape: BlockShape, transposed: bool
) -> BoolArray | None:
    """The distinct partial blocks of `classify`, bool[n, block_q, block_kv], read-only.

    `transposed` gives bool[n, block_kv, block_q], the orientation of the dkv kernel.
    """
    words = classify(masks, block_shape, True).words
    if words is None:
        return None
    if transposed:
        blocks = partial_mask_blocks(masks, block_shape, False)
        assert blocks is not None
        return blocks.swapaxes(-1, -2)
    blocks = unpack_blocks(words, block_shape)
    blocks.flags.writeable = False
    return blocks
