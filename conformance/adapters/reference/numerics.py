"""Forward, backward and ring of the reference adapter: blockwise execution of the compiled arrays in float32.

Every stage is a method of its own, of `Numerics` or of the kernels that it makes, so that a mistake can be planted by
overriding one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from conformance.adapters.reference.ring import RingNumerics
from conformance.contract.protocol import Arithmetic, Edit, Forward, Gradients
from conformance.problems.inputs import Inputs
from conformance.problems.problem import Problem
from reference.attention import Float, soft_capped
from reference.blocks import PARTIAL
from reference.blocks import labels as block_labels
from reference.devices import head_slice, joined, query_ids, query_share
from reference.error_budget import BFLOAT16_STORED, FLOAT32, ArithmeticProfile
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo, Shards, in_grid_order
from reference.online import (
    OnlineForward,
    OnlineResult,
    Order,
    Program,
    check_mask_value,
    reordered,
)
from reference.online_backward import OnlineBackward
from reference.schedule import Schedule, flat_schedule, grid_schedule
from reference.sharding import Shard, every_shard, shard_masks, slice_flat, slice_grid

#: Implementation options, the default value first.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "exponent": ("natural", "base2"),
    "maximum": ("running", 10.0),
    "order": ("listed", "reversed"),
    "fused_backward": (False, True),
    "mask_value": (-1e30,),
}


def schedule_of(info: GridMaskInfo | FlatMaskInfo, problem: Problem, shard: Shard) -> Schedule:
    """The schedule that compiled arrays ask for on one shard.

    Args:
      info: arrays of all shards.
      problem: what they were compiled for.
      shard: which device.
    """
    shards = problem.shards
    kv_heads = max(1, problem.kv_heads // shards.head)
    if isinstance(info, GridMaskInfo):
        return grid_schedule(slice_grid(info, shards, shard, problem.heads), kv_heads)
    q_blocks, kv_blocks = problem.grid(info.direction)
    rows = kv_blocks // shards.kv if info.direction == "dkv" else q_blocks // shards.q
    heads = problem.heads // shards.head
    return flat_schedule(slice_flat(info, shards, shard), heads, kv_heads, output_rows=rows)


def program_of(
    info: GridMaskInfo | FlatMaskInfo,
    problem: Problem,
    shard: Shard = Shard(),  # noqa: B008
) -> Program:
    """The program that compiled arrays ask for on one device.

    Args:
      info: arrays of all shards.
      problem: what they were compiled for.
      shard: which device.
    """
    direction, sizes, shards = info.direction, problem.blocks.of(info.direction), problem.shards
    schedule = schedule_of(info, problem, shard)
    if isinstance(info, GridMaskInfo):
        info = slice_grid(info, shards, shard, problem.heads)
        label = in_grid_order(info.block_mask, direction).ravel()
    else:
        info = slice_flat(info, shards, shard)
        label = np.tile(info.block_mask, problem.heads // shards.head)
    computed = info.computed_mask
    masks, stack = problem.head_masks, info.partial_mask_blocks
    if stack is not None and direction == "dkv":
        stack = stack.swapaxes(1, 2)
    return Program(
        schedule,
        label.astype(np.int32),
        stack,
        None if computed is None else np.split(computed, shards.q)[shard.q],
        np.stack([block_labels(mask, *sizes) for mask in shard_masks(masks, shards, shard)]),
        *sizes,
    )


class Numerics(RingNumerics):
    """Runs one problem; ``compile(problem, direction)`` gives the arrays to run from."""

    forward_kernel: type[OnlineForward] = OnlineForward
    backward_kernel: type[OnlineBackward] = OnlineBackward

    def __init__(self, problem: Problem, compiled: Any) -> None:
        self.problem = problem
        self._compiled = compiled
        check_options(problem)

    def profile(self) -> ArithmeticProfile:
        """The arithmetic for the type and the options of the problem."""
        base = BFLOAT16_STORED if self.problem.dtype == "bfloat16" else FLOAT32
        fixed = self.problem.option("maximum", "running")
        return replace(
            base,
            base2=self.problem.option("exponent") == "base2",
            constant_maximum=None if fixed == "running" else fixed,
        )

    def arithmetic(self) -> Arithmetic:
        """What is declared for the problem."""
        return Arithmetic(self.profile(), self.profile())

    def program(
        self,
        problem: Problem,
        direction: Direction,
        edit: Edit | None = None,
        shard: Shard = Shard(),  # noqa: B008
    ) -> Program:
        """The program of one kernel on one device."""
        info = self._compiled(problem, direction)
        order: Order = problem.option("order", "listed")
        if edit is None:
            return reordered(program_of(info, problem, shard), order)
        edited = program_of(edit(info), problem)
        # Whoever edits the arrays says what runs: no block counts as unreadable.
        readable = np.full_like(edited.true_labels, PARTIAL)
        return reordered(replace(edited, true_labels=readable), order)

    def arguments(self, inputs: Inputs) -> dict[str, Any]:
        """Keyword arguments of the kernels."""
        return {
            "segment_ids": inputs.segment_ids,
            "soft_cap": self.problem.soft_cap,
            "sinks": inputs.sinks,
            "profile": self.profile(),
        }

    def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
        """The forward pass, on every device in turn or in the ring.

        Raises:
          ValueError: the arrays do not belong to the problem; names the argument.
        """
        check_arrays(inputs, self.problem)
        if self.problem.ring > 1:
            return self.ring_forward(inputs)
        parts = {}
        for shard in every_shard(self.problem.shards):
            mine = device_inputs(inputs, self.problem.shards, shard)
            program = self.program(self.problem, "fwd", edit, shard)
            more = self.arguments(mine)
            parts[shard] = self.forward_kernel(program, mine.q, mine.k, mine.v, **more).run()
        fields = ("output", "logsumexp", "max_logits")
        return OnlineResult(
            *(
                joined({s: getattr(part, name) for s, part in parts.items()}, self.problem.shards)
                for name in fields
            )
        )

    def forward(
        self,
        inputs: Inputs,
        *,
        residuals: bool = False,
        edit: Edit | None = None,
        uninitialised: bool = False,
        traced_mask: bool = False,
    ) -> Forward:
        """See `Prepared.forward`; memory always starts as NaN here, and masks are never known in advance."""
        del uninitialised, traced_mask
        found = self.run(inputs, edit)
        dtype = self.problem.dtype
        if not residuals:
            return Forward(found.output, dtype)
        return Forward(found.output, dtype, found.logsumexp, found.max_logits)

    def forward_batch(self, batch: Sequence[Inputs]) -> list[Forward]:
        """See `Prepared.forward_batch`."""
        return [self.forward(inputs) for inputs in batch]

    def backward(
        self,
        inputs: Inputs,
        d_out: NDArray[np.float32],
        *,
        with_residuals: bool = False,
        d_logsumexp: NDArray[np.float32] | None = None,
    ) -> Gradients:
        """See `Prepared.backward`."""
        del with_residuals  # the residuals are always there
        found, dtype = self.run(inputs), self.problem.dtype
        if self.problem.ring > 1:
            dq, dk, dv, dsinks = self.ring_backward(inputs, found, d_out, d_logsumexp)
        else:
            dq, dk, dv, dsinks = self.sharded_backward(inputs, found, d_out, d_logsumexp)
        return Gradients(dq, dk, dv, dsinks, (dtype, dtype, dtype))

    def backward_batch(
        self, batch: Sequence[Inputs], d_outs: Sequence[NDArray[np.float32]]
    ) -> list[Gradients]:
        """See `Prepared.backward_batch`."""
        return [self.backward(*pair) for pair in zip(batch, d_outs, strict=True)]

    def sharded_backward(
        self,
        inputs: Inputs,
        found: OnlineResult,
        d_out: NDArray[np.float32],
        d_logsumexp: NDArray[np.float32] | None,
    ) -> tuple[Float, Float, Float, Float | None]:
        """Gradients of every device in turn; those of keys, values and sinks are summed over devices."""
        problem, shards = self.problem, self.problem.shards
        queries = {}
        dk, dv = np.zeros_like(inputs.k), np.zeros_like(inputs.v)
        dsinks = None if inputs.sinks is None else np.zeros(problem.heads)
        for shard in every_shard(shards):
            mine = device_inputs(inputs, shards, shard)
            rows = (found.output, found.logsumexp, found.max_logits)
            local = OnlineResult(*(query_share(a, shards, shard) for a in rows))
            cotangents = (
                query_share(d_out, shards, shard),
                None if d_logsumexp is None else query_share(d_logsumexp, shards, shard),
            )
            kernels = {
                d: self.backward_pass(d, mine, local, cotangents, shard) for d in ("dkv", "dq")
            }
            dk_part, dv_part, queries[shard] = kernels["dkv"].run_dkv()
            if not problem.option("fused_backward", False):
                queries[shard] = kernels["dq"].run_dq()
            self.add_keys(dk, dk_part, shard)
            self.add_keys(dv, dv_part, shard)
            part = kernels["dkv"].sink_gradient()
            if dsinks is not None and part is not None:
                dsinks[head_slice(problem.heads, shards, shard)] += part
        return joined(queries, shards), dk, dv, dsinks

    def add_keys(self, total: Float, part: Float, shard: Shard) -> None:
        """Adds the gradient of a device's keys or values to that of all."""
        total[head_slice(len(total), self.problem.shards, shard)] += part

    def backward_pass(
        self,
        direction: Literal["dkv", "dq"],
        inputs: Inputs,
        found: OnlineResult,
        cotangents: tuple[NDArray[np.float32], NDArray[np.float32] | None],
        shard: Shard = Shard(),  # noqa: B008
    ) -> OnlineBackward:
        """A backward kernel of one device, ready to run on its arrays."""
        program = self.program(self.problem, direction, None, shard)
        more = self.arguments(inputs)
        kernel = self.backward_kernel(program, inputs.q, inputs.k, inputs.v, **more)
        kernel.load(found, *cotangents)
        return kernel


def device_inputs(inputs: Inputs, shards: Shards, shard: Shard) -> Inputs:
    """The arrays of one device: its queries, and the keys, values and sinks of its heads."""
    k, v = (a[head_slice(len(a), shards, shard)] for a in (inputs.k, inputs.v))
    sinks = inputs.sinks
    return Inputs(
        query_share(inputs.q, shards, shard),
        k,
        v,
        query_ids(inputs.segment_ids, shards, shard),
        None if sinks is None else sinks[head_slice(len(sinks), shards, shard)],
    )


def check_options(problem: Problem) -> None:
    """Raises ValueError, naming the option, for a value that is not offered."""
    check_mask_value(problem.option("mask_value", OPTIONS["mask_value"][0]))
    for name, given in problem.options:
        if name != "mask_value" and given not in OPTIONS.get(name, ()):
            raise ValueError(f"option {name}={given!r} is unknown, the offered ones are {OPTIONS}")


def check_arrays(inputs: Inputs, problem: Problem) -> None:
    """Raises ValueError, naming the argument, unless arrays have the shapes that a problem says."""
    heads, dim = problem.heads, problem.head_dim
    q_shape = (heads, problem.q_len, dim)
    if inputs.q.shape != q_shape:
        raise ValueError(
            f"q must have shape {q_shape} (heads, q_len of the mask, head_dim), got {inputs.q.shape}"
        )
    for name, array in (("k", inputs.k), ("v", inputs.v)):
        if array.ndim != 3 or array.shape[1] != problem.kv_len:
            raise ValueError(
                f"{name} must have kv_len={problem.kv_len} of the mask, got shape {array.shape}"
            )
        if array.shape[0] < 1 or heads % array.shape[0]:
            raise ValueError(
                f"{name} must have kv_heads that divide heads={heads}, got {array.shape}"
            )
    soft_capped(np.zeros(1), problem.soft_cap)  # refuses a cap that is not positive
    if inputs.segment_ids is not None:
        for name, ids, length in zip(
            ("q", "kv"), inputs.segment_ids, (problem.q_len, problem.kv_len), strict=True
        ):
            if ids.shape != (length,):
                raise ValueError(
                    f"segment_ids of {name} must have shape ({length},), got {ids.shape}"
                )
    if inputs.sinks is not None and inputs.sinks.shape != (heads,):
        raise ValueError(f"sinks must have shape ({heads},), got {inputs.sinks.shape}")
