"""What an implementation says that it does not offer is no violation and no pass; anything else it raises is one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS, Violation, reject
from conformance.contract.fence import Subject
from conformance.contract.remote.errors import Refused, is_refusal
from conformance.findings.finding import Outcome
from conformance.findings.place import Place
from conformance.problem import Problem
from conformance.search.effort import PROFILES
from conformance.search.search import run_check
from tests.commands.command_line import ONE, Run

checks.load_all()
WORDS = "several heads are not supported yet"


class Refuses(ReferenceAdapter):
    """Compiles masks of one head only, and says so."""

    heads = 1

    def prepare(self, problem: Problem) -> Any:
        if problem.heads > self.heads:
            raise NotImplementedError(WORDS)
        return super().prepare(problem)


class RefusesAll(Refuses):
    """Compiles nothing."""

    heads = 0


class RefusesToCompile(ReferenceAdapter):
    """Is ready for anything, and compiles nothing."""

    def prepare(self, problem: Problem) -> Any:
        made: Any = super().prepare(problem)

        def mask_info(direction: str) -> None:
            raise NotImplementedError(f"{direction}: {WORDS}")

        made.mask_info = mask_info
        return made


class Silent(Refuses):
    """The same without a word."""

    def prepare(self, problem: Problem) -> Any:
        if problem.heads > 1:
            raise NotImplementedError
        return super().prepare(problem)


def judged(adapter: ReferenceAdapter) -> Outcome:
    profile = replace(PROFILES["quick"], examples=20, shrinks=20)
    subject = Subject(adapter, adapter.describe())
    return run_check(CHECKS["check_every_mask_compiles"], subject, profile, 0)


def test_what_is_refused_is_counted_apart() -> None:
    outcome = judged(Refuses())
    assert outcome.status == "conforms"
    assert outcome.examples > 5
    assert list(outcome.refused) == [WORDS]
    assert outcome.refused[WORDS] > 3
    everything = judged(ReferenceAdapter())
    assert outcome.examples + outcome.refused[WORDS] == everything.examples


def test_a_check_that_is_refused_altogether_is_no_pass() -> None:
    outcome = judged(RefusesAll())
    assert (outcome.status, outcome.reason) == ("n/a", f"refused: {WORDS}")


def test_a_refusal_without_a_word_is_a_crash() -> None:
    outcome = judged(Silent())
    assert outcome.status == "violates"
    assert not outcome.refused


def test_an_error_of_jax_is_no_refusal() -> None:
    import jax.numpy as jnp

    with pytest.raises(NotImplementedError, match="order") as raised:
        jnp.array([1], order="F")
    assert not is_refusal(raised.value)


def test_bad_input_may_be_refused_for_another_reason() -> None:
    def refuse() -> None:
        raise NotImplementedError(WORDS)

    with pytest.raises(Refused):
        reject(Place("q", "argument"), ("length",), refuse)

    def wrong() -> None:
        raise ValueError("bad")

    with pytest.raises(Violation):
        reject(Place("q", "argument"), ("length",), wrong)


def test_a_replay_that_is_refused_says_so(home: Path, said: Run) -> None:
    (home / "refuses.py").write_text(
        "from tests.contract.test_refusals import RefusesAll, RefusesToCompile\n", encoding="utf-8"
    )
    assert said("run", "mine.py:Wrong", "--clause", "LABEL-3", *ONE).code == 1
    (path,) = (home / "splash-conformance-failures").glob("LABEL-3-*.json")
    found = said("replay", str(path), "refuses.py:RefusesToCompile")
    assert found.code == 2
    assert f"was not tried (fwd: {WORDS}), so check_partial_blocks says" in found.err
    found = said("smoke", "refuses.py:RefusesAll")
    assert found.code == 2
    assert f"the simplest problem is refused: {WORDS}" in found.out + found.err


def test_another_process_refuses_as_well(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from tests.contract.test_refusals import Refuses\n", encoding="utf-8"
    )
    command = [
        sys.executable,
        "-m",
        "conformance.commands.cli",
        "run",
        "mine.py:Refuses",
        "--isolate",
    ]
    options = ["--clause", "LABEL-1", "-n", "1", "--no-color"]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": "", "COLUMNS": "100"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused by the implementation, neither passes nor failures" in done.stdout
    assert f"of LABEL-1: {WORDS}" in done.stdout


def test_an_own_raise_is_one() -> None:
    with pytest.raises(NotImplementedError) as raised:
        raise NotImplementedError(WORDS)
    assert is_refusal(raised.value)


class NoLossOnResiduals(ReferenceAdapter):
    """A loss on logsumexp is refused, as BWD-16 allows."""

    def prepare(self, problem: Problem) -> Any:
        made: Any = super().prepare(problem)
        right = made.backward

        def backward(*arguments: Any, **more: Any) -> Any:
            if "d_logsumexp" in more:
                raise NotImplementedError("higher derivatives are not supported")
            return right(*arguments, **more)

        made.backward = backward
        return made


def test_what_may_be_refused_conforms() -> None:
    adapter = NoLossOnResiduals()
    subject = Subject(adapter, adapter.describe())
    outcome = run_check(CHECKS["check_loss_on_logsumexp"], subject, PROFILES["quick"], 0)
    assert (outcome.status, outcome.refused) == ("conforms", {})
