"""Adapter of `pallas_impl`, this project's own splash attention for TPU."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from conformance.adapters.pallas_impl.numerics import (
    OPTIONS,
    PallasImplNumerics,
    dynamic_kernel,
)
from conformance.adapters.shared.mask_arrays import (
    evaluate_mask_function,
    grid_info,
    plain,
    share,
)
from conformance.adapters.tracing import (
    BlockAxes,
    KernelTrace,
    evaluate_program,
    schedule_from_trace,
    trace_kernels,
)
from conformance.contract.protocol import FEATURES, Description
from conformance.problems.problem import Problem
from pallas_impl import compile_dynamic_mask, compile_flat, compile_mask
from pallas_impl.mask_info import MaskInfo
from pallas_impl.plan import AttentionPlan
from reference.flat import FlatMaskInfo
from reference.mask_info import DIRECTIONS, Direction, GridMaskInfo
from reference.masks import Bool
from reference.schedule import Schedule
from reference.sharding import Shard

HEAD_DIMS = (64, 96, 128, 192, 256)

#: Operands that every step keeps one block of, and operands of which it keeps one for each slot.
ROW_OPERANDS: dict[Direction, tuple[str, ...]] = {
    "fwd": ("q",),
    "dq": ("q", "do", "stats"),
    "dkv": ("k", "v"),
}
SLOT_OPERANDS: dict[Direction, tuple[str, ...]] = {
    "fwd": ("k", "v"),
    "dq": ("k", "v"),
    "dkv": ("q", "do", "stats"),
}
OUTPUTS: dict[Direction, tuple[str, ...]] = {
    "fwd": ("o",),
    "dq": ("dq",),
    "dkv": ("dk", "dv", "dq"),  # dq only where it is fused
}

#: What the library calls the kernels of a direction.
KERNELS: dict[Direction, tuple[str, ...]] = {
    "fwd": ("splash_fwd",),
    "dq": ("splash_dq",),
    "dkv": ("splash_dkv", "splash_bwd"),
}


@dataclass(frozen=True)
class _Program:
    """The kernels of one program, and the plan that they were made from."""

    kernels: list[KernelTrace]
    plan: AttentionPlan


@dataclass(frozen=True)
class Observed:
    """One kernel, how many blocks it works on in a step, and whether it reads stored mask blocks."""

    kernel: KernelTrace
    slots: int
    stored: bool


class PreparedPallasImpl(PallasImplNumerics):
    """One problem; every method does its own work when it is called."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._observed: dict[tuple[str, Shard], _Program] = {}

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions that have a kernel of their own: dq only where it is split for certain."""
        return DIRECTIONS if self.fused is False else ("fwd", "dkv")

    def mask_info(self, direction: Direction) -> GridMaskInfo | FlatMaskInfo:
        """The arrays that the library compiles, for all shards.

        Masks that are known only at run time have one layout, the grid.
        """
        problem, shards = self.problem, self.problem.shards
        sizes = problem.blocks.of(direction)
        settings: dict[str, Any] = {
            "direction": direction,
            "head_shards": shards.head,
            "q_shards": shards.q,
            "kv_shards": shards.kv,
            "downcast": problem.downcast,
        }
        if problem.dynamic:
            arrays = evaluate_program(
                lambda mask: compile_dynamic_mask(mask, sizes, **settings)._asdict(),
                self.run_time_mask(),
            )
            return grid_info(direction, MaskInfo(**arrays))
        if problem.layout == "flat":
            return self._flat_info(direction, settings)
        info, function = compile_mask(
            self.multi_head_mask, sizes, shrink=problem.shrink, **settings
        )
        return grid_info(direction, info, self._computed(info, function))

    def _computed(self, info: Any, function: Any) -> Bool | None:
        return evaluate_mask_function(
            function, info.q_sequence, self.problem.kv_len, info.kv_sequence
        )

    def _flat_info(self, direction: Direction, settings: dict[str, Any]) -> FlatMaskInfo:
        """The lists of all shards one after the other: all heads share them."""
        sizes = self.problem.blocks.of(direction)
        info, function = compile_flat(self.multi_head_mask, sizes, **settings)
        return FlatMaskInfo(
            direction=direction,
            active_rows=info.active_rows[0].ravel(),
            active_cols=info.active_cols[0].ravel(),
            block_mask=info.block_mask[0].ravel(),
            mask_next=None if info.mask_next is None else info.mask_next[0].ravel(),
            num_active_blocks=info.num_active[0].ravel(),
            partial_mask_blocks=plain(info.partial_mask_blocks),
            q_sequence=plain(info.q_sequence),
            computed_mask=self._computed(info, function),
        )

    def shard_kernel(self, fused: bool | None, shard: Shard, mask: Any = None) -> Any:
        """The kernel that one device runs: its arrays split as ``jax.shard_map`` splits them."""
        made = self.multi_head_mask if mask is None else mask
        kernel = dynamic_kernel(made, **self.kernel_arguments(fused))
        shards = self.problem.shards
        mesh = AbstractMesh((shards.head, shards.q), ("head", "q"))
        specs = kernel.manual_sharding_spec(NamedSharding(mesh, PartitionSpec("head", "q")))
        parts = {"head": (shards.head, shard.head), "q": (shards.q, shard.q)}

        def local(array: Any, spec: Any) -> Any:
            for axis, name in enumerate(spec):
                if name is not None:
                    array = share(array, *parts[name], axis=axis)
            return array

        return jax.tree.map(local, kernel, specs)

    def trace(self, direction: Direction, shard: Shard) -> Observed:
        """The kernel of a direction, observed on one shard.

        ``dq`` is the kernel that computes dq alone, whatever the options say.
        """
        fused = False if direction == "dq" else self.fused
        program = "forward" if direction == "fwd" else f"backward, fused={fused}"
        if (program, shard) not in self._observed:
            self._observed[program, shard] = self._observe(direction == "fwd", fused, shard)
        found = self._observed[program, shard]
        (trace,) = (t for t in found.kernels if t.name in KERNELS[direction])
        plan = found.plan[DIRECTIONS.index(direction)]
        assert plan is not None
        return Observed(trace, plan.schedule.layout.slots, plan.mask.blocks is not None)

    def _observe(self, forward_only: bool, fused: bool | None, shard: Shard) -> _Program:
        plans: list[AttentionPlan] = []

        def make(*mask: Any) -> Any:
            kernel = self.shard_kernel(fused, shard, *mask)
            plans.append(kernel.plan)
            return kernel

        function, arguments = self.function_to_trace(make, shard, gradients=not forward_only)
        return _Program(trace_kernels(function, *arguments), plans[-1])

    def schedule(self, direction: Direction, shard: Shard) -> Schedule:
        """What the kernel does on one shard, read from its traced program.

        A step of the grid works on one block in each of several slots. The kernels take their
        operands in a fixed order: those of the row, those of slot after slot, then the stored mask
        blocks of slot after slot.
        """
        found = self.trace(direction, shard)
        row, moving, outputs = ROW_OPERANDS[direction], SLOT_OPERANDS[direction], OUTPUTS[direction]
        slots = range(found.slots)
        masks = [f"mask{slot}" for slot in slots] if found.stored else []
        slot_names = [f"{name}{slot}" for slot in slots for name in moving]
        trace = found.kernel.named_in_order([*row, *slot_names, *masks], outputs)
        whole = (0, 1)
        operands: dict[str, BlockAxes | list[BlockAxes]] = {
            name: BlockAxes(name, whole) for name in row if name != "stats"
        }
        operands |= {
            name: [BlockAxes(f"{name}{slot}", whole) for slot in slots]
            for name in moving
            if name != "stats"
        }
        return schedule_from_trace(
            trace,
            direction=direction,
            operands=operands,
            outputs={name: BlockAxes(name, whole) for name in outputs[: len(trace.outputs)]},
            mask=masks or None,
        )


def _version() -> str:
    try:
        return version("splash-conformance")
    except PackageNotFoundError:  # run from a copy of the sources
        return "0"


class PallasImplAdapter:
    """This project's own splash attention."""

    def describe(self) -> Description:
        """Declares every feature that there is."""
        return Description(
            name="pallas_impl",
            version=_version(),
            features=frozenset(FEATURES),
            directions=DIRECTIONS,
            kernel_block_multiples=(128, 128),
            options=OPTIONS,
            head_dims=HEAD_DIMS,
        )

    def prepare(self, problem: Problem) -> PreparedPallasImpl:
        """The problem, with nothing computed yet."""
        return PreparedPallasImpl(problem)


def make() -> PallasImplAdapter:
    """The adapter."""
    return PallasImplAdapter()
