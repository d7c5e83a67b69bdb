"""The database of failing examples: off unless asked for, and then what failed once is found at once."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis.database import InMemoryExampleDatabase

from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS
from conformance.contract import settings
from conformance.contract.fence import Subject
from conformance.findings.finding import Outcome
from conformance.problem import Problem
from conformance.search import database
from conformance.search.database import Shelf
from conformance.search.effort import PROFILES
from conformance.search.search import run_check
from tests.commands.command_line import ONE, Run, child

checks.load_all()
#: Draws little, and no fixed problem fails.
FEW = replace(PROFILES["quick"], examples=15, shrinks=40)
MANY = replace(PROFILES["quick"], examples=600, shrinks=40)


class Rare(ReferenceAdapter):
    """Wrong for few problems."""

    def prepare(self, problem: Problem) -> Any:
        if problem.heads == 3 and problem.grid() == (3, 2) and problem.shards.q == 3:
            raise AssertionError("rare")
        return super().prepare(problem)


def judged(profile: Any, seed: int, name: str = "rare") -> Outcome:
    subject = Subject(Rare(), replace(ReferenceAdapter().describe(), name=name))
    return run_check(CHECKS["check_every_mask_compiles"], subject, profile, seed)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(settings.DATABASE, "")
    settings.request_database(tmp_path / "kept")
    return tmp_path / "kept"


@pytest.fixture
def seed_without() -> int:
    """A seed with which few problems do not show the mistake."""
    return next(seed for seed in range(50) if judged(FEW, seed).status == "conforms")


def test_nothing_is_kept_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed_without: int
) -> None:
    monkeypatch.delenv(settings.DATABASE, raising=False)
    assert settings.requested_database() is None
    assert database.examples("check", "jax") is None
    settings.request_database(None)
    assert settings.requested_database() is None
    assert judged(MANY, 1).status == "violates"
    assert judged(FEW, seed_without).status == "conforms"


def test_what_failed_once_is_tried_first(seed_without: int, folder: Path) -> None:
    assert judged(FEW, seed_without).status == "conforms"
    assert judged(MANY, 1).status == "violates"
    again = judged(FEW, seed_without)
    assert again.status == "violates"
    assert again.findings[0].problem.heads == 3
    # Of this check and this implementation only.
    assert judged(FEW, seed_without, name="other").status == "conforms"


def test_a_check_that_draws_nothing_still_tries_what_failed(folder: Path) -> None:
    nothing = replace(FEW, examples=0)
    assert judged(nothing, 3).status == "conforms"
    assert judged(MANY, 1).status == "violates"
    for _ in range(2):  # it stays there
        assert judged(nothing, 3).status == "violates"


def test_shelves_share_a_database_and_not_their_examples() -> None:
    whole = InMemoryExampleDatabase()
    one, other = Shelf(whole, b"a/"), Shelf(whole, b"b/")
    one.save(b"key", b"1")
    other.save(b"key", b"2")
    assert (set(one.fetch(b"key")), set(other.fetch(b"key"))) == ({b"1"}, {b"2"})
    one.delete(b"key", b"1")
    assert (set(one.fetch(b"key")), set(other.fetch(b"key"))) == (set(), {b"2"})


def test_the_option_and_the_variable(home: Path) -> None:
    """The option makes the folder; a later run finds it through the environment."""
    arguments = ("run", "mine.py:Wrong", "--clause", "LABEL-3", *ONE)
    assert child(home, *arguments).code == 1
    assert not (home / "kept").exists()
    assert child(home, *arguments, "--database", "kept").code == 1
    assert list((home / "kept").iterdir())


def test_a_run_leaves_nothing_else_in_the_folder(home: Path) -> None:
    child(home, "run", "mine.py:Wrong", "--clause", "LABEL-3", "-n", "2")
    left = {path.name for path in home.iterdir()} - {"__pycache__"}
    assert left == {"mine.py", "splash-conformance-failures"}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_made(said: Run, home: Path) -> None:
    home.chmod(stat.S_IREAD | stat.S_IEXEC)
    found = said("run", "reference", "--clause", "LABEL-3", "--database", "kept", *ONE)
    home.chmod(stat.S_IRWXU)
    assert found.code == 2
    assert "--database kept: cannot be used" in found.err


def test_a_file_is_no_database(said: Run, home: Path) -> None:
    found = said("run", "reference", "--clause", "LABEL-3", "--database", "mine.py", *ONE)
    assert found.code == 2
    assert "--database mine.py: cannot be used: File exists" in found.err
