"""Mutants of shrinking, sharding, run-time masks and the flat layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.arrays import grid_only
from conformance.mutants.base import Info, Mutant, add
from conformance.mutants.labels import compile_masks
from conformance.problems.problem import Problem
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo, Shards
from reference.sharding import Shard, shard_masks

ARRAYS = ("block_mask", "data_next", "mask_next")
ENTRIES = ("active_rows", "active_cols", "block_mask", "mask_next")


def every_array(info: GridMaskInfo, change: Callable[[Any], Any]) -> GridMaskInfo:
    """The same change to all index arrays."""
    changed: GridMaskInfo = with_arrays(info, ARRAYS, lambda array: change(np.array(array)))
    return changed


def with_arrays(info: Any, names: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """The same change to some arrays; absent ones stay absent."""
    found = {name: getattr(info, name) for name in names}
    return replace(info, **{n: None if a is None else change(a) for n, a in found.items()})


def shrunk_only(
    patch: Callable[[GridMaskInfo, Problem], GridMaskInfo], *directions: Direction
) -> Callable[[Info, Problem], Info]:
    """Applies a patch where the grid was shrunk."""
    return grid_only(
        lambda info, problem: (
            patch(info, problem) if problem.shrink and problem.single_mask else info
        ),
        *directions,
    )


def one_column_more(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """A column of padding more than needed."""
    return every_array(
        info, lambda a: np.pad(a, ((0, 0), (0, 0), (0, 1)), mode="edge" if a.size else "constant")
    )


def padded_with_zero(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """One column of padding more than needed, with label 0."""
    wider = one_column_more(info, problem)
    label = np.array(wider.block_mask)
    label[:, :, -1] = 0
    return replace(wider, block_mask=label)


def last_column_dropped(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """The last kept column is lost, its place remains."""
    label = np.array(info.block_mask)
    label[:, :, -1] = 0
    return replace(info, block_mask=label)


def reversed_columns(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Kept columns in the opposite order."""
    return every_array(info, lambda a: a[:, :, ::-1])


def padding_runs(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Padding repeats the label of the block it names."""
    return replace(
        info, block_mask=np.where(info.block_mask == 0, 2, info.block_mask).astype(np.int8)
    )


def not_shrunk(problem: Problem, direction: Direction) -> Info:
    """The forward grid is never shrunk where there are q shards."""
    shrink = problem.shrink and problem.shards.q == 1
    if problem.dynamic or problem.layout == "flat":
        return compile_masks(problem, direction, problem.head_masks)
    return compile_masks(problem, direction, problem.head_masks, shrink=shrink)


def dkv_not_shrunk(problem: Problem, direction: Direction) -> Info:
    """The dkv grid is never shrunk."""
    if problem.dynamic or problem.layout == "flat" or direction != "dkv":
        return compile_masks(problem, direction, problem.head_masks)
    return compile_masks(problem, direction, problem.head_masks, shrink=False)


def several_masks_shrunk(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """The grid loses its last column where heads have different masks and nobody needs it."""
    if problem.single_mask or info.block_mask.shape[2] < 2:
        return info
    return every_array(info, lambda a: a[:, :, :-1])


def full_rows_lose_a_column(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """The grid is always one column narrower than the mask."""
    if info.block_mask.shape[2] < 2 or info.block_mask.shape[2] < problem.grid()[1]:
        return info
    return every_array(info, lambda a: a[:, :, :-1])


def shard_offset(axis_name: str) -> Callable[[Problem, Direction], Info]:
    """Every shard gets the arrays of shard 0 along one axis."""

    def compile_first(problem: Problem, direction: Direction) -> Info:
        shards = problem.shards
        first = replace(shards, **{axis_name: 1})
        if getattr(shards, axis_name) == 1:
            return compile_masks(problem, direction, problem.head_masks)
        one = Shards(**{axis_name: getattr(shards, axis_name)})
        masks = shard_masks(problem.head_masks, one, Shard())
        repeats = getattr(shards, axis_name)
        if axis_name == "head":
            return compile_masks(problem, direction, masks * repeats)
        small = problem.but(shards=first, q_len=masks[0].q_len, kv_len=masks[0].kv_len)
        return repeated(compile_masks(small, direction, masks), repeats)

    return compile_first


def repeated(info: Info, times: int) -> Info:
    """The arrays of one shard, once for every shard."""
    if isinstance(info, GridMaskInfo):
        tiled = every_array(info, lambda a: np.concatenate([a] * times, axis=1))
        sequence = info.q_sequence
        return replace(tiled, q_sequence=None if sequence is None else np.tile(sequence, times))
    names = (
        "active_rows",
        "active_cols",
        "block_mask",
        "mask_next",
        "num_active_blocks",
        "q_sequence",
    )
    flat: FlatMaskInfo = with_arrays(info, names, lambda array: np.tile(array, times))
    return flat


def global_indices(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """dkv counts q blocks from the start of the sequence instead of the shard."""
    per_shard = problem.grid("dkv")[0] // problem.shards.q
    parts = np.split(info.data_next.astype(np.int32), problem.shards.q, axis=1)
    moved = [part + n * per_shard for n, part in enumerate(parts)]
    return replace(info, data_next=np.concatenate(moved, axis=1))


def pointers_per_shard(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """``mask_next`` of every shard counts from the shard's first stored block."""
    if info.mask_next is None:
        return info
    parts = np.split(info.mask_next, problem.shards.q, axis=1)
    return replace(info, mask_next=np.concatenate([p - p.min(initial=99) for p in parts], axis=1))


def flat_only(
    patch: Callable[[FlatMaskInfo, Problem], FlatMaskInfo],
) -> Callable[[Info, Problem], Info]:
    """Applies a patch to the flat layout."""
    return lambda info, problem: patch(info, problem) if isinstance(info, FlatMaskInfo) else info


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
    """All shards have a slot more than the longest needs."""
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


def interleaved(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """Shards interleaved entry by entry instead of one after another."""
    shards = len(info.num_active_blocks)

    def mix(array: Any) -> Any:
        return array.reshape(shards, -1).T.ravel()

    mixed: FlatMaskInfo = with_arrays(info, ENTRIES, mix)
    return mixed


def dynamic_only(patch: Callable[[GridMaskInfo], GridMaskInfo]) -> Callable[[Info, Problem], Info]:
    """Applies a patch to run-time masks."""
    return lambda info, problem: (
        patch(info) if problem.dynamic and isinstance(info, GridMaskInfo) else info
    )


def dynamic_out_of_range(info: GridMaskInfo) -> GridMaskInfo:
    """Empty positions keep the fill value -1."""
    return replace(info, data_next=np.where(info.block_mask == 0, -1, info.data_next))


add(
    Mutant(
        "grid-one-column-wider",
        "SHRINK-1",
        "off by one",
        info=shrunk_only(padded_with_zero, "fwd", "dq"),
    ),
    Mutant(
        "kept-columns-reversed",
        "SHRINK-2",
        "order",
        info=shrunk_only(reversed_columns, "fwd", "dq"),
    ),
    Mutant(
        "last-kept-column-dropped",
        "SHRINK-2",
        "off by one",
        info=shrunk_only(last_column_dropped, "fwd", "dq"),
    ),
    Mutant("padding-runs", "SHRINK-3", "wrong label", info=shrunk_only(padding_runs)),
    Mutant(
        "several-masks-shrunk", "SHRINK-4", "wrong condition", info=grid_only(several_masks_shrunk)
    ),
    Mutant("q-shards-not-shrunk", "SHRINK-5", "lost optimisation", compile=not_shrunk),
    Mutant("dkv-not-shrunk", "SHRINK-6", "lost optimisation", compile=dkv_not_shrunk),
    Mutant(
        "full-rows-lose-a-column",
        "SHRINK-7",
        "off by one",
        info=shrunk_only(full_rows_lose_a_column, "fwd"),
    ),
    Mutant("q-shards-all-first", "SHARD-1", "ignored argument", compile=shard_offset("q")),
    Mutant("head-shards-all-first", "SHARD-2", "ignored argument", compile=shard_offset("head")),
    Mutant("kv-shards-all-first", "SHARD-3", "ignored argument", compile=shard_offset("kv")),
    Mutant(
        "dkv-indices-global",
        "SHARD-4",
        "global instead of local",
        info=grid_only(global_indices, "dkv"),
    ),
    Mutant(
        "stored-pointers-per-shard",
        "SHARD-5",
        "local instead of global",
        info=grid_only(pointers_per_shard),
    ),
    Mutant("flat-shards-interleaved", "SHARD-6", "order", info=flat_only(interleaved)),
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
    Mutant(
        "dynamic-full-is-partial",
        "DYNAMIC-1",
        "wrong label",
        info=dynamic_only(
            lambda info: replace(
                info, block_mask=np.where(info.block_mask == 2, 1, info.block_mask)
            )
        ),
    ),
    Mutant(
        "dynamic-pointer-to-first",
        "DYNAMIC-2",
        "wrong pointer",
        info=dynamic_only(lambda info: replace(info, mask_next=np.zeros_like(info.data_next))),
    ),
    Mutant(
        "dynamic-fill-value-left",
        "DYNAMIC-3",
        "out of bounds",
        info=dynamic_only(dynamic_out_of_range),
    ),
)
