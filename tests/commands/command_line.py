"""The command line in tests: adapters, the folder that they stand in, and what a command says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import conformance

ADAPTERS = '''
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter
from conformance.problems.predicates import empty_q_shard


class FullPrepared(PreparedReference):
    def mask_info(self, direction):
        info = super().mask_info(direction)
        return replace(info, block_mask=np.where(info.block_mask == 1, 2, info.block_mask))


class Wrong(ReferenceAdapter):
    """Calls every partial block full."""

    def describe(self):
        return replace(super().describe(), name="wrong", version="1.5")

    def prepare(self, problem):
        return FullPrepared(super().prepare(problem).problem)


class Plain(ReferenceAdapter):
    """Declares masks and arrays only."""

    def describe(self):
        features = {"masks", "mask_info", "layout:grid", "static", "stored_masks"}
        return replace(super().describe(), name="plain", features=frozenset(features), options={})


class Renamed(ReferenceAdapter):
    """Right, under the name of a library with known deviations."""

    def describe(self):
        return replace(super().describe(), name="jax", version="0.12.0.1")


class Old(Renamed):
    """Has one of them."""

    def prepare(self, problem):
        if problem.shrink and problem.single_mask and not problem.dynamic:
            assert not empty_q_shard(problem)
        return super().prepare(problem)


class Sleepy(ReferenceAdapter):
    """Never gets past its tenth problem."""

    number = 0

    def prepare(self, problem):
        Sleepy.number += 1
        if Sleepy.number > 10:
            Path("asleep").touch()
            time.sleep(60)
        return super().prepare(problem)


class Interrupted(ReferenceAdapter):
    def prepare(self, problem):
        if problem.dynamic:
            raise KeyboardInterrupt
        return super().prepare(problem)


class Undescribed(ReferenceAdapter):
    def describe(self):
        raise RuntimeError("boom")


class Listing(ReferenceAdapter):
    def describe(self):
        return ["masks"]


class Unprepared:
    def describe(self):
        return Wrong().describe()


class Unready(ReferenceAdapter):
    def prepare(self, problem):
        raise RuntimeError("no kernel")


def broken():
    raise ValueError("not today")


ready_made = Wrong()
three = 3
'''


@dataclass
class Said:
    """What a command said."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]
ONE = ("-n", "1")


def environment() -> dict[str, str]:
    """Of child processes: they find this checkout, and nothing of the pytest around them."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    return kept | {"PYTHONPATH": str(Path(conformance.__file__).parents[1])}


COMMAND = [sys.executable, "-P", "-m", "conformance.commands.cli"]


def child(folder: Path, *arguments: str) -> Said:
    """Runs the command in a process of its own, its output in pipes."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)
