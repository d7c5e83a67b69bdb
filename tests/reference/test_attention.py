"""The dense reference against scalar loops written from the definition, and its invariances."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.attention import AttentionResult, Float, attend, kv_head_of
from reference.error_budget import (
    FLOAT64,
    U_FLOAT64,
    accumulated,
    error_ratio,
    forward_budget,
)
from reference.masks import Bool

#: Both sides of a comparison are computed in float64, each within its own budget.
BOTH_SIDES = 2


def by_loops(
    q: Float, k: Float, v: Float, mask: Bool, ids: Any, cap: float | None, sinks: Float | None
) -> tuple[Float, Float, Float]:
    """Output, logsumexp and max_logits, one row at a time, with exact sums and no shift."""
    heads, rows, _ = q.shape
    output = np.zeros((heads, rows, v.shape[2]))
    logsumexp, largest = np.full((heads, rows), -np.inf), np.full((heads, rows), -np.inf)
    for h in range(heads):
        g = h // (heads // len(k))
        for i in range(rows):
            weights = {}
            for j in range(k.shape[1]):
                seen = mask[h % len(mask), i, j] and (ids is None or ids[0][i] == ids[1][j])
                if seen:
                    logit = math.fsum(q[h, i] * k[g, j])
                    if cap is not None:
                        logit = cap * math.tanh(logit / cap)
                    largest[h, i] = max(largest[h, i], logit)
                    weights[j] = math.exp(logit)
            total = math.fsum(weights.values())
            if sinks is not None:
                total += math.exp(sinks[h])
            if total > 0:
                logsumexp[h, i] = math.log(total)
                for d in range(v.shape[2]):
                    output[h, i, d] = math.fsum(w * v[g, j, d] for j, w in weights.items()) / total
    return output, logsumexp, largest


def agree(
    a: AttentionResult, b: AttentionResult, q: Float, k: Float, v: Float, **given_: Any
) -> bool:
    """Whether two outputs of the problem differ by no more than two float64 budgets."""
    budget = forward_budget(q, k, v, a, FLOAT64, **given_).output
    return bool(error_ratio(b.output, a.output, budget).max() <= BOTH_SIDES)


def draw(seed: int, heads: int = 4, kv_heads: int = 2, rows: int = 5, keys: int = 6) -> Any:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(heads, rows, 3))
    k, v = rng.normal(size=(kv_heads, keys, 3)), rng.normal(size=(kv_heads, keys, 2))
    return q, k, v, rng.random((heads, rows, keys)) < 0.6


@given(
    seed=st.integers(0, 2**32 - 1),
    heads=st.sampled_from([(1, 1), (4, 1), (4, 2), (4, 4)]),
    one_mask=st.booleans(),
    segments=st.booleans(),
    cap=st.sampled_from([None, 0.5, 30.0]),
    sinks=st.booleans(),
)
def test_equals_the_definition(
    seed: int, heads: Any, one_mask: bool, segments: bool, cap: float | None, sinks: bool
) -> None:
    q, k, v, mask = draw(seed, *heads)
    mask = mask[:1] if one_mask else mask
    rng = np.random.default_rng(seed)
    ids = (rng.integers(-1, 2, size=5), rng.integers(-1, 2, size=6)) if segments else None
    a = rng.normal(size=heads[0]) if sinks else None
    found = attend(q, k, v, mask, segment_ids=ids, soft_cap=cap, sinks=a)
    expected = by_loops(q, k, v, mask, ids, cap, a)
    budget = forward_budget(q, k, v, found, FLOAT64, soft_cap=cap, sinks=a)
    for name, wanted in zip(("output", "logsumexp", "max_logits"), expected, strict=True):
        ratio = error_ratio(getattr(found, name), wanted, getattr(budget, name))
        assert ratio.max() <= BOTH_SIDES


def test_rows_of_probabilities_and_sink_sum_to_one_or_nothing() -> None:
    q, k, v, mask = draw(1)
    mask[0, 2] = False
    found = attend(q, k, v, mask, sinks=np.array([-np.inf, 0.0, 5.0, 500.0]))
    total = found.probabilities.sum(axis=2) + found.sink_probabilities
    wanted = np.ones((4, 5))
    wanted[0, 2] = 0
    assert (abs(total - wanted) <= accumulated(8, U_FLOAT64)).all()  # six keys, sink, division
    assert not found.output[0, 2].any()
    assert found.logsumexp[0, 2] == found.max_logits[0, 2] == -np.inf


def test_a_row_that_sees_only_its_sink() -> None:
    q, k, v, mask = draw(2)
    mask[:, 3] = False
    found = attend(q, k, v, mask, sinks=np.full(4, 1.5))
    assert not found.output[:, 3].any()
    assert (found.logsumexp[:, 3] == 1.5).all()
    assert (found.max_logits[:, 3] == -np.inf).all()


def finite(result: AttentionResult) -> bool:
    return bool(np.isfinite(result.output).all() and not np.isnan(result.logsumexp).any())


@pytest.mark.parametrize("sink", [-np.inf, -1e30, 0.0, 800.0, 1e30])
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e150])
def test_no_size_of_logits_or_sinks_gives_nan(sink: float, scale: float) -> None:
    q, k, v, mask = draw(3)
    assert finite(attend(q * scale, k, v, mask, sinks=np.full(4, sink)))


def test_logits_below_any_sentinel_keep_their_weights() -> None:
    q, k, v, _ = draw(4, heads=1, kv_heads=1)
    k[0, :, 0], q[0, :, 0] = 1e20, -1e20
    mask = np.zeros((1, 5, 6), dtype=np.bool_)
    mask[..., :2] = True
    found = attend(q, k, v, mask)
    half = 0.5 * v[0, 0] + 0.5 * v[0, 1]
    assert (abs(found.output[0] - half) <= 2 * U_FLOAT64 * abs(v[0, :2]).sum(axis=0)).all()


@given(seed=st.integers(0, 2**32 - 1), filler=st.sampled_from([0.0, 1e100, np.nan, np.inf]))
def test_what_nobody_sees_has_no_influence(seed: int, filler: float) -> None:
    q, k, v, mask = draw(seed)
    mask[..., 2] = False
    other_k, other_v = k.copy(), v.copy()
    other_k[:, 2], other_v[:, 2] = filler, filler
    assert (attend(q, k, v, mask).output == attend(q, other_k, other_v, mask).output).all()


def test_a_nan_that_is_seen_shows() -> None:
    q, k, v, mask = draw(5)
    v[0, 1, 0] = np.nan
    mask[:2, 0, 1] = True
    assert np.isnan(attend(q, k, v, mask).output[:2, 0, 0]).all()


@given(seed=st.integers(0, 2**32 - 1), cap=st.sampled_from([None, 2.0]))
def test_permutations_of_keys_and_of_groups(seed: int, cap: float | None) -> None:
    q, k, v, mask = draw(seed)
    found = attend(q, k, v, mask, soft_cap=cap)
    order = np.random.default_rng(seed).permutation(6)
    moved = attend(q, k[:, order], v[:, order], mask[..., order], soft_cap=cap)
    assert agree(found, moved, q, k, v, soft_cap=cap)
    swap = [2, 3, 0, 1]
    swapped = attend(q[swap], k[::-1], v[::-1], mask[swap], soft_cap=cap)
    assert (swapped.output == found.output[swap]).all()


def test_a_number_added_to_all_logits_moves_only_the_residuals() -> None:
    q, k, v, mask = draw(6)
    more = np.concatenate([q, np.full((4, 5, 1), 2.0)], axis=2)
    longer = np.concatenate([k, np.full((2, 6, 1), 3.0)], axis=2)
    a, b = attend(q, k, v, mask), attend(more, longer, v, mask)
    assert agree(b, a, more, longer, v)
    budget = forward_budget(more, longer, v, b, FLOAT64).logsumexp
    assert error_ratio(a.logsumexp + 6, b.logsumexp, budget).max() <= BOTH_SIDES


def test_disjoint_keys_combine_through_their_residuals() -> None:
    q, k, v, mask = draw(7)
    left, right = mask.copy(), mask.copy()
    left[..., 3:], right[..., :3] = False, False
    a, b, whole = (attend(q, k, v, m) for m in (left, right, mask))
    joint = np.logaddexp(a.logsumexp, b.logsumexp)
    safe = np.where(joint == -np.inf, 0, joint)
    sums = sum(np.exp(x.logsumexp - safe)[..., None] * x.output for x in (a, b))
    assert agree(whole, replace(whole, output=np.asarray(sums)), q, k, v, rescales=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": np.zeros((3, 5, 3))}, "kv_heads=2 must divide the number of query heads"),
        ({"q": np.zeros((4, 5, 4))}, "q and k must agree in head_dim"),
        ({"q": np.zeros((5, 3))}, "q must have rank 3"),
        ({"v": np.zeros((2, 7, 2))}, "k and v must agree"),
        ({"mask": np.ones((4, 5, 5), dtype=bool)}, "mask must have shape"),
        ({"mask": np.ones((2, 5, 6), dtype=bool)}, "mask must have shape"),
        ({"mask": np.ones((4, 5, 6))}, "mask must be boolean"),
        ({"soft_cap": 0.0}, "soft_cap must be positive"),
        ({"soft_cap": np.nan}, "soft_cap must be positive"),
        ({"sinks": np.zeros(2)}, "sinks must have shape"),
        ({"segment_ids": (np.zeros(6, int), np.zeros(6, int))}, "segment_ids of q"),
        ({"segment_ids": (np.zeros(5, int), np.zeros(5, int))}, "segment_ids of kv"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    q, k, v, mask = draw(8)
    arguments: dict[str, Any] = {"q": q, "k": k, "v": v, "mask": mask, **change}
    with pytest.raises(ValueError, match=message):
        attend(**arguments)


def test_heads_of_a_group_are_neighbours() -> None:
    assert kv_head_of(8, 2).tolist() == [0] * 4 + [1] * 4
    assert kv_head_of(3, 3).tolist() == [0, 1, 2]
