"""Parts of a run, and the reports of all parts put together again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from conformance.checks.registry import CHECKS
from conformance.commands import cli
from conformance.runs.selection import Part
from conformance.runs.shards import cost, part_of, selected, selection_of
from conformance.search.effort import PROFILES, Profile
from tests.commands.command_line import ADAPTERS, COMMAND, ONE, Run, Said, environment

CLAUSES = ("LABEL-1", "LABEL-3", "CONV-2", "SHRINK-1")


FEW = Profile(
    examples=3, heavy_examples=2, broad_examples=2, numeric_examples=0, shrinks=4, variants=False
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is tried."""
    monkeypatch.setitem(PROFILES, "quick", FEW)


def clauses(*names: str) -> list[str]:
    return [word for name in names for word in ("--clause", name)]


@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("parts", [1, 2, 3, 16, 300])
def test_parts_are_disjoint_complete_and_balanced(parts: int, profile: str) -> None:
    checks, how = selected(()), PROFILES[profile]
    found = [part_of(checks, how, Part(n + 1, parts)) for n in range(parts)]
    names = [check.name for part in found for check in part]
    assert sorted(names) == sorted(check.name for check in checks)
    costs = [sum(cost(check, how) for check in part) for part in found]
    assert max(costs) - min(costs) <= max(cost(check, how) for check in checks)


def test_parts_do_not_depend_on_what_was_imported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = selected(())
    part = part_of(checks, PROFILES["quick"], Part(3, 16))
    selection = selection_of(("LABEL-1", "DATA-1"), True)
    modules = sorted({check.module for check in CHECKS.values()})
    random.Random(1).shuffle(modules)
    shuffled = {c.name: c for module in modules for c in CHECKS.values() if c.module == module}
    assert list(shuffled) != list(CHECKS)
    monkeypatch.setattr("conformance.runs.shards.CHECKS", shuffled)
    assert part_of(selected(()), PROFILES["quick"], Part(3, 16)) == part
    assert selection_of(("DATA-1", "LABEL-1", "DATA-1"), True) == selection


@pytest.mark.parametrize(
    "text", ["", "3", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1.0/2", " 1/2"]
)
def test_malformed_shards_are_refused(said: Run, text: str) -> None:
    found = said("run", "reference", f"--shard={text}", *ONE)
    assert found.code == 2
    assert "argument --shard: must be I/N with 1 <= I <= N" in found.err


def run_parts(said: Run, impl: str, parts: int, *more: str) -> list[str]:
    files = []
    for n in range(1, parts + 1):
        files.append(f"{n}.json")
        said(
            "run",
            impl,
            *clauses(*CLAUSES),
            "--shard",
            f"{n}/{parts}",
            "--json",
            files[-1],
            *more,
            *ONE,
        )
    return files


def without_time(report: dict[str, Any]) -> dict[str, Any]:
    for outcome in report["outcomes"]:
        outcome.pop("seconds")
    return {k: v for k, v in report.items() if k not in ("seconds", "command", "started")}


@pytest.mark.parametrize(
    ("impl", "code"), [("reference", 0), ("mine.py:Wrong", 1), ("mine.py:Renamed", 3)]
)
@pytest.mark.usefixtures("few")
def test_merged_parts_are_the_whole(said: Run, impl: str, code: int) -> None:
    whole = said("run", impl, *clauses(*CLAUSES), "--json", "whole.json", *ONE)
    files = run_parts(said, impl, 3)
    merged = said("merge", *reversed(files), "--json", "merged.json", "--junit", "merged.xml")
    assert (merged.code, merged.err) == (whole.code, "") == (code, "")
    reports = [json.loads(Path(name).read_text()) for name in ("whole.json", "merged.json")]
    assert without_time(reports[0]) == without_time(reports[1])
    assert Path("merged.xml").read_text().count("<testcase") == len(reports[0]["outcomes"])

    def lines(text: str) -> list[str]:
        return [line for line in text.split("\n") if " problems, " not in line]

    assert lines(merged.out) == lines(whole.out)
    parts = [json.loads(Path(name).read_text()) for name in files]
    assert [part["shard"] for part in parts] == [{"number": n, "of": 3} for n in (1, 2, 3)]
    assert all(part["outcomes"] for part in parts)
    assert parts[0]["selection"] == reports[0]["selection"]
    assert parts[0]["selected"] == list(CLAUSES)


@pytest.mark.usefixtures("few")
def test_a_part_without_a_check_is_no_error(said: Run) -> None:
    files = []
    for n in (1, 2):
        files.append(f"{n}.json")
        found = said(
            "run", "reference", *clauses("LABEL-1"), "--shard", f"{n}/2", "--json", files[-1], *ONE
        )
        assert found.code == 0
    assert "0 checks, 0 problems" in found.out
    assert "shard 2/2" in found.out
    assert said("merge", *files).code == 0


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reports of three parts."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "mine.py").write_text(ADAPTERS, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(PROFILES, "quick", FEW)
        run_parts(lambda *arguments: Said(cli.main(arguments), "", ""), "mine.py:Plain", 3)
    return folder


@pytest.fixture
def parts(plain: Path, home: Path) -> list[str]:
    for name in ("1.json", "2.json", "3.json"):
        shutil.copy(plain / name, home)
    return ["1.json", "2.json", "3.json"]


def change(file: str, **fields: Any) -> str:
    data = json.loads(Path(file).read_text())
    Path(f"changed-{file}").write_text(json.dumps(data | fields))
    return f"changed-{file}"


def test_mixtures_are_refused(said: Run, parts: list[str]) -> None:
    one, two, three = parts
    report = json.loads(Path(two).read_text())
    selection = report["selection"] | {"digest": "0" * 16}
    for fields, words in (
        ({"implementation": "jax"}, "implementation is jax, but in 1.json it is mine.py:Plain"),
        ({"version": "2"}, "version of the implementation is 2"),
        ({"profile": "deep"}, "profile is deep"),
        ({"seed": 1}, "seed is 1"),
        ({"selection": selection}, "selection of checks is"),
        ({"shard": {"number": 2, "of": 4}}, "is shard 2/4, but 1.json is 1/3"),
        ({"shard": {"number": 3, "of": 3}}, "is shard 3/3, and so is changed-2.json"),
        ({"schema": 99}, "is a report of schema 99"),
        ({"outcomes": None}, "is incomplete"),
    ):
        found = said("merge", one, change(two, **fields), three)
        assert found.code == 2
        assert found.out == ""
        assert words in found.err
        assert "2.json" in found.err


def test_duplicates_and_strangers_are_refused(said: Run, parts: list[str]) -> None:
    one, two, three = parts
    assert "1.json: is given twice" in said("merge", one, two, one).err
    Path("copy.json").write_text(Path(one).read_text())
    assert "copy.json: is shard 1/3, and so is 1.json" in said("merge", one, two, "copy.json").err
    outcomes = json.loads(Path(one).read_text())["outcomes"]
    both = change(three, outcomes=outcomes)
    name = outcomes[0]["check"]
    assert (
        f"changed-3.json: has an outcome of {name}, and so has 1.json"
        in said("merge", one, two, both).err
    )
    assert "checks 2 have no outcome" in said("merge", one, two, change(three, outcomes=[])).err
    assert "cannot be read: No such file" in said("merge", one, "none.json").err
    Path("torn.json").write_text("{")
    assert "torn.json: is not JSON" in said("merge", one, "torn.json").err
    assert (
        "must be a file in a folder that exists" in said("merge", *parts, "--json", "no/x.json").err
    )


def test_missing_parts_are_refused_or_named(said: Run, parts: list[str]) -> None:
    found = said("merge", parts[1])
    assert found.code == 2
    assert found.out == ""
    assert "2.json: is shard 2/3, but shards 1, 3 are missing; --partial" in found.err
    found = said("merge", parts[1], "--partial", "--json", "m.json")
    assert found.code == 2
    assert "this report is partial" in found.out
    assert "shards 1, 3 of 3 are missing" in found.err
    assert json.loads(Path("m.json").read_text())["complete"] is False


def test_machines_that_differ_are_named(said: Run, parts: list[str]) -> None:
    environment = json.loads(Path(parts[0]).read_text())["environment"]
    other = change(parts[0], environment=environment | {"numpy": "9.9", "platform": "Elsewhere"})
    found = said("merge", other, *parts[1:], "--json", "m.json")
    assert found.code == 0
    assert "2.json: numpy is" in found.err
    assert "but in changed-1.json it is 9.9" in found.err
    assert "Elsewhere" not in found.err
    assert "9.9" in json.loads(Path("m.json").read_text())["environment"]["numpy"]


def test_an_interrupted_part_is_continued_as_that_part(said: Run, home: Path) -> None:
    arguments = [
        "run",
        "mine.py:Sleepy",
        *clauses(*CLAUSES),
        "--shard",
        "1/2",
        "--json",
        "1.json",
        *ONE,
    ]
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=home,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A background job is started with SIGINT ignored, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not (home / "asleep").exists():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 2
    report = json.loads(Path("1.json").read_text())
    assert (report["complete"], report["shard"]) == (False, {"number": 1, "of": 2})
    text = (home / "mine.py").read_text()
    (home / "mine.py").write_text(text.replace("time.sleep(60)", "pass"))
    arguments += ["--resume", "1.jsonl"]
    other = [word if word != "1/2" else "2/2" for word in arguments]
    assert "is of a run with shard='1/2', not '2/2'" in said(*other).err
    assert said(*arguments).code == 0
    found = [outcome["check"] for outcome in json.loads(Path("1.json").read_text())["outcomes"]]
    wanted = part_of(selected(CLAUSES), PROFILES["quick"], Part(1, 2))
    assert sorted(found) == sorted(check.name for check in wanted)
