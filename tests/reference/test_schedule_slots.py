"""Kernels that work on several blocks of an operand in one step of their grid."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.outputs import unused_fetches
from reference.schedule import Schedule, fetch_counts, fetches

if TYPE_CHECKING:
    from conformance.adapters.tracing import KernelTrace

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="without jax")

STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=12)


@given(STEPS)
def test_every_memory_fetches_by_itself(steps: list[tuple[int, int, bool]]) -> None:
    """Against a machine with three memories that are filled one by one."""
    index = np.array([[7, block] for _, block, _ in steps], dtype=np.int32).reshape(-1, 2)
    memory = np.array([place for place, _, _ in steps], dtype=np.int32)
    runs = np.array([run for _, _, run in steps], dtype=np.bool_)
    held: dict[int, tuple[int, int]] = {}
    expected, used = [], set()
    for step, (place, block, run) in enumerate(steps):
        fetched = place not in held or held[place][0] != block
        expected.append(fetched)
        if fetched:
            held[place] = (block, step)
        if run:
            used.add(held[place][1])
    assert fetches(index, memory).tolist() == expected
    fetched_at = np.flatnonzero(expected)
    unused = [step for step in fetched_at.tolist() if step not in used]
    assert unused_fetches(index, runs, memory).tolist() == unused
    count, best = fetch_counts(index, runs, memory)
    assert (count, best) == (sum(expected), fetch_counts(index[runs], runs[runs])[0])


def test_copies_of_several_memories() -> None:
    zero = np.zeros(4, dtype=np.int32)
    k = np.array([[0, 3], [0, 5], [0, 3], [0, 5]], dtype=np.int32)
    runs = np.ones(4, dtype=np.bool_)
    schedule = Schedule(
        "fwd", zero, zero, k[:, 1], runs, zero - 1, {"k": k, "v": k}, {}, {}, {},
        buffers={"k": np.array([0, 1, 0, 1], dtype=np.int32)},
    )  # fmt: skip
    assert schedule.copies_of("k").tolist() == [True, True, False, False]
    assert schedule.copies_of("v").tolist() == [True, True, True, True]


def observed(body: Any, blocks: list[list[int]]) -> KernelTrace:
    """A kernel of four steps, which receives one tile in each of two slots at every step."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    from conformance.adapters.tracing import trace_kernels

    tile = (8, 128)

    def spec(slot: int) -> Any:
        return pl.BlockSpec(tile, lambda i, table, busy: (table[2 * i + slot], 0))

    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(4,),
        in_specs=[pl.BlockSpec(tile, lambda i, *_: (i // 2, 0)), spec(0), spec(1)],
        out_specs=pl.BlockSpec(tile, lambda i, *_: (i // 2, 0)),
        scratch_shapes=[pltpu.VMEM(tile, jnp.float32), pltpu.VMEM((8, 16), jnp.float32)],
    )
    x = jax.ShapeDtypeStruct((64, 128), jnp.float32)
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    call = pl.pallas_call(body, grid_spec=grid_spec, out_shape=out)
    table = np.array(blocks, dtype=np.int32).ravel()
    busy = np.array([2, 1, 2, 0], dtype=np.int32)
    (found,) = trace_kernels(call, table, busy, x, x, x)
    return found


def when(condition: Any) -> Callable[[Callable[[], None]], None]:
    from jax.experimental import pallas as pl

    decorate: Callable[[Callable[[], None]], None] = pl.when(condition)
    return decorate


def two_slots(table: Any, busy: Any, q: Any, k0: Any, k1: Any, o: Any, acc: Any, s: Any) -> None:
    """Scores of the slots wait side by side in ``s`` before they are used."""
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    step = pl.program_id(0)

    @when(step % 2 == 0)
    def _() -> None:
        acc[...] = jnp.zeros_like(acc)

    for count in (1, 2):

        @when(busy[step] == count)
        def _(count: int = count) -> None:
            for slot, k in enumerate((k0, k1)[:count]):
                s[:, 8 * slot : 8 * slot + 8] = jnp.dot(q[...], k[...].T)
            for slot, k in enumerate((k0, k1)[:count]):
                scores = s[:, 8 * slot : 8 * slot + 8]
                s[:, 8 * slot : 8 * slot + 8] = scores + 1.0
                acc[...] += jnp.dot(s[:, 8 * slot : 8 * slot + 8], k[...])

    @when(step % 2 == 1)
    def _() -> None:
        o[...] = acc[...]


BLOCKS = [[0, 1], [2, 1], [2, 3], [2, 3]]


def slot_schedule(found: KernelTrace) -> Schedule:
    from conformance.adapters.tracing import BlockAxes, schedule_from_trace

    at = {name: BlockAxes(name, (None, 0)) for name in ("q", "k0", "k1", "o")}
    return schedule_from_trace(
        found,
        direction="fwd",
        operands={"q": at["q"], "k": [at["k0"], at["k1"]]},
        outputs={"o": at["o"]},
    )


@needs_jax
def test_slots_become_steps() -> None:
    made = slot_schedule(observed(two_slots, BLOCKS))
    assert made.runs.tolist() == [True, True, True, False, True, True, False, False]
    assert made.work().tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 2], [0, 1, 3]]
    assert made.operands["k"][:, 1].tolist() == [0, 1, 2, 1, 2, 3, 2, 3]
    assert np.flatnonzero(made.copies_of("k")).tolist() == [0, 1, 2, 5]
    assert np.flatnonzero(made.copies_of("q")).tolist() == [0, 4]
    assert made.initialises["o"].tolist() == [True, *[False] * 3, True, *[False] * 3]
    assert np.flatnonzero(made.writes["o"]).tolist() == [3, 7]


@needs_jax
def test_what_a_step_writes_before_it_reads_is_no_accumulator() -> None:
    found = observed(two_slots, BLOCKS)
    assert found.accumulators["o"] == ("acc",)
    assert found.accesses["acc"].accumulates.tolist() == [False, True, False, False]
    assert not found.accesses["s"].accumulates.any()


@needs_jax
def test_what_is_left_from_the_step_before_is_an_accumulator() -> None:
    def body(table: Any, busy: Any, q: Any, k0: Any, k1: Any, o: Any, acc: Any, s: Any) -> None:
        s[:, :8] = q[:, :8]
        acc[...] = s[:, 4:12] @ k0[...]  # columns 8 to 11 are old
        s[:, 4:12] = s[:, 4:12] + 1.0
        o[...] = acc[...] + s[:, :1]

    found = observed(body, BLOCKS)
    assert found.accesses["s"].accumulates.all()
    assert found.accumulators["o"] == ("s",)
    assert not found.initialises("o").any()


@needs_jax
def test_names_by_place() -> None:
    found = observed(two_slots, BLOCKS).named_in_order(["queries", "first"], ["out"])
    assert [block.name for block in found.operands] == ["queries", "first", "k1"]
    assert found.block("out").blocks == (2, 1)
    assert found.products["first"].tolist() == [True, True, True, False]
    assert found.products["k1"].tolist() == [True, False, True, False]
    assert found.accesses["out"].sources >= {"acc", "first"}


@needs_jax
def test_lists_of_operands_have_one_length() -> None:
    from conformance.adapters.tracing import BlockAxes, schedule_from_trace

    at = BlockAxes("q", (None, 0))
    with pytest.raises(ValueError, match="one number"):
        schedule_from_trace(
            observed(two_slots, BLOCKS),
            direction="fwd",
            operands={"q": at, "k": [at, at], "v": [at, at, at]},
            outputs={},
        )
