"""Adapter of the splash attention of tokamax."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from conformance.adapters.shared.mask_arrays import (
    evaluate_mask_function,
    mask_compiler,
    plain,
    share,
)
from conformance.adapters.tokamax.numerics import (
    DEFAULT_MASK_VALUE,
    NUMERIC_FEATURES,
    NUMERIC_OPTIONS,
    TokamaxNumerics,
)
from conformance.adapters.tracing import (
    KernelTrace,
    evaluate_program,
    trace_kernels,
    trace_program,
)
from conformance.contract.library import import_module, name_and_version
from conformance.contract.protocol import Description
from conformance.problems.problem import Problem
from reference.blocks import FULL, Int32
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, IntArray, downcast
from reference.schedule import Schedule
from reference.sharding import Shard, every_shard

ring_lib = import_module("tokamax", "ring_attention_kernel")
kernel_lib = import_module("tokamax", "splash_attention_kernel")
mask_lib = import_module("tokamax", "splash_attention_mask")
info_lib = import_module("tokamax", "splash_attention_mask_info")

#: One mask for all heads; index arrays in the smallest type if the mask is known in advance.
FEATURES = frozenset(
    {
        "masks", "mask:full", "mask:causal", "mask:local", "mask:and", "mask:or",
        "mask_function", "mask_function:kernel",
        "mask_info", "layout:flat", "static", "dynamic_masks", "backward_info", "downcast",
        "computable_masks", "stored_masks", "shards:q", "shards:kv", "schedule",
    }
)  # fmt: skip

#: Values of the implementation options, the default first.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "dq_reduction_steps": (None, 3),
    "mqa": (False, True),
    **NUMERIC_OPTIONS,
}


class PreparedTokamax(TokamaxNumerics):
    """One problem; every method does its own work when it is called."""

    def mask_info(self, direction: Direction) -> FlatMaskInfo:
        """The arrays that the library compiles, for all shards; absent ones written out."""
        if self.problem.dynamic:
            return self._dynamic_info(direction)
        problem, shards = self.problem, self.problem.shards
        dkv = direction == "dkv"
        info, function = mask_compiler(info_lib, direction)(
            self.mask(0),
            problem.blocks.of(direction),
            downcast_smem_data=problem.downcast,
            q_seq_shards=shards.q,
            kv_seq_shards=shards.kv,
            return_dynamic_grid=not dkv or self.reduction_steps == 3,
        )
        stack = plain(info.partial_mask_blocks)
        rows, columns, counts = self._every_block(direction)
        labels = np.full(len(rows), FULL, dtype=np.int32)
        return FlatMaskInfo(
            direction=direction,
            active_rows=self._given(info.active_rows, rows),
            active_cols=self._given(info.active_cols, columns),
            block_mask=self._given(info.block_mask, labels),
            mask_next=plain(info.mask_next),
            num_active_blocks=(
                counts if info.num_active_blocks is None else np.array(info.num_active_blocks)
            ),
            partial_mask_blocks=None if stack is None else stack.astype(np.bool_),
            q_sequence=plain(info.q_sequence),
            computed_mask=evaluate_mask_function(function, info.q_sequence, problem.kv_len),
        )

    def _every_block(self, direction: Direction) -> tuple[Int32, Int32, Int32]:
        """Rows, columns and counts of a list of all blocks, which is what an absent list means."""
        q, kv = self.problem.grid(direction)
        shape = (q // self.problem.shards.q, kv // self.problem.shards.kv)
        rows, columns = np.indices(shape[::-1] if direction == "dkv" else shape, dtype=np.int32)
        shards = self.problem.shards.q * self.problem.shards.kv
        counts = np.full(shards, rows.size, dtype=np.int32)
        return np.tile(rows.ravel(), shards), np.tile(columns.ravel(), shards), counts

    def _given(self, array: Any, otherwise: Int32) -> IntArray:
        """An array of the library; if it has none, nothing is stored and any type fits."""
        if array is not None:
            return np.array(array)
        return downcast(otherwise) if self.problem.downcast else otherwise

    def _dynamic_info(self, direction: Direction) -> FlatMaskInfo:
        """The arrays of every shard one after the other, as a sharded call computes them.

        The library gives each shard a stack of its own; here they form one, and ``mask_next``
        counts from its beginning.
        """
        problem = self.problem
        process = mask_compiler(info_lib, direction, dynamic=True)

        def compiled(mask: Any) -> dict[str, Any]:
            info = process(mask, problem.blocks.of(direction), downcast_smem_data=problem.downcast)
            return {name: array for name, array in info._asdict().items() if array is not None}

        shards = every_shard(replace(problem.shards, head=1))
        parts = [evaluate_program(compiled, self.run_time_mask(shard)) for shard in shards]
        lengths = [len(part["partial_mask_blocks"]) for part in parts]
        before = np.cumsum([0, *lengths[:-1]])
        places = [part["mask_next"] for part in parts]
        if len(parts) > 1:
            places = [
                place.astype(np.int32) + np.int32(start)
                for place, start in zip(places, before, strict=True)
            ]

        def join(name: str) -> IntArray:
            return np.concatenate([part[name] for part in parts])

        return FlatMaskInfo(
            direction=direction,
            active_rows=join("active_rows"),
            active_cols=join("active_cols"),
            block_mask=join("block_mask"),
            mask_next=np.concatenate(places),
            num_active_blocks=join("num_active_blocks").astype(np.int32),
            partial_mask_blocks=join("partial_mask_blocks").astype(np.bool_),
        )

    def shard_kernel(self, direction: Direction, shard: Shard, mask: Any = None) -> Any:
        """The kernel that one device runs: its arrays split as ``shard_map`` and the ring do.

        ``mask`` holds the shard's values of a dynamic mask.
        """
        shards = self.problem.shards
        options = {
            "config": self.config(direction),
            "downcast_smem_data": self.problem.downcast,
            "is_mqa": self.mqa,
        }
        if mask is not None:
            return kernel_lib._make_dynamic_splash_attention(mask, **options)
        options["q_seq_shards"] = shards.q
        if shards.kv == 1:
            kernel = kernel_lib._make_splash_attention(self.mask(0), **options)
        else:  # only the ring takes its keys in shards, one after the other
            kernel = ring_lib.make_ring_attention(
                self.mask(0), ring_axis="ring", kv_seq_shards=shards.kv, **options
            )
        infos = [kernel.fwd_mask_info, kernel.dkv_mask_info]
        local = [None if info is None else self._local(info, shard) for info in infos]
        return kernel_lib.SplashAttentionKernel(*local, **kernel.kwargs)

    def _local(self, info: Any, shard: Shard) -> Any:
        shards = self.problem.shards

        def part(array: Any) -> Any:
            return share(share(array, shards.q, shard.q), shards.kv, shard.kv)

        names = ("mask_next", "active_rows", "active_cols", "block_mask", "num_active_blocks")
        parts = {name: part(getattr(info, name)) for name in names}
        return info._replace(**parts, q_sequence=share(info.q_sequence, shards.q, shard.q))

    def trace(self, direction: Direction, shard: Shard) -> tuple[KernelTrace, bool]:
        """The kernel of a direction, observed on one shard.

        Returns:
          The kernel, and whether the caller replaces its output by a constant.
        """
        make = partial(self.shard_kernel, direction, shard)
        function, arguments = self.function_to_trace(make, shard, gradients=direction != "fwd")
        if direction == "fwd":
            (trace,), (result,) = trace_program(function, *arguments)
            return trace, result is not None
        _, backward = trace_kernels(function, *arguments)
        return backward, False

    def schedule(self, direction: Direction, shard: Shard) -> Schedule:
        """What the kernel does on one shard, read from its traced program."""
        trace, replaced = self.trace(direction, shard)
        outputs: dict[str, tuple[int | None, ...]] = {}
        if direction == "fwd":
            outputs["o"] = (0, 1)
        else:
            for name in ("dk", "dv"):
                rank = len(trace.block(f"{name}_ref").array_shape)
                outputs[name] = (0, 1) if rank == 3 else (None, 0)
            if "dq_ref" not in trace.aliases.values():
                # One partial sum a kv block. With reduction steps dq is summed up in three slots
                # of memory that are zero at the start and read back, so no rule of this chapter
                # about single visits holds for it.
                outputs["dq"] = (0, 1, 2)
        schedule = self.schedule_of(trace, direction, outputs)
        if replaced:  # nothing is active: the kernel has no step, and its caller makes the output
            return replace(schedule, outputs={}, initialises={}, writes={}, output_blocks={})
        return self._by_query_head(schedule, trace)

    def _by_query_head(self, schedule: Schedule, trace: KernelTrace) -> Schedule:
        """Counts dk and dv that are read back and added to as one partial sum a query head."""
        outputs, blocks = dict(schedule.outputs), dict(schedule.output_blocks)
        for name in outputs:
            if f"{name}_ref" in trace.aliases.values():
                outputs[name] = np.stack([schedule.head, outputs[name][:, 1]], axis=1)
                blocks[name] = (self.problem.heads, blocks[name][1])
        return replace(schedule, outputs=outputs, output_blocks=blocks)


class TokamaxAdapter:
    """The splash attention that ships with tokamax."""

    def describe(self) -> Description:
        """What the installed release offers."""
        features = FEATURES | NUMERIC_FEATURES
        if hasattr(mask_lib, "ChunkedCausalMask"):
            features |= {"mask:chunked_causal"}
        name, own_version = name_and_version("tokamax", version("tokamax"))
        return Description(
            name=name,
            version=own_version,
            features=features,
            directions=("fwd", "dkv"),
            kernel_block_multiples=(128, 128),
            options=OPTIONS,
            empty_logsumexp=DEFAULT_MASK_VALUE,
        )

    def prepare(self, problem: Problem) -> PreparedTokamax:
        """The problem, with nothing computed yet."""
        return PreparedTokamax(problem)


def make() -> TokamaxAdapter:
    """The adapter."""
    return TokamaxAdapter()
