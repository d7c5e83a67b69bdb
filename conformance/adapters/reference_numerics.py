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

from conformance.adapter import Arithmetic, Edit, Forward, Gradients, Inputs
from conformance.problem import Problem
from reference.arithmetic import Arithmetic as Operations
from reference.attention import Float, SegmentIds, soft_capped
from reference.blocks import PARTIAL
from reference.blocks import labels as block_labels
from reference.error_budget import BFLOAT16_STORED, FLOAT32, U_FLOAT32, ArithmeticProfile
from reference.flat import FlatMaskInfo
from reference.gradients import row_dots, sink_gradient
from reference.mask_info import Direction, GridMaskInfo, in_grid_order
from reference.masks import Bool, Dense
from reference.online import (
    OnlineForward,
    OnlineResult,
    Order,
    Program,
    check_mask_value,
    reordered,
)
from reference.online_backward import OnlineBackward
from reference.ring import (
    Partial,
    combine,
    empty_partial,
    finish,
    shard_at_step,
    shard_rows,
    sink_partial,
    step_visible,
)
from reference.schedule import Schedule, flat_schedule, grid_schedule
from reference.sharding import Shard, slice_flat, slice_grid

FEATURES = frozenset(
    {
        "forward", "backward", "residuals", "residuals:max_logits", "residuals:gradients",
        "residuals:cotangent", "segment_ids", "soft_cap", "sinks", "gqa", "mqa", "head_dim_v",
        "bfloat16", "empty_rows:zero", "vmap", "fused_backward", "split_backward",
        "edit_mask_info", "uninitialised", "ring", "ring:sinks",
    }
)  # fmt: skip

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
    if isinstance(info, GridMaskInfo):
        kv_heads = max(1, problem.kv_heads // shards.head)
        return grid_schedule(slice_grid(info, shards, shard, problem.heads), kv_heads)
    q_blocks, kv_blocks = problem.grid(info.direction)
    rows = kv_blocks // shards.kv if info.direction == "dkv" else q_blocks // shards.q
    return flat_schedule(
        slice_flat(info, shards, shard), problem.heads, problem.kv_heads, output_rows=rows
    )


def program_of(info: GridMaskInfo | FlatMaskInfo, problem: Problem) -> Program:
    """The program that compiled arrays ask for on one device."""
    direction, sizes = info.direction, problem.blocks.of(info.direction)
    if isinstance(info, GridMaskInfo):
        info = slice_grid(info, problem.shards, Shard(), problem.heads)
        label = in_grid_order(info.block_mask, direction).ravel()
    else:
        info = slice_flat(info, problem.shards, Shard())
        label = np.tile(info.block_mask, problem.heads)
    stack = info.partial_mask_blocks
    if stack is not None and direction == "dkv":
        stack = stack.swapaxes(1, 2)
    return Program(
        schedule_of(info, problem, Shard()),
        label.astype(np.int32),
        stack,
        info.computed_mask,
        np.stack([block_labels(mask, *sizes) for mask in problem.head_masks]),
        *sizes,
    )


class Numerics:
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

    def program(self, problem: Problem, direction: Direction, edit: Edit | None = None) -> Program:
        """The program of one kernel."""
        info = self._compiled(problem, direction)
        order: Order = problem.option("order", "listed")
        if edit is None:
            return reordered(program_of(info, problem), order)
        edited = program_of(edit(info), problem)
        # Whoever edits the arrays says what runs: no block counts as unreadable.
        readable = np.full_like(edited.true_labels, PARTIAL)
        return reordered(replace(edited, true_labels=readable), order)

    def arguments(self, inputs: Inputs, problem: Problem) -> dict[str, Any]:
        """Keyword arguments of the kernels.

        Raises:
          ValueError: the arrays do not belong to the problem; names the argument.
        """
        check_arrays(inputs, problem)
        return {
            "segment_ids": inputs.segment_ids,
            "soft_cap": problem.soft_cap,
            "sinks": inputs.sinks,
            "profile": self.profile(),
        }

    def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
        """The forward pass, on one device or in the ring."""
        more = self.arguments(inputs, self.problem)
        if self.problem.ring > 1:
            return self.ring_forward(inputs)
        program = self.program(self.problem, "fwd", edit)
        return self.forward_kernel(program, inputs.q, inputs.k, inputs.v, **more).run()

    def forward(
        self,
        inputs: Inputs,
        *,
        residuals: bool = False,
        edit: Edit | None = None,
        uninitialised: bool = False,
    ) -> Forward:
        """See `Prepared.forward`; memory always starts as NaN here."""
        del uninitialised
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
            dq, dk, dv, dsinks = self.ring_backward(inputs, found, d_out)
        else:
            kernels = {
                d: self.backward_pass(d, inputs, found, d_out, d_logsumexp) for d in ("dkv", "dq")
            }
            dk, dv, dq = kernels["dkv"].run_dkv()
            if not self.problem.option("fused_backward", False):
                dq = kernels["dq"].run_dq()
            dsinks = kernels["dkv"].sink_gradient()
        return Gradients(dq, dk, dv, dsinks, (dtype, dtype, dtype))

    def backward_pass(
        self,
        direction: Literal["dkv", "dq"],
        inputs: Inputs,
        found: OnlineResult,
        d_out: NDArray[np.float32],
        d_logsumexp: NDArray[np.float32] | None = None,
    ) -> OnlineBackward:
        """A backward kernel, ready to run."""
        program = self.program(self.problem, direction)
        more = self.arguments(inputs, self.problem)
        kernel = self.backward_kernel(program, inputs.q, inputs.k, inputs.v, **more)
        kernel.load(found, d_out, d_logsumexp)
        return kernel

    # The ring.

    def shard_problem(self, mask: Bool) -> Problem:
        """The problem of one device at one step: its rows of the mask, with one kv shard's columns."""
        masks = tuple(Dense(part) for part in mask)
        return self.problem.but(
            q_len=mask.shape[1],
            kv_len=mask.shape[2],
            masks=masks,
            ring=1,
            segments=None,
            sinks=None,
        )

    def ring_shard(self, device: int, step: int) -> int:
        """Which kv shard is local at a step."""
        return shard_at_step(device, step, self.problem.ring)

    def ring_mask(self, segment_ids: SegmentIds | None, device: int, shard: int) -> Bool:
        """Mask AND segment ids of a device's queries with a kv shard."""
        whole = np.stack([mask.dense() for mask in self.problem.head_masks])
        return step_visible(whole, segment_ids, device, shard, self.problem.ring)

    def ring_part(self, inputs: Inputs, device: int, shard: int) -> Partial:
        """What a device adds when a shard is local."""
        size = self.problem.ring
        q = shard_rows(inputs.q, device, size)
        k, v = (shard_rows(array, shard, size) for array in (inputs.k, inputs.v))
        seen = self.ring_mask(inputs.segment_ids, device, shard)
        if not seen.any():
            return self.empty_part(q, k, v)
        profile = replace(self.profile(), output_u=U_FLOAT32)
        program = self.program(self.shard_problem(seen), "fwd")
        kernel = self.forward_kernel(
            program, q, k, v, soft_cap=self.problem.soft_cap, profile=profile
        )
        local = kernel.run()
        largest = np.where(local.max_logits == -np.inf, 0, local.max_logits)
        total = np.exp(local.logsumexp - largest)
        return Partial(local.max_logits, total, local.output * total[:, :, None])

    def empty_part(self, q: Float, k: Float, v: Float) -> Partial:
        """What a shard adds of which the device sees nothing."""
        del k
        return empty_partial(q.shape[0], q.shape[1], v.shape[2])

    def ring_combine(self, a: Partial, b: Partial) -> Partial:
        """Joins two partial results."""
        return combine(a, b)

    def ring_forward(self, inputs: Inputs) -> OnlineResult:
        """Every device in turn, one combination a step, the sink once."""
        size, rows = self.problem.ring, self.problem.q_len // self.problem.ring
        results = []
        for device in range(size):
            state = empty_partial(self.problem.heads, rows, self.problem.head_dim_v)
            for step in range(size):
                part = self.ring_part(inputs, device, self.ring_shard(device, step))
                state = self.ring_combine(state, part)
            largest = state.maximum
            if inputs.sinks is not None:
                sinks = inputs.sinks.astype(np.float64)
                state = self.ring_combine(state, sink_partial(sinks, rows, self.problem.head_dim_v))
            results.append((*finish(state), largest))
        output, logsumexp, largest = (
            np.concatenate(parts, axis=1) for parts in zip(*results, strict=True)
        )
        stored = Operations(self.profile()).output(output.astype(np.float32))
        return OnlineResult(stored, logsumexp.astype(np.float32), largest.astype(np.float32))

    def ring_backward(
        self, inputs: Inputs, found: OnlineResult, d_out: NDArray[np.float32]
    ) -> tuple[Float, Float, Float, Float | None]:
        """Every pair of device and shard adds to dq of the device and to dk, dv of the shard."""
        size = self.problem.ring
        dq, dk, dv = (np.zeros_like(a) for a in (inputs.q, inputs.k, inputs.v))
        profile = replace(self.profile(), output_u=U_FLOAT32)
        for device in range(size):
            for shard in range(size):
                seen = self.ring_mask(inputs.segment_ids, device, shard)
                if not seen.any():
                    continue
                local = OnlineResult(
                    *(
                        shard_rows(a, device, size)
                        for a in (found.output, found.logsumexp, found.max_logits)
                    )
                )
                q, cotangent = (shard_rows(a, device, size) for a in (inputs.q, d_out))
                k, v = (shard_rows(a, shard, size) for a in (inputs.k, inputs.v))
                program = self.program(self.shard_problem(seen), "dkv")
                kernel = self.backward_kernel(
                    program, q, k, v, soft_cap=self.problem.soft_cap, profile=profile
                )
                kernel.load(local, cotangent, None)
                parts = kernel.run_dkv()
                shard_rows(dk, shard, size)[...] += parts[0]
                shard_rows(dv, shard, size)[...] += parts[1]
                shard_rows(dq, device, size)[...] += parts[2]
        dsinks = None
        if inputs.sinks is not None:
            lse = np.where(found.logsumexp == -np.inf, 0, found.logsumexp)
            share = np.exp(inputs.sinks[:, None] - lse).astype(np.float64)
            dsinks = sink_gradient(share, row_dots(found.output, d_out, None))
        output = Operations(self.profile()).output
        return output(dq), output(dk), output(dv), dsinks


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
