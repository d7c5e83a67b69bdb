"""Blockwise execution: right for every schedule, and only because of what it may read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.attention import Float, attend
from reference.blocks import FULL
from reference.error_budget import FLOAT64, ArithmeticProfile, error_ratio, forward_budget
from reference.error_budget_backward import gradient_budget
from reference.gradients import gradients
from reference.masks import Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask
from reference.online import OnlineForward, Order, Program, compile_program, online_forward
from reference.online_backward import online_gradients
from reference.summation import SUMMATIONS, Summation, summation_order

ROWS, KEYS = 8, 12
Layout = Literal["grid", "flat"]
VARIANTS = [
    FLOAT64,
    replace(FLOAT64, base2=True),
    replace(FLOAT64, constant_maximum=3.0),
    replace(FLOAT64, base2=True, constant_maximum=-2.0),
]
#: Both sides of a comparison are computed in float64, each within its own budget.
BOTH_SIDES = 2


@st.composite
def expressions(draw: st.DrawFn) -> Expr:
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return Full()
    if kind == 1:
        return Causal(draw(st.integers(-ROWS, KEYS)))
    if kind == 2:
        return Local(draw(st.integers(0, 5)), draw(st.integers(0, 3)), draw(st.integers(-3, 3)))
    if kind == 3:
        return ChunkedCausal(draw(st.integers(1, 5)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    blocks = rng.random((ROWS // 2, KEYS // 2)) < draw(st.sampled_from([0.0, 0.3, 0.8]))
    dense = np.kron(blocks, np.ones((2, 2))) > 0
    return Dense(dense & (rng.random((ROWS, KEYS)) < draw(st.sampled_from([0.5, 1.0]))))


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kv_heads = draw(st.sampled_from([1, 2]))
    first, second = draw(expressions()), draw(expressions())
    layout: Layout = draw(st.sampled_from(["grid", "flat"]))
    several = layout == "grid" and draw(st.booleans())
    masks = [Mask(first, ROWS, KEYS), Mask(second if several else first, ROWS, KEYS)]
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["soft_cap"] = draw(st.sampled_from([0.5, 10.0]))
    if draw(st.booleans()):
        options["sinks"] = rng.choice([-np.inf, -5.0, 0.5, 30.0], size=2)
    if draw(st.booleans()):
        options["segment_ids"] = (rng.integers(0, 3, size=ROWS), rng.integers(0, 3, size=KEYS))
    return {
        "q": rng.normal(size=(2, ROWS, 3)) * draw(st.sampled_from([0.0, 1.0, 5.0])),
        "k": rng.normal(size=(kv_heads, KEYS, 3)),
        "v": rng.normal(size=(kv_heads, KEYS, 2)),
        "d_out": rng.normal(size=(2, ROWS, 2)),
        "masks": masks,
        "layout": layout,
        "options": options,
    }


def arrays_of(problem: dict[str, Any]) -> tuple[Float, Float, Float]:
    return problem["q"], problem["k"], problem["v"]


def mask_of(problem: dict[str, Any]) -> Any:
    return np.stack([mask.dense() for mask in problem["masks"]])


block_sizes = st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 3, 4, 6, 12]))
orders: st.SearchStrategy[Order] = st.sampled_from(["listed", "reversed", "shuffled"])


@given(problems(), block_sizes, st.booleans(), orders, st.sampled_from(VARIANTS))
def test_forward_equals_dense_for_every_schedule(
    problem: dict[str, Any],
    blocks: tuple[int, int],
    shrink: bool,
    order: Order,
    profile: ArithmeticProfile,
) -> None:
    program = compile_program(
        problem["masks"], len(problem["k"]), *blocks,
        layout=problem["layout"], shrink=shrink, order=order,
    )  # fmt: skip
    options = problem["options"]
    found = online_forward(program, *arrays_of(problem), profile=profile, **options)
    expected = attend(*arrays_of(problem), mask_of(problem), **options)
    options.pop("segment_ids", None)
    budget = forward_budget(
        *arrays_of(problem), expected, profile, rescales=KEYS // blocks[1], **options
    )
    for name in ("output", "logsumexp", "max_logits"):
        ratio = error_ratio(*(getattr(side, name) for side in (found, expected, budget)))
        assert ratio.max() <= BOTH_SIDES


@given(problems(), block_sizes, block_sizes, st.booleans(), orders, st.booleans())
def test_backward_equals_dense_for_every_schedule(
    problem: dict[str, Any],
    dkv_blocks: tuple[int, int],
    dq_blocks: tuple[int, int],
    shrink: bool,
    order: Order,
    fused: bool,
) -> None:
    def program(direction: Any, blocks: tuple[int, int]) -> Program:
        return compile_program(
            problem["masks"], len(problem["k"]), *blocks, direction,
            layout=problem["layout"], shrink=shrink, order=order,
        )  # fmt: skip

    options, d_out = problem["options"], problem["d_out"]
    d_lse = np.random.default_rng(1).normal(size=(2, ROWS))
    forward = online_forward(program("fwd", (4, 4)), *arrays_of(problem), **options)
    found = online_gradients(
        program("dkv", dkv_blocks), None if fused else program("dq", dq_blocks),
        *arrays_of(problem), d_out, forward, d_logsumexp=d_lse, **options,
    )  # fmt: skip
    expected = gradients(*arrays_of(problem), mask_of(problem), d_out, d_logsumexp=d_lse, **options)
    result = attend(*arrays_of(problem), mask_of(problem), **options)
    options.pop("segment_ids", None)
    budget = gradient_budget(
        *arrays_of(problem), d_out, result, expected, FLOAT64,
        rescales=max(KEYS // 2, ROWS), d_logsumexp=d_lse, **options,
    )  # fmt: skip
    names = ["dq", "dk", "dv"] + ["dsinks"] * ("sinks" in options)
    for name in names:
        ratio = error_ratio(*(getattr(side, name) for side in (found, expected, budget)))
        assert ratio.max() <= BOTH_SIDES
    assert (found.dsinks is None) is ("sinks" not in options)


@pytest.mark.parametrize("summation", SUMMATIONS, ids=lambda order: order.name)
def test_equal_dense_in_every_order_of_summation(summation: Summation) -> None:
    few = settings(max_examples=12)
    forward: Any = test_forward_equals_dense_for_every_schedule
    backward: Any = test_backward_equals_dense_for_every_schedule
    with summation_order(summation):
        few(
            given(problems(), block_sizes, st.booleans(), orders, st.sampled_from(VARIANTS))(
                forward.hypothesis.inner_test
            )
        )()
        few(
            given(problems(), block_sizes, block_sizes, st.booleans(), orders, st.booleans())(
                backward.hypothesis.inner_test
            )
        )()


def small(expr: Expr, direction: Any = "fwd") -> tuple[Program, tuple[Float, Float, Float]]:
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(1, n, 3)) for n in (ROWS, KEYS, KEYS))
    return compile_program([Mask(expr, ROWS, KEYS)], 1, 4, 4, direction), (q, k, v)


def test_empty_q_and_kv_blocks_are_written() -> None:
    program, arrays = small(Causal(-4))
    found = online_forward(program, *arrays)
    assert not found.output[0, :4].any()
    assert (found.logsumexp[0, :4] == -np.inf).all()
    dkv, _ = small(Causal(-4), "dkv")
    made = online_gradients(dkv, None, *arrays, np.ones((1, ROWS, 3)), found)
    assert not made.dk[0, 4:].any()
    assert not made.dq[0, :4].any()


def test_a_schedule_that_runs_an_empty_block_reads_poison() -> None:
    program, arrays = small(Dense(np.kron([[1, 0, 1], [1, 1, 1]], np.ones((4, 4))) > 0))
    wrong = replace(program.schedule, operands=dict(program.schedule.operands))
    index = wrong.operands["k"].copy()
    running = np.flatnonzero(wrong.runs & (wrong.q_block == 0))
    index[running[0], 1] = 1
    wrong.operands["k"] = index
    found = online_forward(replace(program, schedule=wrong), *arrays)
    assert np.isnan(found.output[0, :4]).all()
    assert np.isfinite(found.output[0, 4:]).all()


def test_a_block_that_is_never_written_stays_nan() -> None:
    program, arrays = small(Full())
    writes = {"o": program.schedule.writes["o"] & (program.schedule.q_block == 1)}
    forgetful = replace(program, schedule=replace(program.schedule, writes=writes))
    found = online_forward(forgetful, *arrays)
    assert np.isnan(found.output[0, :4]).all()
    assert np.isfinite(found.output[0, 4:]).all()


class ReadsEveryMask(OnlineForward):
    """Applies the mask block it was handed on full steps too."""

    def visible(self, step: int) -> Any:
        return self.handed_mask(step) > 0


def test_the_mask_block_of_a_full_step_is_poison() -> None:
    dense = np.ones((ROWS, KEYS), dtype=np.bool_)
    dense[0, 11] = False
    program, arrays = small(Dense(dense))
    full = np.flatnonzero(program.labels == FULL)
    assert len(full) == 5
    assert np.isnan(OnlineForward(program, *arrays).handed_mask(int(full[0]))).all()
    right = attend(*arrays, dense[None]).output
    budget = forward_budget(*arrays, attend(*arrays, dense[None]), FLOAT64, rescales=3).output
    found = [kernel(program, *arrays).run().output for kernel in (OnlineForward, ReadsEveryMask)]
    assert error_ratio(found[0], right, budget).max() <= BOTH_SIDES
    assert error_ratio(found[1], right, budget).max() > 1000 * BOTH_SIDES


def test_orders_visit_the_same_blocks() -> None:
    program, _ = small(Causal(4))
    work = {tuple(row) for row in program.schedule.work().tolist()}
    for order in ("reversed", "shuffled"):
        other = compile_program([Mask(Causal(4), ROWS, KEYS)], 1, 4, 4, order=order)
        assert {tuple(row) for row in other.schedule.work().tolist()} == work
        assert other.schedule.work().tolist() != program.schedule.work().tolist()
        first = other.schedule.initialises["o"]
        assert (first == program.schedule.initialises["o"]).all()


def test_directions_and_layouts_are_checked() -> None:
    program, arrays = small(Full(), "dq")
    with pytest.raises(ValueError, match="must be of direction 'fwd', got 'dq'"):
        online_forward(program, *arrays)
    forward = online_forward(small(Full())[0], *arrays)
    with pytest.raises(ValueError, match="dkv_program must be of direction 'dkv', got 'dq'"):
        online_gradients(program, None, *arrays, np.ones((1, ROWS, 3)), forward)
    dkv, _ = small(Full(), "dkv")
    with pytest.raises(ValueError, match="dq_program must be of direction 'dq', got 'dkv'"):
        online_gradients(dkv, dkv, *arrays, np.ones((1, ROWS, 3)), forward)
    with pytest.raises(ValueError, match="d_out must have shape"):
        online_gradients(dkv, None, *arrays, np.ones((1, ROWS, 2)), forward)
    masks = [Mask(Full(), 4, 4), Mask(Causal(), 4, 4)]
    with pytest.raises(ValueError, match="masks must be equal for all heads in the flat layout"):
        compile_program(masks, 1, 2, 2, layout="flat")
