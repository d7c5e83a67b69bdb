"""Checks of the SCHED, FETCH and OUT clauses: what the kernel really does, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from conformance.checks.check_mask_info import in_range
from conformance.checks.compiled_arrays import (
    BLOCK,
    active_blocks,
    expect_stored_block,
    expected_labels,
    parts_of,
    place_of,
)
from conformance.checks.registry import Measure, Violation, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import ANY, ONE_MASK, SHRUNK, MaskDomain
from conformance.drawing.numeric_domain import NumericDomain
from conformance.findings.expectation import OneOf, Presence, Written
from conformance.findings.observation import Miswritten, Unwritten
from conformance.findings.pictures import region
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from reference.blocks import PARTIAL, Int32
from reference.mask_info import Direction
from reference.outputs import (
    accumulates_uninitialised,
    revisited,
    unused_fetches,
    unwritten,
    written_early,
)
from reference.schedule import Schedule, expected_work, fetch_counts, fetches
from reference.sharding import Shard

KERNEL = MaskDomain(kernel=True)


def schedules(subject: Subject, problem: Problem) -> Iterator[tuple[Schedule, Shard, Place]]:
    """Every schedule of a problem: all declared directions on all shards."""
    for direction, shard in parts_of(subject, problem, subject.directions(problem)):
        schedule = subject.schedule(problem, direction, shard)
        yield schedule, shard, place_of("", direction, shard, problem)


@judges("SCHED-1", KERNEL)
def check_every_block_runs_once(subject: Subject, problem: Problem) -> None:
    """Every non-empty block is the position of one running step."""
    for schedule, shard, where in schedules(subject, problem):
        wanted = expected_work(expected_labels(problem, schedule.direction, shard))
        times = Counter(tuple(int(k) for k in step) for step in schedule.work())
        for block in sorted(wanted):
            if times[block] != 1:
                raise Violation(where.named("runs").at(*block, axes=BLOCK), 1, times[block])


@judges("SCHED-2", KERNEL)
def check_nothing_else_runs(subject: Subject, problem: Problem) -> None:
    """No empty block runs."""
    for schedule, shard, where in schedules(subject, problem):
        wanted = expected_work(expected_labels(problem, schedule.direction, shard))
        for block in sorted({tuple(int(k) for k in step) for step in schedule.work()} - wanted):
            raise Violation(where.named("runs").at(*block, axes=BLOCK), 0, 1)


@judges("SCHED-3", KERNEL)
def check_running_steps_have_their_operands(subject: Subject, problem: Problem) -> None:
    """Blocks of q, k and v at every running step, and the head map."""
    group = problem.heads // problem.kv_heads
    for schedule, _, where in schedules(subject, problem):
        running = schedule.runs
        q = np.stack([schedule.head, schedule.q_block], axis=1)
        kv = np.stack([schedule.head // group, schedule.kv_block], axis=1)
        for name, index in (("q", q), ("k", kv), ("v", kv)):
            if name in schedule.operands:
                place = where.named(name).under(at="the running steps")
                expect_array(place, index[running], schedule.operands[name][running])


@judges("SCHED-4", KERNEL)
def check_partial_steps_have_their_mask_block(subject: Subject, problem: Problem) -> None:
    """The stored block in memory at every running step with label 1."""
    for schedule, shard, where in schedules(subject, problem):
        direction = schedule.direction
        stack = active_blocks(subject, problem, direction, shard).stack
        if stack is None:
            continue
        grid, place = expected_labels(problem, direction, shard), where.named("mask")
        steps = np.column_stack([schedule.work(), schedule.mask_block[schedule.runs]])
        for h, i, j, number in steps.tolist():
            if i < grid.shape[1] and j < grid.shape[2] and grid[h, i, j] == PARTIAL:
                expect_stored_block(place, stack, number, problem, shard, (h, i, j))


@judges("SCHED-5", KERNEL)
def measure_unused_fetches(subject: Subject, problem: Problem) -> Measure | None:
    """Blocks of the moving operands that are fetched and never used."""
    worst: Measure | None = None
    for schedule, _, where in schedules(subject, problem):
        if schedule.runs.any():
            for name in moving_operands(schedule):
                buffer = schedule.buffers.get(name)
                count = len(unused_fetches(schedule.operands[name], schedule.runs, buffer))
                if worst is None or count > worst.value:
                    worst = Measure(count, 0, where.named(f"unused fetches of {name}"))
    return worst


@judges("SCHED-6", KERNEL)
def check_block_indices_in_range(subject: Subject, problem: Problem) -> None:
    """Every index map names an existing block at every step."""
    for schedule, shard, where in schedules(subject, problem):
        heads, q_blocks, kv_blocks = expected_labels(problem, schedule.direction, shard).shape
        kv_heads = max(1, problem.kv_heads // problem.shards.head)
        sizes = {"q": (heads, q_blocks), "k": (kv_heads, kv_blocks), "v": (kv_heads, kv_blocks)}
        for name, (first, second) in sizes.items():
            if name in schedule.operands:
                index = schedule.operands[name]
                place = where.named(name)
                in_range(place.under(index_of="the head"), index[:, 0], first)
                in_range(place.under(index_of="the block"), index[:, 1], second)
        stack = active_blocks(subject, problem, schedule.direction, shard).stack
        if stack is not None and "mask" in schedule.operands:
            in_range(where.named("mask"), schedule.operands["mask"][:, 0], len(stack))
        for name, index in schedule.outputs.items():
            for n, size in enumerate(schedule.output_blocks[name]):
                in_range(where.named(f"output {name}").under(index_of_axis=n), index[:, n], size)
        no_strays(schedule, where)


def no_strays(schedule: Schedule, where: Place) -> None:
    """Raises `Violation` if some operand or output of any kind is asked for a block that does not exist."""
    if schedule.strays:
        existing = OneOf(of="the existing blocks")
        raise Violation(where.named("block indices"), existing, schedule.strays)


@judges(
    "SCHED-6",
    NumericDomain(
        needs={"segment_ids"}, allows={"empty_rows"}, signatures=("segments",),
        regimes=("signed", "flat"), group="kernels-segments",
    )
)  # fmt: skip
def check_indices_of_segment_ids_in_range(subject: Subject, problem: Problem) -> None:
    """The index maps of kernels that also read segment ids."""
    for schedule, _, where in schedules(subject, problem):
        no_strays(schedule, where)


@judges("FETCH-1", KERNEL)
def check_resident_blocks_are_not_fetched(subject: Subject, problem: Problem) -> None:
    """No step copies a block that is in memory."""
    for schedule, _, where in schedules(subject, problem):
        for name, index in schedule.operands.items():
            needed = fetches(index, schedule.buffers.get(name))
            again = np.flatnonzero(schedule.copies_of(name) & ~needed)
            if len(again):
                place = where.named(name).of("copies").at(again[0], axes=("step",))
                raise Violation(place, Presence(False), index[again[0]])


def moving_operands(schedule: Schedule) -> tuple[str, ...]:
    """The operands that change inside a row of the grid."""
    names = ("q", "do") if schedule.direction == "dkv" else ("k", "v")
    return tuple(name for name in names if name in schedule.operands)


def worst_ratio(
    subject: Subject, problem: Problem, directions: Sequence[Direction]
) -> Measure | None:
    """The largest ratio of fetches to the minimum over operands, directions and shards."""
    worst: Measure | None = None
    for direction, shard in parts_of(subject, problem, directions):
        schedule = subject.schedule(problem, direction, shard)
        for name in moving_operands(schedule):
            index, buffer = schedule.operands[name], schedule.buffers.get(name)
            count, best = fetch_counts(index, schedule.runs, buffer)
            if best and (worst is None or count / best > worst.ratio):
                place = place_of(f"fetches of {name}", direction, shard, problem)
                worst = Measure(count, best, place)
    return worst


@judges("FETCH-2", KERNEL)
def measure_forward_fetches(subject: Subject, problem: Problem) -> Measure | None:
    """Fetches of k and v in the directions that visit kv blocks inside q blocks."""
    forward = [d for d in subject.directions(problem) if d != "dkv"]
    return worst_ratio(subject, problem, forward)


@judges("FETCH-3", KERNEL)
def measure_backward_fetches(subject: Subject, problem: Problem) -> Measure | None:
    """Fetches of q and of the output gradient in dkv."""
    return worst_ratio(subject, problem, [d for d in subject.directions(problem) if d == "dkv"])


@judges("SHRINK-8", MaskDomain(allows=ONE_MASK & SHRUNK, kernel=True))
def measure_fetches_of_shrunk_grids(subject: Subject, problem: Problem) -> Measure | None:
    """Fetches of the moving operands in the shrunk grid of every direction."""
    return worst_ratio(subject, problem, subject.directions(problem))


@judges("DYNAMIC-4", MaskDomain({"dynamic"}, ANY - {"shards:q"}, kernel=True))
def measure_dynamic_fetches(subject: Subject, problem: Problem) -> Measure | None:
    """Fetches of the moving operands of run-time masks."""
    return worst_ratio(subject, problem, subject.directions(problem))


def compare_outputs(
    subject: Subject,
    problem: Problem,
    faults: Callable[[Schedule, str], Int32],
    expectation: Written,
    observation: Unwritten | Miswritten,
) -> None:
    """Raises `Violation` for the first output block with a fault."""
    for schedule, _, where in schedules(subject, problem):
        for output in schedule.outputs:
            blocks = faults(schedule, output)
            if len(blocks):
                shape = schedule.output_blocks[output]
                wrong = np.zeros(shape, dtype=np.bool_)
                inside = ((blocks >= 0) & (blocks < shape)).all(axis=1)
                wrong[tuple(blocks[inside].T)] = True
                place = where.named(f"blocks of {output}").at(*blocks[0])
                count, picture = (len(blocks), wrong.size), region(place.quantity, wrong)
                raise Violation(place, expectation, observation, count, picture)


@judges("OUT-1", KERNEL)
def check_initialised_before_accumulation(subject: Subject, problem: Problem) -> None:
    """The accumulator is reset before the first running step of every output block."""
    compare_outputs(
        subject,
        problem,
        accumulates_uninitialised,
        Written("after a reset"),
        Miswritten("not reset"),
    )


@judges("OUT-2", KERNEL)
def check_written_after_accumulation(subject: Subject, problem: Problem) -> None:
    """Every output block is stored after its last running step."""
    compare_outputs(
        subject, problem, written_early, Written("after its last step"), Miswritten("written early")
    )


@judges("OUT-3", KERNEL)
def check_every_output_block_is_written(subject: Subject, problem: Problem) -> None:
    """Every output block is stored, also where nothing is visible."""
    compare_outputs(subject, problem, unwritten, Written(), Unwritten())


@judges("OUT-4", KERNEL)
def check_output_blocks_stay_in_one_piece(subject: Subject, problem: Problem) -> None:
    """No output block is left and visited again."""
    compare_outputs(
        subject, problem, revisited, Written("in one visit"), Miswritten("visited again")
    )
