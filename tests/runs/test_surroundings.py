"""A report depends on the implementation alone, not on the surroundings of the run.

A wrong implementation is judged, so that what is compared holds verdicts and smallest problems, found and reduced
by search: both would show an order of sets, a cache or a clock that they hang on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import conformance

ADAPTER = """
from dataclasses import replace

import numpy as np

from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter
from reference.online import OnlineForward


class NoRescale(OnlineForward):
    def rescale(self, state, shift):
        state.shift = shift


class Prepared(PreparedReference):
    forward_kernel = NoRescale

    def mask_info(self, direction):
        info = super().mask_info(direction)
        return replace(info, block_mask=np.where(info.block_mask == 1, 2, info.block_mask))


class Wrong(ReferenceAdapter):
    def prepare(self, problem):
        return Prepared(super().prepare(problem).problem)
"""

ROOT = Path(conformance.__file__).parents[1]
CLAUSES = ("MASK-6", "LABEL-3", "DATA-3", "FWD-12", "FWD-24", "BWD-2", "RING-4")
#: What differs between any two runs.
CHANGING = frozenset({"seconds", "started", "command", "replays"})

#: Caches that keep one entry, so that nothing is found in them that a longer run would not find either.
FORGETFUL = """
import functools

whole = functools.lru_cache


def lru_cache(maxsize=128, typed=False):
    if callable(maxsize):
        return whole(maxsize=1)(maxsize)
    return whole(maxsize=1, typed=typed)


functools.lru_cache = lru_cache
functools.cache = whole(maxsize=1)
"""

#: Folders whose entries come in the opposite order.
BACKWARDS = """
import os

listdir, scandir = os.listdir, os.scandir


class Reversed:
    def __init__(self, path):
        with scandir(path) as entries:
            self.entries = iter(list(entries)[::-1])

    def __iter__(self):
        return self.entries

    def __next__(self):
        return next(self.entries)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def close(self):
        pass


os.listdir = lambda path=".": listdir(path)[::-1]
os.scandir = lambda path=".": Reversed(path)
"""


@dataclass(frozen=True)
class Surroundings:
    """What is unlike the baseline.

    Attributes:
      environment: variables; ``{folder}`` stands for a new folder, and an empty value for no variable.
      python: code that runs before anything else.
      folders: in the folder that the run starts in.
      arguments: of the command.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    folders: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ("-n", "1")


VARIED: dict[str, Surroundings] = {
    "hash seed 0": Surroundings({"PYTHONHASHSEED": "0"}),
    "hash seed 1": Surroundings({"PYTHONHASHSEED": "1"}),
    "any hash seed": Surroundings({"PYTHONHASHSEED": "random"}),
    "no locale": Surroundings({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    # Not even root can write in /proc.
    "Turkish, a home without room": Surroundings(
        {"LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kolkata", "HOME": "/proc", "XDG_CACHE_HOME": "/proc"}
    ),
    "German, a home with spaces": Surroundings(
        {
            "LC_ALL": "de_DE.UTF-8",
            "TZ": "America/St_Johns",
            "HOME": "{folder}/my own home",
            "TMPDIR": "{folder}/my own home",
        }
    ),
    "folders named like ours": Surroundings(
        folders=("conformance", "spec", "reference", "tests", "numpy"), arguments=("-n", "2")
    ),
    "used memory": Surroundings({"MALLOC_PERTURB_": "165"}),
    "caches of one entry": Surroundings(python=FORGETFUL),
    "folders read backwards": Surroundings(python=BACKWARDS),
}


def without_what_changes(report: Any) -> Any:
    if isinstance(report, dict):
        return {k: without_what_changes(v) for k, v in report.items() if k not in CHANGING}
    return [without_what_changes(v) for v in report] if isinstance(report, list) else report


def report(surroundings: Surroundings, folder: Path) -> Any:
    """The report of a run of the reference with two mistakes: labels, and sums that are not rescaled."""
    start, before = folder / "start", folder / "before"
    for path in (start, before, folder / "my own home"):
        path.mkdir()
    (start / "adapter.py").write_text(ADAPTER, encoding="utf-8")
    (before / "sitecustomize.py").write_text(surroundings.python, encoding="utf-8")
    for name in surroundings.folders:
        (start / name).mkdir()
        (start / name / "__init__.py").write_text("raise ImportError('a stranger')\n", "utf-8")
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join((str(before), str(ROOT)))}
    environment |= {k: v.format(folder=folder) for k, v in surroundings.environment.items()}
    chosen = [text for clause in CLAUSES for text in ("--clause", clause)]
    # -P: as the installed command, which does not put the current folder before everything else.
    command = [
        sys.executable,
        "-P",
        "-m",
        "conformance.commands.cli",
        "run",
        "adapter.py:Wrong",
        *chosen,
    ]
    done = subprocess.run(
        [*command, *surroundings.arguments, "--json", "report.json"],
        cwd=start,
        env={k: v for k, v in environment.items() if v},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr.decode(errors="replace")[-2000:]
    return without_what_changes(json.loads((start / "report.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return report(Surroundings(), tmp_path_factory.mktemp("baseline"))


def test_what_is_compared_holds_verdicts_and_findings(baseline: Any) -> None:
    found = [finding for outcome in baseline["outcomes"] for finding in outcome["findings"]]
    assert len(baseline["outcomes"]) >= len(CLAUSES)
    assert {outcome["status"] for outcome in baseline["outcomes"]} == {"conforms", "violates"}
    assert len(found) >= 3


@pytest.mark.parametrize("name", VARIED)
def test_reports_do_not_depend_on_the_surroundings(
    name: str, baseline: Any, tmp_path: Path
) -> None:
    assert report(VARIED[name], tmp_path) == baseline
