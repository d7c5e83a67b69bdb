"""Adapter of ``jax.experimental.pallas.ops.tpu.splash_attention``."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from conformance.adapters.jax.numerics import (
    MARKS_DYNAMIC,
    NUMERIC_OPTIONS,
    JaxNumerics,
    head_dims,
    marked,
    numeric_features,
)
from conformance.adapters.shared.device import OBSERVABLE, accepts
from conformance.adapters.shared.mask_arrays import (
    evaluate_mask_function,
    grid_info,
    mask_compiler,
    share,
)
from conformance.adapters.tracing import KernelTrace, evaluate_program, trace_kernels
from conformance.contract.library import import_module, name_and_version
from conformance.contract.protocol import Description
from conformance.problems.problem import Problem
from reference.mask_info import Direction, GridMaskInfo, Shards
from reference.schedule import Schedule
from reference.sharding import Shard

kernel_lib = import_module("jax", "splash_attention_kernel")
mask_lib = import_module("jax", "splash_attention_mask")
info_lib = import_module("jax", "splash_attention_mask_info")

#: What every release since 0.4.31 offers.
FEATURES = frozenset(
    {
        "masks", "mask:full", "mask:causal", "mask:local", "mask:and", "mask:or",
        "mask_function", "mask_function:kernel",
        "mask_info", "layout:grid", "static", "backward_info", "per_head_masks",
        "computable_masks", "stored_masks", "shards:q", "shards:head", "schedule",
    }
)  # fmt: skip

#: Values of the implementation options, the default first.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "use_fused_bwd_kernel": (False, True),
    "mqa": (False, True),
    **NUMERIC_OPTIONS,
}

#: Where the inputs of every kernel function end.
LAST_INPUT = "q_sequence_ref"


class PreparedJax(JaxNumerics):
    """One problem; every method does its own work when it is called."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._backward: dict[tuple[bool, Shard], list[KernelTrace]] = {}

    def mask_info(self, direction: Direction) -> GridMaskInfo:
        """The arrays that the library compiles, for all shards."""
        problem = self.problem
        options: dict[str, Any] = {
            "downcast_smem_data": problem.downcast,
            "head_shards": problem.shards.head,
            "q_seq_shards": problem.shards.q,
            "shrink_grid": problem.shrink,
        }
        sizes = problem.blocks.of(direction)
        process = mask_compiler(info_lib, direction, problem.dynamic)
        if problem.dynamic:
            arrays = evaluate_program(
                lambda mask: process(mask, sizes, **options)[0]._asdict(), self.run_time_mask()
            )
            info, function = info_lib.MaskInfo(**arrays), None
        else:
            info, function = process(self.multi_head_mask, sizes, **options)
        computed = evaluate_mask_function(function, info.q_sequence, problem.kv_len)
        return grid_info(direction, info, computed)

    def shard_kernel(self, direction: Direction, shard: Shard, mask: Any = None) -> Any:
        """The kernel that one device runs: its arrays split as ``shard_map`` splits them."""
        kernel = self.kernel(direction, mask)
        infos, kwargs = kernel.tree_flatten()
        local = [None if info is None else self._local(info, shard) for info in infos]
        return type(kernel).tree_unflatten(kwargs, local)

    def _local(self, info: Any, shard: Shard) -> Any:
        shards = self.problem.shards

        def part(array: Any) -> Any:
            return share(share(array, shards.head, shard.head), shards.q, shard.q, axis=1)

        stack = info.partial_mask_blocks
        if self.problem.dynamic:
            stack = part(stack)  # sharded like the arrays
            # The library turns this flag into an array, which a traced program cannot branch on.
            info = marked(info, True)
        return info._replace(
            data_next=part(info.data_next),
            mask_next=part(info.mask_next),
            block_mask=part(info.block_mask),
            partial_mask_blocks=stack,
            q_sequence=share(info.q_sequence, shards.q, shard.q),
        )

    def trace(self, direction: Direction, shard: Shard) -> KernelTrace:
        """The kernel of a direction, observed on one shard."""
        make = partial(self.shard_kernel, direction, shard)
        if direction == "fwd":
            function, arguments = self.function_to_trace(make, shard)
            (trace,) = trace_kernels(function, *arguments)
            return trace.named_after(kernel_lib.flash_attention_kernel, LAST_INPUT)
        key = (self.fused(direction), shard)  # dq and dkv are kernels of one program
        if key not in self._backward:
            function, arguments = self.function_to_trace(make, shard, gradients=True)
            self._backward[key] = trace_kernels(function, *arguments)
        _, dkv, *dq = self._backward[key]
        if direction == "dq":
            return dq[0].named_after(kernel_lib._flash_attention_dq_kernel, LAST_INPUT)
        return dkv.named_after(kernel_lib._flash_attention_dkv_kernel, LAST_INPUT)

    def schedule(self, direction: Direction, shard: Shard) -> Schedule:
        """What the kernel does on one shard, read from its traced program."""
        whole, shared = self.axes_in_blocks
        results: dict[Direction, dict[str, tuple[int | None, ...]]] = {
            "fwd": {"o": whole},
            "dq": {"dq": whole},
            "dkv": {"dk": shared, "dv": shared},
        }
        outputs = results[direction]
        if self.fused(direction):
            outputs["dq"] = (0, 1, 2)  # one partial sum a kv block
        return self.schedule_of(self.trace(direction, shard), direction, outputs)


def _features() -> frozenset[str]:
    """`FEATURES`, the numerical ones, and what the installed release has on top."""
    found = FEATURES | numeric_features()
    if hasattr(mask_lib, "ChunkedCausalMask"):
        found |= {"mask:chunked_causal"}
    if hasattr(info_lib, "process_dynamic_mask"):
        found |= {"dynamic_masks"}
    if accepts(info_lib.process_mask, "shrink_grid"):
        found |= {"shrink"}
    if not OBSERVABLE:
        found -= {"schedule"}
    if accepts(info_lib.process_mask, "downcast_smem_data"):
        found |= {"downcast"}
    return found


class JaxAdapter:
    """The splash attention that ships with JAX."""

    def describe(self) -> Description:
        """What the installed release offers."""
        name, version = name_and_version("jax", jax.__version__)
        return Description(
            name=name,
            version=version,
            features=_features(),
            directions=("fwd", "dq", "dkv"),
            kernel_block_multiples=(128, 128),
            options=OPTIONS,
            head_dims=head_dims(),
            empty_logsumexp=kernel_lib.DEFAULT_MASK_VALUE,
        )

    def prepare(self, problem: Problem) -> PreparedJax:
        """The problem, with nothing computed yet.

        Raises:
          NotImplementedError: a run-time mask on several devices, in a release that splits none.
        """
        if problem.dynamic and problem.shards != Shards() and not MARKS_DYNAMIC:
            raise NotImplementedError("run-time masks are not split over devices in this release")
        return PreparedJax(problem)


def make() -> JaxAdapter:
    """The adapter."""
    return JaxAdapter()
