"""The adapters hand the libraries what a problem says, and report what the libraries do."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from conformance.adapter import Adapter, load
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Blocks, Random
from reference.blocks import labels
from reference.flat import FlatMaskInfo, compile_flat
from reference.mask_info import Direction, GridMaskInfo, Shards, compile_grid
from reference.masks import Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask
from reference.outputs import accumulates_uninitialised, revisited, written_early
from reference.schedule import Schedule, expected_work, fetch_counts
from reference.sharding import Shard, every_shard, shard_masks

LIBRARIES = [
    pytest.param(
        name, marks=[pytest.mark.skipif(find_spec(name) is None, reason=f"without {name}"), *marks]
    )
    for name, marks in (("jax", []), ("tokamax", [pytest.mark.tokamax]))
]
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="without jax")
needs_tokamax = pytest.mark.skipif(find_spec("tokamax") is None, reason="without tokamax")

SMALL = Problem(8, 8, (Causal(),), BlockSizes(2, 2), heads=2, kv_heads=2)
KERNEL = Problem(512, 512, (Causal(),), BlockSizes(128, 128), heads=2, kv_heads=2)
STORED = Blocks(("2000", "2a00", "0220", "a02b"), 128, 128)


def adapter(name: str) -> Adapter:
    return load(name)


def schedules(name: str, problem: Problem) -> list[tuple[Schedule, Shard]]:
    made = adapter(name)
    return [
        (made.prepare(problem).schedule(direction, shard), shard)
        for direction in made.describe().directions
        for shard in every_shard(problem.shards)
    ]


@pytest.mark.parametrize("name", LIBRARIES)
class TestBoth:
    def test_description(self, name: str) -> None:
        description = adapter(name).describe()
        assert description.name == name
        assert description.version[0].isdigit()
        assert description.offers("masks", "mask_info", "schedule", "static", "stored_masks")

    @pytest.mark.parametrize(
        ("expr", "kind"),
        [
            (Full(), "FullMask"),
            (Causal(2), "CausalMask"),
            (Local(3, None, 1), "LocalMask"),
            (Causal() & Local(3, 0), "LogicalAnd"),
            (Causal() | Full(), "LogicalOr"),
            (Dense(np.tri(8, dtype=np.bool_)), "NumpyMask"),
            (Random(0.5), "NumpyMask"),
            (Blocks(("2a", "0b"), 4, 4), "NumpyMask"),
        ],
    )
    def test_masks_become_those_of_the_library(self, name: str, expr: Expr, kind: str) -> None:
        mask = adapter(name).prepare(SMALL.but(masks=(expr,))).mask(1)
        assert type(mask).__name__ == kind
        assert type(mask).__module__.endswith("splash_attention_mask")
        assert tuple(mask.shape) == (8, 8)
        np.testing.assert_array_equal(mask[0:8, 0:8], Mask(expr, 8, 8).dense())

    def test_chunked_causal_if_the_release_has_it(self, name: str) -> None:
        made = adapter(name)
        mask = made.prepare(SMALL.but(masks=(ChunkedCausal(3),))).mask(0)
        offered = made.describe().offers("mask:chunked_causal")
        assert type(mask).__name__ == ("ChunkedCausalMask" if offered else "NumpyMask")
        np.testing.assert_array_equal(mask[0:8, 0:8], Mask(ChunkedCausal(3), 8, 8).dense())

    def test_bad_dense_masks_reach_the_library(self, name: str) -> None:
        expr = object.__new__(Dense)
        object.__setattr__(expr, "array", np.ones((8, 8), np.float32))
        with pytest.raises(ValueError, match="Mask must be a boolean array"):  # the library's words
            adapter(name).prepare(SMALL.but(masks=(expr,))).mask(0)

    def test_errors_of_the_library_are_not_caught(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prepared = adapter(name).prepare(SMALL)
        module = __import__(type(prepared).__module__, fromlist=["info_lib"])

        def fail(*args: Any, **kwargs: Any) -> None:
            raise AssertionError

        monkeypatch.setattr(module.info_lib, "process_mask", fail)
        with pytest.raises(AssertionError):
            prepared.mask_info("fwd")

    def test_preparing_computes_nothing(self, name: str) -> None:
        wrong = SMALL.but(blocks=BlockSizes(3, 3))
        adapter(name).prepare(wrong).mask(0)
        with pytest.raises(ValueError, match="block_size"):
            adapter(name).prepare(wrong).mask_info("fwd")

    @pytest.mark.parametrize(
        ("expr", "changes"),
        [
            (Full(), {}),
            *(
                (expr, changes)
                for expr in (Causal(), Local(130, 0), STORED)
                for changes in ({}, {"heads": 4}, {"shards": Shards(q=2)})
            ),
        ],
    )
    def test_kernels_run_the_blocks_of_the_mask(
        self, name: str, expr: Expr, changes: dict[str, Any]
    ) -> None:
        problem = KERNEL.but(masks=(expr,), **changes)
        for schedule, shard in schedules(name, problem):
            masks = shard_masks(problem.head_masks, problem.shards, shard)
            grids = np.stack([labels(mask, 128, 128) for mask in masks])
            work = [tuple(step) for step in schedule.work().tolist()]
            assert len(work) == len(set(work))
            assert set(work) == expected_work(grids)
            for output in schedule.outputs:
                assert not len(accumulates_uninitialised(schedule, output))
                assert not len(written_early(schedule, output))
                assert not len(revisited(schedule, output))

    def test_stored_mask_blocks_of_the_kernel(self, name: str) -> None:
        problem = KERNEL.but(masks=(STORED,))
        dense = problem.head_masks[0].dense()
        for schedule, _ in schedules(name, problem):
            info = adapter(name).prepare(problem).mask_info(schedule.direction)
            stack = info.partial_mask_blocks
            assert stack is not None
            for (_, i, j), place in zip(
                schedule.work(), schedule.mask_block[schedule.runs], strict=True
            ):
                block = dense[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128]
                if not block.all():
                    expected = block.T if schedule.direction == "dkv" else block
                    np.testing.assert_array_equal(stack[place], expected)

    def test_a_single_key_value_head(self, name: str) -> None:
        problem = KERNEL.but(heads=4, kv_heads=1)
        grouped = schedules(name, problem)
        single = schedules(name, problem.but(options=(("mqa", True),)))
        for (one, _), (other, _) in zip(grouped, single, strict=True):
            for operand, index in one.operands.items():
                np.testing.assert_array_equal(index, other.operands[operand])
            np.testing.assert_array_equal(one.work(), other.work())

    def test_dynamic_masks_are_computed_as_the_library_computes_them(self, name: str) -> None:
        made = adapter(name)
        if not made.describe().offers("dynamic_masks"):
            pytest.skip("release without dynamic masks")
        problem = SMALL.but(masks=(Random(0.5, 3),), dynamic=True)
        prepared = made.prepare(problem)
        module = __import__(type(prepared).__module__, fromlist=["info_lib"])
        directions: tuple[Direction, ...] = ("fwd", "dkv")
        for direction in directions:
            info = prepared.mask_info(direction)
            suffix = "_dkv" if direction == "dkv" else ""
            process = getattr(module.info_lib, f"process_dynamic_mask{suffix}")
            dense = np.stack([mask.dense() for mask in problem.head_masks])
            values = pytest.importorskip("jax.numpy").asarray(dense if name == "jax" else dense[0])
            expected = process(values, (2, 2))
            expected = expected[0] if name == "jax" else expected
            for field in ("block_mask", "mask_next", "partial_mask_blocks"):
                array = np.asarray(getattr(expected, field))
                np.testing.assert_array_equal(getattr(info, field), array)
                if field != "partial_mask_blocks":
                    assert getattr(info, field).dtype == array.dtype


@needs_jax
class TestJax:
    def test_arrays_have_the_meaning_of_the_reference(self) -> None:
        problem = SMALL.but(masks=(Causal(), Local(3, 1)), shrink=False)
        directions: tuple[Direction, ...] = ("fwd", "dq", "dkv")
        for direction in directions:
            got = adapter("jax").prepare(problem).mask_info(direction)
            expected = compile_grid(problem.head_masks, 2, 2, direction, shrink=False)
            assert isinstance(got, GridMaskInfo)
            np.testing.assert_array_equal(got.block_mask, expected.block_mask)
            np.testing.assert_array_equal(got.data_next, expected.data_next)

    def test_options_reach_the_library(self) -> None:
        local = SMALL.but(masks=(Local(2, 0),))

        def compiled(problem: Problem) -> GridMaskInfo:
            found = adapter("jax").prepare(problem).mask_info("fwd")
            assert isinstance(found, GridMaskInfo)
            return found

        assert compiled(local).block_mask.shape == (1, 4, 2)
        assert compiled(local.but(shrink=False)).block_mask.shape == (1, 4, 4)
        assert compiled(local).data_next.dtype == np.int8
        assert compiled(local.but(downcast=False)).data_next.dtype == np.int32
        assert compiled(local.but(shards=Shards(head=2))).block_mask.shape == (2, 4, 2)

    def test_computed_masks(self) -> None:
        found = adapter("jax").prepare(SMALL).mask_info("dkv")
        assert found.q_sequence is not None
        assert found.q_sequence.tolist() == list(range(8))
        np.testing.assert_array_equal(found.computed_mask, np.tri(8, dtype=np.bool_))

    def test_heads_are_sharded_like_the_arrays(self) -> None:
        problem = KERNEL.but(masks=(Causal(), Full()), shards=Shards(head=2))
        for direction in ("fwd", "dq", "dkv"):
            prepared = adapter("jax").prepare(problem)
            runs = [int(prepared.schedule(direction, Shard(head=h)).runs.sum()) for h in (0, 1)]
            assert runs == [10, 16]

    def test_the_fused_kernel_stores_partial_sums_of_dq(self) -> None:
        fused = KERNEL.but(options=(("use_fused_bwd_kernel", True),))
        found = adapter("jax").prepare(fused).schedule("dkv", Shard())
        assert set(found.outputs) == {"dq", "dk", "dv"}
        assert found.output_blocks["dq"] == (4, 2, 4)
        apart = adapter("jax").prepare(KERNEL).schedule("dq", Shard())
        assert set(apart.outputs) == {"dq"}
        assert apart.output_blocks["dq"] == (2, 4)

    def test_compute_blocks_inside_memory_blocks(self) -> None:
        blocks = BlockSizes(128, 256, kv_compute=128, kv_dkv_compute=128)
        for schedule, _ in schedules("jax", KERNEL.but(blocks=blocks)):
            assert int(schedule.runs.sum()) == 12
            for output in schedule.outputs:
                assert not len(accumulates_uninitialised(schedule, output))

    def test_fetches_are_those_of_the_index_maps(self) -> None:
        found = adapter("jax").prepare(KERNEL).schedule("fwd", Shard())
        assert fetch_counts(found.operands["q"], found.runs) == (8, 8)
        assert fetch_counts(found.operands["k"], found.runs)[1] == 18


@pytest.mark.tokamax
@needs_tokamax
class TestTokamax:
    def test_lists_have_the_meaning_of_the_reference(self) -> None:
        problem = SMALL.but(masks=(Random(0.3, 1),))
        got = adapter("tokamax").prepare(problem).mask_info("fwd")
        expected = compile_flat(problem.head_masks[0], 2, 2)
        assert isinstance(got, FlatMaskInfo)
        active = expected.block_mask > 0
        np.testing.assert_array_equal(got.active_rows, expected.active_rows[active])
        np.testing.assert_array_equal(got.active_cols, expected.active_cols[active])
        np.testing.assert_array_equal(got.block_mask, expected.block_mask[active])
        np.testing.assert_array_equal(got.partial_mask_blocks, expected.partial_mask_blocks)

    @pytest.mark.parametrize("shards", [Shards(), Shards(q=2), Shards(q=2, kv=2)])
    def test_absent_arrays_list_every_block(self, shards: Shards) -> None:
        prepared = adapter("tokamax").prepare(SMALL.but(masks=(Full(),), shards=shards))
        directions: tuple[Direction, ...] = ("fwd", "dkv")
        for direction in directions:
            found = prepared.mask_info(direction)
            entries = 16 // (shards.q * shards.kv)
            assert found.num_active_blocks.tolist() == [entries] * (shards.q * shards.kv)
            assert found.block_mask.tolist() == [2] * 16
            rows = (4 // shards.kv) if direction == "dkv" else (4 // shards.q)
            listed = set(zip(found.active_rows.tolist(), found.active_cols.tolist(), strict=True))
            assert listed == {(i, j) for i in range(rows) for j in range(entries // rows)}

    def test_the_list_of_dkv_depends_on_the_reduction(self) -> None:
        dense = adapter("tokamax").prepare(SMALL).mask_info("dkv")
        assert len(dense.block_mask) == 16
        listed = SMALL.but(options=(("dq_reduction_steps", 3),))
        compact = adapter("tokamax").prepare(listed).mask_info("dkv")
        assert compact.block_mask.tolist() == [
            label
            for row, column, label in zip(
                dense.active_rows, dense.active_cols, dense.block_mask, strict=True
            )
            if label and row <= column
        ]

    def test_gradients_that_are_read_back_count_once_a_query_head(self) -> None:
        grouped = KERNEL.but(heads=4, options=(("dq_reduction_steps", 3),))
        found = adapter("tokamax").prepare(grouped).schedule("dkv", Shard())
        assert set(found.outputs) == {"dk", "dv"}
        assert found.output_blocks["dk"] == (4, 4)
        np.testing.assert_array_equal(found.outputs["dk"][:, 0], found.head)

    def test_a_run_time_mask_without_any_block(self) -> None:
        empty = KERNEL.but(masks=(Causal(-512),), dynamic=True)
        found = adapter("tokamax").prepare(empty).schedule("fwd", Shard())
        assert len(found) == 0
        assert found.outputs == {}

    def test_stacks_of_sharded_run_time_masks_follow_one_another(self) -> None:
        problem = SMALL.but(masks=(Random(0.5, 3),), dynamic=True, shards=Shards(q=2))
        found = adapter("tokamax").prepare(problem).mask_info("fwd")
        stack, dense = found.partial_mask_blocks, problem.head_masks[0].dense()
        half = len(found.block_mask) // 2
        for entry in np.flatnonzero(found.block_mask == 1):
            row = int(found.active_rows[entry]) + 2 * int(entry >= half)
            column = int(found.active_cols[entry])
            block = dense[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            np.testing.assert_array_equal(stack[found.mask_next[entry]], block)

    def test_key_shards_are_those_of_the_ring(self) -> None:
        problem = KERNEL.but(masks=(STORED,), shards=Shards(kv=2))
        for schedule, shard in schedules("tokamax", problem):
            (mask, _) = shard_masks(problem.head_masks, problem.shards, shard)
            grids = np.stack([labels(mask, 128, 128)] * 2)
            assert set(map(tuple, schedule.work().tolist())) == expected_work(grids)
