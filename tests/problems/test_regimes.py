"""Inputs: the same everywhere, exact in their type, and what their description says."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import get_args

import numpy as np
import pytest

from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.given_maximum import beyond_float32
from conformance.checks.registry import CHECKS
from conformance.contract.fence import Subject
from conformance.drawing.numeric_domain import NumericDomain
from conformance.drawing.signatures import SIGNATURES
from conformance.problem import BlockSizes, Problem
from conformance.problems import arrays, ranges, regimes
from conformance.problems.inputs import Inputs
from reference.arithmetic import to_bfloat16
from reference.attention import attend, kv_head_of
from reference.error_budget import FLOAT32, MXU_PASSES
from reference.mask_info import Shards
from reference.masks import Causal, Full
from spec import clause

PROBLEM = Problem(
    32, 48, (Full(),), BlockSizes(8, 8), heads=4, kv_heads=2, head_dim=64, head_dim_v=32
)


def logits(regime: str) -> np.ndarray:
    made = arrays.inputs(PROBLEM.but(regime=regime))
    return attend(made.q, made.k, made.v, np.ones((1, 32, 48), dtype=bool)).logits


@pytest.mark.parametrize("name", sorted(regimes.REGIMES))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_have_their_shapes_and_are_exact_in_their_type(name: str, dtype: str) -> None:
    problem = PROBLEM.but(regime=name, dtype=dtype)
    made = arrays.inputs(problem)
    assert made.q.shape == (4, 32, 64)
    assert made.k.shape == (2, 48, 64)
    assert made.v.shape == (2, 48, 32)
    for array in (made.q, made.k, made.v, arrays.d_out(problem)):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        if dtype == "bfloat16":
            assert (array == to_bfloat16(array)).all()


def test_values_are_the_same_on_every_machine() -> None:
    made = arrays.inputs(PROBLEM.but(seed=7))
    digest = hashlib.sha256(b"".join(x.tobytes() for x in (made.q, made.k, made.v))).hexdigest()
    assert digest.startswith("c50e8507215006e0")


def test_seeds_and_heads_differ() -> None:
    one, other = (arrays.inputs(PROBLEM.but(seed=s)) for s in (0, 1))
    assert not np.array_equal(one.q, other.q)
    assert not np.array_equal(one.k[0], one.k[1])


def test_bell_is_nearly_normal() -> None:
    drawn = regimes.bell(0, "x", (20000,))
    # Standard error of a mean of n numbers of variance 1 is 1/sqrt(n), of a variance about 1.2/sqrt(n).
    assert abs(drawn.mean()) < 6 / np.sqrt(20000)
    assert abs(drawn.var() - 1) < 8 / np.sqrt(20000)


def test_every_regime_names_existing_clauses() -> None:
    for item in regimes.REGIMES.values():
        assert item.about
        assert item.clauses
        for name in item.clauses:
            assert clause(name).is_checkable


def test_regimes_are_what_they_say() -> None:
    rising = logits("rising")[0, 0].reshape(8, 6).max(axis=1)
    assert (np.diff(rising) > 0).sum() >= 6
    assert (np.diff(logits("falling")[0, 0].reshape(8, 6).max(axis=1)) < 0).sum() >= 6
    assert logits("tilted")[:, :, -1].min() > 50 + logits("tilted")[:, :, 0].max()
    assert logits("low").max() < -250
    assert logits("leading")[:, :, :24].min() > 90 > -90 > logits("leading")[:, :, 24:].max()
    assert np.abs(logits("huge")).max() > 9000
    assert (logits("sentinel") == -(2.0**112)).all()
    assert (logits("float_edge") < -0.7 * np.finfo(np.float32).max).all()
    assert np.abs(logits("flat")).max() < 0.1
    made = arrays.inputs(PROBLEM.but(regime="cancelling"))
    assert (np.abs(made.q[0]) @ np.abs(made.k[0]).T).mean() > 8 * np.abs(
        logits("cancelling")
    ).mean()
    assert len({tuple(row) for row in arrays.inputs(PROBLEM.but(regime="flat")).v[0]}) == 48
    assert (arrays.inputs(PROBLEM.but(regime="positive")).v > 0).all()


def test_representable_products_are_exact_in_bfloat16_pieces() -> None:
    made = arrays.inputs(PROBLEM.but(regime="representable"))
    for array in (made.q, made.k, made.v):
        assert (array == to_bfloat16(array)).all()


def test_segments_sinks_and_visible_rows() -> None:
    problem = PROBLEM.but(
        masks=(Causal(-8),), segments=(((5, 20), (-1, 12)), ((5, 40), (3, 8))), sinks=(0.5,) * 4
    )
    made = arrays.inputs(problem)
    assert made.segment_ids is not None
    assert made.segment_ids[0].tolist() == [5] * 20 + [-1] * 12
    assert made.sinks is not None
    assert made.sinks.tolist() == [0.5] * 4
    seeing = arrays.seeing_rows(problem)
    assert not seeing[:, :8].any()
    assert seeing[:, 8:20].all()
    assert not seeing[:, 20:].any()


def test_cotangents() -> None:
    problem = PROBLEM.but(masks=(Causal(-8),), dtype="bfloat16", ring=4)
    quiet, loud = arrays.d_out(problem), arrays.d_out(problem, "loud")
    assert (quiet[:, :8] == 0).all()
    assert (loud[:, 8:] == quiet[:, 8:]).all()
    assert np.abs(loud[:, :8]).max() > 1e5
    first, second = arrays.d_out(problem, "first"), arrays.d_out(problem, "second")
    combined = arrays.d_out(problem, "combined")
    assert (combined == to_bfloat16(2 * first - second)).all()
    assert (arrays.d_out(problem.but(masks=(Full(),)), "early")[:, 8:] == 0).all()
    assert not arrays.d_out(problem, "zero").any()


def test_unknown_regime() -> None:
    with pytest.raises(ValueError, match="regime 'fast' is unknown"):
        arrays.inputs(PROBLEM.but(regime="fast"))


def test_every_field_of_inputs_is_covered() -> None:
    made = arrays.inputs(PROBLEM)
    assert {field.name for field in fields(made)} == {"q", "k", "v", "segment_ids", "sinks"}


WIDEST_SHAPE = PROBLEM.but(heads=2, kv_heads=1, head_dim=256, head_dim_v=256, sinks=(200.0, -1e4))
EVERY_CAP = (None, 2.0, 10.0)


def test_no_regime_that_a_check_draws_can_overflow() -> None:
    checks.load_all()
    description = ReferenceAdapter().describe()
    drawn = {
        (name, check.domain.backward)
        for check in CHECKS.values()
        if isinstance(check.domain, NumericDomain)
        for name in check.domain.regimes
    }
    assert {name for name, _ in drawn} >= {"huge", "sentinel", "float_edge", "tilted"}
    shapes = {
        replace(item, blocks=BlockSizes(1, 1), ring=1, shards=Shards(), dynamic=False).build(
            description, (Full(),), sinks=(1e4, -200.0) * (item.heads // 2) if item.sinks else None
        )
        for item in SIGNATURES
        if not item.segments
    }
    for name, backward in sorted(drawn):
        for shape in (*shapes, WIDEST_SHAPE):
            for seed in (0, 1):
                problem = shape.but(regime=name, seed=seed)
                assert not arrays.overflows(problem, FLOAT32)
                # Products of one bfloat16 pass and powers of two are more than most implementations have.
                assert not arrays.overflows(problem, ranges.WIDEST) or name == "float_edge"
                assert not (backward and arrays.overflows_backward(problem, ranges.WIDEST))


@pytest.mark.parametrize("name", sorted(regimes.REGIMES))
@pytest.mark.parametrize("cap", EVERY_CAP)
def test_bounds_hold_for_what_they_are_about(name: str, cap: float | None) -> None:
    problem = WIDEST_SHAPE.but(regime=name, soft_cap=cap, masks=(Causal(-8),))
    made, shape = arrays.inputs(problem), (2, 32, 48)
    source = kv_head_of(2, 1)
    forward = ranges.forward_sizes(made, FLOAT32, cap)
    bounds = ranges.logits_of(made, FLOAT32, cap)
    result = attend(made.q, made.k, made.v, np.ones(shape, dtype=bool), soft_cap=cap)
    inexact = 1 + 2.0**-40
    q, k, v = (x.astype(np.float64) for x in (made.q, made.k[source], made.v[source]))
    assert (np.abs(q) @ np.abs(k).swapaxes(1, 2)).max() <= forward["sums of q k"] * inexact
    assert np.abs(result.logits).max() <= forward["logits"] * inexact
    slack = 2.0**-40 * bounds.products
    assert bounds.low - slack <= result.logits.min() <= result.logits.max() <= bounds.high + slack
    assert 48 * np.abs(v).max() <= forward["sums of weights and values"]
    for kind in get_args(arrays.Cotangent):
        cotangent = arrays.d_out(problem, kind).astype(np.float64)
        assert np.abs(cotangent).max() <= arrays.LARGEST_COTANGENT
        sizes = ranges.backward_sizes(made, float(np.abs(cotangent).max()), FLOAT32, cap)
        dp = np.abs(cotangent) @ np.abs(v).swapaxes(1, 2)
        assert dp.max() <= sizes["sums of d_out v"] * inexact
        if not np.isfinite(sizes["probabilities"]):
            continue
        p = result.probabilities
        ds = p * np.abs(2 * dp.max() + 1)
        found = {
            "sums of dq": ds @ np.abs(k),
            "sums of dk": (ds.swapaxes(1, 2) @ np.abs(q)).sum(axis=0),
            "sums of dv": (p.swapaxes(1, 2) @ np.abs(cotangent)).sum(axis=0),
        }
        for bound, total in found.items():
            assert total.max() <= sizes[bound] * inexact


def test_what_overflows_in_some_order_or_arithmetic() -> None:
    adapter = ReferenceAdapter()
    subject = Subject(adapter, adapter.describe())
    problem = PROBLEM.but(regime="float_edge", head_dim_v=64)
    two = replace(FLOAT32, base2=True)
    assert not arrays.overflows(problem, FLOAT32)
    assert not arrays.overflows(problem, MXU_PASSES[1])
    assert arrays.overflows(problem, two)
    assert not beyond_float32(subject, problem, backward=False)
    base2 = problem.but(options=(("exponent", "base2"),))
    assert beyond_float32(subject, base2, backward=False)
    assert not beyond_float32(subject, base2.but(regime="sentinel"), backward=False)
    # Computed anew in another order, these logits differ by more than any exponential can hold.
    assert beyond_float32(subject, problem.but(regime="sentinel"), backward=True)
    assert not beyond_float32(subject, problem.but(regime="huge"), backward=True)
    assert arrays.overflows_backward(problem.but(regime="huge"), MXU_PASSES[1])
    domain = NumericDomain(regimes=("signed", "huge", "sentinel"), group="numerics-backward")
    kept = [
        name
        for name in domain.regimes
        if domain.contains(PROBLEM.but(regime=name, kv_heads=4, head_dim_v=64))
    ]
    assert kept == ["signed", "huge"]


@pytest.mark.parametrize(
    ("of_q", "of_k", "v", "cap", "message"),
    [
        (2.0**64, 2.0**64, 1.0, None, "regime 'own' can overflow float32: sums of q k"),
        (
            2.0**60,
            2.0**60,
            1.0,
            0.01,
            "regime 'own' can overflow float32: logits over the soft cap",
        ),
        (1.0, 1.0, 2.0**125, None, "regime 'own' can overflow float32: sums of weights and values"),
        (2.0**-70, 2.0**-70, 1.0, None, "regime 'own' has products that may be flushed to 0"),
        (1.0, 1.0, 2.0**-130, None, "regime 'own' has products that may be flushed to 0"),
    ],
)
def test_a_regime_beyond_float32_is_named(
    of_q: float,
    of_k: float,
    v: float,
    cap: float | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(shapes: regimes.Shapes) -> regimes.Arrays:
        return np.full(shapes.q, of_q), np.full(shapes.k, of_k), np.full(shapes.v, v)

    own = regimes.Regime("own", "too far", ("FWD-1",), make)
    monkeypatch.setitem(regimes.REGIMES, "own", own)
    with pytest.raises(ValueError, match=message):
        arrays.inputs(PROBLEM.but(regime="own", soft_cap=cap))


def test_logits_far_from_a_constant_maximum_overflow() -> None:
    tens, ones = np.full((1, 2, 1), 10.0, np.float32), np.ones((1, 2, 1), np.float32)
    made = Inputs(tens, tens, ones)
    assert ranges.overflowing(ranges.forward_sizes(made)) is None
    fixed = replace(FLOAT32, constant_maximum=5.0)
    assert ranges.overflowing(ranges.forward_sizes(made, fixed)) == "sums of weights"
    assert ranges.overflowing(ranges.forward_sizes(made, fixed, 5.0)) is None
