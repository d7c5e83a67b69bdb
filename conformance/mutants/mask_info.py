"""Mutants of the compiled arrays of the grid layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.base import Info, Mutant, add
from conformance.mutants.patches import GridPatch, grid_only
from conformance.problems.problem import Problem
from reference.blocks import PARTIAL
from reference.mask_info import (
    GridMaskInfo,
    carry,
    from_grid_order,
    in_grid_order,
    last_at_or_before,
    next_at_or_after,
)
from reference.masks import Bool


def second_head_lost(info: Info, problem: Problem) -> Info:
    """The rows of the second head are those of the first."""
    if not isinstance(info, GridMaskInfo) or info.block_mask.shape[0] < 2 or problem.single_mask:
        return info
    arrays = {}
    for name in ("block_mask", "data_next", "mask_next"):
        array = getattr(info, name)
        if array is not None:
            array = np.array(array)
            array[1] = array[0]
        arrays[name] = array
    return replace(info, **arrays)


def changed(name: str, change: Callable[[Any, GridMaskInfo], Any]) -> GridPatch:
    """A patch of one array; does nothing if the array is absent."""

    def patch(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
        del problem
        array = getattr(info, name)
        return info if array is None else replace(info, **{name: change(np.array(array), info)})

    return patch


def one_further(array: Any, info: GridMaskInfo) -> Any:
    """Running positions name the block after their own."""
    top = array.max(initial=0)
    return np.where(info.block_mask > 0, np.minimum(array + 1, top), array).astype(array.dtype)


def shifted(active: Bool, array: Any, info: GridMaskInfo) -> Any:
    """Inactive positions have the value of the position before them: one position late."""
    flat = in_grid_order(array, info.direction)
    late = np.roll(flat.ravel(), 1).reshape(flat.shape)
    return np.where(active, array, from_grid_order(late, info.direction)).astype(array.dtype)


def one_late(array: Any, info: GridMaskInfo) -> Any:
    """``data_next`` one position late at empty positions."""
    return shifted(info.block_mask > 0, array, info)


def stored_one_late(array: Any, info: GridMaskInfo) -> Any:
    """``mask_next`` names the previous block instead of the next one."""
    active = info.block_mask == PARTIAL
    held = carry(array.astype(np.int32), active, info.direction, last_at_or_before)
    return np.where(_tail(active, info), array, held).astype(array.dtype)


def _tail(active: Bool, info: GridMaskInfo) -> Bool:
    """Positions after the last active one of the whole array."""
    flat = in_grid_order(active, info.direction)
    tail = (np.cumsum(flat.ravel()[::-1])[::-1] == 0).reshape(flat.shape)
    return from_grid_order(tail, info.direction)


def kept_after_the_end(array: Any, active: Bool, info: GridMaskInfo) -> Any:
    """Positions after the last active one name its block."""
    held = carry(array.astype(np.int32), active, info.direction, last_at_or_before)
    return np.where(_tail(active, info), held, array).astype(array.dtype)


def no_wrap(array: Any, info: GridMaskInfo) -> Any:
    """After the last non-empty position ``data_next`` keeps the last block."""
    return kept_after_the_end(array, info.block_mask > 0, info)


def stored_no_wrap(array: Any, info: GridMaskInfo) -> Any:
    """After the last partial position ``mask_next`` keeps its stored block."""
    return kept_after_the_end(array, info.block_mask == PARTIAL, info)


def q_major(array: Any, info: GridMaskInfo) -> Any:
    """The dkv array filled in the order of the forward grid."""
    own = np.broadcast_to(np.arange(array.shape[1], dtype=np.int32)[None, :, None], array.shape)
    active = info.block_mask > 0
    if active.sum() == 0 or array.shape[1] != info.block_mask.shape[1]:
        return array
    wrong = carry(np.ascontiguousarray(own), active, "fwd", next_at_or_after)
    return np.where(active, array, wrong).astype(array.dtype)


def beyond_the_end(array: Any, info: GridMaskInfo) -> Any:
    """Empty positions name the block after the last."""
    size = info.block_mask.shape[1 if info.direction == "dkv" else 2]
    return np.where(info.block_mask == 0, size + 1, array.astype(np.int32))


def stack_changed(change: Callable[[Any], Any]) -> GridPatch:
    """A patch of the stack alone."""
    return changed("partial_mask_blocks", lambda stack, info: change(stack))


def merged_by_count(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Distinct blocks with equally many visible entries are stored as one."""
    stack, places = info.partial_mask_blocks, info.mask_next
    if stack is None or places is None:
        return info
    counts = stack.sum(axis=(1, 2))
    first = np.array([int(np.flatnonzero(counts == n)[0]) for n in counts])
    kept, again = np.unique(first, return_inverse=True)
    return replace(
        info, partial_mask_blocks=stack[kept], mask_next=again[places].astype(places.dtype)
    )


def not_merged(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Every block of the stack is stored twice."""
    stack = info.partial_mask_blocks
    return (
        info if stack is None else replace(info, partial_mask_blocks=np.concatenate([stack, stack]))
    )


def reversed_stack(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """The stack in the opposite order, with pointers to match."""
    stack, places = info.partial_mask_blocks, info.mask_next
    if stack is None or places is None:
        return info
    return replace(info, partial_mask_blocks=stack[::-1], mask_next=len(stack) - 1 - places)


def swapped_pointers(array: Any, info: GridMaskInfo) -> Any:
    """Partial positions point to the block after their own in the stack."""
    assert info.partial_mask_blocks is not None
    return ((array.astype(np.int32) + 1) % len(info.partial_mask_blocks)).astype(array.dtype)


def foreign_block(stack: Any) -> Any:
    """The last stored block loses an entry."""
    stack = stack.copy()
    block = stack[-1]
    block[tuple(np.argwhere(block)[0])] = False
    return stack


def computed_but_stored(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """A computed mask also stores its blocks."""
    if info.computed_mask is None:
        return info
    stack = np.ones((1, *problem.blocks.of(info.direction)), dtype=np.bool_)
    return replace(info, partial_mask_blocks=stack, mask_next=np.zeros_like(info.data_next))


def function_misses_diagonal(values: Any, info: GridMaskInfo) -> Any:
    """The mask function is strict where the mask is not."""
    values[-1, np.flatnonzero(values[-1])[-1:]] = False
    return values


def rows(count: Callable[[Problem], int]) -> GridPatch:
    """Repeats or cuts the leading axis."""

    def patch(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
        wanted = count(problem)

        def fit(array: Any) -> Any:
            return None if array is None else np.resize(array, (wanted, *array.shape[1:]))

        return replace(
            info,
            block_mask=fit(info.block_mask),
            data_next=fit(info.data_next),
            mask_next=fit(info.mask_next),
        )

    return patch


def overflowing(limit: int) -> Callable[[Info, Problem], Info]:
    """Stores index arrays in int8 up to a limit that is too large: values wrap."""

    def patch(info: Info, problem: Problem) -> Info:
        if not problem.downcast:
            return info
        small: dict[str, Any] = {}
        for name in ("data_next", "mask_next"):
            array = getattr(info, name, None)
            if array is not None and array.max(initial=0) <= limit:
                small[name] = array.astype(np.int8)
        return replace(info, **small)

    return patch


def always_int32(info: Info, problem: Problem) -> Info:
    """Never downcasts."""
    del problem
    return replace(info, block_mask=info.block_mask.astype(np.int32))


def clipped(info: Info, problem: Problem) -> Info:
    """Downcasting clips values to 1."""
    if not problem.downcast or not isinstance(info, GridMaskInfo):
        return info
    return replace(info, data_next=np.minimum(info.data_next, 1))


def wide_stack(stack: Any) -> Any:
    """Stored blocks as int32."""
    return stack.astype(np.int32)


def single_row_of_heads(problem: Problem) -> int:
    """One leading row, whatever the masks."""
    return problem.shards.head


add(
    Mutant("second-head-has-first-mask", "HEADS-3", "ignored argument", info=second_head_lost),
    Mutant(
        "data-next-points-past",
        "DATA-1",
        "off by one",
        info=grid_only(changed("data_next", one_further)),
    ),
    Mutant(
        "data-next-one-late",
        "DATA-2",
        "off by one",
        info=grid_only(changed("data_next", one_late), "fwd"),
    ),
    Mutant(
        "data-next-does-not-wrap",
        "DATA-3",
        "wrap-around",
        info=grid_only(changed("data_next", no_wrap), "fwd", "dq"),
    ),
    Mutant(
        "dkv-in-forward-order",
        "DATA-4",
        "grid order",
        info=grid_only(changed("data_next", q_major), "dkv"),
    ),
    Mutant(
        "data-next-out-of-range",
        "DATA-5",
        "out of bounds",
        info=grid_only(changed("data_next", beyond_the_end)),
    ),
    Mutant(
        "mask-next-of-another-block",
        "MASKNEXT-1",
        "wrong pointer",
        info=grid_only(changed("mask_next", swapped_pointers)),
    ),
    Mutant(
        "mask-next-holds-previous",
        "MASKNEXT-2",
        "off by one",
        info=grid_only(changed("mask_next", stored_one_late)),
    ),
    Mutant(
        "mask-next-does-not-wrap",
        "MASKNEXT-3",
        "wrap-around",
        info=grid_only(changed("mask_next", stored_no_wrap)),
    ),
    Mutant(
        "mask-next-out-of-range",
        "MASKNEXT-4",
        "out of bounds",
        seen_in="tokamax 0.0.17: -1 in shards without partial blocks",
        info=grid_only(changed("mask_next", lambda a, info: np.where(info.block_mask == 1, a, 99))),
    ),
    Mutant(
        "stored-block-loses-entry",
        "PARTIAL-1",
        "wrong block",
        info=grid_only(stack_changed(foreign_block)),
    ),
    Mutant(
        "stored-blocks-merged-by-count",
        "PARTIAL-2",
        "deduplication",
        info=grid_only(merged_by_count),
    ),
    Mutant("stored-blocks-twice", "PARTIAL-2", "deduplication", info=grid_only(not_merged)),
    Mutant("stored-blocks-reversed", "PARTIAL-3", "order", info=grid_only(reversed_stack)),
    Mutant(
        "dkv-stack-not-transposed",
        "PARTIAL-4",
        "swapped axes",
        info=grid_only(stack_changed(lambda stack: stack.swapaxes(1, 2)), "dkv"),
    ),
    Mutant(
        "empty-stack-present",
        "PARTIAL-5",
        "missing case",
        info=grid_only(
            lambda info, problem: (
                info
                if info.partial_mask_blocks is not None or info.computed_mask is not None
                else replace(info, mask_next=np.zeros_like(info.data_next))
            )
        ),
    ),
    Mutant("stack-of-int32", "PARTIAL-6", "memory", info=grid_only(stack_changed(wide_stack))),
    Mutant("computed-mask-stored", "COMPUTE-1", "memory", info=grid_only(computed_but_stored)),
    Mutant(
        "mask-function-strict",
        "COMPUTE-2",
        "two sources",
        info=grid_only(changed("computed_mask", function_misses_diagonal)),
    ),
    Mutant(
        "q-sequence-from-one",
        "COMPUTE-3",
        "off by one",
        info=grid_only(changed("q_sequence", lambda a, info: a + 1)),
    ),
    Mutant(
        "one-row-for-all-heads",
        "HEADS-1",
        "ignored argument",
        info=grid_only(rows(single_row_of_heads)),
    ),
    Mutant(
        "a-row-for-every-head", "HEADS-2", "memory", info=grid_only(rows(lambda p: p.heads + 1))
    ),
    Mutant("never-downcast", "DOWNCAST-1", "memory", info=always_int32),
    Mutant("downcast-clips", "DOWNCAST-2", "overflow", info=clipped),
    Mutant("downcast-128-to-int8", "DOWNCAST-3", "overflow", info=overflowing(128)),
)
