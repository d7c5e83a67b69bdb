"""When output blocks are initialised and written along a schedule (OUT and SCHED-5 clauses)."""

from __future__ import annotations

import itertools

import numpy as np

from reference.blocks import Int32
from reference.masks import Bool
from reference.schedule import Schedule, fetches
from spec import defines


def visits(index: Int32) -> list[slice]:
    """Maximal runs of steps that keep one block, as slices; ``index`` is int32 ``[steps, rank]``."""
    edges = [*np.flatnonzero(fetches(index)), len(index)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


@defines("SCHED-5")
def unused_fetches(index: Int32, runs: Bool, buffer: Int32 | None = None) -> Int32:
    """Steps that fetch a block which is replaced before any running step uses it.

    Arguments are those of `reference.schedule.fetches`.
    """
    memory = np.zeros(len(index), dtype=np.int32) if buffer is None else buffer
    unused = []
    for number in np.unique(memory):
        at = np.flatnonzero(memory == number)
        unused += [at[v.start] for v in visits(index[at]) if not runs[at[v]].any()]
    return np.array(sorted(unused), dtype=np.int32)


@defines("OUT-1")
def accumulates_uninitialised(schedule: Schedule, output: str) -> Int32:
    """Output blocks whose first running step comes before the accumulator is reset, ``[n, rank]``."""
    index, init = schedule.outputs[output], schedule.initialises[output]
    wrong = []
    for visit in visits(index):
        running = np.flatnonzero(schedule.runs[visit])
        resets = np.flatnonzero(init[visit])
        if len(running) and (len(resets) == 0 or resets[0] > running[0]):
            wrong.append(index[visit.start])
    return np.array(wrong, dtype=np.int32).reshape(-1, index.shape[1])


@defines("OUT-2")
def written_early(schedule: Schedule, output: str) -> Int32:
    """Output blocks with a running step after their last store, ``[n, rank]``."""
    index, stores = schedule.outputs[output], schedule.writes[output]
    wrong = []
    for visit in visits(index):
        running = np.flatnonzero(schedule.runs[visit])
        stored = np.flatnonzero(stores[visit])
        if len(running) and (len(stored) == 0 or stored[-1] < running[-1]):
            wrong.append(index[visit.start])
    return np.array(wrong, dtype=np.int32).reshape(-1, index.shape[1])


@defines("OUT-3")
def unwritten(schedule: Schedule, output: str) -> Int32:
    """Output blocks that no step stores, ``[n, rank]``."""
    index, stores = schedule.outputs[output], schedule.writes[output]
    missing = np.ones(schedule.output_blocks[output], dtype=np.bool_)
    missing[tuple(index[stores].T)] = False
    return np.argwhere(missing).astype(np.int32)


@defines("OUT-4")
def revisited(schedule: Schedule, output: str) -> Int32:
    """Output blocks that are left and visited again later, ``[n, rank]``."""
    index = schedule.outputs[output]
    first = np.array([index[visit.start] for visit in visits(index)], dtype=np.int32)
    blocks, counts = np.unique(first.reshape(-1, index.shape[1]), axis=0, return_counts=True)
    return blocks[counts > 1]
