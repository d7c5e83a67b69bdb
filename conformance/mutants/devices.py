"""Mutants of calls with run-time masks and of calls on several devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Edit, Forward
from conformance.mutants.base import Mutant, add
from conformance.problems.arrays import Inputs
from conformance.problems.problem import Problem
from reference.attention import Float
from reference.blocks import FULL, PARTIAL
from reference.devices import head_slice
from reference.mask_info import Direction
from reference.masks import Full
from reference.online import Program
from reference.sharding import Shard


class DynamicUnmasked(Numerics):
    """Partial blocks of a run-time mask are not masked in the kernels of some directions."""

    directions: tuple[Direction, ...] = ("fwd",)

    def program(
        self,
        problem: Problem,
        direction: Direction,
        edit: Edit | None = None,
        shard: Shard = Shard(),  # noqa: B008
    ) -> Program:
        program = super().program(problem, direction, edit, shard)
        if not problem.dynamic or direction not in self.directions:
            return program
        labels = np.where(program.labels == PARTIAL, FULL, program.labels)
        return replace(program, labels=labels)


class DynamicUnmaskedBackward(DynamicUnmasked):
    """The same backward."""

    directions = ("dq", "dkv")


class TracedMaskIgnored(Numerics):
    """A mask without values at compile time is taken for one that hides nothing."""

    def forward(self, inputs: Inputs, *, traced_mask: bool = False, **options: Any) -> Forward:
        if not traced_mask:
            return super().forward(inputs, **options)
        other = type(self)(self.problem.but(masks=(Full(),)), self._compiled)
        return other.forward(inputs, **options)


class FirstRows(Numerics):
    """Every device reads the arrays of the first rows."""

    def program(
        self,
        problem: Problem,
        direction: Direction,
        edit: Edit | None = None,
        shard: Shard = Shard(),  # noqa: B008
    ) -> Program:
        return super().program(problem, direction, edit, Shard(shard.head))


class FirstRowsOfDynamic(FirstRows):
    """Every device reads the arrays of the first rows of a run-time mask."""

    def program(
        self,
        problem: Problem,
        direction: Direction,
        edit: Edit | None = None,
        shard: Shard = Shard(),  # noqa: B008
    ) -> Program:
        if problem.dynamic:
            return super().program(problem, direction, edit, shard)
        return Numerics.program(self, problem, direction, edit, shard)


class KeysOfLastDevice(Numerics):
    """dk and dv of the devices replace each other."""

    def add_keys(self, total: Float, part: Float, shard: Shard) -> None:
        total[head_slice(len(total), self.problem.shards, shard)] = part


add(
    Mutant("dynamic-unmasked", "DYNAMIC-5", "run-time mask", numerics=DynamicUnmasked),
    Mutant(
        "dynamic-unmasked-backward", "DYNAMIC-6", "run-time mask", numerics=DynamicUnmaskedBackward
    ),
    Mutant("traced-mask-ignored", "DYNAMIC-7", "run-time mask", numerics=TracedMaskIgnored),
    Mutant("rows-of-first-device", "SHARD-7", "sharding", numerics=FirstRows),
    Mutant("keys-of-last-device", "SHARD-8", "sharding", numerics=KeysOfLastDevice),
    Mutant("dynamic-rows-of-first-device", "SHARD-9", "run-time mask", numerics=FirstRowsOfDynamic),
)
