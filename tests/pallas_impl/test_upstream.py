"""Our numbers are those of jax and tokamax, as far as the arithmetic of both tells them apart."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from conformance.adapter import load
from conformance.checks.budgets import exact_backward, exact_forward
from conformance.contract.fence import Subject
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Random
from reference.masks import Causal, ChunkedCausal, Local

S = 256
BLOCKS = BlockSizes(128, 128)
PAIR = Problem(S, S, (Causal(),), BLOCKS, heads=2, kv_heads=1)
SEGMENTS = (((0, 100), (1, S - 100)),) * 2
PROBLEMS = {
    "causal, grouped": PAIR,
    "window, soft cap": PAIR.but(masks=(Local(140, 0),), soft_cap=2.0, kv_heads=2),
    "segments": PAIR.but(segments=SEGMENTS, seed=1),
    "stored": PAIR.but(masks=(Random(0.5, 3),)),
    "masks of each head": PAIR.but(masks=(ChunkedCausal(96), Random(0.5, 3)), kv_heads=2),
    "bfloat16": PAIR.but(dtype="bfloat16", blocks=BlockSizes(128, 256)),
    "sinks": PAIR.but(sinks=(0.5, -2.0)),
}
"""Every row sees something: what a row without visible keys holds is where the others differ."""


@functools.cache
def _subject(name: str) -> Subject:
    adapter = load(name)
    return Subject(adapter, adapter.describe())


def _agree(other: str, name: str) -> None:
    problem = PROBLEMS[name]
    theirs, ours = _subject(other), _subject("pallas_impl")
    for feature, used in (("sinks", problem.sinks), ("per_head_masks", len(problem.masks) > 1)):
        if used and not theirs.description.offers(feature):
            pytest.skip(f"{other} does not offer {feature}")
    budgets = [exact_forward(s, problem).budget.output for s in (theirs, ours)]
    out = [s.forward(problem).output for s in (theirs, ours)]
    _close("output", out, budgets)
    gradients = [s.backward(problem) for s in (theirs, ours)]
    allowed = [exact_backward(s, problem).budget for s in (theirs, ours)]
    for part in ("dq", "dk", "dv", "dsinks"):
        if getattr(gradients[1], part) is not None:
            found = [np.asarray(getattr(g, part), np.float64) for g in gradients]
            _close(part, found, [getattr(b, part) for b in allowed])


def _close(name: str, found: list[np.ndarray], budgets: list[np.ndarray]) -> None:
    assert all(np.isfinite(x).all() for x in found), name
    apart = np.abs(np.subtract(*found))
    assert np.all(apart <= np.add(*budgets)), f"{name}: {np.max(apart / np.add(*budgets))}"


@pytest.mark.parametrize("name", PROBLEMS)
def test_jax_agrees(name: str) -> None:
    _agree("jax", name)


@pytest.mark.tokamax
@pytest.mark.parametrize("name", PROBLEMS)
def test_tokamax_agrees(name: str) -> None:
    _agree("tokamax", name)
