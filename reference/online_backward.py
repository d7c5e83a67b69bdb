"""Blockwise gradients that execute schedules over poisoned memory, as `reference.online` does."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from reference.arithmetic import Real
from reference.attention import SegmentIds
from reference.error_budget import FLOAT64, ArithmeticProfile
from reference.gradients import Gradients, sum_over_group
from reference.masks import Bool
from reference.online import BlockReader, OnlineResult, Program, finite_or_zero
from spec import defines


class OnlineBackward(BlockReader):
    """The dq and dkv kernels; every stage is a method."""

    d_out: Real
    logsumexp: Real
    row_dot: Real

    def load(self, forward: OnlineResult, d_out: ArrayLike, d_logsumexp: ArrayLike | None) -> None:
        """Loads the results of the forward kernel and prepares the row sums."""
        dtype = self.math.dtype
        self.d_out = np.asarray(d_out, dtype=dtype)
        if self.d_out.shape != forward.output.shape:
            raise ValueError(
                f"d_out must have shape {forward.output.shape}, got {self.d_out.shape}"
            )
        self.logsumexp = np.asarray(forward.logsumexp, dtype=dtype)
        products = np.asarray(forward.output, dtype=dtype) * self.d_out
        self.row_dot = self.math.sum(products, 2)
        if d_logsumexp is not None:
            self.row_dot = self.row_dot - np.asarray(d_logsumexp, dtype=dtype)

    @defines("BWD-13", "BWD-14")
    def probabilities(self, step: int, logits: Real, seen: Bool) -> Real:
        """Softmax of a step from the saved logsumexp; nothing visible gives 0, never exp(inf)."""
        lse = finite_or_zero(self.q_rows(self.logsumexp, step))
        exponent = self.math.to_base(logits) - self.math.to_base(lse)[:, None]
        return self.math.power(np.where(seen, exponent, exponent.dtype.type(-np.inf)))

    def slope(self, raw: Real) -> Real:
        """Derivative of the soft cap."""
        if self.soft_cap is None:
            return np.ones_like(raw)
        tanh = np.tanh(raw / raw.dtype.type(self.soft_cap))
        return np.asarray(1 - tanh * tanh)

    def pair(self, step: int) -> tuple[Real, Real]:
        """Probabilities and logit gradients of a step, ``[block_q, block_kv]``."""
        raw = self.raw_logits(step)
        p = self.probabilities(step, self.cap(raw), self.visible(step))
        values = self.kv_rows(self.v, "v", step)
        dp = self.math.matmul(self.q_rows(self.d_out, step), values.T)
        ds = p * (dp - self.q_rows(self.row_dot, step)[:, None]) * self.slope(raw)
        return self.math.store(p), self.math.store(ds)

    def run_dq(self) -> Real:
        """Executes a dq program: ``[H, q_len, head_dim]``."""
        schedule, size = self.program.schedule, self.program.block_q
        dq = np.full_like(self.q, np.nan)
        total = np.zeros((size, self.q.shape[2]), dtype=self.math.dtype)
        for step in range(len(schedule)):
            if schedule.initialises["dq"][step]:
                total = np.zeros_like(total)
            if schedule.runs[step]:
                ds = self.pair(step)[1]
                total = total + self.math.matmul(ds, self.kv_rows(self.k, "k", step))
            if schedule.writes["dq"][step]:
                head, block = schedule.outputs["dq"][step]
                dq[head, block * size : (block + 1) * size] = total
        return self.math.output(dq)

    @defines("BWD-10", "BWD-11", "BWD-22")
    def run_dkv(self) -> tuple[Real, Real, Real]:
        """Executes a dkv program: dk, dv, and the dq that a fused kernel accumulates.

        dk and dv are summed over the query heads of a group. Every kv block is written, with zeros
        if no query sees it. A fused dq starts from zeros: a q block may have no step at all.
        """
        schedule, size = self.program.schedule, self.program.block_kv
        heads, length = len(self.q), self.k.shape[1]
        dk = np.full((heads, length, self.k.shape[2]), np.nan, dtype=self.math.dtype)
        dv = np.full((heads, length, self.v.shape[2]), np.nan, dtype=self.math.dtype)
        dq = np.zeros_like(self.q)
        k_total, v_total = np.zeros_like(dk[0, :size]), np.zeros_like(dv[0, :size])
        for step in range(len(schedule)):
            if schedule.initialises["dk"][step]:
                k_total, v_total = np.zeros_like(k_total), np.zeros_like(v_total)
            if schedule.runs[step]:
                p, ds = self.pair(step)
                k_total = k_total + self.math.matmul(ds.T, self.q_rows(self.q, step))
                v_total = v_total + self.math.matmul(p.T, self.q_rows(self.d_out, step))
                part = self.math.matmul(ds, self.kv_rows(self.k, "k", step))
                dq[schedule.head[step], self.tokens(step)[0]] += part
            if schedule.writes["dk"][step]:
                head, block = schedule.outputs["dk"][step]
                rows = slice(block * size, (block + 1) * size)
                dk[head, rows], dv[head, rows] = k_total, v_total
        dk, dv = (sum_over_group(part, len(self.k), self.math.summation) for part in (dk, dv))
        return self.math.output(dk), self.math.output(dv), self.math.output(dq)

    @defines("BWD-5")
    def sink_gradient(self) -> Real | None:
        """``-sum_i exp(sink - logsumexp_i) di_i``, ``[H]``; None without sinks."""
        if self.sinks is None:
            return None
        lse = finite_or_zero(self.logsumexp)
        share = self.math.power(self.math.to_base(self.sinks[:, None]) - self.math.to_base(lse))
        return -self.math.sum(share * self.row_dot, 1)


@defines("BWD-11", "BWD-12")
def online_gradients(
    dkv_program: Program,
    dq_program: Program | None,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    d_out: ArrayLike,
    forward: OnlineResult,
    *,
    segment_ids: SegmentIds | None = None,
    soft_cap: float | None = None,
    sinks: ArrayLike | None = None,
    d_logsumexp: ArrayLike | None = None,
    profile: ArithmeticProfile = FLOAT64,
) -> Gradients:
    """Executes the backward programs.

    Args:
      dkv_program: direction ``dkv``; its block sizes need not be those of the forward pass.
      dq_program: direction ``dq``; None to take dq from the dkv program (fused).
      q, k, v, segment_ids, soft_cap, sinks: as in the forward pass.
      d_out: ``[H, q_len, head_dim_v]``.
      forward: what the forward pass returned.
      d_logsumexp: ``[H, q_len]``, or None for 0.
      profile: arithmetic to compute with.

    Raises:
      ValueError: a program of the wrong direction, or shapes that do not belong together.
    """
    for name, program, wanted in (("dkv", dkv_program, "dkv"), ("dq", dq_program, "dq")):
        if program is not None and program.schedule.direction != wanted:
            raise ValueError(
                f"{name}_program must be of direction {wanted!r}, "
                f"got {program.schedule.direction!r}"
            )

    def kernel(program: Program) -> OnlineBackward:
        made = OnlineBackward(
            program, q, k, v,
            segment_ids=segment_ids, soft_cap=soft_cap, sinks=sinks, profile=profile,
        )  # fmt: skip
        made.load(forward, d_out, d_logsumexp)
        return made

    dkv = kernel(dkv_program)
    dk, dv, dq = dkv.run_dkv()
    if dq_program is not None:
        dq = kernel(dq_program).run_dq()
    dsinks = dkv.sink_gradient()
    dq, dk, dv = (np.asarray(part, dtype=np.float64) for part in (dq, dk, dv))
    return Gradients(dq, dk, dv, None if dsinks is None else dsinks.astype(np.float64))
