"""What a mutant is, and the adapter that applies its patches to the reference."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter, validated
from conformance.adapters.reference.numerics import Numerics, schedule_of
from conformance.contract.protocol import Adapter, Description
from conformance.mutants.edited_kernels import SourceEdit, edited
from conformance.problems.problem import Problem
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Bool, Int, Mask
from reference.schedule import Schedule
from reference.sharding import Shard

Info = GridMaskInfo | FlatMaskInfo


@dataclass(frozen=True)
class Mutant:
    """The reference with one mistake, or the Pallas kernels of `pallas_impl` with one.

    Attributes:
      name: names the mistake.
      clause: the violated clause, whose check must notice the mistake.
      bug_class: kind of mistake.
      seen_in: project and version where such a bug was released ("" if none is known).
      prepare: changes the problem before it is prepared, or raises.
      mask: changes a mask object.
      mask_at: replaces the mask function: gets mask, query and key positions, and whether it runs in a kernel.
      bounds, intervals: replace `Mask.block_bounds` and `Mask.kv_intervals`.
      info: changes compiled arrays.
      schedule: changes a schedule.
      compile: replaces compilation: gets the problem and a direction.
      numerics: the computation with overridden stages.
      without: features that the mutant does not declare.
      quality: whether it violates a quality clause: its figure must be worse than the reference's.
      kill_rate: for a mistake of about the size of rounding errors, the recorded share of seeds that notice it in the
        quick profile; None for all other mistakes, which every seed notices.
      edits: changes to the source of `pallas_impl`, which then is the implementation instead of the reference.
      vector, options: for a mutant with `edits`: the fixed problem that shows the mistake, and the options of that
        problem.
    """

    name: str
    clause: str
    bug_class: str
    seen_in: str = ""
    prepare: Callable[[Problem], Problem] | None = None
    mask: Callable[[Any, Problem], Any] | None = None
    mask_at: Callable[[Mask, Int, Int, bool], Bool] | None = None
    bounds: Callable[[Mask, Int, Int, Int, Int], tuple[Bool, Bool]] | None = None
    intervals: Callable[[Mask, Int], tuple[Int, Int]] | None = None
    info: Callable[[Info, Problem], Info] | None = None
    schedule: Callable[[Schedule, Problem, Shard], Schedule] | None = None
    compile: Callable[[Problem, Direction], Info] | None = None
    numerics: type[Numerics] | None = None
    without: tuple[str, ...] = ()
    quality: bool = False
    kill_rate: float | None = None
    edits: tuple[SourceEdit, ...] = ()
    vector: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def kind(self) -> str:
        """``structural``, ``algebraic``, ``precision`` or ``quality``; ``kernel`` for edits of `pallas_impl`."""
        if self.edits:
            return "kernel"
        if self.quality:
            return "quality"
        if self.kill_rate is not None:
            return "precision"
        return "structural" if self.numerics is None else "algebraic"


#: All mutants by name.
MUTANTS: dict[str, Mutant] = {}

#: The modules that register mutants: one per chapter, and those that edit `pallas_impl`.
TABLES = (
    "conventions", "masks", "labels", "mask_info", "flat", "shrink", "sharding", "dynamic", "schedule",
    "forward", "residuals", "backward", "ring", "numerics", "rejections",
    "kernels_forward", "kernels_backward", "kernels_ring", "kernels_schedule",
)  # fmt: skip


def add(*mutants: Mutant) -> None:
    """Registers mutants.

    Raises:
      ValueError: a name is taken.
    """
    for mutant in mutants:
        if MUTANTS.setdefault(mutant.name, mutant) is not mutant:
            raise ValueError(f"two mutants are called {mutant.name}")


def load_all() -> dict[str, Mutant]:
    """Imports every table and returns all mutants."""
    for name in TABLES:
        importlib.import_module(f"conformance.mutants.{name}")
    return MUTANTS


class PreparedMutant(PreparedReference):
    """The reference, with the patches of a mutant on everything it returns."""

    def __init__(self, problem: Problem, mutant: Mutant) -> None:
        super().__init__(problem)
        self.mutant = mutant

    def mask(self, head: int) -> Any:
        mask = super().mask(head)
        return self.mutant.mask(mask, self.problem) if self.mutant.mask else mask

    def mask_at(self, head: int, q_ids: Int, kv_ids: Int, *, kernel: bool = False) -> Bool | None:
        mask = self.problem.head_masks[head]
        if self.mutant.mask_at and mask.expr.computable:
            return self.mutant.mask_at(mask, q_ids, kv_ids, kernel)
        return super().mask_at(head, q_ids, kv_ids, kernel=kernel)

    def mask_bounds(
        self, head: int, q_lo: Int, q_hi: Int, kv_lo: Int, kv_hi: Int
    ) -> tuple[Bool, Bool]:
        if self.mutant.bounds:
            return self.mutant.bounds(self.problem.head_masks[head], q_lo, q_hi, kv_lo, kv_hi)
        return super().mask_bounds(head, q_lo, q_hi, kv_lo, kv_hi)

    def mask_intervals(self, head: int, q_ids: Int) -> tuple[Int, Int]:
        if self.mutant.intervals:
            return self.mutant.intervals(self.problem.head_masks[head], q_ids)
        return super().mask_intervals(head, q_ids)

    def mask_info(self, direction: Direction) -> Info:
        if self.mutant.compile:
            return self.mutant.compile(self.problem, direction)
        info = super().mask_info(direction)
        return self.mutant.info(info, self.problem) if self.mutant.info else info

    def schedule(self, direction: Direction, shard: Shard) -> Schedule:
        schedule = schedule_of(self.mask_info(direction), self.problem, shard)
        if self.mutant.schedule:
            return self.mutant.schedule(schedule, self.problem, shard)
        return schedule


class MutantAdapter(ReferenceAdapter):
    """A mutant as an implementation under test."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def describe(self) -> Description:
        description = super().describe()
        return replace(
            description,
            name=f"mutant-{self.mutant.name}",
            features=description.features - set(self.mutant.without),
            # Options affect the computation only; without them, more of the drawn problems differ in structure.
            options=description.options if self.mutant.numerics else {},
        )

    def prepare(self, problem: Problem) -> PreparedReference:
        if self.mutant.prepare:
            problem = self.mutant.prepare(problem)
        kind: type[PreparedMutant] = PreparedMutant
        if self.mutant.numerics is not None:
            kind = type("PreparedMutant", (self.mutant.numerics, PreparedMutant), {})
        return kind(validated(problem), self.mutant)


def adapter_of(mutant: Mutant) -> Adapter:
    """A mutant as an implementation under test.

    Raises:
      ValueError: an edit of the sources does not fit them.
    """
    if not mutant.edits:
        return MutantAdapter(mutant)

    return edited(f"mutant-{mutant.name}", mutant.edits)
