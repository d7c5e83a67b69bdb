"""Compiled programs do not use up the memory maps of a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.contract import memory_maps
from conformance.contract.memory_maps import Room

jax = pytest.importorskip("jax")

needs_linux = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="this system does not count memory maps"
)

MANY = """
import jax, numpy as np
from conformance.contract.memory_maps import Room, count

def compile_one(n):
    return jax.jit(lambda x: jax.numpy.sin(x) * n)

start, room, kept = count(), Room(), []
room.limit = start + 300
given_up, most = 0, 0
for n in range(200):
    made = compile_one(n)
    assert made(np.float32(0)) == 0
    kept.append(made)
    given_up += room.make(every=5)
    most = max(most, count() - start)
assert all(made(np.float32(0)) == 0 for made in kept[:3])
print(given_up, most)
"""


@needs_linux
def test_maps_stay_below_the_limit() -> None:
    said = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    given_up, most = (int(number) for number in said.stdout.split())
    assert given_up > 1
    assert most < 600  # 200 programs take about 1000


def test_a_few_programs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    room.limit = 10
    monkeypatch.setattr(memory_maps, "count", lambda: 10)
    assert not room.make(every=1)


def test_maps_are_counted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted() -> int:
        calls.append(1)
        return 1

    room = Room()
    room.limit = 10**9
    monkeypatch.setattr(memory_maps, "count", counted)
    for _ in range(49):
        room.make()
    assert not calls
    room.make()
    assert len(calls) == 1


def test_nobody_counts_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_maps, "_LIMIT", Path("no such file"))
    room = Room()
    assert room.limit is None
    assert not room.make(every=1)
