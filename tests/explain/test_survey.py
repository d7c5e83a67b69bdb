"""Labels, distinct partial blocks and visible pairs are those of the dense reference."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conformance.explain.blocks import survey
from conformance.explain.blocks.bounds import Box, facts
from conformance.explain.blocks.shades import shades
from conformance.explain.blocks.survey import Cut, TooManyEntries, prepared, visible_pairs
from conformance.explain.language.expressions import Documents, Prefix, Tiles, grain
from conformance.problems.mask_json import Random
from reference.blocks import labels, partial_stack
from reference.masks import Causal, ChunkedCausal, Full, Local, Mask
from tests.explain.masks import Case, cases


def _cut(case: Case) -> Cut:
    expr = prepared(case.expr, case.q_len, case.kv_len)
    return Cut(expr, case.q_len, case.kv_len, case.block_q, case.block_kv)


@settings(max_examples=250, deadline=None, database=None)
@given(case=cases(), small=st.booleans(), batch=st.sampled_from([64, 1 << 21]))
@example(Case(ChunkedCausal(1) | Prefix(1), 12, 9, 3, 3), False, 64)
def test_everything_is_exact(case: Case, small: bool, batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "SMALL", (1 << 24) * small)
        patch.setattr(survey, "BATCH", batch)
        cut = _cut(case)
        found = cut.labels()
        ids, distinct = cut.partial_ids(found)
        pairs = visible_pairs(cut.expr, case.q_len, case.kv_len)
    expected = labels(case.mask, case.block_q, case.block_kv)
    stack, places = partial_stack([case.mask], [expected], case.block_q, case.block_kv)
    assert found.tolist() == expected.tolist()
    assert distinct == (0 if stack is None else len(stack))
    assert ids.tolist() == places[0][expected == 1].tolist()
    assert pairs in (None, int(case.mask.dense().sum()))


@settings(max_examples=200, deadline=None, database=None)
@given(case=cases())
def test_bounds_claim_nothing_that_is_not_so(case: Case) -> None:
    q_lo = (np.arange(case.q_len // case.block_q) * case.block_q)[:, None]
    kv_lo = (np.arange(case.kv_len // case.block_kv) * case.block_kv)[None, :]
    box = Box(q_lo, q_lo + case.block_q - 1, kv_lo, kv_lo + case.block_kv - 1)
    known, truth = facts(case.expr, box), labels(case.mask, case.block_q, case.block_kv)
    assert not (known.some & (truth == 0)).any()
    assert not (known.none & (truth != 0)).any()
    assert not (known.gap & (truth == 2)).any()
    assert not (known.full & (truth != 2)).any()


def test_a_million_tokens_take_memory_for_blocks_only() -> None:
    length = 1 << 20
    cut = Cut(Causal() & Local(5000, 0) | Prefix(3000), length, length, 1024, 1024)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = cut.labels()
    ids, distinct = cut.partial_ids(found)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    corner = labels(Mask(cut.expr, 8192, 8192), 1024, 1024)
    assert found[:8, :8].tolist() == corner.tolist()
    assert (found[8:, 4:] == found[7:-1, 3:-1]).all()
    assert len(ids) == np.count_nonzero(found == 1)
    assert distinct == 6
    assert grown < 400 << 10  # KiB; the mask itself would take a tebibyte


def test_scattered_masks_are_told_apart_without_reading_them() -> None:
    length = 1 << 17
    cut = Cut(Random(0.1), length, length, 1024, 1024)
    found = cut.labels()
    ids, distinct = cut.partial_ids(found)
    assert (found == 1).all()
    assert distinct == len(ids) == 128 * 128


def test_masks_that_would_have_to_be_read_whole_are_refused() -> None:
    length = 1 << 17
    with pytest.raises(TooManyEntries, match=r"17,179,869,184 entries .* use larger blocks"):
        Cut(Random(0.0), length, length, 1024, 1024).labels()
    with pytest.raises(TooManyEntries, match="more than 4,194,304 blocks"):
        Cut(Random(0.1), 1 << 20, 1 << 20, 128, 128).labels()


def test_documents_repeat_the_last_length() -> None:
    dense = Mask(Documents((2, 3)), 9, 9).dense()
    starts = [0, 0, 2, 2, 2, 5, 5, 5, 8]
    assert dense.tolist() == [[a == b for b in starts] for a in starts]


def test_masks_of_whole_squares_are_read_square_by_square() -> None:
    length = 1 << 17
    cut = Cut(Tiles(0.01, 128) & Documents((2048, 4096)), length, length, 1024, 1024)
    assert (cut.stride, cut.area) == (128, 64)
    found = cut.labels()
    _, distinct = cut.partial_ids(found)
    assert 0 < np.count_nonzero(found) < 1000
    assert distinct > 10
    assert [grain(e) for e in (Full(), Prefix(96) & Tiles(0.5, 64), Causal() | Full())] == [
        0,
        32,
        1,
    ]


def test_whole_squares_are_hidden_together() -> None:
    dense = Mask(Tiles(0.5, 4, seed=3), 16, 16).dense()
    squares = dense.reshape(4, 4, 4, 4).swapaxes(1, 2).reshape(16, 16)
    assert set(squares.sum(axis=1)) == {0, 16}


def test_a_map_that_is_made_smaller_counts_every_block_once() -> None:
    grid = np.random.default_rng(0).integers(0, 3, (37, 53)).astype(np.int8)
    small = shades(grid, 5, 7)
    tops, lefts = np.arange(6) * 37 // 5, np.arange(8) * 53 // 7
    for row in range(5):
        for column in range(7):
            cell = grid[tops[row] : tops[row + 1], lefts[column] : lefts[column + 1]]
            assert small.empty[row, column] == (cell == 0).mean()
            assert small.full[row, column] == (cell == 2).mean()
    assert shades(grid, 99, 99).exact
