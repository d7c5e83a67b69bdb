"""Mutants of sharding: compiled arrays per shard, and calls on several devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.mutants.base import Info, Mutant, add
from conformance.mutants.patches import (
    ENTRIES,
    OtherProgram,
    compile_masks,
    every_array,
    flat_only,
    grid_only,
    with_arrays,
)
from conformance.problems.problem import Problem
from reference.attention import Float
from reference.devices import head_slice
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo, Shards
from reference.sharding import Shard, shard_masks


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


def interleaved(info: FlatMaskInfo, problem: Problem) -> FlatMaskInfo:
    """Shards interleaved entry by entry instead of one after another."""
    shards = len(info.num_active_blocks)

    def mix(array: Any) -> Any:
        return array.reshape(shards, -1).T.ravel()

    mixed: FlatMaskInfo = with_arrays(info, ENTRIES, mix)
    return mixed


class FirstRows(OtherProgram):
    """Every device reads the arrays of the first rows."""

    def change_input(self, problem: Problem, shard: Shard) -> tuple[Problem, Shard]:
        return problem, Shard(shard.head)


class FirstRowsOfDynamic(FirstRows):
    """Every device reads the arrays of the first rows of a run-time mask."""

    def change_input(self, problem: Problem, shard: Shard) -> tuple[Problem, Shard]:
        return super().change_input(problem, shard) if problem.dynamic else (problem, shard)


class KeysOfLastDevice(Numerics):
    """dk and dv of a device replace those of the one before."""

    def add_keys(self, total: Float, part: Float, shard: Shard) -> None:
        total[head_slice(len(total), self.problem.shards, shard)] = part


add(
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
    Mutant("rows-of-first-device", "SHARD-7", "sharding", numerics=FirstRows),
    Mutant("keys-of-last-device", "SHARD-8", "sharding", numerics=KeysOfLastDevice),
    Mutant("dynamic-rows-of-first-device", "SHARD-9", "run-time mask", numerics=FirstRowsOfDynamic),
)
