"""The adapter of this project's own kernels hands them what a problem says, and reports what they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("pallas_impl")

from conformance.adapter import FEATURES, load
from conformance.adapters.pallas_impl.adapter import PreparedPallasImpl, make
from conformance.adapters.pallas_impl.numerics import (
    OPTIONS,
    schedule_of_arrays,
    stored_in_runs,
)
from conformance.adapters.shared.mask_arrays import STACK
from conformance.adapters.shared.prepared import KernelSpec
from conformance.checks.comparison import forward_matches, gradients_match
from conformance.contract.fence import Subject
from conformance.drawing.signatures import signature
from conformance.problem import BlockSizes, Problem
from conformance.problems.arrays import inputs
from conformance.problems.mask_json import Blocks, Random
from pallas_impl.schedule import unpack_meta
from reference.blocks import labels
from reference.flat import FlatMaskInfo, compile_flat
from reference.mask_info import DIRECTIONS, GridMaskInfo, Shards, compile_grid
from reference.masks import Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask
from reference.outputs import accumulates_uninitialised, revisited, unwritten, written_early
from reference.schedule import Schedule, expected_work
from reference.sharding import Shard, every_shard, shard_masks

SMALL = Problem(8, 8, (Causal(),), BlockSizes(2, 2), heads=2, kv_heads=2)
KERNEL = Problem(512, 512, (Causal(),), BlockSizes(128, 128), heads=2, kv_heads=2)
STORED = Blocks(("2000", "2a00", "0000", "a02b"), 128, 128)
OTHER = Blocks(("0a20", "0000", "2222", "b000"), 128, 128)


def prepared(problem: Problem) -> PreparedPallasImpl:
    return make().prepare(problem)


def with_options(problem: Problem, **options: Any) -> Problem:
    return problem.but(options=tuple(sorted(options.items())))


def test_it_offers_everything_under_its_name() -> None:
    description = load("pallas_impl").describe()
    assert description.name == "pallas_impl"
    assert description.features == FEATURES.keys()
    assert description.empty_logsumexp is None


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        (Full(), "FullMask"),
        (Causal(2), "CausalMask"),
        (Local(3, None, 1), "LocalMask"),
        (ChunkedCausal(3), "ChunkedCausalMask"),
        (Causal() & Local(3, 0), "ComputableAnd"),
        (Causal() | Random(0.5), "OrMask"),
        (Dense(np.tri(8, dtype=np.bool_)), "DenseMask"),
        (Random(0.5), "DenseMask"),
    ],
)
def test_masks_become_those_of_the_library(expr: Expr, kind: str) -> None:
    mask = prepared(SMALL.but(masks=(expr,))).mask(1)
    assert type(mask).__name__ == kind
    np.testing.assert_array_equal(mask[0:8, 0:8], Mask(expr, 8, 8).dense())


class TestMaskInfo:
    def test_grid_layout(self) -> None:
        problem = SMALL.but(masks=(Causal(), Random(0.4)), shards=Shards(q=2))
        for direction in DIRECTIONS:
            got = prepared(problem).mask_info(direction)
            expected = compile_grid(
                problem.head_masks, 2, 2, direction, shards=problem.shards, shrink=True
            )
            assert isinstance(got, GridMaskInfo)
            for name in ("block_mask", "data_next", "mask_next", "partial_mask_blocks"):
                np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))

    def test_flat_layout(self) -> None:
        problem = SMALL.but(
            masks=(Random(0.2),), shards=Shards(q=2, kv=2), layout="flat", downcast=False
        )
        for direction in DIRECTIONS:
            got = prepared(problem).mask_info(direction)
            expected = compile_flat(problem.head_masks[0], 2, 2, direction, shards=problem.shards)
            assert isinstance(got, FlatMaskInfo)
            np.testing.assert_array_equal(got.num_active_blocks, expected.num_active_blocks)
            assert len(got.block_mask) == len(expected.block_mask)
            inside = expected.active_rows >= 0
            np.testing.assert_array_equal(got.block_mask[inside], expected.block_mask[inside])
            assert got.active_rows.dtype == np.int32

    def test_settings_reach_the_compiler(self) -> None:
        window = SMALL.but(masks=(Local(2, 0),))
        for change, shape, dtype in (
            ({}, (1, 4, 2), np.int8),
            ({"shrink": False}, (1, 4, 4), np.int8),
            ({"downcast": False}, (1, 4, 2), np.int32),
            ({"shards": Shards(head=2)}, (2, 4, 2), np.int8),
        ):
            got = prepared(window.but(**change)).mask_info("fwd")
            assert isinstance(got, GridMaskInfo)
            assert got.block_mask.shape == shape
            assert got.data_next.dtype == dtype

    def test_computed_masks(self) -> None:
        for layout in ("grid", "flat"):
            found = prepared(SMALL.but(layout=layout)).mask_info("dkv")
            assert found.q_sequence is not None
            assert found.q_sequence.tolist() == list(range(8))
            np.testing.assert_array_equal(found.computed_mask, np.tri(8, dtype=np.bool_))

    def test_run_time_masks_hold_all_their_blocks(self) -> None:
        problem = SMALL.but(masks=(Random(0.5, 3),), dynamic=True, layout="flat")
        found = prepared(problem).mask_info("fwd")
        assert isinstance(found, GridMaskInfo)
        assert found.partial_mask_blocks is not None
        assert found.partial_mask_blocks.shape == (2, 4, 4, 2, 2)
        expected = np.stack([labels(mask, 2, 2) for mask in problem.head_masks])
        np.testing.assert_array_equal(found.block_mask, expected)


def check_schedule(schedule: Schedule, problem: Problem, shard: Shard) -> None:
    direction = schedule.direction
    sizes = problem.blocks.of(direction)
    masks = shard_masks(problem.head_masks, problem.shards, shard)
    grids = np.stack([labels(mask, *sizes) for mask in masks])
    work = [tuple(step) for step in schedule.work().tolist()]
    assert len(work) == len(set(work))
    assert set(work) == expected_work(grids)
    for output in schedule.outputs:
        for faults in (accumulates_uninitialised, written_early, unwritten, revisited):
            assert not len(faults(schedule, output)), (direction, output, faults)


CHANGES: list[dict[str, Any]] = [
    {},
    {"heads": 4},
    {"shards": Shards(q=2)},
    {"blocks": BlockSizes(128, 256, kv_compute=128, kv_dkv_compute=128)},
    {"masks": (STORED,)},
    {"masks": (STORED, OTHER)},
    {"masks": (STORED, STORED, OTHER, OTHER), "heads": 4},
    {"masks": (STORED, OTHER), "shards": Shards(head=2, q=2)},
    {"masks": (STORED, OTHER), "dynamic": True},
    {"masks": (STORED,), "dynamic": True, "shards": Shards(head=2, q=2)},
]


class TestSchedules:
    @pytest.mark.parametrize(("grid", "fused"), [("flat", False), ("grid2d", True)])
    @pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
    def test_kernels_run_the_blocks_of_the_mask(
        self, change: dict[str, Any], grid: str, fused: bool
    ) -> None:
        problem = with_options(KERNEL.but(**change), grid=grid, use_fused_bwd_kernel=fused)
        made = prepared(problem)
        for direction in made.directions:
            for shard in every_shard(problem.shards):
                check_schedule(made.schedule(direction, shard), problem, shard)

    @pytest.mark.parametrize("grid", ["flat", "grid2d"])
    @pytest.mark.parametrize("expr", [Causal(), Local(130, 0), ChunkedCausal(256), Full()])
    def test_rows_that_are_stored_as_runs(self, expr: Expr, grid: str) -> None:
        problem = with_options(
            KERNEL.but(masks=(expr,)), grid=grid, storage="runs", use_fused_bwd_kernel=False
        )
        made = prepared(problem)
        for direction in DIRECTIONS:
            check_schedule(made.schedule(direction, Shard()), problem, Shard())
        assert len(made.trace("fwd", Shard()).kernel.grid) == 3  # heads, bins, steps

    def test_layouts_choose_the_grid(self) -> None:
        wide = KERNEL.but(q_len=1024, kv_len=1024)
        for layout, steps in (("grid", 8 * 2), ("flat", 4 * 1 + 4 * 2), (None, 12)):
            found = prepared(wide.but(layout=layout)).trace("fwd", Shard())
            assert found.slots == 4
            assert found.kernel.grid == (2, steps)

    def test_slots_are_steps(self) -> None:
        found = prepared(KERNEL).schedule("fwd", Shard())
        assert set(found.buffers) == {"k", "v"}
        assert found.work()[:4].tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 2, 0]]

    def test_stored_mask_blocks_of_the_kernel(self) -> None:
        for dynamic in (False, True):
            problem = KERNEL.but(masks=(STORED, OTHER), dynamic=dynamic)
            made = prepared(with_options(problem, use_fused_bwd_kernel=False))
            for direction in DIRECTIONS:
                schedule = made.schedule(direction, Shard())
                stack = made.mask_info(direction).partial_mask_blocks
                assert stack is not None
                stack = stack.reshape(-1, 128, 128)
                for (h, i, j), place in zip(
                    schedule.work(), schedule.mask_block[schedule.runs], strict=True
                ):
                    dense = problem.head_masks[h].dense()
                    block = dense[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128]
                    if not block.all():
                        expected = block.T if direction == "dkv" else block
                        np.testing.assert_array_equal(stack[place], expected)

    def test_a_single_key_value_head(self) -> None:
        problem = KERNEL.but(heads=4, kv_heads=1)
        made = [prepared(with_options(problem, mqa=mqa)) for mqa in (False, True)]
        for direction in made[0].directions:
            grouped, single = (p.schedule(direction, Shard()) for p in made)
            for operand, index in grouped.operands.items():
                np.testing.assert_array_equal(index, single.operands[operand])

    def test_the_kernel_of_dq_is_the_split_one(self) -> None:
        fused, split = prepared(KERNEL), prepared(with_options(KERNEL, use_fused_bwd_kernel=False))
        assert fused.directions == ("fwd", "dkv")
        assert split.directions == DIRECTIONS
        assert set(fused.schedule("dkv", Shard()).outputs) == {"dk", "dv", "dq"}
        assert set(split.schedule("dkv", Shard()).outputs) == {"dk", "dv"}
        for made in (fused, split):
            assert set(made.schedule("dq", Shard()).outputs) == {"dq"}


def test_which_masks_are_runs() -> None:
    runs = KERNEL.but(masks=(Local(130, 0),))
    assert stored_in_runs(runs)
    assert stored_in_runs(KERNEL.but(masks=(Blocks(("22", "02"), 256, 256),)))
    assert not stored_in_runs(KERNEL.but(masks=(STORED,)))
    assert not stored_in_runs(KERNEL.but(masks=(Blocks(("2020",) * 4, 128, 128),)))
    assert not stored_in_runs(KERNEL.but(masks=(Blocks(("2", "0", "2", "0"), 128, 512),)))
    assert not stored_in_runs(KERNEL.but(masks=(Causal(), Full())))
    assert not stored_in_runs(runs.but(dynamic=True))
    problem = with_options(KERNEL.but(masks=(STORED,)), storage="runs")
    assert prepared(problem).storage() is None


class TestEdits:
    def test_schedules_of_unchanged_arrays_are_those_of_the_kernel(self) -> None:
        problem = KERNEL.but(masks=(STORED,))
        for shrink in (True, False):
            info = prepared(problem.but(shrink=shrink)).mask_info("fwd")
            assert isinstance(info, GridMaskInfo)
            kernel = prepared(problem).shard_kernel(None, Shard())
            made = schedule_of_arrays(info, 4, 4)
            own = kernel.plan.forward.schedule
            np.testing.assert_array_equal(made.words, own.words)
            np.testing.assert_array_equal(made.entries, own.entries)

    def test_full_positions_keep_their_mask_block(self) -> None:
        info = prepared(KERNEL.but(masks=(STORED,), shrink=False)).mask_info("fwd")
        assert isinstance(info, GridMaskInfo)
        assert info.mask_next is not None
        changed = info.mask_next.astype(np.int32)
        changed[info.block_mask == 2] = 9
        found = schedule_of_arrays(replace(info, mask_next=changed), 4, 4)
        meta, slots = unpack_meta(np.asarray(found.words)[0]), found.layout.slots
        full = (meta.full[:, None] >> np.arange(slots)) & 1 == 1
        assert full.sum(axis=1).tolist() == [1, 1, 0, 1]
        assert np.all((np.asarray(found.mask_ids).reshape(4, slots) == 9) == full)

    def test_a_block_named_twice(self) -> None:
        info = prepared(KERNEL.but(masks=(STORED,), shrink=False)).mask_info("fwd")
        assert isinstance(info, GridMaskInfo)
        with pytest.raises(ValueError, match="data_next"):
            schedule_of_arrays(replace(info, data_next=np.zeros_like(info.data_next)), 4, 4)

    def test_edited_arrays_are_run(self) -> None:
        problem = signature("plain").build(make().describe(), (Blocks(("2a", "b2"), 128, 128),))

        def hide_all(info: Any) -> Any:
            return replace(info, block_mask=np.zeros_like(info.block_mask))

        found = prepared(problem).forward(inputs(problem), edit=hide_all)
        assert not found.output.any()
        same = prepared(problem).forward(inputs(problem), edit=lambda info: info)
        before = prepared(problem).forward(inputs(problem))
        np.testing.assert_array_equal(same.output, before.output)


class TestNumbers:
    """That all of this reaches the kernels; whether they are right is for the checks."""

    def subject(self) -> Subject:
        adapter = make()
        return Subject(adapter, adapter.describe())

    @pytest.mark.parametrize("name", ["gqa-v-cap-sinks-bfloat16", "segments-blocks", "ring2-sinks"])
    def test_features(self, name: str) -> None:
        item, subject = signature(name), self.subject()
        runs = ((0, 100), (1, 156)), ((0, 90), (1, 166))
        problem = item.build(
            subject.description,
            (Causal(),),
            segments=runs if item.segments else None,
            sinks=(0.5,) * item.heads if item.sinks else None,
        )
        forward_matches(subject, problem, residuals=True)
        gradients_match(subject, problem)

    def test_uninitialised_memory(self) -> None:
        subject = self.subject()
        problem = signature("plain").build(subject.description, (Causal(),))
        found = subject.prepare(problem).forward(inputs(problem), uninitialised=True)
        np.testing.assert_array_equal(found.output, subject.forward(problem).output)

    def test_arithmetic(self) -> None:
        for dtype, probability in (("float32", 2.0**-24), ("bfloat16", 2.0**-8)):
            found = prepared(KERNEL.but(dtype=dtype)).arithmetic()
            assert found.forward.base2
            assert found.forward.probability_u == probability

    def test_settings_reach_the_library(self) -> None:
        problem = with_options(KERNEL, residual_checkpoint_name="kept", storage="runs")
        made = prepared(problem.but(soft_cap=2.0)).numeric_arguments(
            KernelSpec(residuals=True, uninitialised=True)
        )
        assert made["attn_logits_soft_cap"] == 2.0
        assert made["residual_checkpoint_name"] == "kept"
        assert made["storage"] == "runs"
        assert made["save_residuals"]
        assert made["interpret"].uninitialized_memory == "nan"
        assert made["interpret"].detect_races

    def test_equal_kernels_are_compiled_once(self) -> None:
        problem = signature("plain").build(make().describe(), (Blocks(("aa", "a2"), 128, 128),))
        other = problem.but(masks=(Blocks(("r2", "2s"), 128, 128),))
        (one, first), (two, second) = (
            prepared(p).make_kernel(KernelSpec()) for p in (problem, other)
        )
        assert one == two
        assert hash(one) == hash(two)
        stacks = [[leaf.shape for leaf in leaves if leaf.ndim == 3] for leaves in (first, second)]
        # One stored block and two: the stacks are filled up to the same size.
        assert stacks[0] == stacks[1] == [(STACK, 128, 128)] * 3

    def test_options_have_a_default(self) -> None:
        assert {values[0] for values in OPTIONS.values()} == {None, False}
