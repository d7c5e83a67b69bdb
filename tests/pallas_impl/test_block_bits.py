"""Packed blocks: round trips, and deduplication that survives colliding hashes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_impl import block_bits


@settings(deadline=None)
@given(
    st.integers(0, 5),
    st.integers(1, 5),
    st.integers(1, 70),
    st.integers(0, 2**16),
    st.floats(0, 1),
)
def test_packing_round_trips(n: int, block_q: int, block_kv: int, seed: int, p: float) -> None:
    entries = np.random.default_rng(seed).random((n, block_q, block_kv)) < p
    words = block_bits.pack_blocks(entries)
    found = block_bits.unpack_blocks(words, (block_q, block_kv))
    np.testing.assert_array_equal(found, entries)
    some, full = block_bits.any_all(words, (block_q, block_kv))
    np.testing.assert_array_equal(some, entries.any(axis=(1, 2)))
    np.testing.assert_array_equal(full, entries.all(axis=(1, 2)))


def check(words: Any) -> None:
    first, inverse = block_bits.deduplicate(words)
    rows = [row.tobytes() for row in words]
    distinct = list(dict.fromkeys(rows))
    assert [rows[n] for n in first] == distinct
    assert list(first) == [rows.index(row) for row in distinct]
    assert list(inverse) == [distinct.index(row) for row in rows]


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1, 2**32]), max_size=24))
def test_equal_rows_and_no_others_are_merged(values: list[int]) -> None:
    values = values[: len(values) // 2 * 2]
    check(np.array(values, dtype=np.uint64).reshape(-1, 2))


@settings(deadline=None)
@given(values=st.lists(st.integers(0, 3), max_size=24), kept=st.integers(0, 1))
def test_colliding_hashes_merge_nothing(values: list[int], kept: int) -> None:
    words = np.array(values[: len(values) // 2 * 2], dtype=np.uint64).reshape(-1, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_bits, "row_hashes", lambda rows: rows[:, 0] & np.uint64(kept))
        check(words)


def test_hashes_spread_single_bits() -> None:
    one_bit = np.zeros((64 * 32, 32), dtype=np.uint64)
    bits = np.arange(64 * 32)
    one_bit[bits, bits // 64] = np.uint64(1) << (bits % 64).astype(np.uint64)
    assert len(np.unique(block_bits.row_hashes(one_bit))) == len(one_bit)
