"""Mutants of run-time masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Forward
from conformance.mutants.base import Info, Mutant, add
from conformance.mutants.patches import OtherProgram, alternates_when_idle, operand_changed
from conformance.problems.inputs import Inputs
from conformance.problems.problem import Problem
from reference.blocks import FULL, PARTIAL
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Full
from reference.online import Program


def dynamic_only(patch: Callable[[GridMaskInfo], GridMaskInfo]) -> Callable[[Info, Problem], Info]:
    """Applies a patch to run-time masks."""
    return lambda info, problem: (
        patch(info) if problem.dynamic and isinstance(info, GridMaskInfo) else info
    )


def dynamic_out_of_range(info: GridMaskInfo) -> GridMaskInfo:
    """Empty positions keep the fill value -1."""
    return replace(info, data_next=np.where(info.block_mask == 0, -1, info.data_next))


class DynamicUnmasked(OtherProgram):
    """The forward kernel does not mask partial blocks of a run-time mask."""

    directions: tuple[Direction, ...] = ("fwd",)

    def change_program(self, program: Program, problem: Problem) -> Program:
        if not problem.dynamic:
            return program
        return replace(program, labels=np.where(program.labels == PARTIAL, FULL, program.labels))


class DynamicUnmaskedBackward(DynamicUnmasked):
    """The backward kernels do not mask partial blocks of a run-time mask."""

    directions: tuple[Direction, ...] = ("dq", "dkv")


class TracedMaskIgnored(Numerics):
    """A mask without values at compile time counts as a full mask."""

    def forward(self, inputs: Inputs, *, traced_mask: bool = False, **options: Any) -> Forward:
        if not traced_mask:
            return super().forward(inputs, **options)
        other = type(self)(self.problem.but(masks=(Full(),)), self._compiled)
        return other.forward(inputs, **options)


add(
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
    Mutant(
        "dynamic-idle-steps-fetch",
        "DYNAMIC-4",
        "wasted fetches",
        seen_in="jax 0.12.0.1",
        schedule=operand_changed(("k", "v", "q"), alternates_when_idle),
        quality=True,
    ),
    Mutant("dynamic-unmasked", "DYNAMIC-5", "run-time mask", numerics=DynamicUnmasked),
    Mutant(
        "dynamic-unmasked-backward", "DYNAMIC-6", "run-time mask", numerics=DynamicUnmaskedBackward
    ),
    Mutant("traced-mask-ignored", "DYNAMIC-7", "run-time mask", numerics=TracedMaskIgnored),
)
