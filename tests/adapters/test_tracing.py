"""The observer of Pallas kernels, on kernels whose behaviour is known."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

from conformance.adapters.tracing import (  # noqa: E402
    BlockAxes,
    KernelTrace,
    TraceError,
    evaluate_program,
    schedule_from_trace,
    trace_kernels,
    trace_program,
)
from conformance.adapters.tracing.primitives import evaluate  # noqa: E402
from reference.outputs import accumulates_uninitialised, unwritten, written_early  # noqa: E402
from reference.schedule import Schedule  # noqa: E402

TILE = (8, 128)
X = jax.ShapeDtypeStruct((4 * TILE[0], TILE[1]), jnp.float32)


def call(
    body: Callable[..., None],
    *,
    grid: tuple[Any, ...] = (4,),
    scratch: tuple[Any, ...] = (pltpu.VMEM(TILE, jnp.float32),),
    index: Callable[..., Any] = lambda i, *_: (i, 0),
    scalars: int = 0,
    **options: Any,
) -> Callable[..., Any]:
    """A kernel from one array of four tiles to another."""
    spec = pl.BlockSpec(TILE, index)
    kernel: Callable[..., Any] = pl.pallas_call(
        body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=scalars,
            grid=grid,
            in_specs=[spec],
            out_specs=spec,
            scratch_shapes=list(scratch),
        ),
        out_shape=X,
        **options,
    )
    return kernel


def trace(body: Callable[..., None], *args: Any, **options: Any) -> KernelTrace:
    (found,) = trace_kernels(call(body, **options), *args, X)
    return found


def when(condition: Any) -> Callable[[Callable[[], None]], None]:
    decorate: Callable[[Callable[[], None]], None] = pl.when(condition)
    return decorate


def product(x: Any) -> Any:
    return jnp.dot(x, jnp.ones((TILE[1], TILE[1]), jnp.float32))


def store(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
    o_ref[...] = x_ref[...]


class TestBlocks:
    def test_names_shapes_and_indices(self) -> None:
        found = trace(store)
        (x,), (o,) = found.operands, found.outputs
        assert (x.name, o.name, found.scratch) == ("x_ref", "o_ref", ("acc_ref",))
        assert x.block_shape == TILE
        assert x.array_shape == X.shape
        assert x.blocks == (4, 1)
        np.testing.assert_array_equal(x.index, [[0, 0], [1, 0], [2, 0], [3, 0]])
        assert found.block("x_ref") is found.block(x.origin) is x

    def test_unknown_block(self) -> None:
        with pytest.raises(KeyError, match=r"no block 'y_ref', only \['x_ref', 'o_ref'\]"):
            trace(store).block("y_ref")

    @pytest.mark.parametrize("grid", [(2, 2), (1, 2, 2), (2, 1, 2, 1)])
    def test_grids_of_any_rank_run_the_last_axis_fastest(self, grid: tuple[int, ...]) -> None:
        def index(*ids: Any) -> Any:
            number = 0
            for i, size in zip(ids, grid, strict=True):
                number = number * size + i
            return number, 0

        found = trace(store, grid=grid, index=index)
        assert found.grid == grid
        assert found.operands[0].index[:, 0].tolist() == [0, 1, 2, 3]

    def test_index_maps_read_scalars(self) -> None:
        def body(order_ref: Any, x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        order = jnp.array([2, 0, 0, 3], jnp.int8)
        found = trace(
            body, order, scalars=1, index=lambda i, order: (order[i].astype(jnp.int32), 0)
        )
        assert found.operands[0].index[:, 0].tolist() == [2, 0, 0, 3]

    def test_dynamic_grid(self) -> None:
        def fn(count: Any, x: Any) -> Any:
            return call(store, grid=(count[0] + 1,))(x)

        (found,) = trace_kernels(fn, jnp.array([2]), X)
        assert found.grid == (3,)
        assert len(found) == 3

    def test_squeezed_axes_count_single_entries(self) -> None:
        def body(x_ref: Any, o_ref: Any) -> None:
            assert x_ref.shape == (128,)
            o_ref[...] = x_ref[...]

        spec = pl.BlockSpec((None, 128), lambda i: (3 - i, 0))
        wide = jax.ShapeDtypeStruct((4, 128), jnp.float32)
        fn = pl.pallas_call(body, grid=(4,), in_specs=[spec], out_specs=spec, out_shape=wide)
        (found,) = trace_kernels(fn, wide)
        assert found.operands[0].block_shape == (1, 128)
        assert found.operands[0].index[:, 0].tolist() == [3, 2, 1, 0]

    @pytest.mark.skipif(not hasattr(pl, "Element"), reason="release without Element blocks")
    def test_indices_in_entries_become_indices_in_blocks(self) -> None:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        fn = pl.pallas_call(
            body,
            grid=(4,),
            in_specs=[pl.BlockSpec((pl.Element(8), pl.Element(128)), lambda i: (i * 8, 0))],
            out_specs=pl.BlockSpec(TILE, lambda i: (i, 0)),
            out_shape=X,
        )
        (found,) = trace_kernels(fn, X)
        assert found.operands[0].index[:, 0].tolist() == [0, 1, 2, 3]

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 2))
    def test_agrees_with_what_the_kernel_reads(self, order: list[int], shift: int) -> None:
        def index(i: Any, order_ref: Any) -> Any:
            return jax.lax.rem(order_ref[i] + shift * (i // 2), 4), 0

        def body(order_ref: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        fn = pl.pallas_call(
            body,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(4,),
                in_specs=[pl.BlockSpec(TILE, index)],
                out_specs=pl.BlockSpec(TILE, lambda i, _: (i, 0)),
            ),
            out_shape=X,
            interpret=True,
        )
        x = jnp.repeat(jnp.arange(4, dtype=jnp.float32), TILE[0])[:, None] * jnp.ones((1, 128))
        scalars = jnp.array(order, jnp.int32)
        (found,) = trace_kernels(fn, scalars, X)
        seen = np.asarray(fn(scalars, x))[:: TILE[0], 0]
        np.testing.assert_array_equal(found.operands[0].index[:, 0], seen)


class TestEvents:
    def test_branches_on_scalars(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            @when(pl.program_id(0) % 2 == 0)
            def run() -> None:
                o_ref[...] = product(x_ref[...])

        found = trace(body)
        even = [True, False, True, False]
        assert found.computes.tolist() == found.may_compute.tolist() == even
        assert found.accesses["o_ref"].writes.tolist() == even
        assert found.accesses["x_ref"].reads.tolist() == even
        assert not found.accesses["acc_ref"].may_write.any()

    def test_branches_with_results(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            i = pl.program_id(0)
            picked = jax.lax.cond(i < 2, lambda: i + 1, lambda: i * 0)
            pl.when(picked == 2)(lambda: o_ref.__setitem__(..., x_ref[...]))

        assert trace(body).accesses["o_ref"].writes.tolist() == [False, True, False, False]

    def test_branches_on_data_may_or_may_not_run(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            @when(x_ref[0, 0] > 0)
            def run() -> None:
                o_ref[...] = product(x_ref[...])

        found = trace(body)
        assert not found.computes.any()
        assert found.may_compute.all()
        writes = found.accesses["o_ref"]
        assert not writes.writes.any()
        assert writes.may_write.all()

    def test_unused_reads_do_not_count(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            del acc_ref
            _ = x_ref[...]
            o_ref[...] = jnp.zeros(TILE)

        found = trace(body)
        assert not found.accesses["x_ref"].reads.any()
        assert not found.accesses["o_ref"].reads.any()  # a store is a swap whose result is ignored

    def test_scalars_of_a_small_operand(self) -> None:
        def body(flags_ref: Any, x_ref: Any, o_ref: Any) -> None:
            @when(flags_ref[0, pl.program_id(0)] == 1)
            def run() -> None:
                o_ref[...] = x_ref[...]

        fn = pl.pallas_call(
            body,
            grid=(4,),
            in_specs=[
                pl.BlockSpec((1, 4), lambda i: (0, 0), memory_space=pltpu.SMEM),
                pl.BlockSpec(TILE, lambda i: (i, 0)),
            ],
            out_specs=pl.BlockSpec(TILE, lambda i: (i, 0)),
            out_shape=X,
        )
        (found,) = trace_kernels(fn, jnp.array([[1, 0, 0, 1]]), X)
        assert found.accesses["o_ref"].writes.tolist() == [True, False, False, True]

    def test_written_scalars_are_no_longer_known(self) -> None:
        def body(flags_ref: Any, x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            @when(flags_ref[0] == 1)
            def run() -> None:
                o_ref[...] = product(x_ref[...])

            flags_ref[0] = flags_ref[0] + 1

        found = trace(body, jnp.array([1]), scalars=1)
        assert not found.computes.any()
        assert not found.accesses["o_ref"].writes.any()
        assert found.accesses["o_ref"].may_write.all()

    def test_indices_out_of_range(self) -> None:
        def body(order_ref: Any, x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            value = order_ref[pl.program_id(0) * 2]
            pl.when(value == 0)(lambda: o_ref.__setitem__(..., x_ref[...]))

        found = trace(body, jnp.zeros(4, jnp.int32), scalars=1)
        assert found.accesses["order_ref"].out_of_range.tolist() == [False, False, True, True]

    def test_hand_written_copies(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any, semaphore: Any) -> None:
            copy = pltpu.make_async_copy(x_ref, acc_ref, semaphore)
            copy.start()
            copy.wait()
            o_ref[...] = acc_ref[...]

        scratch = (pltpu.VMEM(TILE, jnp.float32), pltpu.SemaphoreType.DMA)
        found = trace(body, scratch=scratch)
        assert found.manual_copies
        with pytest.raises(TraceError, match="copies data by itself"):
            schedule(found)


class TestLoops:
    @pytest.mark.parametrize("unroll", [True, False])
    def test_a_loop_of_known_length(self, unroll: bool) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            def step(k: Any, _: Any) -> None:
                @when(k + pl.program_id(0) == 3)
                def run() -> None:
                    o_ref[pl.ds(4 * k, 4), :] = product(x_ref[pl.ds(4 * k, 4), :])

            jax.lax.fori_loop(0, 2, step, None, unroll=unroll)

        assert trace(body).computes.tolist() == [False, False, True, True]

    def test_a_loop_whose_length_differs_by_step(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            def step(k: Any, _: Any) -> None:
                @when(k == 1)
                def run() -> None:
                    o_ref[...] = product(x_ref[...])

            jax.lax.fori_loop(0, pl.program_id(0), step, None)

        found = trace(body)
        assert found.computes.tolist() == [False, False, True, True]
        assert found.may_compute.tolist() == found.computes.tolist()

    def test_a_loop_whose_length_depends_on_data(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            def step(_: Any) -> Any:
                o_ref[...] = product(x_ref[...])
                return x_ref[0, 0]

            jax.lax.while_loop(lambda x: x > 0, step, x_ref[0, 0])

        found = trace(body)
        assert not found.computes.any()
        assert found.may_compute.all()

    def test_a_loop_too_long_to_follow(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            def step(k: Any, total: Any) -> Any:
                return total + product(x_ref[...])

            o_ref[...] = jax.lax.fori_loop(0, 1000, step, jnp.zeros(TILE))

        found = trace(body)
        assert found.computes.all()
        assert found.accesses["o_ref"].writes.all()

    def test_scoped_scratch(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            def scope(tmp_ref: Any) -> None:
                tmp_ref[...] = product(x_ref[...])
                acc_ref[...] += tmp_ref[...]
                o_ref[...] = acc_ref[...]

            pl.run_scoped(scope, pltpu.VMEM(TILE, jnp.float32))

        found = trace(body)
        assert found.computes.all()
        assert found.accumulators == {"o_ref": ("acc_ref",)}


def schedule(found: KernelTrace) -> Schedule:
    """The four tiles as q blocks of one head."""
    where = BlockAxes("x_ref", (None, 0))
    return schedule_from_trace(
        found,
        direction="fwd",
        operands={"q": where, "k": where},
        outputs={"o": BlockAxes("o_ref", (None, 0))},
    )


def rows_of_two(body: Callable[..., None]) -> Schedule:
    """Two output blocks, each the sum over two steps."""
    return schedule(trace(body, grid=(2, 2), index=lambda i, j: (i, 0)))


def accumulate(
    first: int = 0, last: int = 1, *, reset: bool = True, late: bool = False
) -> Callable[..., None]:
    """A body that resets, sums up, and stores at chosen steps of a row of two."""

    def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
        j = pl.program_id(1)

        @when((j == first) & reset)
        def init() -> None:
            acc_ref[...] = jnp.zeros(TILE)

        acc_ref[...] += product(x_ref[...])

        @when(j == last)
        def end() -> None:
            o_ref[...] = acc_ref[...]
            if late:
                acc_ref[...] = jnp.zeros(TILE)

    return body


class TestSchedule:
    def test_positions_and_columns(self) -> None:
        found = rows_of_two(accumulate())
        assert found.head.tolist() == [0, 0, 0, 0]
        assert found.q_block.tolist() == found.kv_block.tolist() == [0, 0, 1, 1]
        assert found.outputs["o"].tolist() == [[0, 0], [0, 0], [0, 1], [0, 1]]
        assert found.output_blocks["o"] == (1, 4)
        assert found.mask_block.tolist() == [-1] * 4
        assert found.runs.all()

    def test_a_kernel_that_does_everything_in_time(self) -> None:
        found = rows_of_two(accumulate())
        assert found.initialises["o"].tolist() == [True, False, True, False]
        assert found.writes["o"].tolist() == [False, True, False, True]
        assert not len(accumulates_uninitialised(found, "o"))
        assert not len(written_early(found, "o"))
        assert unwritten(found, "o").tolist() == [[0, 2], [0, 3]]  # the grid has two rows

    def test_a_kernel_that_never_resets(self) -> None:
        assert len(accumulates_uninitialised(rows_of_two(accumulate(reset=False)), "o")) == 2

    def test_a_kernel_that_resets_too_late(self) -> None:
        found = rows_of_two(accumulate(first=1))
        assert accumulates_uninitialised(found, "o").tolist() == [[0, 0], [0, 1]]

    def test_a_kernel_that_stores_too_early(self) -> None:
        assert written_early(rows_of_two(accumulate(last=0)), "o").tolist() == [[0, 0], [0, 1]]

    def test_a_kernel_that_resets_for_the_next_row(self) -> None:
        found = rows_of_two(accumulate(reset=False, late=True))
        assert found.initialises["o"].tolist() == [False, False, True, False]
        assert accumulates_uninitialised(found, "o").tolist() == [[0, 0]]

    def test_a_kernel_that_overwrites_at_its_first_step(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            new = product(x_ref[...])
            acc_ref[...] = jnp.where(pl.program_id(1) == 0, new, acc_ref[...] + new)
            o_ref[...] = acc_ref[...]

        found = rows_of_two(body)
        # The memory is read at every step, but where the sum starts nothing of it is used.
        assert found.initialises["o"].tolist() == [True, False, True, False]
        assert not len(accumulates_uninitialised(found, "o"))

    def test_a_kernel_that_sums_up_in_its_output(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            @when(pl.program_id(1) == 0)
            def init() -> None:
                o_ref[...] = jnp.zeros(TILE)

            o_ref[...] += product(x_ref[...])

        found = rows_of_two(body)
        assert found.initialises["o"].tolist() == [True, False, True, False]
        assert found.writes["o"].all()

    def test_a_kernel_without_any_sum(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            o_ref[...] = product(x_ref[...])

        assert schedule(trace(body)).initialises["o"].all()

    @pytest.mark.parametrize(("second", "complete"), [(4, True), (0, False)])
    def test_a_reset_in_two_halves(self, second: int, complete: bool) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            @when(pl.program_id(1) == 0)
            def init() -> None:
                acc_ref[pl.ds(0, 4), :] = jnp.zeros((4, 128))
                acc_ref[pl.ds(second, 4), :] = jnp.zeros((4, 128))

            acc_ref[...] += product(x_ref[...])
            o_ref[...] = acc_ref[...]

        found = rows_of_two(body)
        assert found.initialises["o"].tolist() == [complete, False, complete, False]

    def test_all_accumulators_must_be_reset(self) -> None:
        def body(x_ref: Any, o_ref: Any, acc_ref: Any, max_ref: Any) -> None:
            @when(pl.program_id(1) == 0)
            def init() -> None:
                acc_ref[...] = jnp.zeros(TILE)

            max_ref[...] = jnp.maximum(max_ref[...], x_ref[...])
            acc_ref[...] = acc_ref[...] * max_ref[...] + product(x_ref[...])
            o_ref[...] = acc_ref[...]

        scratch = (pltpu.VMEM(TILE, jnp.float32),) * 2
        found = trace(body, grid=(2, 2), index=lambda i, j: (i, 0), scratch=scratch)
        assert found.accumulators == {"o_ref": ("acc_ref", "max_ref")}
        assert not schedule(found).initialises["o"].any()

    @pytest.mark.parametrize("reset", [True, False])
    def test_an_output_that_serves_as_scratch(self, reset: bool) -> None:
        """The accumulator is an output of one block, and no row runs more than one step."""

        def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            @when(pl.program_id(1) == 0)
            def only() -> None:
                if reset:
                    acc_ref[...] = jnp.zeros(TILE)
                acc_ref[...] += product(x_ref[...])

            @when(pl.program_id(1) == 1)
            def end() -> None:
                o_ref[...] = acc_ref[...]

        row = pl.BlockSpec(TILE, lambda i, j: (i, 0))
        kernel = pl.pallas_call(
            body,
            grid=(2, 2),
            in_specs=[row],
            out_specs=[row, pl.BlockSpec(TILE, lambda i, j: (0, 0))],
            out_shape=[X, jax.ShapeDtypeStruct(TILE, jnp.float32)],
        )
        (found,) = trace_kernels(kernel, X)
        assert schedule(found).initialises["o"][::2].tolist() == [reset, reset]

    def test_mask_operand_and_further_columns(self) -> None:
        def body(m_ref: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = jnp.where(m_ref[...], x_ref[...], 0)

        fn = pl.pallas_call(
            body,
            grid=(4,),
            in_specs=[
                pl.BlockSpec((None, *TILE), lambda i: (3 - i, 0, 0)),
                pl.BlockSpec(TILE, lambda i: (i, 0)),
            ],
            out_specs=pl.BlockSpec((None, None, *TILE), lambda i: (i // 2, i % 2, 0, 0)),
            out_shape=jax.ShapeDtypeStruct((2, 2, *TILE), jnp.float32),
        )
        (found,) = trace_kernels(fn, jax.ShapeDtypeStruct((4, *TILE), jnp.bool_), X)
        where = BlockAxes("x_ref", (None, 0))
        got = schedule_from_trace(
            found,
            direction="dkv",
            operands={"q": where, "k": where},
            outputs={"dq": BlockAxes("o_ref", (0, 1, 2))},
            mask="m_ref",
        )
        assert got.mask_block.tolist() == got.operands["mask"][:, 0].tolist() == [3, 2, 1, 0]
        assert got.outputs["dq"].tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]
        assert got.output_blocks["dq"] == (2, 2, 1)


class TestProgramsAroundKernels:
    def test_jit_gradients_and_several_calls(self) -> None:
        fn = jax.custom_vjp(lambda x: call(store)(x))
        fn.defvjp(lambda x: (fn(x), x), lambda x, g: (call(store, grid=(2,))(g),))

        def gradient(x: Any) -> Any:
            return jax.vjp(jax.jit(fn), x)[1](x)

        assert [found.grid for found in trace_kernels(gradient, X)] == [(4,), (2,)]

    def test_scalars_computed_around_the_kernel(self) -> None:
        def body(order_ref: Any, x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        def fn(order: Any, x: Any) -> Any:
            turned = jnp.roll(jnp.cumsum(order), 1)  # cumsum is left to JAX
            kernel = call(body, scalars=1, index=lambda i, order_ref: (order_ref[i], 0))
            return kernel(turned.astype(jnp.int32), x * 2)

        (found,) = trace_kernels(fn, jnp.array([0, 1, 1, 1]), X)
        assert found.operands[0].index[:, 0].tolist() == [3, 0, 1, 2]

    def test_kernels_in_a_scan_and_in_a_branch(self) -> None:
        def body(k_ref: Any, x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        kernel = call(body, grid=(1,), scalars=1, index=lambda i, k_ref: (k_ref[0], 0))

        def fn(order: Any, x: Any) -> Any:
            total, _ = jax.lax.scan(lambda x, k: (kernel(k[None], x), None), x, order)
            return jax.lax.cond(order[0] > 1, lambda: kernel(order[:1], total), lambda: total)

        found = trace_kernels(fn, jnp.array([3, 1], jnp.int32), X)
        assert [int(one.operands[0].index[0, 0]) for one in found] == [3, 1, 3]

    def test_results_that_need_no_kernel(self) -> None:
        def fn(count: Any, x: Any) -> Any:
            out = call(store, grid=(count,))(x)
            return jnp.where(count == 0, 0.0, out), out

        (found,), (first, second) = trace_program(fn, jnp.array(0), X)
        assert len(found) == 0
        assert first is not None
        assert not first.any()
        assert second is None

    def test_values_that_are_not_given(self) -> None:
        def body(order_ref: Any, x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        abstract = jax.ShapeDtypeStruct((4,), jnp.int32)
        kernel = call(body, scalars=1, index=lambda i, order_ref: (order_ref[i], 0))
        with pytest.raises(TraceError, match="block index of 'x_ref' along axis 0"):
            trace_kernels(kernel, abstract, X)
        with pytest.raises(TraceError, match="grid axis 0 depends on values not given"):
            trace_kernels(lambda n, x: call(store, grid=(n[0],))(x), abstract, X)

    def test_a_kernel_in_a_loop_of_unknown_length(self) -> None:
        def fn(x: Any) -> Any:
            return jax.lax.while_loop(lambda x: x[0, 0] > 0, call(store), x)

        with pytest.raises(ValueError, match="inside 'while'"):
            trace_kernels(fn, X)

    def test_evaluate_program(self) -> None:
        def fn(x: Any) -> Any:
            return {"sum": x.reshape(2, 3).sum(axis=1), "order": (jnp.argsort(x), x[1:])}

        x = np.array([3, 1, 2, 5, 4, 0], np.int32)
        got, expected = evaluate_program(fn, x), fn(jnp.asarray(x))
        assert jax.tree_util.tree_structure(got) == jax.tree_util.tree_structure(expected)
        for a, b in zip(
            jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(expected), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        with pytest.raises(TraceError, match="depends on values not given"):
            evaluate_program(fn, jax.ShapeDtypeStruct((6,), jnp.int32))


def operations() -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Programs of one primitive each, with operands at one step."""
    rng = np.random.default_rng(0)
    a, b, c, d = rng.integers(-9, 9, (4, 4, 3)).astype(np.int32)
    p, q = a > 0, c > 0
    f = rng.standard_normal((4, 3)).astype(np.float32)
    lax = jax.lax
    return [
        ("add", lax.add, (a, c)), ("sub", lax.sub, (a, c)),
        ("mul", lax.mul, (a, c)),
        ("div", lax.div, (a, c | 1)), ("rem", lax.rem, (a, c | 1)),
        ("max", lax.max, (a, c)), ("min", lax.min, (a, c)), ("neg", lax.neg, (a,)),
        ("sign", lax.sign, (a,)), ("abs", lax.abs, (a,)), ("floor", lax.floor, (f,)),
        ("ceil", lax.ceil, (f,)), ("and", lax.bitwise_and, (p, q)),
        ("or", lax.bitwise_or, (a, c)), ("xor", lax.bitwise_xor, (a, c)),
        ("not", lax.bitwise_not, (a,)), ("not", lax.bitwise_not, (p,)),
        ("eq", lax.eq, (a, c)), ("ne", lax.ne, (a, c)), ("lt", lax.lt, (a, c)),
        ("le", lax.le, (a, c)), ("gt", lax.gt, (a, c)), ("ge", lax.ge, (a, c)),
        ("shift_left", lax.shift_left, (a, np.abs(c))),
        ("shift_right_arithmetic", lax.shift_right_arithmetic, (a, np.abs(c))),
        ("clamp", lax.clamp, (np.int32(-2), a, np.int32(3))),
        ("select_n", lax.select_n, (p, a, c)),
        ("select_n", lax.select_n, (np.int32(2), a, b, d)),
        ("convert_element_type", lambda x: lax.convert_element_type(x, np.int8), (a * 99,)),
        ("convert_element_type", lambda x: lax.convert_element_type(x, np.bool_), (a,)),
        ("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (0, 2)), (a,)),
        ("reshape", lambda x: x.reshape(3, 4), (a,)),
        ("squeeze", lambda x: lax.squeeze(x, (0,)), (a[:1],)),
        ("transpose", lambda x: lax.transpose(x, (1, 0)), (a,)),
        ("slice", lambda x: lax.slice(x, (1, 0), (4, 3), (2, 1)), (a,)),
        ("dynamic_slice", lambda x, i, j: lax.dynamic_slice_p.bind(x, i, j, slice_sizes=(2, 2)),
         (a, np.int32(3), np.int32(0))),
        ("concatenate", lambda x, y: lax.concatenate([x, y], 1), (a, c)),
        ("iota", lambda: lax.broadcasted_iota(np.int32, (4, 3), 1), ()),
        ("reduce_sum", lambda x: jnp.sum(x, axis=0), (a,)),
        ("reduce_max", lambda x: jnp.max(x, axis=1), (a,)),
        ("reduce_min", lambda x: jnp.min(x, axis=(0, 1)), (a,)),
        ("reduce_and", lambda x: jnp.all(x, axis=1), (p,)),
        ("reduce_or", lambda x: jnp.any(x, axis=0), (p,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fn", "args"), operations(), ids=[name for name, *_ in operations()]
)
def test_arithmetic_agrees_with_jax(name: str, fn: Any, args: tuple[Any, ...]) -> None:
    program = jax.make_jaxpr(fn)(*args)
    (equation,) = [one for one in program.eqns if one.primitive.name == name]
    expected = np.asarray(fn(*args))
    operands = iter(args)
    entries = [one.val if hasattr(one, "val") else next(operands) for one in equation.invars]
    steps = 3
    for kinds in ([False] * len(args), [True] * len(args), [True] + [False] * len(args)):
        arrays = [
            np.broadcast_to(np.asarray(x), (steps, *np.shape(x))) if varies else np.asarray(x)[None]
            for x, varies in zip(entries, kinds, strict=False)
        ]
        shapes = [np.shape(x) for x in entries]
        out = evaluate(name, equation.params, arrays, shapes, expected.shape)
        assert out is not None
        dtype = equation.outvars[0].aval.dtype
        for step in np.broadcast_to(out.astype(dtype), (len(out), *expected.shape)):
            np.testing.assert_array_equal(step, expected)


def test_primitives_that_are_left_to_jax() -> None:
    def body(order_ref: Any, x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
        last = jnp.cumsum(order_ref[...])[pl.program_id(0)]
        pl.when(last == 3)(lambda: o_ref.__setitem__(..., x_ref[...]))

    found = trace(body, jnp.array([1, 2, 0, 4]), scalars=1)
    assert found.accesses["o_ref"].writes.tolist() == [False, True, True, False]


def test_tiles_are_never_worked_out() -> None:
    def body(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
        i = pl.program_id(0)
        rows = jax.lax.broadcasted_iota(jnp.int32, (1024, 1024), 0) + i
        columns = jax.lax.broadcasted_iota(jnp.int32, (1024, 1024), 1)
        o_ref[...] = x_ref[...] + jnp.sum(rows >= columns)

    found = functools.partial(trace, body, grid=(4096,), index=lambda i: (i % 4, 0))()
    assert found.accesses["o_ref"].writes.all()


def copy(x_ref: Any, o_ref: Any, scratch: Any) -> None:
    del scratch
    o_ref[...] = x_ref[...]


@pytest.mark.parametrize(
    ("index", "stray"),
    [
        (lambda i, *_: (i, 0), []),
        (lambda i, *_: (i, 1), ["axis 1: block 1 of 1 at step 0"]),
        (lambda i, *_: (i + 1, 0), ["axis 0: block 4 of 4 at step 3"]),
        (lambda i, *_: (i - 1, 0), ["axis 0: block -1 of 4 at step 0"]),
    ],
)
def test_blocks_that_do_not_exist_are_named(index: Callable[..., Any], stray: list[str]) -> None:
    block = trace(copy, index=index).operands[0]
    assert [text.split(", ", 1)[1] for text in block.strays] == stray
