"""Steps, fetches and scalar arrays are those of the reference's compiled arrays, and of our own kernels' plans."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pallas_impl.masks
import pallas_impl.schedule
from conformance.adapters.pallas_impl.adapter import PreparedPallasImpl
from conformance.adapters.shared.masks import library_mask
from conformance.explain.blocks import survey
from conformance.explain.blocks.survey import Cut
from conformance.explain.costs import layouts
from conformance.explain.costs.dynamic import dynamic_schedules
from conformance.explain.costs.layouts import Compiled, Schedule, schedules
from conformance.explain.costs.memory import smem_total
from conformance.explain.costs.visits import Heads, cached_fetches, flash_fetches, rows_of
from conformance.explain.language.expressions import Prefix
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Random
from pallas_impl import memory_budget
from pallas_impl.block_sizes import BlockSizes as OurBlockSizes
from pallas_impl.plan import Sharding, make_plan
from reference import schedule as reference_schedule
from reference.flat import compile_flat
from reference.mask_info import Direction, Shards, compile_grid
from reference.masks import Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask
from reference.schedule import fetches
from reference.sharding import Shard, slice_flat, slice_grid
from tests.explain.masks import Case, cases

HEADS = st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda n: Heads(n[0] * n[1], n[0]))
DIRECTIONS: tuple[Direction, ...] = ("fwd", "dkv")


def _compiled(case: Case) -> Compiled:
    cut = Cut(case.expr, case.q_len, case.kv_len, case.block_q, case.block_kv)
    labels = cut.labels()
    ids, distinct = cut.partial_ids(labels)
    return Compiled(case.expr, labels, ids, distinct, case.block_q, case.block_kv)


def _sizes(schedule: Schedule) -> dict[str, tuple[tuple[int, ...], str]]:
    return {array.name: (array.shape, array.dtype) for array in schedule.arrays}


def _described(info: Any, *names: str) -> dict[str, tuple[tuple[int, ...], str]]:
    arrays = {name: getattr(info, name) for name in names}
    return {name: (a.shape, str(a.dtype)) for name, a in arrays.items() if a is not None}


def _check_counts(schedule: Schedule, steps: reference_schedule.Schedule, heads: Heads) -> None:
    assert len(steps) == schedule.steps * heads.q
    assert int(fetches(steps.operands["k"]).sum()) == schedule.k_fetches
    expected = int(fetches(steps.operands["mask"]).sum()) if "mask" in steps.operands else 0
    assert expected == schedule.mask_fetches


@settings(max_examples=100, deadline=None, database=None)
@given(case=cases(), heads=HEADS, batch=st.sampled_from([30, 1 << 21]))
def test_the_grid_is_that_of_the_reference(case: Case, heads: Heads, batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "BATCH", batch)
        made = {d: schedules(_compiled(case), heads, d) for d in DIRECTIONS}
    for direction in DIRECTIONS:
        for shrink in (False, True):
            info = compile_grid(
                [case.mask] * heads.q, case.block_q, case.block_kv, direction, shrink=shrink
            )
            schedule = made[direction][int(shrink)]
            assert _sizes(schedule) == _described(info, "data_next", "block_mask", "mask_next")
            assert schedule.computed == (info.computed_mask is not None)
            if direction == "fwd":
                one = slice_grid(info, Shards(), Shard(), heads=heads.q)
                steps = reference_schedule.grid_schedule(one, kv_heads=heads.kv)
                _check_counts(schedule, steps, heads)


@settings(max_examples=100, deadline=None, database=None)
@given(case=cases(), heads=HEADS)
def test_the_flat_list_is_that_of_the_reference(case: Case, heads: Heads) -> None:
    for direction in DIRECTIONS:
        info = compile_flat(case.mask, case.block_q, case.block_kv, direction)
        schedule = schedules(_compiled(case), heads, direction)[2]
        found = _sizes(schedule)
        entries = (len(info.active_rows),)
        assert (
            found.pop("bounds_start") == found.pop("bounds_end") == (entries, "int32")
        )  # a kernel's own
        names = ("active_rows", "active_cols", "block_mask", "mask_next")
        assert found == _described(info, *names)
        if direction == "fwd":
            rows = case.q_len // case.block_q
            one = slice_flat(info, Shards(), Shard())
            _check_counts(
                schedule, reference_schedule.flat_schedule(one, heads.q, heads.kv, rows), heads
            )


@settings(max_examples=50, deadline=None, database=None)
@given(case=cases(), heads=HEADS)
def test_flash_attention_visits_every_block(case: Case, heads: Heads) -> None:
    full = Mask(Full(), case.q_len, case.kv_len)
    info = compile_grid([full] * heads.q, case.block_q, case.block_kv, shrink=False)
    steps = reference_schedule.grid_schedule(
        slice_grid(info, Shards(), Shard(), heads=heads.q), heads.kv
    )
    rows, columns = info.block_mask.shape[1:]
    assert flash_fetches(rows, columns, heads) == int(fetches(steps.operands["k"]).sum())


def _ours() -> list[Case]:
    rng = np.random.default_rng(0)
    holes = np.kron(rng.random((8, 8)) < 0.4, np.ones((128, 128), bool))
    masks: list[Expr] = [
        Causal(),
        Causal(-300),
        Local(200, 0),
        Local(None, 100, 40),
        ChunkedCausal(384),
        Full(),
        Causal() & Local(300, None),
        Causal() | Local(0, 200),
        Prefix(100) | Causal(),
        Dense(holes),
        Dense(holes & (rng.random(holes.shape) < 0.5)),
        Random(0.1),
    ]
    blocks = [(128, 128), (256, 128), (128, 256), (512, 512), (1024, 1024), (128, 512)]
    return [Case(mask, 1024, 1024, *blocks[n % 6]) for n, mask in enumerate(masks * 2)] + [
        Case(mask, 2048, 768, 256, 128) for mask in masks[:8]
    ]


@pytest.mark.parametrize("table_bytes", [100, 256 << 10])
def test_our_schedules_are_those_of_our_plans(
    table_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "TABLE_BYTES", table_bytes)
    monkeypatch.setattr(pallas_impl.schedule, "TABLE_LIMIT_BYTES", table_bytes)
    storages = set()
    for case in _ours():
        mask = library_mask(pallas_impl.masks, case.expr, case.q_len, case.kv_len)
        plan, _, _ = make_plan(mask, OurBlockSizes(case.block_q, case.block_kv), Sharding())
        for direction, own in (("fwd", plan.forward), ("dkv", plan.dkv)):
            schedule = schedules(_compiled(case), Heads(1, 1), direction)[3]
            arrays = {name: np.asarray(array) for name, array in own.schedule.arrays().items()}
            starts = (own.mask.q_starts, own.mask.kv_starts)
            if starts[0] is not None:
                names = ("row_starts", "column_starts")
                arrays |= dict(
                    zip(names, starts if direction == "fwd" else starts[::-1], strict=True)
                )
            sizes = {name: ((array.size,), "int32") for name, array in arrays.items()}
            assert _sizes(schedule) == sizes
            used = sum(map(memory_budget.smem_bytes, arrays.values()))
            assert smem_total(schedule) == used + memory_budget.SMEM_RESERVED
            layout = own.schedule.layout
            lines = layout.bins if layout.storage == "runs" else 1
            assert (schedule.steps, schedule.slots) == (layout.steps * lines, layout.slots)
            stack = own.mask.blocks
            assert schedule.stored == (stack is not None)
            storages.add(layout.storage)
    assert storages == ({"runs", "table"} if table_bytes == 100 else {"table"})


@pytest.mark.parametrize("number", [0, 2, 9, 10, 24])
@pytest.mark.parametrize("table_bytes", [100, 256 << 10])
@pytest.mark.parametrize("heads", [Heads(1, 1), Heads(4, 2)], ids=["alone", "grouped"])
def test_our_kernels_fetch_what_is_predicted(
    number: int, table_bytes: int, heads: Heads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "TABLE_BYTES", table_bytes)
    monkeypatch.setattr(pallas_impl.schedule, "TABLE_LIMIT_BYTES", table_bytes)
    case = _ours()[number]
    sizes = BlockSizes(case.block_q, case.block_kv)
    problem = Problem(
        case.q_len, case.kv_len, (case.expr,), sizes, heads=heads.q, kv_heads=heads.kv
    )
    seen = PreparedPallasImpl(problem).schedule("fwd", Shard())
    schedule = schedules(_compiled(case), heads)[3]
    counted = int(seen.copies_of("k").sum())
    assert schedule.k_fetches is not None
    if schedule.k_at_most:
        kept = schedule.slots * (heads.q - heads.kv)
        assert schedule.k_fetches - kept <= counted <= schedule.k_fetches
    else:
        assert counted == schedule.k_fetches
    assert schedule.k_at_most == (heads.q > heads.kv and schedule.slots > 1)
    if schedule.stored:
        masks = int(seen.copies_of("mask").sum())
        assert masks <= schedule.mask_fetches
        assert schedule.mask_at_most or masks == schedule.mask_fetches


@settings(max_examples=60, deadline=None, database=None)
@given(
    grid=st.integers(0, 999).map(
        lambda seed: np.random.default_rng(seed).integers(0, 3, (seed % 6 + 1, seed % 9 + 1))
    ),
    slots=st.integers(1, 4),
)
def test_no_kernel_with_as_many_memories_fetches_less(
    grid: np.ndarray[Any, Any], slots: int
) -> None:
    """Every way of keeping blocks is tried, step by step."""
    rows = rows_of(grid.astype(np.int8), slots)
    best: dict[frozenset[int], int] = {frozenset(): 0}
    for row in grid:
        columns = np.flatnonzero(row).tolist()
        for at in range(0, len(columns), rows.slots):
            wanted = set(columns[at : at + rows.slots])
            now: dict[frozenset[int], int] = {}
            for held, cost in best.items():
                spare = held - wanted
                for number in range(min(len(spare), rows.slots - len(wanted)) + 1):
                    for kept in itertools.combinations(spare, number):
                        after = frozenset(wanted | set(kept))
                        total = cost + len(wanted - held)
                        now[after] = min(total, now.get(after, total))
            best = now
    expected = max(1, min(best.values()))
    assert cached_fetches(rows, Heads(1, 1)) == expected
    assert cached_fetches(rows, Heads(6, 2)) == (6 * expected if grid.any() else 2)


def test_long_rows_are_folded_with_short_ones() -> None:
    pairs = layouts.folded(np.array([1, 2, 3, 4]))
    assert pairs == [(3,), (2, 0), (1,)]
    assert layouts.folded(np.array([2, 2])) == [(0,), (1,)]


def test_arrays_of_a_run_time_mask() -> None:
    case = Case(Causal(), 1024, 2048, 128, 256)
    grid, flat, ours = dynamic_schedules(_compiled(case), Heads(4, 2))
    assert _sizes(grid) == {
        "data_next": ((4, 8, 8), "int8"),
        "block_mask": ((4, 8, 8), "int8"),
        "mask_next": ((4, 8, 8), "int16"),
    }
    assert _sizes(flat)["active_rows"] == ((64,), "int32")
    assert _sizes(flat)["mask_next"] == ((64,), "int8")
    assert _sizes(ours) == {
        "words": ((4 * 8 * 4,), "int32"),
        "entries": ((4 * 8 * 8,), "int32"),
        "mask_ids": ((4 * 8 * 8,), "int32"),
    }
