"""Every mutant is noticed by the check of the clause that it names, and only because it is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters.reference.numerics import Numerics
from conformance.checks.registry import CHECKS
from conformance.commands import mutants
from conformance.mutants import MUTANTS, Mutant, MutantAdapter, kill, load_all
from conformance.mutants.kill import Fate, Kill, fates, subject_of
from conformance.search.effort import PROFILES
from conformance.search.search import evaluate
from spec import all_clauses
from tests.commands.command_line import COMMAND, Run, environment

CATALOGUE = [name for name, mutant in load_all().items() if mutant.kind != "kernel"]
QUICK = PROFILES["quick"]
#: Besides seed 0, for mutants that no fixed problem kills. The others die whatever the seed is.
SEEDS = (1, 2, 3, 4)
PRECISION = [name for name, mutant in MUTANTS.items() if mutant.kind == "precision"]


class Unchanged(Numerics):
    """The computation of the reference."""


def is_shown(found: Kill, mutant: Mutant) -> bool:
    """Whether the reference passes the problem that the mutant fails: the two are not equivalent."""
    assert found.finding is not None
    numerics = Unchanged if mutant.numerics else None
    unchanged = Mutant(
        "unchanged", mutant.clause, "none", numerics=numerics, without=mutant.without
    )
    reference = subject_of(MutantAdapter(unchanged))
    check, problem = CHECKS[found.check], found.finding.problem
    right = evaluate(check, reference, problem)
    if mutant.quality:
        return right is None or right.ratio < found.finding.ratio
    return right is None or right.kind == "quality"


@pytest.mark.parametrize("name", [name for name in sorted(CATALOGUE) if name not in PRECISION])
def test_mutant_is_killed_by_its_clause_and_differs_from_the_reference(name: str) -> None:
    mutant = MUTANTS[name]
    found = kill.kill(mutant, 0, QUICK)
    assert found.check, f"{mutant.clause} does not notice {name}"
    assert CHECKS[found.check].clause_id == mutant.clause
    assert found.examples >= 1
    assert is_shown(found, mutant)
    if found.finding is not None and not found.finding.vector and not mutant.quality:
        for seed in SEEDS:
            assert kill.kill(mutant, seed, QUICK).check, f"{name} survives seed {seed}"


@pytest.mark.parametrize("name", PRECISION)
def test_a_mistake_near_rounding_is_noticed_sometimes(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.bug_class == "precision"
    assert mutant.kill_rate is not None
    assert 0 < mutant.kill_rate < 1
    kills = (kill.kill(mutant, seed, QUICK) for seed in range(20))
    found = next((one for one in kills if one.check), None)
    assert found is not None
    assert is_shown(found, mutant)


@pytest.mark.deep
@pytest.mark.parametrize("name", PRECISION)
def test_the_recorded_kill_rate_is_about_right(name: str) -> None:
    kills = [kill.kill(MUTANTS[name], seed, QUICK) for seed in range(20)]
    rate = sum(bool(one.check) for one in kills) / len(kills)
    # Four standard deviations of a share of 20.
    recorded = MUTANTS[name].kill_rate
    assert recorded is not None
    assert abs(rate - recorded) <= 4 * (recorded * (1 - recorded) / 20) ** 0.5


def test_mutants_name_existing_clauses_a_class_and_releases() -> None:
    assert len(MUTANTS) >= 80
    for mutant in MUTANTS.values():
        assert mutant.clause in all_clauses()
        assert mutant.bug_class
        assert not mutant.seen_in or re.match(r"(jax|tokamax) \d", mutant.seen_in)
    kinds = {mutant.kind for mutant in MUTANTS.values()}
    assert kinds == set(mutants.KINDS)


def test_kills_are_the_same_every_time() -> None:
    for name in ("partial-block-unmasked", "exponentials-of-16-bits", "interleaved-head-map"):
        one, other = (kill.kill(MUTANTS[name], 3, QUICK) for _ in range(2))
        assert replace(one, seconds=0) == replace(other, seconds=0)


def test_a_mutant_without_a_mistake_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MUTANTS, "harmless", Mutant("harmless", "LABEL-3", "none"))
    found = kill.kill(MUTANTS["harmless"], 0, QUICK)
    assert (found.check, found.finding) == ("", None)
    assert found.examples > 60
    (fate,) = fates([found, replace(found, seed=1, check="check_partial_blocks")])
    assert (fate.killed, fate.survives) == (1, True)
    often = Fate(replace(fate.mutant, kill_rate=0.5), fate.kills)
    assert not often.survives


# The command.

ONE = ("-n", "1")


def test_the_command(said: Run) -> None:
    found = said("mutants", "--clause", "LABEL-3", "--clause", "NUM-2", "--json", "m.json", *ONE)
    assert found.code == 0
    assert "check_partial_blocks" in found.out
    assert re.search(r"\d mutants, \d+ problems, 0 survive \(profile quick, 1 seeds\)", found.out)
    data = json.loads(Path("m.json").read_text())
    assert data["complete"]
    assert {item["clause"] for item in data["mutants"]} == {"LABEL-3", "NUM-2"}
    (item,) = [item for item in data["mutants"] if item["name"] == "partial-block-unmasked"]
    assert (item["killed"], item["survives"], item["kind"]) == (1, False, "structural")
    assert item["seeds"][0]["check"] == "check_partial_blocks"
    assert 1 <= item["seeds"][0]["examples"] < 10


def test_two_processes_find_what_one_finds(home: Path) -> None:
    arguments = ("mutants", "--clause", "LABEL-3", "--clause", "HEADS-3", "--seeds", "2")
    outs: list[Any] = []
    for workers in ("1", "2"):
        subprocess.run(
            [*COMMAND, *arguments, "-n", workers, "--json", "m.json"],
            cwd=home,
            env=environment(),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        data = json.loads((home / "m.json").read_text())
        for item in data["mutants"]:
            for one in item["seeds"]:
                del one["seconds"]
        outs.append(data)
    assert outs[0] == outs[1]
    assert len(outs[0]["mutants"][0]["seeds"]) == 2


def test_a_survivor_is_named_and_the_exit_code_says_so(
    said: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MUTANTS, "harmless", Mutant("harmless", "LABEL-3", "none"))
    found = said("mutants", "--clause", "LABEL-3", "--seeds", "2", *ONE)
    assert found.code == 1
    assert "harmless survives LABEL-3 (seeds 0, 1)" in found.out
    assert "nothing" in found.out
    assert "1 survive" in found.out


def test_rates_of_precision_mutants_are_shown(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sometimes = replace(Mutant("sometimes", "NUM-2", "precision"), kill_rate=0.25)
    monkeypatch.setitem(MUTANTS, "sometimes", sometimes)
    found = said("mutants", "--clause", "NUM-2", *ONE)
    assert found.code == 0
    assert "sometimes: noticed with 0% of the seeds, recorded 25%" in found.out


def test_an_interruption_keeps_what_is_there(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def interrupted(task: tuple[str, int, str]) -> Kill:
        if done:
            raise KeyboardInterrupt
        done.append(task[0])
        return kill.kill(MUTANTS[task[0]], task[1], QUICK)

    monkeypatch.setattr(kill, "kill_named", interrupted)
    found = said("mutants", "--clause", "LABEL-2", "--json", "m.json", *ONE)
    assert found.code == 2
    assert "interrupted: this result is partial" in found.out
    data = json.loads(Path("m.json").read_text())
    assert data["complete"] is False
    assert [item["name"] for item in data["mutants"]] == done


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interruption_ends_the_processes_too(home: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "mutants", "-n", "2", "--profile", "deep", "--json", "m.json"],
        cwd=home,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(4)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "interrupted: this result is partial" in out
    assert "Traceback" not in out + err
    deadline = time.monotonic() + 20
    while somebody_is_left(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def somebody_is_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_kernel_mutants_by_themselves(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ("mutants", "--kind", "kernel", "--clause", "SCHED-4", "--json", "m.json", *ONE)
    found = said(*chosen)
    assert found.code == 0
    kernels = json.loads(Path("m.json").read_text())["mutants"]
    assert "kernel-first-mask-block-for-all" in {item["name"] for item in kernels}
    assert {item["kind"] for item in kernels} == {"kernel"}
    assert all(item["killed"] for item in kernels)
    assert re.search(r"\n\d mutants, \d+ problems, 0 survive", found.out)
    monkeypatch.setattr(mutants, "find_spec", lambda name: None)
    found = said(*chosen)
    assert found.code == 0
    assert re.search(r"\d kernel mutants left out: they need jax", found.out)
    assert "0 mutants, 0 problems" in found.out


def test_errors_of_the_command(said: Run) -> None:
    for arguments, words in (
        (("--clause", "NOPE-1"), "no such clause"),
        (("--seeds", "0"), "must be a whole number of at least 1"),
        (("--json", "no/x.json"), "must be a file in a folder that exists"),
    ):
        found = said("mutants", *arguments)
        assert found.code == 2
        assert words in found.err
