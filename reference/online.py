"""Blockwise online softmax that executes a schedule over poisoned memory.

Does what a kernel does, step by step, and sees only what a kernel may see: NaN stands in every
key/value block that the step must not read, in the mask block handed to a full step, and in every
output that is not written yet. In float64 it is a second derivation of `reference.attention`; in
the arithmetic of an `ArithmeticProfile` it is the baseline for implementations of that arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from reference.arithmetic import Arithmetic, Real
from reference.attention import SegmentIds, check_inputs
from reference.blocks import EMPTY, FULL, Int32
from reference.blocks import labels as block_labels
from reference.error_budget import FLOAT64, ArithmeticProfile
from reference.flat import compile_flat
from reference.mask_info import Direction, Shards, compile_grid, in_grid_order
from reference.masks import Bool, Mask
from reference.schedule import Schedule, flat_schedule, grid_schedule
from reference.sharding import Shard, slice_flat, slice_grid
from spec import defines

Order = Literal["listed", "reversed", "shuffled"]


@dataclass(frozen=True)
class Program:
    """A schedule and the masks that its steps use.

    Attributes:
      schedule: the steps.
      labels: label of the position of every step, int32 ``[steps]``.
      mask_blocks: stored blocks, bool ``[n, block_q, block_kv]``; None without any.
      computed_mask: bool ``[q_len, kv_len]`` of a mask evaluated in the kernel, or None.
      true_labels: label of every block of the mask itself, int32 ``[H, q blocks, kv blocks]``; used
        to poison memory, never to decide what runs.
      block_q, block_kv: tokens per block.
    """

    schedule: Schedule
    labels: Int32
    mask_blocks: Bool | None
    computed_mask: Bool | None
    true_labels: Int32
    block_q: int
    block_kv: int


@defines("FWD-13", "BWD-23")
def compile_program(
    masks: Sequence[Mask],
    kv_heads: int,
    block_q: int,
    block_kv: int,
    direction: Direction = "fwd",
    *,
    layout: Literal["grid", "flat"] = "grid",
    shrink: bool = True,
    order: Order = "listed",
    seed: int = 0,
) -> Program:
    """Compiles masks into the program of one kernel on one device.

    Args:
      masks: one per query head.
      kv_heads: key/value heads.
      block_q, block_kv: tokens per block.
      direction: which kernel.
      layout: ``flat`` needs one mask for all heads.
      shrink: whether the grid layout drops empty columns.
      order: order of the blocks that contribute to one output block.
      seed: of the ``shuffled`` order.

    Raises:
      ValueError: as `compile_grid` and `compile_flat`; several masks in the flat layout.
    """
    heads = len(masks)
    true_labels = np.stack([block_labels(mask, block_q, block_kv) for mask in masks])
    if layout == "grid":
        grid = compile_grid(masks, block_q, block_kv, direction, shrink=shrink)
        grid = slice_grid(grid, Shards(), Shard(), heads)
        schedule = grid_schedule(grid, kv_heads)
        label = in_grid_order(grid.block_mask, direction).ravel()
        stack, computed = grid.partial_mask_blocks, grid.computed_mask
    else:
        if any(mask != masks[0] for mask in masks):
            raise ValueError("masks must be equal for all heads in the flat layout")
        flat = compile_flat(masks[0], block_q, block_kv, direction)
        flat = slice_flat(flat, Shards(), Shard())
        rows = true_labels.shape[2 if direction == "dkv" else 1]
        schedule = flat_schedule(flat, heads, kv_heads, rows)
        label = np.tile(flat.block_mask, heads)
        stack, computed = flat.partial_mask_blocks, flat.computed_mask
    if stack is not None and direction == "dkv":
        stack = stack.swapaxes(1, 2)
    program = Program(
        schedule, label.astype(np.int32), stack, computed, true_labels, block_q, block_kv
    )
    return reordered(program, order, seed)


@defines("FWD-12")
def reordered(program: Program, order: Order, seed: int = 0) -> Program:
    """The same program with the steps of every output block in another order."""
    schedule = program.schedule
    if order == "listed":
        return program
    first = next(iter(schedule.initialises.values()))
    rng = np.random.default_rng(seed)
    pieces = np.split(np.arange(len(schedule)), np.flatnonzero(first)[1:])
    order_of = [piece[::-1] if order == "reversed" else rng.permutation(piece) for piece in pieces]
    at = np.concatenate(order_of)
    moved = replace(
        schedule,
        head=schedule.head[at],
        q_block=schedule.q_block[at],
        kv_block=schedule.kv_block[at],
        runs=schedule.runs[at],
        mask_block=schedule.mask_block[at],
        operands={name: index[at] for name, index in schedule.operands.items()},
    )
    return replace(program, schedule=moved, labels=program.labels[at])


@dataclass(frozen=True)
class OnlineResult:
    """The results of a kernel: output ``[H, q_len, Dv]``, residuals ``[H, q_len]``."""

    output: Real
    logsumexp: Real
    max_logits: Real


@dataclass
class RowState:
    """Scratch memory of one output block, in units of the exponent in use.

    Attributes:
      largest: running maximum of the visible logits, ``[block_q]``; -inf before the first.
      shift: what was subtracted from the logits in ``total`` and ``sums``.
      total: running sum of exponentials, ``[block_q]``.
      sums: running sum of exponentials times values, ``[block_q, head_dim_v]``.
    """

    largest: Real
    shift: Real
    total: Real
    sums: Real


class BlockReader:
    """Memory of a problem as the steps of a program see it."""

    def __init__(
        self,
        program: Program,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        *,
        segment_ids: SegmentIds | None = None,
        soft_cap: float | None = None,
        sinks: ArrayLike | None = None,
        profile: ArithmeticProfile = FLOAT64,
    ) -> None:
        """See `online_forward`."""
        self.program, self.math = program, Arithmetic(profile)
        self.q, self.k, self.v = (np.asarray(a, dtype=self.math.dtype) for a in (q, k, v))
        self.segment_ids, self.soft_cap = segment_ids, soft_cap
        self.sinks = None if sinks is None else np.asarray(sinks, dtype=self.math.dtype)
        check_inputs(self.q, self.k, self.v, self.sinks)

    def q_rows(self, array: Real, step: int) -> Real:
        """The q block in memory at a step, of q or of an array of its shape."""
        head, block = self.program.schedule.operands["q"][step]
        size = self.program.block_q
        return np.asarray(array[head, block * size : (block + 1) * size])

    @defines("FWD-22")
    def kv_rows(self, array: Real, name: str, step: int) -> Real:
        """The kv block in memory at a step; NaN if the mask says that this step must not read it."""
        schedule = self.program.schedule
        kv_head, block = schedule.operands[name][step]
        size = self.program.block_kv
        rows = np.asarray(array[kv_head, block * size : (block + 1) * size])
        at = (schedule.head[step], schedule.q_block[step], block)
        return rows if self.program.true_labels[at] != EMPTY else np.full_like(rows, np.nan)

    def handed_mask(self, step: int) -> Real:
        """The mask block at a step as numbers: 1 visible, 0 not; NaN at a full step."""
        program = self.program
        shape = (program.block_q, program.block_kv)
        if program.labels[step] == FULL:
            return np.full(shape, np.nan)
        if program.mask_blocks is not None:
            block: Bool = program.mask_blocks[program.schedule.mask_block[step]]
            return block.astype(np.float64)
        if program.computed_mask is None:
            raise ValueError(f"step {step} is partial but the program has neither kind of mask")
        rows, columns = self.tokens(step)
        return program.computed_mask[rows, columns].astype(np.float64)

    def tokens(self, step: int) -> tuple[slice, slice]:
        """Query and key positions of a step."""
        q_block = int(self.program.schedule.q_block[step])
        kv_block = int(self.program.schedule.kv_block[step])
        block_q, block_kv = self.program.block_q, self.program.block_kv
        return (
            slice(q_block * block_q, (q_block + 1) * block_q),
            slice(kv_block * block_kv, (kv_block + 1) * block_kv),
        )

    @defines("FWD-21")
    def visible(self, step: int) -> Bool:
        """Visible pairs of a step; a full step never reads its mask block."""
        seen: Bool = np.ones((self.program.block_q, self.program.block_kv), dtype=np.bool_)
        if self.program.labels[step] != FULL:
            seen = self.handed_mask(step) > 0
        if self.segment_ids is None:
            return seen
        rows, columns = self.tokens(step)
        q_ids, kv_ids = self.segment_ids
        return np.asarray(seen & (q_ids[rows, None] == kv_ids[None, columns]))

    def raw_logits(self, step: int) -> Real:
        """Logits of a step before the soft cap, ``[block_q, block_kv]``."""
        keys = self.kv_rows(self.k, "k", step)
        return self.math.matmul(self.q_rows(self.q, step), keys.T)

    def cap(self, raw: Real) -> Real:
        """Logits after the soft cap, natural units."""
        if self.soft_cap is None:
            return raw
        limit = raw.dtype.type(self.soft_cap)
        return np.asarray(limit * np.tanh(raw / limit))


class OnlineForward(BlockReader):
    """The forward kernel; every stage is a method."""

    def start(self) -> RowState:
        """Scratch memory of a new output block."""
        size, dim = self.program.block_q, self.v.shape[2]
        zeros = np.zeros(size, dtype=self.math.dtype)
        fixed = self.math.profile.constant_maximum
        shift = self.math.to_base(zeros + zeros.dtype.type(-np.inf if fixed is None else fixed))
        sums = np.zeros((size, dim), dtype=self.math.dtype)
        return RowState(zeros - zeros.dtype.type(np.inf), shift, zeros, sums)

    def rescale(self, state: RowState, shift: Real) -> None:
        """Subtracts ``shift`` from the logits from now on, and rescales the sums."""
        if self.math.profile.constant_maximum is not None:
            return
        factor = self.math.power(state.shift - finite_or_zero(shift))
        state.total = state.total * factor
        state.sums = state.sums * factor[:, None]
        state.shift = shift

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        """Adds one kv block; ``logits`` in units of the exponent in use."""
        shown = np.where(seen, logits, logits.dtype.type(-np.inf))
        state.largest = np.maximum(state.largest, shown.max(axis=1))
        self.rescale(state, np.maximum(state.shift, state.largest))
        weights = self.math.power(shown - finite_or_zero(state.shift)[:, None])
        state.total = state.total + self.math.sum(weights, 1)
        state.sums = state.sums + self.math.matmul(self.math.store(weights), values)

    @defines("FWD-9", "RES-2")
    def add_sink(self, state: RowState, sink: Real) -> None:
        """Adds ``exp(sink)`` to the denominator."""
        logit = self.math.to_base(np.broadcast_to(sink, state.total.shape))
        self.rescale(state, np.maximum(state.shift, logit))
        state.total = state.total + self.math.power(logit - finite_or_zero(state.shift))

    @defines("RES-4", "RES-5", "RES-10", "FWD-19")
    def finish(self, state: RowState) -> tuple[Real, Real, Real]:
        """Output, logsumexp and max_logits of the block, the last two in natural units."""
        empty = state.total == 0
        divisor = np.where(empty, state.total.dtype.type(1), state.total)
        output = self.math.output(state.sums / divisor[:, None])
        logsumexp = self.math.from_base(finite_or_zero(state.shift) + self.math.log(state.total))
        return output, logsumexp, self.math.from_base(state.largest)

    def run(self) -> OnlineResult:
        """Executes the program.

        Raises:
          ValueError: the program is of another direction than ``fwd``.
        """
        program, schedule = self.program, self.program.schedule
        if schedule.direction != "fwd":
            raise ValueError(f"program must be of direction 'fwd', got {schedule.direction!r}")
        rows = self.q.shape[:2]
        unwritten = np.full((*rows, self.v.shape[2]), np.nan, dtype=self.math.dtype)
        result = OnlineResult(unwritten, unwritten[..., 0].copy(), unwritten[..., 0].copy())
        state = self.start()
        for step in range(len(schedule)):
            head, block = schedule.outputs["o"][step]
            if schedule.initialises["o"][step]:
                state = self.start()
            if schedule.runs[step]:
                logits = self.math.to_base(self.cap(self.raw_logits(step)))
                values = self.kv_rows(self.v, "v", step)
                self.absorb(state, logits, self.visible(step), values)
            if schedule.writes["o"][step]:
                if self.sinks is not None:
                    self.add_sink(state, self.sinks[head])
                at = (head, slice(block * program.block_q, (block + 1) * program.block_q))
                result.output[at], result.logsumexp[at], result.max_logits[at] = self.finish(state)
        return result


@defines("REJECT-17")
def check_mask_value(mask_value: float) -> None:
    """Raises ValueError unless the number stored for hidden logits is finite."""
    if not np.isfinite(mask_value):
        raise ValueError(f"mask_value must be finite, got {mask_value}")


def finite_or_zero(shift: Real) -> Real:
    """``shift`` with 0 in place of -inf, so that -inf minus the result is -inf and not NaN."""
    return np.asarray(np.where(shift == -np.inf, shift.dtype.type(0), shift))


def online_forward(
    program: Program,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    segment_ids: SegmentIds | None = None,
    soft_cap: float | None = None,
    sinks: ArrayLike | None = None,
    profile: ArithmeticProfile = FLOAT64,
) -> OnlineResult:
    """Executes a forward program.

    Args:
      program: from `compile_program` with direction ``fwd``.
      q, k, v, segment_ids, soft_cap, sinks: as for `reference.attention.attend`.
      profile: arithmetic to compute with: precision, roundings, base of the exponent, maximum.

    Raises:
      ValueError: shapes that do not belong together, or a program of another direction.
    """
    kernel = OnlineForward(
        program, q, k, v, segment_ids=segment_ids, soft_cap=soft_cap, sinks=sinks, profile=profile
    )
    return kernel.run()
