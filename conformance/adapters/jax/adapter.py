"""Adapter of ``jax.experimental.pallas.ops.tpu.splash_attention``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from conformance.adapters.jax.numerics import (
    MARKS_DYNAMIC,
    NUMERIC_OPTIONS,
    JaxNumerics,
    head_dims,
    marked,
    numeric_features,
)
from conformance.adapters.shared.common import (
    OBSERVABLE,
    accepts,
    evaluate_mask_function,
    plain,
    segment_ids_of,
    share,
)
from conformance.adapters.tracing.schedule import (
    BlockAxes,
    KernelTrace,
    evaluate_program,
    schedule_from_trace,
    trace_kernels,
)
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

HEAD_DIM = 128

#: Where the inputs of every kernel function end.
LAST_INPUT = "q_sequence_ref"


def _process(direction: Direction) -> Any:
    return info_lib.process_mask_dkv if direction == "dkv" else info_lib.process_mask


def _process_dynamic(direction: Direction) -> Any:
    if direction == "dkv":
        return info_lib.process_dynamic_mask_dkv
    return info_lib.process_dynamic_mask


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
        if problem.dynamic:
            process = _process_dynamic(direction)
            arrays = evaluate_program(
                lambda mask: process(mask, sizes, **options)[0]._asdict(), self.dense_masks()
            )
            info, function = info_lib.MaskInfo(**arrays), None
        else:
            info, function = _process(direction)(self.multi_head_mask, sizes, **options)
        sequence = plain(info.q_sequence)
        computed = None
        if function is not None and sequence is not None:
            computed = evaluate_mask_function(function, sequence, problem.kv_len)
        return GridMaskInfo(
            direction=direction,
            block_mask=np.array(info.block_mask),
            data_next=np.array(info.data_next),
            mask_next=plain(info.mask_next),
            partial_mask_blocks=plain(info.partial_mask_blocks),
            q_sequence=sequence,
            computed_mask=computed,
        )

    def schedule(self, direction: Direction, shard: Shard) -> Schedule:
        """What the kernel does on one shard, read from its traced program."""
        return self._schedule_of(self.trace(direction, shard), direction)

    def shard_kernel(self, direction: Direction, shard: Shard, mask: Any = None) -> Any:
        """The kernel that one device runs: its arrays split as ``shard_map`` splits them."""
        kernel = self.kernel(direction, mask)
        infos, kwargs = kernel.tree_flatten()
        local = [None if info is None else self._local(info, shard) for info in infos]
        return type(kernel).tree_unflatten(kwargs, local)

    def _local(self, info: Any, shard: Shard) -> Any:
        shards = self.problem.shards

        def part(array: Any) -> Any:
            if array is None:
                return None
            return share(share(array, shards.head, shard.head), shards.q, shard.q, axis=1)

        stack, sequence = info.partial_mask_blocks, info.q_sequence
        if self.problem.dynamic:
            stack = part(stack)  # sharded like the arrays
            # The library turns this flag into an array, which a traced program cannot branch on.
            info = marked(info, True)
        if sequence is not None:
            sequence = share(sequence, shards.q, shard.q)
        return info._replace(
            data_next=part(info.data_next),
            mask_next=part(info.mask_next),
            block_mask=part(info.block_mask),
            partial_mask_blocks=stack,
            q_sequence=sequence,
        )

    def trace(self, direction: Direction, shard: Shard) -> KernelTrace:
        """The kernel of a direction, observed on one shard."""
        problem, shards = self.problem, self.problem.shards
        # The values of a dynamic mask are an argument of the program, as in a training step.
        masks = (self.dense_masks(),) if problem.dynamic else ()
        ids = segment_ids_of(problem, shard)
        heads, q_len = problem.heads // shards.head, problem.q_len // shards.q
        kv_heads = max(1, problem.kv_heads // shards.head)
        kv_shape = (problem.kv_len, HEAD_DIM) if self.mqa else (kv_heads, problem.kv_len, HEAD_DIM)
        q = jax.ShapeDtypeStruct((heads, q_len, HEAD_DIM), jnp.float32)
        k = jax.ShapeDtypeStruct(kv_shape, jnp.float32)

        def forward(q: Any, k: Any, v: Any, ids: Any, *mask: Any) -> Any:
            segments = None if ids is None else kernel_lib.SegmentIds(*ids)
            return self.shard_kernel(direction, shard, *mask)(q, k, v, segments)

        def gradients(q: Any, k: Any, v: Any, ids: Any, d_out: Any, *mask: Any) -> Any:
            return jax.vjp(lambda *arrays: forward(*arrays, ids, *mask), q, k, v)[1](d_out)

        if direction == "fwd":
            (trace,) = trace_kernels(forward, q, k, k, ids, *masks)
            return trace.named_after(kernel_lib.flash_attention_kernel, LAST_INPUT)
        key = (self.fused(direction), shard)  # dq and dkv are kernels of one program
        if key not in self._backward:
            self._backward[key] = trace_kernels(gradients, q, k, k, ids, q, *masks)
        _, dkv, *dq = self._backward[key]
        if direction == "dq":
            return dq[0].named_after(kernel_lib._flash_attention_dq_kernel, LAST_INPUT)
        return dkv.named_after(kernel_lib._flash_attention_dkv_kernel, LAST_INPUT)

    def _schedule_of(self, trace: KernelTrace, direction: Direction) -> Schedule:
        whole, shared = (0, 1), ((None, 0) if self.mqa else (0, 1))
        names = [block.name for block in trace.operands]
        axes = {"q": whole, "k": shared, "v": shared}
        if direction != "fwd":
            axes["do"] = whole
        operands = {name: BlockAxes(f"{name}_ref", at) for name, at in axes.items()}
        axes_of: dict[Direction, dict[str, tuple[int | None, ...]]] = {
            "fwd": {"o": whole},
            "dq": {"dq": whole},
            "dkv": {"dk": shared, "dv": shared},
        }
        results = axes_of[direction]
        if self.fused(direction):
            results["dq"] = (0, 1, 2)  # one partial sum a kv block
        outputs = {name: BlockAxes(f"{name}_ref", at) for name, at in results.items()}
        return schedule_from_trace(
            trace,
            direction=direction,
            operands=operands,
            outputs=outputs,
            mask="mask_ref" if "mask_ref" in names else None,
        )


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
