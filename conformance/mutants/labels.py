"""Mutants of block labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.base import Info, Mutant, add
from conformance.mutants.patches import (
    compile_masks,
)
from conformance.problems.problem import Problem
from reference.blocks import FULL, PARTIAL
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Bool, Dense, Mask


def compiled_with(change: Callable[[Bool], Bool]) -> Callable[[Problem, Direction], Info]:
    """Compiles masks in which every block has been changed.

    Args:
      change: takes and returns tiles ``[q blocks, kv blocks, block_q, block_kv]``.
    """

    def compile_changed(problem: Problem, direction: Direction) -> Info:
        q, kv = problem.blocks.of(direction)
        masks = []
        for mask in problem.head_masks:
            tiles = mask.dense().reshape(mask.q_len // q, q, mask.kv_len // kv, kv).swapaxes(1, 2)
            dense = change(tiles.copy()).swapaxes(1, 2).reshape(mask.shape)
            same = (dense == mask.dense()).all()
            masks.append(mask if same else Mask(Dense(dense), *mask.shape))
        return compile_masks(problem, direction, masks)

    return compile_changed


def lone_last_entry_is_empty(tiles: Bool) -> Bool:
    """A block whose only visible entry is its last one counts as empty."""
    lone = (tiles.sum(axis=(2, 3)) == 1) & tiles[:, :, -1, -1]
    if tiles.shape[2] * tiles.shape[3] > 1:
        tiles[lone] = False
    return tiles


def lone_last_hole_is_full(tiles: Bool) -> Bool:
    """A block whose only hidden entry is its last one counts as full."""
    lone = ((~tiles).sum(axis=(2, 3)) == 1) & ~tiles[:, :, -1, -1]
    if tiles.shape[2] * tiles.shape[3] > 1:
        tiles[lone] = True
    return tiles


def relabelled(change: Callable[[Any], Any]) -> Callable[[Info, Problem], Info]:
    """A patch of ``block_mask`` alone."""
    return lambda info, problem: replace(info, block_mask=change(np.array(info.block_mask)))


def full_is_partial(label: Any) -> Any:
    """Labels every full block as partial: results are right, but the label is wrong."""
    return np.where(label == FULL, PARTIAL, label)


def partial_is_full(label: Any) -> Any:
    """The first partial block goes unmasked."""
    first = np.argwhere(label == PARTIAL)[:1]
    label[tuple(first.T)] = FULL
    return label


def transposed_blocks(problem: Problem, direction: Direction) -> Info:
    """Uses block_q along keys and block_kv along queries if both divide the lengths."""
    q, kv = problem.blocks.of(direction)
    fits = problem.q_len % kv == 0 and problem.kv_len % q == 0
    per_shard = fits and (problem.q_len // kv) % problem.shards.q == 0
    sizes = (kv, q) if per_shard and (problem.kv_len // q) % problem.shards.kv == 0 else (q, kv)
    return compile_masks(problem, direction, problem.head_masks, sizes=sizes)


def single_block_is_full(info: Info, problem: Problem) -> Info:
    """Skips classification if there is a single row of blocks."""
    q_blocks, _ = problem.grid(info.direction)
    if q_blocks > 1:
        return info
    return replace(info, block_mask=np.where(info.block_mask > 0, FULL, 0).astype(np.int8))


def backward_at_forward_sizes(problem: Problem, direction: Direction) -> Info:
    """Compiles backward directions with the labels of an unrelated, transposed mask."""
    masks = problem.head_masks
    if direction != "fwd" and problem.q_len == problem.kv_len:
        masks = [Mask(Dense(mask.dense().T), *mask.shape) for mask in masks]
    return compile_masks(problem, direction, masks)


def every_block_runs(info: Info, problem: Problem) -> Info:
    """Empty blocks are computed too, and masked."""
    del problem
    if not isinstance(info, GridMaskInfo) or info.direction != "fwd":
        return info
    return replace(info, block_mask=np.maximum(info.block_mask, 1))


add(
    Mutant(
        "lone-corner-entry-empty",
        "LABEL-1",
        "block edge",
        compile=compiled_with(lone_last_entry_is_empty),
    ),
    Mutant(
        "lone-corner-hole-full",
        "LABEL-2",
        "block edge",
        compile=compiled_with(lone_last_hole_is_full),
    ),
    Mutant(
        "full-blocks-are-masked", "LABEL-2", "lost optimisation", info=relabelled(full_is_partial)
    ),
    Mutant("partial-block-unmasked", "LABEL-3", "wrong label", info=relabelled(partial_is_full)),
    Mutant("block-sizes-swapped", "LABEL-4", "right on squares only", compile=transposed_blocks),
    Mutant("single-row-is-full", "LABEL-5", "missing case", info=single_block_is_full),
    Mutant(
        "backward-mask-transposed", "LABEL-6", "swapped axes", compile=backward_at_forward_sizes
    ),
    Mutant("empty-blocks-run", "LABEL-7", "lost optimisation", info=every_block_runs),
)
