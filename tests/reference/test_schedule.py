"""Schedules of the reference against a walk through the grid in plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.dynamic import compile_dynamic
from reference.flat import compile_flat
from reference.mask_info import DIRECTIONS, Direction, compile_grid
from reference.masks import Causal, Dense, Local, Mask
from reference.outputs import accumulates_uninitialised, revisited, unwritten, written_early
from reference.schedule import (
    Schedule,
    expected_work,
    fetch_counts,
    fetches,
    flat_schedule,
    grid_schedule,
)
from tests.reference.oracles import Rows, label_grid

HEADS, KV_HEADS = 4, 2


@st.composite
def cases(draw: st.DrawFn) -> tuple[Rows, str, Direction]:
    q_len, kv_len = 2 * draw(st.integers(1, 3)), 3 * draw(st.integers(1, 3))
    letters = draw(st.sampled_from(("0000001", "01", "1", "0")))
    row = st.lists(st.sampled_from(letters), min_size=kv_len, max_size=kv_len)
    rows = [[c == "1" for c in draw(row)] for _ in range(q_len)]
    layout = draw(st.sampled_from(("shrunk", "grid", "flat", "dynamic")))
    return rows, layout, draw(st.sampled_from(DIRECTIONS))


def schedule_of(rows: Rows, layout: str, direction: Direction) -> Schedule:
    mask = Mask(Dense(np.array(rows)), len(rows), len(rows[0]))
    if layout == "flat":
        flat = compile_flat(mask, 2, 3, direction)
        blocks = len(rows[0]) // 3 if direction == "dkv" else len(rows) // 2
        return flat_schedule(flat, HEADS, KV_HEADS, blocks)
    if layout == "dynamic":
        info = compile_dynamic(np.array([rows] * HEADS), 2, 3, direction)
        stack = info.partial_mask_blocks
        assert stack is not None
    else:
        info = compile_grid([mask] * HEADS, 2, 3, direction, shrink=layout == "shrunk")
    per_head = {
        name: np.repeat(getattr(info, name), HEADS // len(info.block_mask), axis=0)
        for name in ("block_mask", "data_next")
    }
    mask_next = info.mask_next
    if mask_next is not None:
        mask_next = np.repeat(mask_next, HEADS // len(mask_next), axis=0)
    one = type(info)(direction, mask_next=mask_next, partial_mask_blocks=None, **per_head)
    return grid_schedule(one, KV_HEADS)


@given(cases())
@settings(max_examples=100)
def test_every_block_runs_once_in_the_order_of_its_output(
    case: tuple[Rows, str, Direction],
) -> None:
    rows, layout, direction = case
    schedule = schedule_of(rows, layout, direction)
    grid = label_grid(rows, 2, 3)
    expected = [
        [h, i, j]
        for h in range(HEADS)
        for i in range(len(grid))
        for j in range(len(grid[0]))
        if grid[i][j]
    ]
    if direction == "dkv" and layout == "flat":
        expected.sort(key=lambda p: (p[0], p[2], p[1]))
    elif direction == "dkv":
        expected.sort(key=lambda p: (p[2], p[0], p[1]))
    assert schedule.work().tolist() == expected
    assert expected_work(np.array([grid] * HEADS)) == {(h, i, j) for h, i, j in expected}


@given(cases())
@settings(max_examples=100)
def test_outputs_are_reset_accumulated_and_written_once(
    case: tuple[Rows, str, Direction],
) -> None:
    rows, layout, direction = case
    schedule = schedule_of(rows, layout, direction)
    names = {"fwd": ["o"], "dq": ["dq"], "dkv": ["dk", "dv"]}[direction]
    assert sorted(schedule.outputs) == names
    for name in names:
        blocks = len(rows[0]) // 3 if direction == "dkv" else len(rows) // 2
        assert schedule.output_blocks[name] == (HEADS, blocks)
        state: dict[tuple[int, ...], str] = {}
        for n in range(len(schedule)):
            at = tuple(schedule.outputs[name][n].tolist())
            if schedule.initialises[name][n]:
                assert at not in state
                state[at] = "open"
            if schedule.runs[n]:
                assert state[at] == "open"
                own = schedule.kv_block if direction == "dkv" else schedule.q_block
                assert at == (schedule.head[n], own[n])
            if schedule.writes[name][n]:
                assert state[at] == "open"
                state[at] = "written"
        assert state == {(h, b): "written" for h in range(HEADS) for b in range(blocks)}
        assert len(accumulates_uninitialised(schedule, name)) == 0
        assert len(written_early(schedule, name)) == 0
        assert len(unwritten(schedule, name)) == 0
        assert len(revisited(schedule, name)) == 0


@given(cases())
@settings(max_examples=100)
def test_operands_of_running_steps(case: tuple[Rows, str, Direction]) -> None:
    schedule = schedule_of(*case)
    for n in np.flatnonzero(schedule.runs):
        head, q, kv = int(schedule.head[n]), int(schedule.q_block[n]), int(schedule.kv_block[n])
        assert schedule.operands["q"][n].tolist() == [head, q]
        for name in ("k", "v"):
            assert schedule.operands[name][n].tolist() == [head // (HEADS // KV_HEADS), kv]
        if "mask" in schedule.operands:
            assert schedule.operands["mask"][n].tolist() == [schedule.mask_block[n]]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12))
def test_fetches_count_changes_of_the_block(steps: list[tuple[int, bool]]) -> None:
    index = np.array([[7, block] for block, _ in steps], dtype=np.int32).reshape(-1, 2)
    runs = np.array([run for _, run in steps], dtype=np.bool_)
    expected, held = [], None
    for block, _ in steps:
        expected.append(block != held)
        held = block
    needed, held = 0, None
    for block, run in steps:
        if run:
            needed += block != held
            held = block
    assert fetches(index).tolist() == expected
    assert fetch_counts(index, runs) == (sum(expected), needed)


def test_one_fetch_a_running_step_of_causal_2048() -> None:
    """136 blocks run; only the second row starts with the block that the first one ended with."""
    mask = Mask(Causal(), 2048, 2048)
    forward = grid_schedule(compile_grid([mask], 128, 128), 1)
    assert int(forward.runs.sum()) == 136
    assert fetch_counts(forward.operands["k"], forward.runs) == (135, 135)
    backward = grid_schedule(compile_grid([mask], 128, 128, "dkv"), 1)
    assert fetch_counts(backward.operands["q"], backward.runs) == (135, 135)


def test_padding_of_a_window_costs_nothing() -> None:
    info = compile_grid([Mask(Local(1024, 0), 8192, 8192)], 128, 128)
    schedule = grid_schedule(info, 1)
    counts = fetch_counts(schedule.operands["k"], schedule.runs)
    assert counts[0] == counts[1]
    assert int((~schedule.runs).sum()) == 64 * 9 - int((info.block_mask > 0).sum()) == 36


def by_hand(**changes: Any) -> Schedule:
    """Four steps: two blocks of the output, two steps each."""
    kinds = {"initialises": [1, 0, 1, 0], "writes": [0, 1, 0, 1], "runs": [1, 1, 1, 1]}
    output = np.array(changes.pop("output", [0, 0, 1, 1]), dtype=np.int32)[:, None]
    flags = {k: np.array(changes.get(k, v), dtype=np.bool_) for k, v in kinds.items()}
    zero = np.zeros(len(output), dtype=np.int32)
    return Schedule(
        "fwd",
        zero,
        output[:, 0],
        zero,
        flags["runs"],
        zero - 1,
        operands={},
        outputs={"o": output},
        initialises={"o": flags["initialises"]},
        writes={"o": flags["writes"]},
        output_blocks={"o": (2,)},
    )


@pytest.mark.parametrize(
    ("function", "changes", "expected"),
    [
        (accumulates_uninitialised, {"initialises": [1, 0, 0, 1]}, [[1]]),
        (accumulates_uninitialised, {"initialises": [0, 0, 0, 0]}, [[0], [1]]),
        (accumulates_uninitialised, {"initialises": [0, 1, 1, 0], "runs": [0, 1, 1, 1]}, []),
        (written_early, {"writes": [1, 0, 0, 1]}, [[0]]),
        (written_early, {"writes": [1, 0, 0, 1], "runs": [1, 0, 1, 1]}, []),
        (unwritten, {"writes": [0, 1, 0, 0]}, [[1]]),
        (unwritten, {"writes": [0, 0, 0, 0]}, [[0], [1]]),
        (revisited, {"output": [0, 1, 0, 1]}, [[0], [1]]),
        (revisited, {}, []),
    ],
)
def test_mistakes_are_located(function: Any, changes: dict[str, Any], expected: Any) -> None:
    assert function(by_hand(**changes), "o").tolist() == expected
