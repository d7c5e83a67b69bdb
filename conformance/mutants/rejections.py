"""Mutants that accept bad input, or refuse it without a word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.base import Mutant, add
from conformance.problems.problem import BlockSizes, Problem
from reference.mask_info import Shards
from reference.masks import ChunkedCausal, Dense, Expr, Full


def dividing(problem: Problem) -> Problem:
    """Block sizes that do not divide become the whole length."""
    blocks = problem.blocks
    q = blocks.q if blocks.q < 1 or problem.q_len % blocks.q == 0 else problem.q_len
    kv = blocks.kv if blocks.kv < 1 or problem.kv_len % blocks.kv == 0 else problem.kv_len
    return problem if (q, kv) == (blocks.q, blocks.kv) else problem.but(blocks=BlockSizes(q, kv))


def positive(problem: Problem) -> Problem:
    """Block sizes below 1 fail with a bare assertion."""
    assert problem.blocks.q > 0
    assert problem.blocks.kv > 0
    return problem


def masks_changed(change: Callable[[Any], Expr]) -> Callable[[Problem], Problem]:
    """Every mask of a problem repaired."""
    return lambda problem: problem.but(masks=tuple(change(mask) for mask in problem.masks))


def cut_to_rank_two(mask: Any) -> Expr:
    """A dense mask of another rank is broadcast."""
    if isinstance(mask, Dense) and mask.array.ndim != 2:
        length = mask.array.shape[-1]
        return Dense(np.ones((length, length), dtype=np.bool_))
    return mask  # type: ignore[no-any-return]


def cast_to_bool(mask: Any) -> Expr:
    """A dense mask of numbers is cast."""
    if isinstance(mask, Dense) and mask.array.dtype != np.bool_:
        return Dense(mask.array.astype(np.bool_))
    return mask  # type: ignore[no-any-return]


def widest(problem: Problem) -> Problem:
    """Masks of other shapes are replaced by full ones."""
    fits = [
        Full() if isinstance(m, Dense) and m.array.shape != (problem.q_len, problem.kv_len) else m
        for m in problem.masks
    ]
    return problem.but(masks=tuple(fits))


def shards_ignored(name: str) -> Callable[[Problem], Problem]:
    """A shard count that does not divide counts as 1."""

    def change(problem: Problem) -> Problem:
        total = problem.heads if name == "head" else problem.grid()[0]
        if total % getattr(problem.shards, name):
            return problem.but(shards=replace(Shards(), **{name: 1}))
        return problem

    return change


def chunk_of_one(mask: Any) -> Expr:
    """A chunk size below 1 becomes 1."""
    if isinstance(mask, ChunkedCausal) and mask.chunk_size < 1:
        return ChunkedCausal(1)
    return mask  # type: ignore[no-any-return]


add(
    Mutant("block-size-rounded", "REJECT-1", "silent repair", prepare=dividing),
    Mutant("block-size-bare-assertion", "REJECT-2", "no message", prepare=positive),
    Mutant(
        "dense-rank-broadcast", "REJECT-3", "silent repair", prepare=masks_changed(cut_to_rank_two)
    ),
    Mutant("dense-numbers-cast", "REJECT-4", "silent repair", prepare=masks_changed(cast_to_bool)),
    Mutant("head-shapes-ignored", "REJECT-5", "silent repair", prepare=widest),
    Mutant("q-shards-ignored", "REJECT-6", "silent repair", prepare=shards_ignored("q")),
    Mutant("chunk-size-clamped", "REJECT-7", "silent repair", prepare=masks_changed(chunk_of_one)),
    Mutant("head-shards-ignored", "REJECT-8", "silent repair", prepare=shards_ignored("head")),
)
