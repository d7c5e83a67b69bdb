"""Building blocks of mutants that several chapters use: patches of masks, arrays and schedules, and wrong kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.adapters.reference.numerics import Numerics
from conformance.contract.protocol import Edit
from conformance.mutants.base import Info, Mutant
from conformance.problems.problem import Problem
from reference.dynamic import compile_dynamic
from reference.flat import FlatMaskInfo, compile_flat
from reference.mask_info import (
    Direction,
    GridMaskInfo,
    compile_grid,
)
from reference.masks import (
    Bool,
    Mask,
)
from reference.online import OnlineForward, Program
from reference.online_backward import OnlineBackward
from reference.schedule import Schedule
from reference.sharding import Shard


@dataclass(frozen=True)
class Wrapped:
    """A mask object with a wrong shape, slice, comparison or hash."""

    inner: Mask
    shape: tuple[int, ...]
    read: Callable[[Mask, tuple[slice, slice]], Bool] = Mask.__getitem__
    equal: Callable[[Mask, Mask], bool] = Mask.__eq__
    hashed: Callable[[Mask], int] = hash

    def __getitem__(self, index: tuple[slice, slice]) -> Bool:
        """The slice, through the patch."""
        return self.read(self.inner, index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wrapped) and bool(self.equal(self.inner, other.inner))

    def __hash__(self) -> int:
        return self.hashed(self.inner)


def wrapped(**changes: Any) -> Callable[[Mask, Problem], Wrapped]:
    """A patch that wraps the mask object."""

    def patch(mask: Mask, problem: Problem) -> Wrapped:
        del problem
        given = {k: v(mask) if k == "shape" else v for k, v in changes.items()}
        return Wrapped(mask, **({"shape": mask.shape} | given))

    return patch


def compile_masks(
    problem: Problem, direction: Direction, masks: list[Mask], **changes: Any
) -> Info:
    """Compiles other masks than the problem's, as the reference would."""
    q, kv = changes.pop("sizes", problem.blocks.of(direction))
    shards = problem.shards
    if problem.dynamic:
        values = np.stack([mask.dense() for mask in masks])
        return compile_dynamic(values, q, kv, direction, shards=shards)
    if problem.layout == "flat":
        return compile_flat(masks[0], q, kv, direction, shards=shards)
    options = {"shrink": problem.shrink, "downcast_arrays": problem.downcast} | changes
    return compile_grid(masks, q, kv, direction, shards=shards, **options)


GridPatch = Callable[[GridMaskInfo, Problem], GridMaskInfo]


def grid_only(patch: GridPatch, *directions: Direction) -> Callable[[Info, Problem], Info]:
    """Applies a patch to the static grid layout, in some directions only (all if none is named)."""

    def apply(info: Info, problem: Problem) -> Info:
        wanted = not directions or info.direction in directions
        if not isinstance(info, GridMaskInfo) or problem.dynamic or not wanted:
            return info
        return patch(info, problem)

    return apply


#: Index arrays of the grid layout, and per-entry arrays of the flat layout.
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


def flat_only(
    patch: Callable[[FlatMaskInfo, Problem], FlatMaskInfo],
) -> Callable[[Info, Problem], Info]:
    """Applies a patch to the flat layout."""
    return lambda info, problem: patch(info, problem) if isinstance(info, FlatMaskInfo) else info


SchedulePatch = Callable[[Schedule, Problem, Shard], Schedule]


def operand_changed(
    names: tuple[str, ...], change: Callable[[Any, Schedule, Problem], Any]
) -> SchedulePatch:
    """A patch of the block indices of some operands."""

    def patch(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
        changed = {
            name: change(index.copy(), schedule, problem) if name in names else index
            for name, index in schedule.operands.items()
        }
        return replace(schedule, operands=changed)

    return patch


def alternates_when_idle(index: Any, schedule: Schedule, problem: Problem) -> Any:
    """Idle steps name another block at every step, as if nothing were skipped."""
    idle = np.flatnonzero(~schedule.runs)
    index[idle, 1] = idle % (1 + index[:, 1].max(initial=0))
    return index


Stage = type[Numerics] | type[OnlineForward] | type[OnlineBackward]


class OtherProgram(Numerics):
    """Kernels that run another program in some directions.

    Attributes:
      directions: whose programs are changed.
    """

    directions: tuple[Direction, ...] = ("fwd", "dq", "dkv")

    def program(
        self,
        problem: Problem,
        direction: Direction,
        edit: Edit | None = None,
        shard: Shard = Shard(),  # noqa: B008
    ) -> Program:
        if direction not in self.directions:
            return super().program(problem, direction, edit, shard)
        problem, shard = self.change_input(problem, shard)
        return self.change_program(super().program(problem, direction, edit, shard), problem)

    def change_input(self, problem: Problem, shard: Shard) -> tuple[Problem, Shard]:
        """What is compiled instead."""
        return problem, shard

    def change_program(self, program: Program, problem: Problem) -> Program:
        """What runs instead."""
        del problem
        return program


class LastStepLost(OtherProgram):
    """A grid that is not shrunk ends one step early."""

    directions: tuple[Direction, ...] = ("fwd",)

    def change_program(self, program: Program, problem: Problem) -> Program:
        if problem.shrink:
            return program
        runs = program.schedule.runs.copy()
        runs[np.flatnonzero(runs)[-1:]] = False
        return replace(program, schedule=replace(program.schedule, runs=runs))


class FirstMask(OtherProgram):
    """Every head gets the mask of head 0."""

    directions: tuple[Direction, ...] = ("fwd",)

    def change_input(self, problem: Problem, shard: Shard) -> tuple[Problem, Shard]:
        return problem.but(masks=problem.masks[:1]), shard


def numeric_mutant(
    name: str, clause: str, bug_class: str, stage: Stage, seen_in: str = "", **more: Any
) -> Mutant:
    """A mutant with one wrong stage: a forward kernel, a backward kernel, or `Numerics` as a whole."""
    if issubclass(stage, Numerics):
        numerics = stage
    else:
        kernel = "forward" if issubclass(stage, OnlineForward) else "backward"
        numerics = type(stage.__name__, (Numerics,), {f"{kernel}_kernel": stage})
    return Mutant(name, clause, bug_class, seen_in, numerics=numerics, **more)
