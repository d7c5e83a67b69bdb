"""Ring attention of the reference adapter: every device in turn, from compiled arrays of each pair of shards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from conformance.problems.inputs import Inputs
from conformance.problems.problem import Problem
from reference.arithmetic import Arithmetic as Operations
from reference.attention import Float, SegmentIds
from reference.error_budget import U_FLOAT32, ArithmeticProfile
from reference.gradients import row_dots, sink_gradient
from reference.mask_info import Direction
from reference.masks import Bool, Dense
from reference.online import OnlineForward, OnlineResult, Program
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


class RingNumerics:
    """The ring; a subclass says how a device runs its kernels."""

    problem: Problem
    forward_kernel: type[OnlineForward]
    backward_kernel: type[OnlineBackward]

    def profile(self) -> ArithmeticProfile:
        """The arithmetic of a kernel."""
        raise NotImplementedError

    def program(self, problem: Problem, direction: Direction) -> Program:
        """The program of one kernel."""
        raise NotImplementedError

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
        self,
        inputs: Inputs,
        found: OnlineResult,
        d_out: NDArray[np.float32],
        d_logsumexp: NDArray[np.float32] | None = None,
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
                own_loss = None if d_logsumexp is None else shard_rows(d_logsumexp, device, size)
                k, v = (shard_rows(a, shard, size) for a in (inputs.k, inputs.v))
                program = self.program(self.shard_problem(seen), "dkv")
                kernel = self.backward_kernel(
                    program, q, k, v, soft_cap=self.problem.soft_cap, profile=profile
                )
                kernel.load(local, cotangent, own_loss)
                parts = kernel.run_dkv()
                shard_rows(dk, shard, size)[...] += parts[0]
                shard_rows(dv, shard, size)[...] += parts[1]
                shard_rows(dq, device, size)[...] += parts[2]
        operations, dsinks = Operations(self.profile()), None
        if inputs.sinks is not None:
            lse = np.where(found.logsumexp == -np.inf, 0, found.logsumexp)
            share = np.exp(inputs.sinks[:, None] - lse).astype(np.float64)
            order = operations.summation
            dots = row_dots(found.output, d_out, d_logsumexp, order)
            dsinks = sink_gradient(share, dots, order)
        return operations.output(dq), operations.output(dk), operations.output(dv), dsinks
