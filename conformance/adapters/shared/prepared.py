"""The base of the adapters of jax, tokamax and pallas_impl: one problem, given to a splash attention library.

The class of a library says what differs: the names of its modules, the arguments that make a kernel, and the form of
its arrays. Forward, residuals, gradients, batches and devices are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from conformance.adapters.shared import calls
from conformance.adapters.shared.calls import Arrays, Kernel, to_arrays
from conformance.adapters.shared.mask_arrays import segment_ids_of
from conformance.adapters.shared.mask_function import Ids, MaskFunction, in_kernel
from conformance.adapters.shared.masks import library_mask
from conformance.adapters.tracing import BlockAxes, KernelTrace, schedule_from_trace
from conformance.contract.protocol import Edit, Forward, Gradients
from conformance.problems.inputs import Inputs
from conformance.problems.mask_json import expr_to_json
from conformance.problems.problem import Problem
from reference.mask_info import Direction, Shards
from reference.masks import Bool
from reference.schedule import Schedule
from reference.sharding import Shard

#: Head dimension of kernels whose schedule is read; no schedule depends on it.
HEAD_DIM = 128

#: Mask functions by library and by what they compute.
_FUNCTIONS: dict[tuple[str, str, int, int], MaskFunction] = {}


@dataclass(frozen=True)
class KernelSpec:
    """What a kernel is made for.

    Attributes:
      direction: ``fwd``, or ``dkv`` for all that a gradient needs.
      residuals: the call returns residuals.
      uninitialised: memory starts as NaN.
      edit: applied to the forward arrays.
      traced_mask: the values of a run-time mask are an argument of the program.
    """

    direction: Direction = "fwd"
    residuals: bool = False
    uninitialised: bool = False
    edit: Edit | None = None
    traced_mask: bool = False

    @property
    def may_pad(self) -> bool:
        """Whether the stack of mask blocks may be filled up: not where a block too far must be noticed."""
        return self.edit is None and not self.uninitialised


class PreparedProblem(ABC):
    """One problem; every method does its own work when it is called.

    Attributes:
      library: its name, as on the command line.
      mask_lib: the module with its mask classes.
      segment_ids: its class of segment ids.
      traces_segments: the kernels whose schedule is read are given the segment ids of the problem.
    """

    library: ClassVar[str]
    mask_lib: ClassVar[Any]
    segment_ids: ClassVar[Any]
    traces_segments: ClassVar[bool] = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def make_kernel(self, spec: KernelSpec) -> tuple[Kernel, tuple[Any, ...]]:
        """A kernel that can be run, and the arrays of its mask."""

    # Masks

    def mask(self, head: int) -> Any:
        """See `Prepared.mask`."""
        problem = self.problem
        expr = problem.masks[head if len(problem.masks) > 1 else 0]
        return library_mask(self.mask_lib, expr, problem.q_len, problem.kv_len)

    @cached_property
    def multi_head_mask(self) -> Any:
        """The masks of all heads in the library's form."""
        return self.mask_lib.MultiHeadMask([self.mask(head) for head in range(self.problem.heads)])

    def run_time_mask(self, shard: Shard | None = None) -> Bool:
        """The values that a run-time mask takes, ``[heads, q_len, kv_len]``.

        Args:
          shard: the device whose kernel is traced, for libraries whose devices get their own part.
        """
        del shard
        return np.stack([mask.dense() for mask in self.problem.head_masks])

    def mask_at(self, head: int, q_ids: Ids, kv_ids: Ids, *, kernel: bool = False) -> Bool | None:
        """See `Prepared.mask_at`."""
        function = getattr(self.mask(head), "mask_function", None)
        if function is None:
            return None
        if kernel:
            return in_kernel(self.function_in_kernel(function), q_ids, kv_ids)
        return np.asarray(function(q_ids, kv_ids))

    def function_in_kernel(self, function: MaskFunction) -> MaskFunction:
        """What the library's kernels call for a mask function."""
        return function

    # Kernels

    @property
    def mqa(self) -> bool:
        """Whether the kernel for a single key/value head is used."""
        return bool(self.problem.option("mqa", False)) and self.problem.kv_heads == 1

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Device axes of the call; the libraries want both if there is one."""
        shards = self.problem.shards
        several = shards != Shards() and self.problem.ring == 1
        return (("head", shards.head), ("q", shards.q)) if several else ()

    def kernel_of(
        self,
        make: Callable[..., Any],
        settings: dict[str, Any],
        residuals: bool,
        call_arguments: tuple[tuple[str, Any], ...] = (),
    ) -> Kernel:
        """A kernel as `calls` compiles it.

        Args:
          make: builds it out of its mask arrays and ``settings``; the same function for equal kernels.
          settings: what is compiled into it; has ``is_mqa``.
          residuals: the call returns residuals.
          call_arguments: further keyword arguments of the call.
        """
        return Kernel(
            make,
            tuple(sorted(settings.items())),
            self.segment_ids,
            call_arguments,
            residuals,
            self.problem.ring,
            self.axes,
        )

    def shared_function(self, function: MaskFunction | None) -> MaskFunction | None:
        """The first mask function that was made for an equal mask, so that equal kernels are compiled once.

        Args:
          function: the mask function of a kernel; None if its mask is stored. All heads share it.
        """
        if function is None:
            return None
        problem = self.problem
        expr = str(expr_to_json(problem.masks[0]))
        key = (self.library, expr, problem.q_len, problem.kv_len)
        return _FUNCTIONS.setdefault(key, function)

    # Calls

    def arrays_of(self, inputs: Inputs) -> Arrays:
        """The arrays of a call."""
        return to_arrays(inputs, self.problem.dtype)

    def gradients_of_inputs(self, gradients: Gradients) -> Gradients:
        """The gradients of the inputs, out of those of `arrays_of`."""
        return gradients

    def forward(
        self,
        inputs: Inputs,
        *,
        residuals: bool = False,
        edit: Edit | None = None,
        uninitialised: bool = False,
        traced_mask: bool = False,
    ) -> Forward:
        """See `Prepared.forward`."""
        spec = KernelSpec("fwd", residuals, uninitialised, edit, traced_mask)
        return calls.forward(*self.make_kernel(spec), self.arrays_of(inputs))

    def forward_batch(self, batch: Sequence[Inputs]) -> list[Forward]:
        """See `Prepared.forward_batch`."""
        kernel, infos = self.make_kernel(KernelSpec("fwd"))
        return calls.forward_batch(kernel, infos, [self.arrays_of(inputs) for inputs in batch])

    def backward(
        self,
        inputs: Inputs,
        d_out: NDArray[np.float32],
        *,
        with_residuals: bool = False,
        d_logsumexp: NDArray[np.float32] | None = None,
    ) -> Gradients:
        """See `Prepared.backward`."""
        spec = KernelSpec("dkv", residuals=with_residuals or d_logsumexp is not None)
        kernel, infos = self.make_kernel(spec)
        arrays = self.arrays_of(inputs)
        return self.gradients_of_inputs(calls.gradients(kernel, infos, arrays, d_out, d_logsumexp))

    def backward_batch(
        self, batch: Sequence[Inputs], d_outs: Sequence[NDArray[np.float32]]
    ) -> list[Gradients]:
        """See `Prepared.backward_batch`."""
        kernel, infos = self.make_kernel(KernelSpec("dkv"))
        arrays = [self.arrays_of(inputs) for inputs in batch]
        found = calls.gradients_batch(kernel, infos, arrays, d_outs)
        return [self.gradients_of_inputs(one) for one in found]

    # Schedules

    def function_to_trace(
        self, make: Callable[..., Any], shard: Shard, *, gradients: bool = False
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function of arrays that calls kernels on one device, and its arguments, for `tracing`.

        Args:
          make: the kernel of the device; it is given the values of a run-time mask if there is one.
          shard: the device.
          gradients: of the call, instead of the call.
        """
        problem, shards = self.problem, self.problem.shards
        # The values of a run-time mask are an argument of the program, as in a training step.
        masks = (self.run_time_mask(shard),) if problem.dynamic else ()
        ids = segment_ids_of(problem, shard) if self.traces_segments else None
        q_shape = (problem.heads // shards.head, problem.q_len // shards.q, HEAD_DIM)
        kv_shape = (max(1, problem.kv_heads // shards.head), self.local_kv_len, HEAD_DIM)
        q = jax.ShapeDtypeStruct(q_shape, jnp.float32)
        k = jax.ShapeDtypeStruct(kv_shape[1:] if self.mqa else kv_shape, jnp.float32)

        def forward(q: Any, k: Any, v: Any, ids: Any, *mask: Any) -> Any:
            segments = None if ids is None else self.segment_ids(*ids)
            return make(*mask)(q, k, v, segments)

        def backward(q: Any, k: Any, v: Any, ids: Any, d_out: Any, *mask: Any) -> Any:
            return jax.vjp(lambda *arrays: forward(*arrays, ids, *mask), q, k, v)[1](d_out)

        if gradients:
            return backward, (q, k, k, ids, q, *masks)
        return forward, (q, k, k, ids, *masks)

    @property
    def axes_in_blocks(self) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
        """Where the head and the sequence stand in arrays with all heads, and in those of keys and values."""
        return (0, 1), ((None, 0) if self.mqa else (0, 1))

    def schedule_of(
        self,
        trace: KernelTrace,
        direction: Direction,
        outputs: Mapping[str, tuple[int | None, ...]],
    ) -> Schedule:
        """The schedule of a kernel whose parameters are called ``q_ref``, ``k_ref``, ``mask_ref``, ….

        Args:
          trace: the kernel.
          direction: what it computes.
          outputs: their axes, see `BlockAxes`, by their names without ``_ref``.
        """
        whole, shared = self.axes_in_blocks
        operands = {"q": whole, "k": shared, "v": shared}
        if direction != "fwd":
            operands["do"] = whole
        return schedule_from_trace(
            trace,
            direction=direction,
            operands={name: BlockAxes(f"{name}_ref", axes) for name, axes in operands.items()},
            outputs={name: BlockAxes(f"{name}_ref", axes) for name, axes in outputs.items()},
            mask="mask_ref" if trace.has_operand("mask_ref") else None,
        )

    @property
    def local_kv_len(self) -> int:
        """Keys that one device is given at a time."""
        return self.problem.kv_len
