"""Inputs: the same everywhere, exact in their type, and what their description says."""

from __future__ import annotations

import hashlib
from dataclasses import fields

import numpy as np
import pytest

from conformance.problem import BlockSizes, Problem
from conformance.problems import regimes
from reference.arithmetic import to_bfloat16
from reference.attention import attend
from reference.masks import Causal, Full
from spec import clause

PROBLEM = Problem(
    32, 48, (Full(),), BlockSizes(8, 8), heads=4, kv_heads=2, head_dim=64, head_dim_v=32
)


def logits(regime: str) -> np.ndarray:
    made = regimes.inputs(PROBLEM.but(regime=regime))
    return attend(made.q, made.k, made.v, np.ones((1, 32, 48), dtype=bool)).logits


@pytest.mark.parametrize("name", sorted(regimes.REGIMES))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_have_their_shapes_and_are_exact_in_their_type(name: str, dtype: str) -> None:
    problem = PROBLEM.but(regime=name, dtype=dtype)
    made = regimes.inputs(problem)
    assert made.q.shape == (4, 32, 64)
    assert made.k.shape == (2, 48, 64)
    assert made.v.shape == (2, 48, 32)
    for array in (made.q, made.k, made.v, regimes.d_out(problem)):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        if dtype == "bfloat16":
            assert (array == to_bfloat16(array)).all()


def test_values_are_the_same_on_every_machine() -> None:
    made = regimes.inputs(PROBLEM.but(seed=7))
    digest = hashlib.sha256(b"".join(x.tobytes() for x in (made.q, made.k, made.v))).hexdigest()
    assert digest.startswith("c50e8507215006e0")


def test_seeds_and_heads_differ() -> None:
    one, other = (regimes.inputs(PROBLEM.but(seed=s)) for s in (0, 1))
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
    made = regimes.inputs(PROBLEM.but(regime="cancelling"))
    assert (np.abs(made.q[0]) @ np.abs(made.k[0]).T).mean() > 8 * np.abs(
        logits("cancelling")
    ).mean()
    assert len({tuple(row) for row in regimes.inputs(PROBLEM.but(regime="flat")).v[0]}) == 48
    assert (regimes.inputs(PROBLEM.but(regime="positive")).v > 0).all()


def test_representable_products_are_exact_in_bfloat16_pieces() -> None:
    made = regimes.inputs(PROBLEM.but(regime="representable"))
    for array in (made.q, made.k, made.v):
        assert (array == to_bfloat16(array)).all()


def test_segments_sinks_and_visible_rows() -> None:
    problem = PROBLEM.but(
        masks=(Causal(-8),), segments=(((5, 20), (-1, 12)), ((5, 40), (3, 8))), sinks=(0.5,) * 4
    )
    made = regimes.inputs(problem)
    assert made.segment_ids is not None
    assert made.segment_ids[0].tolist() == [5] * 20 + [-1] * 12
    assert made.sinks is not None
    assert made.sinks.tolist() == [0.5] * 4
    seeing = regimes.seeing_rows(problem)
    assert not seeing[:, :8].any()
    assert seeing[:, 8:20].all()
    assert not seeing[:, 20:].any()


def test_cotangents() -> None:
    problem = PROBLEM.but(masks=(Causal(-8),), dtype="bfloat16", ring=4)
    quiet, loud = regimes.d_out(problem), regimes.d_out(problem, "loud")
    assert (quiet[:, :8] == 0).all()
    assert (loud[:, 8:] == quiet[:, 8:]).all()
    assert np.abs(loud[:, :8]).max() > 1e5
    first, second = regimes.d_out(problem, "first"), regimes.d_out(problem, "second")
    combined = regimes.d_out(problem, "combined")
    assert (combined == to_bfloat16(2 * first - second)).all()
    assert (regimes.d_out(problem.but(masks=(Full(),)), "early")[:, 8:] == 0).all()
    assert not regimes.d_out(problem, "zero").any()


def test_unknown_regime() -> None:
    with pytest.raises(ValueError, match="regime 'fast' is unknown"):
        regimes.inputs(PROBLEM.but(regime="fast"))


def test_every_field_of_inputs_is_covered() -> None:
    made = regimes.inputs(PROBLEM)
    assert {field.name for field in fields(made)} == {"q", "k", "v", "segment_ids", "sinks"}
