"""Rules of the outputs against a machine with one block of memory, step by step."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.outputs import (
    accumulates_uninitialised,
    revisited,
    unused_fetches,
    unwritten,
    visits,
    written_early,
)
from reference.schedule import Schedule

Step = tuple[int, bool, bool, bool]  # block, resets, runs, stores
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.booleans(), st.booleans()),
    min_size=1,
    max_size=10,
)


@dataclass
class Machine:
    """Keeps one block of the output and notes what goes wrong with it."""

    uninitialised: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    left: list[int] = field(default_factory=list)
    unused: list[int] = field(default_factory=list)

    def run(self, steps: list[Step]) -> Machine:
        n = 0
        while n < len(steps):
            block, start = steps[n][0], n
            clean = used = spoilt = unsaved = False
            while n < len(steps) and steps[n][0] == block:
                _, resets, runs, stores = steps[n]
                clean = clean or resets
                if runs:
                    used, unsaved = True, True
                    spoilt = spoilt or not clean
                if stores:
                    unsaved = False
                    self.stored.add(block)
                n += 1
            if spoilt:
                self.uninitialised.append(block)
            if unsaved:
                self.early.append(block)
            if not used:
                self.unused.append(start)
            self.left.append(block)
        return self


def as_schedule(steps: list[Step]) -> Schedule:
    block, resets, runs, stores = (np.array(column) for column in zip(*steps, strict=True))
    zero = np.zeros(len(steps), dtype=np.int32)
    index = np.stack([zero, block.astype(np.int32)], axis=1)
    return Schedule(
        "fwd",
        zero,
        index[:, 1],
        zero,
        runs,
        zero - 1,
        operands={"k": index},
        outputs={"o": index},
        initialises={"o": resets},
        writes={"o": stores},
        output_blocks={"o": (1, 3)},
    )


@given(STEPS)
@settings(max_examples=150)
def test_rules_agree_with_the_machine(steps: list[Step]) -> None:
    schedule, machine = as_schedule(steps), Machine().run(steps)
    found = accumulates_uninitialised(schedule, "o")
    assert found.tolist() == [[0, block] for block in machine.uninitialised]
    assert written_early(schedule, "o").tolist() == [[0, block] for block in machine.early]
    missing = [[0, block] for block in range(3) if block not in machine.stored]
    assert unwritten(schedule, "o").tolist() == missing
    again = sorted({block for block in machine.left if machine.left.count(block) > 1})
    assert revisited(schedule, "o").tolist() == [[0, block] for block in again]
    assert unused_fetches(schedule.operands["k"], schedule.runs).tolist() == machine.unused


@given(STEPS)
def test_visits_cover_all_steps_and_keep_one_block_each(steps: list[Step]) -> None:
    index = as_schedule(steps).outputs["o"]
    parts = visits(index)
    assert [n for part in parts for n in range(part.start, part.stop)] == list(range(len(steps)))
    for part in parts:
        assert len({tuple(row) for row in index[part].tolist()}) == 1
    for one, other in itertools.pairwise(parts):
        assert index[one.start].tolist() != index[other.start].tolist()
