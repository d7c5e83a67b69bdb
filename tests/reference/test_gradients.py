"""Analytic gradients against finite differences, the complex step, and hand-made cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference.attention import Float, attend
from reference.error_budget import FLOAT64, error_ratio
from reference.error_budget_backward import GradientBudget, gradient_budget
from reference.gradients import Gradients, gradients

Complex = NDArray[np.complex128]
NAMES = ("q", "k", "v", "sinks")
#: Both sides of a comparison are computed in float64, each within its own budget.
BOTH_SIDES = 2


def problem(seed: int, kv_heads: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    mask = rng.random((2, 4, 5)) < 0.6
    mask[0, 1] = False
    return {
        "q": rng.normal(size=(2, 4, 3)),
        "k": rng.normal(size=(kv_heads, 5, 3)),
        "v": rng.normal(size=(kv_heads, 5, 2)),
        "mask": mask,
        "d_out": rng.normal(size=(2, 4, 2)),
        "d_logsumexp": rng.normal(size=(2, 4)),
    }


def options(seed: int, cap: float | None, sinks: bool, segments: bool) -> dict[str, Any]:
    rng = np.random.default_rng(seed + 1)
    ids = (rng.integers(0, 2, size=4), rng.integers(0, 2, size=5)) if segments else None
    return {
        "soft_cap": cap,
        "sinks": rng.normal(size=2) if sinks else None,
        "segment_ids": ids,
    }


def complex_loss(
    q: Complex, k: Complex, v: Complex, sinks: Complex, given_: dict[str, Any]
) -> complex:
    """The loss as an analytic function: plain exponentials, no shift, one row at a time."""
    loss = 0j
    ids, cap = given_["segment_ids"], given_["soft_cap"]
    for h, i in np.ndindex(2, 4):
        g = h // (2 // len(k))
        seen = given_["mask"][h, i].copy()
        if ids is not None:
            seen &= ids[0][i] == ids[1]
        logits = k[g] @ q[h, i]  # no conjugate: the analytic continuation of the inner product
        if cap is not None:
            logits = cap * np.tanh(logits / cap)
        weights = np.where(seen, np.exp(logits), 0)
        total = weights.sum() + (np.exp(sinks[h]) if given_["sinks"] is not None else 0)
        if total == 0:
            continue
        loss += (weights @ v[g] / total) @ given_["d_out"][h, i]
        loss += np.log(total) * given_["d_logsumexp"][h, i]
    return loss


def by_complex_step(given_: dict[str, Any]) -> dict[str, Float]:
    """Im f(x + ih) / h for every element: exact to rounding, since nothing is subtracted."""
    start = [np.asarray(given_[n], dtype=np.complex128) for n in NAMES[:3]]
    start.append(np.zeros(2, complex) if given_["sinks"] is None else given_["sinks"] + 0j)
    slopes: dict[str, Float] = {}
    for place, name in enumerate(NAMES):
        slope = np.zeros(start[place].shape)
        for at in np.ndindex(slope.shape):
            moved = [array.copy() for array in start]
            moved[place][at] += 1e-30j
            slope[at] = complex_loss(moved[0], moved[1], moved[2], moved[3], given_).imag / 1e-30
        slopes[name] = slope
    return slopes


def made_of(given_: dict[str, Any]) -> Gradients:
    return gradients(**given_)


def budget_of(given_: dict[str, Any]) -> GradientBudget:
    """Float64 budget of every gradient of the problem."""
    forward = {n: given_[n] for n in given_ if n not in ("d_out", "d_logsumexp")}
    return gradient_budget(
        given_["q"], given_["k"], given_["v"], given_["d_out"], attend(**forward), made_of(given_),
        FLOAT64, soft_cap=given_.get("soft_cap"), sinks=given_.get("sinks"),
        d_logsumexp=given_["d_logsumexp"],
    )  # fmt: skip


@given(
    seed=st.integers(0, 2**32 - 1),
    kv_heads=st.sampled_from([1, 2]),
    cap=st.sampled_from([None, 0.7, 20.0]),
    sinks=st.booleans(),
    segments=st.booleans(),
)
def test_equals_the_complex_step(
    seed: int, kv_heads: int, cap: float | None, sinks: bool, segments: bool
) -> None:
    given_ = problem(seed, kv_heads) | options(seed, cap, sinks, segments)
    made, expected, budget = made_of(given_), by_complex_step(given_), budget_of(given_)
    for name in NAMES if sinks else NAMES[:3]:
        found, allowed = getattr(made, f"d{name}"), getattr(budget, f"d{name}")
        assert error_ratio(found, expected[name], allowed).max() <= BOTH_SIDES
    assert (made.dsinks is None) is not sinks


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cap", [None, 1.5])
def test_equals_central_differences(name: str, cap: float | None) -> None:
    given_ = problem(11) | options(11, cap, sinks=True, segments=False)
    found = getattr(made_of(given_), f"d{name}")
    forward = {key: given_[key] for key in ("q", "k", "v", "mask", "soft_cap", "sinks")}
    seen = attend(**forward).logsumexp > -np.inf

    def loss(value: Float) -> float:
        result = attend(**(forward | {name: value}))
        residual = np.where(seen, result.logsumexp, 0) * given_["d_logsumexp"]
        return float((result.output * given_["d_out"]).sum() + residual.sum())

    h = 6e-6  # cube root of the unit roundoff: truncation h^2 and rounding u/h balance near 4e-11
    for at in np.ndindex(found.shape):
        step = np.zeros(found.shape)
        step[at] = h
        slope = (loss(forward[name] + step) - loss(forward[name] - step)) / (2 * h)
        assert abs(slope - found[at]) < 2e-9


def test_rows_that_see_nothing_contribute_nothing_whatever_their_cotangent() -> None:
    given_ = problem(12)
    loud, quiet = given_["d_out"].copy(), given_["d_out"].copy()
    loud[0, 1], quiet[0, 1] = 1e300, 0
    a, b = (made_of(given_ | {"d_out": d}) for d in (loud, quiet))
    assert not a.dq[0, 1].any()
    assert (a.dk == b.dk).all()
    assert (a.dv == b.dv).all()


def test_a_sink_alone_gets_no_gradient() -> None:
    given_ = problem(13) | {"sinks": np.array([0.5, -np.inf]), "d_logsumexp": None}
    given_["mask"][0] = False
    made = made_of(given_)
    assert made.dsinks is not None
    assert made.dsinks.tolist() == [0.0, 0.0]


def test_keys_that_no_query_sees_get_exactly_zero() -> None:
    given_ = problem(14)
    given_["mask"][..., 2] = False
    given_["k"][:, 2], given_["v"][:, 2] = np.nan, np.inf
    made = made_of(given_)
    assert not made.dk[:, 2].any()
    assert not made.dv[:, 2].any()
    assert np.isfinite(made.dq).all()


def test_gradients_of_a_group_are_the_sum_over_repeated_heads() -> None:
    given_ = problem(15)
    apart = given_ | {name: np.repeat(given_[name], 2, axis=0) for name in ("k", "v")}
    together, separate, budget = made_of(given_), made_of(apart), budget_of(given_)
    for name in ("dk", "dv"):
        total = getattr(separate, name).sum(axis=0, keepdims=True)
        ratio = error_ratio(getattr(together, name), total, getattr(budget, name))
        assert ratio.max() <= BOTH_SIDES
    assert (together.dq == separate.dq).all()


def test_logit_gradients_sum_to_zero_without_a_sink() -> None:
    """A vector added to every key moves all logits of a row alike, and so changes nothing."""
    given_ = problem(16) | {"d_logsumexp": None}
    direction = np.random.default_rng(0).normal(size=3)
    allowed = (budget_of(given_).dk * abs(direction)).sum()
    assert abs((made_of(given_).dk * direction).sum()) <= allowed


@given(seed=st.integers(0, 2**32 - 1), a=st.floats(-4, 4), b=st.floats(-4, 4))
def test_linear_in_the_cotangents(seed: int, a: float, b: float) -> None:
    given_, other = problem(seed), problem(seed + 1)
    mix = {n: a * given_[n] + b * other[n] for n in ("d_out", "d_logsumexp")}
    second = {n: other[n] for n in ("d_out", "d_logsumexp")}
    parts = [given_ | cotangents for cotangents in ({}, second, mix)]
    for name in ("dq", "dk", "dv"):
        x, y, z = (getattr(made_of(part), name) for part in parts)
        allowed = [getattr(budget_of(part), name) for part in parts]
        # The factors round once more, by less than a budget of the gradient they multiply.
        total = 2 * abs(a) * allowed[0] + 2 * abs(b) * allowed[1] + allowed[2]
        assert (abs(a * x + b * y - z) <= total).all()


@pytest.mark.parametrize("name", ["d_out", "d_logsumexp"])
def test_bad_cotangents_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must have shape"):
        made_of(problem(17) | {name: np.zeros((1, 4))})
