"""Blocks go to the slots where they still are: no placement fetches fewer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_impl import slots as sl
from pallas_impl.schedule import build_schedule
from tests.pallas_impl.fetch_oracle import Table, chunks, fewest, one_kept, read_table

DENSITIES = ([0.5, 0.25, 0.25], [0.85, 0.1, 0.05], [0.3, 0.3, 0.4])


def _labels(rng: np.random.Generator, shape: Any) -> np.ndarray:
    found: np.ndarray = rng.choice(3, size=shape, p=DENSITIES[rng.integers(3)])
    return found.astype(np.int32)


def _by_head(labels: np.ndarray, slots: int) -> int:
    """The fewest fetches of heads that begin with nothing."""
    return sum(fewest([s for row in head for s in chunks(row, slots)], slots) for head in labels)


def test_the_search_finds_what_is_known() -> None:
    assert fewest([[0, 1], [1, 2], [2, 3]], 2) == 4
    assert fewest([[0, 1], [2, 3], [0, 1]], 2) == 6
    assert fewest([[0, 1], [2], [0, 1]], 2) == 4
    assert fewest([[0, 1], [2], [0, 1]], 3) == 3
    assert fewest([], 2) == 0


@pytest.mark.parametrize("grid", ["flat", "grid2d"])
@pytest.mark.parametrize("slots", [2, 3, 4])
def test_random_labels_are_fetched_as_rarely_as_possible(slots: int, grid: Any) -> None:
    rng = np.random.default_rng(slots)
    for _ in range(100):
        heads, rows, columns = rng.integers(1, [4, 7, 8])
        labels = _labels(rng, (heads, rows, columns))
        made = build_schedule(
            [(labels, None)], slots=slots, grid=grid, storage="table", device_heads=heads
        )
        found, width = read_table(made, heads), made.layout.slots
        assert found.fetched - found.idle == _by_head(labels, width), labels.tolist()


@pytest.mark.parametrize("kv", [True, False], ids=["forward", "dkv"])
def test_heads_that_share_keys_fetch_no_more_than_one_kept_block_would(kv: bool) -> None:
    rng = np.random.default_rng(int(kv))
    for trial in range(200):
        group, kv_heads = rng.integers(1, [4, 3])
        heads = int(group * kv_heads)
        own = heads if trial % 2 else 1
        labels = _labels(rng, (own, *rng.integers(1, 6, 2)))
        made = build_schedule(
            [(labels, None)],
            slots=int(rng.integers(2, 5)),
            storage="table",
            device_heads=own,
            aligned=not kv and own > 1,
        )
        found = read_table(made, heads, int(group), kv=kv)
        assert found.fetched - found.idle <= one_kept(found), (labels.tolist(), heads, group)


@pytest.mark.parametrize(("own", "slots"), [(1, 3), (4, 4)])
def test_run_time_masks_fetch_what_the_step_before_lacks(own: int, slots: int) -> None:
    """One compiled program for many masks; compared with keeping the blocks of one step."""
    rng = np.random.default_rng(own)
    labels = np.stack([_labels(rng, (own, 4, 6)) for _ in range(150)])

    def build(labels: Any) -> Any:
        return build_schedule([(labels, None)], slots=slots, device_heads=own, aligned=True)

    made: Any = jax.jit(jax.vmap(build))(jnp.asarray(labels))
    for i in range(len(labels)):
        one = jax.tree.map(lambda x, i=i: np.asarray(x[i]), made)
        for group, kv in ((1, True), (2, True), (2, False)):
            found = read_table(one, 4, group, kv=kv)
            needed = found.fetched - found.idle
            assert needed <= one_kept(found), (labels[i].tolist(), group, kv)
            if kv:
                assert needed <= _step_kept(found), labels[i].tolist()


def _step_kept(table: Table) -> int:
    """Fetches of a kernel that keeps the blocks of the last step that worked."""
    held: set[Any] = set()
    total = 0
    for active, index in zip(table.active, table.block, strict=True):
        wanted = set(map(tuple, index[active].tolist()))
        total += len(wanted - held)
        held = wanted or held
    return total


def test_a_slot_that_never_works_does_not_follow_the_heads() -> None:
    labels = np.zeros((3, 2, 2), np.int32)
    labels[1, 0] = 1
    made = build_schedule([(labels, None)], slots=2, storage="table", device_heads=3)
    assert read_table(made, 3).fetched == 2
    empty = build_schedule([(labels[:1], None)], slots=2, storage="table")
    assert empty.layout.spare
    assert read_table(empty, 3).fetched == 1


def test_no_more_slots_than_the_longest_row() -> None:
    labels = np.eye(4, dtype=np.int32)[None]
    assert build_schedule([(labels, None)], slots=4).layout.slots == 1


def test_heads_of_another_device_are_not_named() -> None:
    labels = np.zeros((4, 1, 2), np.int32)
    labels[0] = 1
    made = build_schedule([(labels, None)], slots=2, storage="table", device_heads=2)
    offset = sl.head_offset(made.entries)
    assert np.all((np.arange(2)[:, None] + offset[:2] >= 0) & (offset[2:] >= -1))
    assert np.all(offset[2] == 0)


def test_rejects_too_many_heads() -> None:
    with pytest.raises(ValueError, match="at most 8192 heads"):
        build_schedule([(np.ones((1, 1, 1), np.int32), None)], slots=1, device_heads=8193)
