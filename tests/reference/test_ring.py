"""Ring attention: its algebra, exactly, and its result against dense attention."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.attention import Float, attend
from reference.error_budget import FLOAT32, FLOAT64, error_ratio, forward_budget
from reference.error_budget_backward import gradient_budget
from reference.gradients import Gradients, gradients
from reference.ring import (
    Partial,
    combine,
    empty_partial,
    finish,
    ring_attend,
    ring_gradients,
    shard_at_step,
    shard_partial,
    sink_partial,
    step_visible,
)

#: Both sides of a comparison are computed in float64, each within its own budget.
BOTH_SIDES = 2


def forward_ratios(found: Any, arguments: dict[str, Any]) -> list[float]:
    """Error / float64 budget of output, logsumexp and max_logits."""
    expected = attend(**arguments)
    budget = forward_budget(
        arguments["q"], arguments["k"], arguments["v"], expected, FLOAT64,
        soft_cap=arguments.get("soft_cap"), sinks=arguments.get("sinks"), rescales=8,
    )  # fmt: skip
    return [
        float(error_ratio(*(getattr(side, name) for side in (found, expected, budget))).max())
        for name in ("output", "logsumexp", "max_logits")
    ]


def gradient_ratios(found: Gradients, arguments: dict[str, Any], d_out: Float) -> list[float]:
    """Error / float64 budget of every gradient."""
    expected = gradients(**arguments, d_out=d_out)
    budget = gradient_budget(
        arguments["q"], arguments["k"], arguments["v"], d_out, attend(**arguments), expected,
        FLOAT64, soft_cap=arguments.get("soft_cap"), sinks=arguments.get("sinks"), rescales=8,
    )  # fmt: skip
    names = ["dq", "dk", "dv"] + ["dsinks"] * ("sinks" in arguments)
    assert (found.dsinks is None) is ("sinks" not in arguments)
    return [
        float(error_ratio(*(getattr(side, name) for side in (found, expected, budget))).max())
        for name in names
    ]


@st.composite
def dyadic_partials(draw: st.DrawFn) -> Partial:
    """Small integers: with powers of two every operation of `combine` is exact in float64."""
    if draw(st.integers(0, 3)) == 0:
        return empty_partial(1, 1, 2)
    numbers = st.integers(-50, 50).map(float)
    return Partial(
        np.array([[float(draw(st.integers(-8, 8)))]]),
        np.array([[float(draw(st.integers(1, 50)))]]),
        np.array([[[draw(numbers), draw(numbers)]]]),
    )


def exactly(a: Partial, b: Partial) -> Partial:
    return combine(a, b, power=np.exp2)


def same_bits(a: Partial, b: Partial) -> bool:
    return all(
        bool((getattr(a, name) == getattr(b, name)).all()) for name in ("maximum", "total", "sums")
    )


def as_fractions(a: Partial) -> tuple[Fraction, ...]:
    """Total and sums without the shift: what combination has to add."""
    if a.maximum.item() == -np.inf:
        return (Fraction(0),) * 3
    scale = Fraction(2) ** int(a.maximum.item())
    return tuple(scale * Fraction(x) for x in (a.total.item(), *a.sums.ravel().tolist()))


@given(dyadic_partials(), dyadic_partials(), dyadic_partials())
def test_combination_is_commutative_and_associative(a: Partial, b: Partial, c: Partial) -> None:
    assert same_bits(exactly(a, b), exactly(b, a))
    assert same_bits(exactly(exactly(a, b), c), exactly(a, exactly(b, c)))


@given(dyadic_partials())
def test_the_empty_partial_is_the_identity(a: Partial) -> None:
    nothing = empty_partial(1, 1, 2)
    for power in (np.exp, np.exp2):
        assert same_bits(combine(a, nothing, power=power), a)
        assert same_bits(combine(nothing, a, power=power), a)


@given(dyadic_partials(), dyadic_partials())
def test_combination_adds_unshifted_sums(a: Partial, b: Partial) -> None:
    expected = tuple(x + y for x, y in zip(as_fractions(a), as_fractions(b), strict=True))
    assert as_fractions(exactly(a, b)) == expected


def test_nothing_at_all_finishes_as_zero() -> None:
    output, logsumexp = finish(empty_partial(2, 3, 4))
    assert not output.any()
    assert (logsumexp == -np.inf).all()


def test_maxima_far_apart_do_not_overflow() -> None:
    high, low = (Partial(np.array([[m]]), np.ones((1, 1)), np.ones((1, 1, 1))) for m in (1e6, -1e6))
    assert same_bits(combine(high, low), high)


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, keys, kv_heads = 8, draw(st.sampled_from([8, 16])), draw(st.sampled_from([1, 2]))
    kind = draw(st.sampled_from(["causal", "local", "sparse", "diagonal", "full", "none"]))
    i, j = np.arange(rows)[:, None], np.arange(keys)[None, :]
    mask = {
        "causal": j <= i + draw(st.integers(-3, 3)),
        "local": abs(i - j) <= 2,
        "sparse": rng.random((rows, keys)) < 0.1,
        "diagonal": i // 2 == j // 2,
        "full": np.ones((rows, keys), dtype=np.bool_),
        "none": np.zeros((rows, keys), dtype=np.bool_),
    }[kind]
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["soft_cap"] = 2.0
    if draw(st.booleans()):
        options["sinks"] = rng.choice([-np.inf, -2.0, 3.0], size=2)
    if draw(st.booleans()):
        options["segment_ids"] = (rng.integers(0, 2, size=rows), rng.integers(0, 2, size=keys))
    arrays = {
        "q": rng.normal(size=(2, rows, 3)),
        "k": rng.normal(size=(kv_heads, keys, 3)),
        "v": rng.normal(size=(kv_heads, keys, 5)),
        "mask": mask[None],
        **options,
    }
    return arrays, rng.normal(size=(2, rows, 5))


@given(problems(), st.sampled_from([1, 2, 4, 8]))
def test_ring_equals_dense(problem: tuple[dict[str, Any], Any], ring_size: int) -> None:
    arguments, d_out = problem
    found = ring_attend(**arguments, ring_size=ring_size)
    assert max(forward_ratios(found, arguments)) <= BOTH_SIDES
    made = ring_gradients(**arguments, d_out=d_out, ring_size=ring_size)
    assert max(gradient_ratios(made, arguments, d_out)) <= BOTH_SIDES


@given(problems(), st.permutations(range(4)))
def test_any_order_of_shards_gives_the_same(
    problem: tuple[dict[str, Any], Any], order: list[int]
) -> None:
    arguments = problem[0]
    q, k, v = (arguments[name] for name in ("q", "k", "v"))
    mask = np.broadcast_to(arguments["mask"], (2, *arguments["mask"].shape[1:]))
    state = empty_partial(2, q.shape[1] // 4, v.shape[2])
    keys = k.shape[1] // 4
    rows = q[:, : q.shape[1] // 4]
    for shard in order:
        seen = step_visible(mask, arguments.get("segment_ids"), 0, shard, 4)
        at = slice(shard * keys, (shard + 1) * keys)
        part = shard_partial(rows, k[:, at], v[:, at], seen, arguments.get("soft_cap"))
        state = combine(part, state)
    if "sinks" in arguments:
        state = combine(state, sink_partial(arguments["sinks"], rows.shape[1], v.shape[2]))
    found = ring_attend(**arguments, ring_size=4)
    found.output[:, : rows.shape[1]], found.logsumexp[:, : rows.shape[1]] = finish(state)
    assert max(forward_ratios(found, arguments)) <= BOTH_SIDES


def test_every_device_meets_every_shard_once_and_shards_move_to_the_next_device() -> None:
    for size in (1, 2, 5, 8):
        for device in range(size):
            assert sorted(shard_at_step(device, i, size) for i in range(size)) == list(range(size))
            assert shard_at_step(device, 0, size) == device
            for i in range(size):
                receiver = (device + 1) % size
                assert shard_at_step(receiver, i + 1, size) == shard_at_step(device, i, size)


def test_shards_that_nobody_sees_are_never_read() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 8, 3)) for _ in range(3))
    mask = np.zeros((1, 8, 8), dtype=np.bool_)
    mask[..., 2:4] = True
    clean = ring_attend(q, k, v, mask, 4), ring_gradients(q, k, v, mask, q, 4)
    k[:, :2], v[:, 4:] = np.nan, np.inf
    assert (ring_attend(q, k, v, mask, 4).output == clean[0].output).all()
    spoiled = ring_gradients(q, k, v, mask, q, 4)
    assert (spoiled.dq == clean[1].dq).all()
    assert not spoiled.dk[:, 4:].any()


def wrong_ring(
    problem: tuple[Float, Float, Float], mask: Any, *, rescale: bool, offset: int
) -> Float:
    """One device of four, with a combination that forgets to rescale or shards that are off."""
    q, k, v = problem
    totals, sums = np.zeros((1, 2)), np.zeros((1, 2, 3))
    state = empty_partial(1, 2, 3)
    for step in range(4):
        shard = shard_at_step(3, step, 4)
        at = slice(shard * 2, shard * 2 + 2)
        seen = step_visible(mask, None, 3, (shard + offset) % 4, 4)
        part = shard_partial(q[:, 6:], k[:, at], v[:, at], seen, None)
        state = combine(state, part)
        totals, sums = totals + part.total, sums + part.sums
    return finish(state if rescale else Partial(state.maximum, totals, sums))[0]


@pytest.mark.parametrize(
    ("rescale", "offset", "right"), [(True, 0, True), (False, 0, False), (True, 1, False)]
)
def test_wrong_rings_are_far_off(rescale: bool, offset: int, right: bool) -> None:
    rng = np.random.default_rng(1)
    problem = (rng.normal(size=(1, 8, 3)), rng.normal(size=(1, 8, 3)), rng.normal(size=(1, 8, 3)))
    mask = abs(np.arange(8)[:, None] - np.arange(8)[None]) <= 3
    found = wrong_ring(problem, mask[None], rescale=rescale, offset=offset)
    expected = attend(*problem, mask[None])
    budget = forward_budget(*problem, expected, FLOAT32, rescales=4).output[:, 6:]
    ratio = error_ratio(found, expected.output[:, 6:], budget).max()
    assert ratio < 1 if right else ratio > 100


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [(6, 8, "ring_size=4 must divide q_len=6"), (8, 6, "ring_size=4 must divide kv_len=6")],
)
def test_ring_sizes_that_do_not_divide_are_named(rows: int, keys: int, message: str) -> None:
    q, k = np.ones((1, rows, 2)), np.ones((1, keys, 2))
    with pytest.raises(ValueError, match=message):
        ring_attend(q, k, k, np.ones((1, rows, keys), dtype=bool), 4)
