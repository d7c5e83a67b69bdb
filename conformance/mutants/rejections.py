"""Mutants that accept bad input, or refuse it without saying why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Edit
from conformance.mutants.base import Mutant, add
from conformance.problems.inputs import Inputs
from conformance.problems.problem import BlockSizes, Problem
from reference.mask_info import Shards
from reference.masks import ChunkedCausal, Dense, Expr, Full
from reference.online import OnlineResult


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
    """A patch of every mask of a problem."""
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


class Lenient(Numerics):
    """Silently changes arrays that do not fit."""

    def mend(self, inputs: Inputs) -> Inputs:
        """The arrays in the shapes of the problem."""
        raise NotImplementedError

    def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
        return super().run(self.mend(inputs), edit)


def fitted(array: NDArray[Any], length: int, axis: int) -> NDArray[Any]:
    """An array cut, or repeated, to a length."""
    return np.asarray(np.take(array, np.arange(length) % array.shape[axis], axis=axis))


class FitsQueries(Lenient):
    """q of any length."""

    def mend(self, inputs: Inputs) -> Inputs:
        return replace(inputs, q=fitted(inputs.q, self.problem.q_len, 1))


class FitsKeys(Lenient):
    """k and v of any length."""

    def mend(self, inputs: Inputs) -> Inputs:
        k, v = (fitted(array, self.problem.kv_len, 1) for array in (inputs.k, inputs.v))
        return replace(inputs, k=k, v=v)


class FitsHeads(Lenient):
    """Any number of heads."""

    def mend(self, inputs: Inputs) -> Inputs:
        k, v = (fitted(array, self.problem.kv_heads, 0) for array in (inputs.k, inputs.v))
        return replace(inputs, q=fitted(inputs.q, self.problem.heads, 0), k=k, v=v)


class FitsSegments(Lenient):
    """Segment ids of any length."""

    def mend(self, inputs: Inputs) -> Inputs:
        if inputs.segment_ids is None:
            return inputs
        lengths = self.problem.q_len, self.problem.kv_len
        q, kv = (fitted(ids, n, 0) for ids, n in zip(inputs.segment_ids, lengths, strict=True))
        return replace(inputs, segment_ids=(q, kv))


class FitsSinks(Lenient):
    """Any number of sinks."""

    def mend(self, inputs: Inputs) -> Inputs:
        if inputs.sinks is None:
            return inputs
        return replace(inputs, sinks=fitted(inputs.sinks, self.problem.heads, 0))


class FitsHeadDim(Lenient):
    """q of any head dimension."""

    def mend(self, inputs: Inputs) -> Inputs:
        return replace(inputs, q=fitted(inputs.q, self.problem.head_dim, 2))


class PythonIntegersOnly(Numerics):
    """Block sizes of another integer type are refused."""

    def __init__(self, problem: Problem, *more: Any) -> None:
        if type(problem.blocks.q) is not int:
            raise TypeError(f"block_q must be int, got {type(problem.blocks.q).__name__}")
        super().__init__(problem, *more)


class AnyMaskValue(Numerics):
    """Any mask value is accepted."""

    def __init__(self, problem: Problem, *more: Any) -> None:
        options = tuple(item for item in problem.options if item[0] != "mask_value")
        super().__init__(problem.but(options=options), *more)


class AnySoftCap(Lenient):
    """A soft cap that is not positive and finite is ignored."""

    def mend(self, inputs: Inputs) -> Inputs:
        cap = self.problem.soft_cap
        if cap is not None and not 0 < cap < np.inf:
            self.problem = self.problem.but(soft_cap=None)
        return inputs


def keys_behind_the_last_part_lost(problem: Problem) -> Problem:
    """A forward block is computed in whole parts; the keys after the last whole part are lost."""
    blocks = problem.blocks
    size, part = blocks.kv, blocks.kv_compute or blocks.kv
    if size % part == 0:
        return problem
    lost = np.arange(problem.kv_len) % size >= size // part * part
    masks = tuple(Dense(mask.dense() & ~lost) for mask in problem.head_masks)
    return problem.but(
        masks=masks[:1] if problem.single_mask else masks, blocks=replace(blocks, kv_compute=None)
    )


def accepting(name: str, clause: str, stage: type[Numerics], seen_in: str = "") -> Mutant:
    """A mutant that accepts input that the clause requires to be refused."""
    return Mutant(name, clause, "bad input accepted", seen_in, numerics=stage)


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
    accepting("queries-of-any-length", "REJECT-9", FitsQueries, "jax 0.12.0.1, tokamax 0.0.17"),
    accepting("keys-of-any-length", "REJECT-10", FitsKeys, "jax 0.12.0.1, tokamax 0.0.17"),
    accepting("any-number-of-heads", "REJECT-11", FitsHeads, "jax 0.12.0.1, equal masks"),
    accepting("any-number-of-kv-heads", "REJECT-12", FitsHeads),
    accepting("segment-ids-of-any-length", "REJECT-13", FitsSegments),
    accepting("any-number-of-sinks", "REJECT-14", FitsSinks),
    accepting("any-head-dimension", "REJECT-15", FitsHeadDim),
    Mutant("python-integers-only", "REJECT-16", "good input refused", numerics=PythonIntegersOnly),
    accepting("any-mask-value", "REJECT-17", AnyMaskValue, "jax 0.12.0.1, tokamax 0.0.17"),
    Mutant(
        "keys-behind-the-last-part-lost",
        "REJECT-19",
        "bad input accepted",
        prepare=keys_behind_the_last_part_lost,
    ),
    accepting("any-soft-cap", "REJECT-18", AnySoftCap, "jax 0.12.0.1, tokamax 0.0.17"),
)
