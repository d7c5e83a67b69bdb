"""Adapter of the reference itself: for testing the suite, and as an example of a full adapter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.adapters.reference.numerics import OPTIONS, Numerics, schedule_of
from conformance.contract.protocol import FEATURES, Description
from conformance.problems.problem import Problem
from reference.dynamic import compile_dynamic
from reference.flat import FlatMaskInfo, compile_flat
from reference.mask_info import Direction, GridMaskInfo, compile_grid
from reference.masks import Bool, Int, Mask
from reference.schedule import Schedule
from reference.sharding import Shard


def compile_mask(problem: Problem, direction: Direction) -> GridMaskInfo | FlatMaskInfo:
    """The compiled arrays of all shards for one direction."""
    sizes, shards = problem.blocks.of(direction), problem.shards
    if problem.dynamic:
        values = np.stack([mask.dense() for mask in problem.head_masks])
        return compile_dynamic(
            values, *sizes, direction, shards=shards, downcast_arrays=problem.downcast
        )
    if problem.layout == "flat":
        return compile_flat(
            problem.head_masks[0],
            *sizes,
            direction,
            shards=shards,
            downcast_arrays=problem.downcast,
        )
    return compile_grid(
        problem.head_masks,
        *sizes,
        direction,
        shards=shards,
        shrink=problem.shrink,
        downcast_arrays=problem.downcast,
    )


class PreparedReference(Numerics):
    """One problem, ready; everything is computed when it is asked for."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, compile_mask)

    def mask(self, head: int) -> Mask:
        return self.problem.head_masks[head]

    def mask_at(self, head: int, q_ids: Int, kv_ids: Int, *, kernel: bool = False) -> Bool | None:
        """Of computable masks; nothing differs inside a kernel here."""
        del kernel
        mask = self.problem.head_masks[head]
        return mask.at(q_ids, kv_ids) if mask.expr.computable else None

    def mask_bounds(
        self, head: int, q_lo: Int, q_hi: Int, kv_lo: Int, kv_hi: Int
    ) -> tuple[Bool, Bool]:
        return self.problem.head_masks[head].block_bounds(q_lo, q_hi, kv_lo, kv_hi)

    def mask_intervals(self, head: int, q_ids: Int) -> tuple[Int, Int]:
        return self.problem.head_masks[head].kv_intervals(q_ids)

    def mask_info(self, direction: Direction) -> GridMaskInfo | FlatMaskInfo:
        return compile_mask(self.problem, direction)

    def schedule(self, direction: Direction, shard: Shard) -> Schedule:
        return schedule_of(self.mask_info(direction), self.problem, shard)


def validated(problem: Problem) -> Problem:
    """The problem made anew, so that every expression passes its own validation, then taken as given.

    Raises:
      ValueError: block sizes, shard counts, masks or segments that do not fit.
    """
    anew = problem.but(masks=tuple(replace(expr) for expr in problem.masks))  # type: ignore[type-var]
    anew.check()
    return anew


class ReferenceAdapter:
    """The reference as an implementation under test."""

    def describe(self) -> Description:
        """Declares every feature that there is."""
        return Description(
            name="reference",
            version="1",
            features=frozenset(FEATURES),
            directions=("fwd", "dq", "dkv"),
            options=OPTIONS,
        )

    def prepare(self, problem: Problem) -> PreparedReference:
        return PreparedReference(validated(problem))


def make() -> ReferenceAdapter:
    """The adapter."""
    return ReferenceAdapter()
