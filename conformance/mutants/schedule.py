"""Mutants of schedules: kernels that deviate from their arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.base import Mutant, add
from conformance.mutants.patches import (
    SchedulePatch,
    alternates_when_idle,
    operand_changed,
)
from conformance.problems.problem import Problem
from reference.schedule import Schedule
from reference.sharding import Shard


def steps(schedule: Schedule, keep: Any) -> Schedule:
    """Selects or reorders steps; ``keep`` indexes them."""
    return replace(
        schedule,
        head=schedule.head[keep],
        q_block=schedule.q_block[keep],
        kv_block=schedule.kv_block[keep],
        runs=schedule.runs[keep],
        mask_block=schedule.mask_block[keep],
        operands={k: v[keep] for k, v in schedule.operands.items()},
        outputs={k: v[keep] for k, v in schedule.outputs.items()},
        initialises={k: v[keep] for k, v in schedule.initialises.items()},
        writes={k: v[keep] for k, v in schedule.writes.items()},
    )


def last_block_skipped(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """The last running step does not run."""
    runs = schedule.runs.copy()
    runs[np.flatnonzero(runs)[-1:]] = False
    return replace(schedule, runs=runs)


def block_runs_twice(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """The first running step is repeated."""
    first = np.flatnonzero(schedule.runs)[:1]
    order = np.sort(np.concatenate([np.arange(len(schedule)), first]))
    return steps(schedule, order)


def everything_runs(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """Positions with label 0 run too."""
    return replace(schedule, runs=np.ones_like(schedule.runs))


def interleaved_heads(index: Any, schedule: Schedule, problem: Problem) -> Any:
    """Query head h reads kv head ``h % kv_heads``."""
    kv_heads = max(1, problem.kv_heads // problem.shards.head)
    index[:, 0] = schedule.head % kv_heads
    return index


def previous_block(index: Any, schedule: Schedule, problem: Problem) -> Any:
    """The operand lags one step behind."""
    index[1:] = index[:-1].copy()
    return index


def out_of_range_when_idle(index: Any, schedule: Schedule, problem: Problem) -> Any:
    """Idle steps name a block that does not exist."""
    index[~schedule.runs, 1] = 10**6
    return index


def next_stored_block(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """Partial steps read the stored block after their own."""
    return replace(
        schedule, mask_block=np.where(schedule.mask_block >= 0, schedule.mask_block + 1, -1)
    )


def copies_every_step(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """A kernel that copies by hand, at every step."""
    always = np.ones(len(schedule), dtype=np.bool_)
    return replace(schedule, copies=dict.fromkeys(schedule.operands, always))


def moved(name: str, by: int) -> SchedulePatch:
    """Shifts ``initialises`` or ``writes`` by some steps over the whole schedule."""

    def patch(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
        flags = {k: np.roll(v, by) for k, v in getattr(schedule, name).items()}
        changes: dict[str, Any] = {name: flags}
        return replace(schedule, **changes)

    return patch


def never_reset_between_heads(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """Accumulators are reset for the first head only."""
    flags = {k: v & (schedule.head == 0) for k, v in schedule.initialises.items()}
    return replace(schedule, initialises=flags)


def writes_only_after_work(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """Outputs are stored at running steps only, so rows without work stay unwritten."""
    return replace(
        schedule, writes={k: v & _row_runs(schedule, k) for k, v in schedule.writes.items()}
    )


def _row_runs(schedule: Schedule, output: str) -> Any:
    """Whether any step of the same output block runs, by step."""
    _, row = np.unique(schedule.outputs[output], axis=0, return_inverse=True)
    return np.bincount(row.ravel(), weights=schedule.runs)[row.ravel()] > 0


def column_major(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """Visits the grid in the other order and returns to every output block."""
    order = np.lexsort((schedule.q_block, schedule.kv_block))
    if schedule.direction == "dkv":
        order = np.lexsort((schedule.kv_block, schedule.q_block))
    return steps(schedule, order)


def segments_out_of_range(schedule: Schedule, problem: Problem, shard: Shard) -> Schedule:
    """The index map of the keys' segment ids names a second row of blocks."""
    del shard
    if problem.segments is None:
        return schedule
    return replace(schedule, strays=("kv_segment_ids, axis 0: block 1 of 1 at step 0",))


add(
    Mutant("last-block-never-runs", "SCHED-1", "off by one", schedule=last_block_skipped),
    Mutant("first-block-runs-twice", "SCHED-1", "double counting", schedule=block_runs_twice),
    Mutant("empty-steps-run", "SCHED-2", "ignored label", schedule=everything_runs),
    Mutant(
        "kv-heads-interleaved",
        "SCHED-3",
        "head map",
        schedule=operand_changed(("k", "v"), interleaved_heads),
    ),
    Mutant(
        "v-lags-behind", "SCHED-3", "index map", schedule=operand_changed(("v",), previous_block)
    ),
    Mutant("mask-block-off-by-one", "SCHED-4", "index map", schedule=next_stored_block),
    Mutant(
        "idle-steps-out-of-range",
        "SCHED-6",
        "out of bounds",
        seen_in="tokamax 0.0.17: fetches with the index -1",
        schedule=operand_changed(("k", "v"), out_of_range_when_idle),
    ),
    Mutant("segments-out-of-range", "SCHED-6", "out of bounds", schedule=segments_out_of_range),
    Mutant(
        "idle-steps-fetch",
        "SCHED-5",
        "wasted fetches",
        seen_in="jax 0.12.0.1, padding of the shrunk dkv grid",
        schedule=operand_changed(("k", "v", "q"), alternates_when_idle),
        quality=True,
    ),
    Mutant(
        "forward-fetches-everything",
        "FETCH-2",
        "wasted fetches",
        schedule=operand_changed(("k", "v"), alternates_when_idle),
        quality=True,
    ),
    Mutant(
        "backward-fetches-everything",
        "FETCH-3",
        "wasted fetches",
        seen_in="tokamax 0.0.17 without dq_reduction_steps",
        schedule=operand_changed(("q",), alternates_when_idle),
        quality=True,
    ),
    Mutant("copies-at-every-step", "FETCH-1", "lost optimisation", schedule=copies_every_step),
    Mutant("reset-one-step-late", "OUT-1", "off by one", schedule=moved("initialises", 1)),
    Mutant(
        "scratch-stale-between-heads", "OUT-1", "stale scratch", schedule=never_reset_between_heads
    ),
    Mutant("stored-one-step-early", "OUT-2", "off by one", schedule=moved("writes", -1)),
    Mutant(
        "empty-rows-unwritten",
        "OUT-3",
        "unwritten output",
        seen_in="tokamax 0.0.17, forward",
        schedule=writes_only_after_work,
    ),
    Mutant("grid-transposed", "OUT-4", "grid order", schedule=column_major),
)
