"""Mutants that accept arrays which do not belong to their mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Edit
from conformance.mutants.base import Mutant, add
from conformance.problems.arrays import Inputs
from conformance.problems.problem import Problem
from reference.masks import Dense
from reference.online import OnlineResult


class Lenient(Numerics):
    """Mends what does not fit, without a word."""

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
    """A soft cap that is not positive means none."""

    def mend(self, inputs: Inputs) -> Inputs:
        cap = self.problem.soft_cap
        if cap is not None and not 0 < cap < np.inf:
            self.problem = self.problem.but(soft_cap=None)
        return inputs


def keys_behind_the_last_part_lost(problem: Problem) -> Problem:
    """A forward block is computed in whole parts only; what is left of its keys is not."""
    blocks = problem.blocks
    size, part = blocks.kv, blocks.kv_compute or blocks.kv
    if size % part == 0:
        return problem
    lost = np.arange(problem.kv_len) % size >= size // part * part
    masks = tuple(Dense(mask.dense() & ~lost) for mask in problem.head_masks)
    return problem.but(
        masks=masks[:1] if problem.single_mask else masks, blocks=replace(blocks, kv_compute=None)
    )


def _mutant(name: str, clause: str, stage: type[Numerics], seen_in: str = "") -> Mutant:
    return Mutant(name, clause, "bad input accepted", seen_in, numerics=stage)


add(
    _mutant("queries-of-any-length", "REJECT-9", FitsQueries, "jax 0.12.0.1, tokamax 0.0.17"),
    _mutant("keys-of-any-length", "REJECT-10", FitsKeys, "jax 0.12.0.1, tokamax 0.0.17"),
    _mutant("any-number-of-heads", "REJECT-11", FitsHeads, "jax 0.12.0.1, equal masks"),
    _mutant("any-number-of-kv-heads", "REJECT-12", FitsHeads),
    _mutant("segment-ids-of-any-length", "REJECT-13", FitsSegments),
    _mutant("any-number-of-sinks", "REJECT-14", FitsSinks),
    _mutant("any-head-dimension", "REJECT-15", FitsHeadDim),
    Mutant("python-integers-only", "REJECT-16", "good input refused", numerics=PythonIntegersOnly),
    _mutant("any-mask-value", "REJECT-17", AnyMaskValue, "jax 0.12.0.1, tokamax 0.0.17"),
    Mutant(
        "keys-behind-the-last-part-lost",
        "REJECT-19",
        "bad input accepted",
        prepare=keys_behind_the_last_part_lost,
    ),
    _mutant("any-soft-cap", "REJECT-18", AnySoftCap, "jax 0.12.0.1, tokamax 0.0.17"),
)
