"""Mutants of the flat layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.base import Mutant, add
from conformance.mutants.patches import (
    ENTRIES,
    flat_only,
    with_arrays,
)
from conformance.problems.problem import Problem
from reference.flat import FlatMaskInfo


def swapped_entries(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """The first two entries of a row in the wrong order."""
    if info.num_active_blocks[0] < 2 or info.active_rows[0] != info.active_rows[1]:
        return info
    order = np.arange(len(info.block_mask))
    order[:2] = [1, 0]
    names = ("active_cols", "block_mask", "mask_next")
    swapped: FlatMaskInfo = with_arrays(info, names, lambda array: array[order])
    return swapped


def flat_full_is_partial(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """Every full block is listed as partial."""
    return replace(
        info, block_mask=np.where(info.block_mask == 2, 1, info.block_mask).astype(np.int8)
    )


def flat_wrong_pointer(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """Every entry points to the stored block after its own."""
    if info.mask_next is None or info.partial_mask_blocks is None:
        return info
    after = (info.mask_next.astype(np.int32) + 1) % len(info.partial_mask_blocks)
    return replace(info, mask_next=after)


def kept_entries(info: FlatMaskInfo, keep: Any, counts: Any) -> FlatMaskInfo:
    """Only some entries, for lists of a single shard."""
    kept: FlatMaskInfo = with_arrays(info, ENTRIES, lambda array: array[keep])
    return replace(kept, num_active_blocks=counts)


def empty_rows_left_out(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """A wholly empty row has no entry."""
    keep = info.block_mask > 0
    if len(info.num_active_blocks) > 1 or keep.all() or not keep.any():
        return info
    return kept_entries(info, keep, np.array([keep.sum()], dtype=np.int32))


def count_of_longest(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """All shards have one slot more than the longest one needs."""
    if problem.shards.q == 1:
        return info
    shards = len(info.num_active_blocks)

    def longer(array: Any) -> Any:
        parts = np.split(array, shards)
        return np.concatenate([np.append(part, -1) for part in parts])

    lengthened: FlatMaskInfo = with_arrays(info, ENTRIES, longer)
    return lengthened


def columns_beyond(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """Entries of empty rows name the column after the last."""
    size = problem.grid(info.direction)[0 if info.direction == "dkv" else 1]
    return replace(info, active_cols=np.where(info.block_mask == 0, size, info.active_cols))


add(
    Mutant("flat-entries-swapped", "FLAT-1", "order", info=flat_only(swapped_entries)),
    Mutant("flat-full-is-partial", "FLAT-2", "wrong label", info=flat_only(flat_full_is_partial)),
    Mutant(
        "flat-pointer-off-by-one", "FLAT-3", "wrong pointer", info=flat_only(flat_wrong_pointer)
    ),
    Mutant(
        "flat-empty-rows-left-out",
        "FLAT-4",
        "unwritten output",
        seen_in="tokamax 0.0.17, forward",
        info=flat_only(empty_rows_left_out),
    ),
    Mutant("flat-shards-too-long", "FLAT-5", "padding", info=flat_only(count_of_longest)),
    Mutant("flat-column-out-of-range", "FLAT-6", "out of bounds", info=flat_only(columns_beyond)),
)
