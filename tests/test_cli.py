"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import conformance
from conformance import cli
from conformance.problem import Problem
from conformance.runner import save_findings

ADAPTERS = '''
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from conformance.adapters.reference import PreparedReference, ReferenceAdapter
from conformance.predicates import empty_q_shard


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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the adapters above."""
    (tmp_path / "mine.py").write_text(ADAPTERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(home: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process, in the folder of the adapters."""

    def call(*arguments: str) -> Said:
        capfd.readouterr()
        try:
            code = cli.main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return call


def environment() -> dict[str, str]:
    """Of child processes: they find this checkout, and nothing of the pytest around them."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    return kept | {"PYTHONPATH": str(Path(conformance.__file__).parents[1])}


COMMAND = [sys.executable, "-P", "-m", "conformance.cli"]


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


ONE = ("-n", "1")


def test_conforming(said: Run) -> None:
    found = said("run", "reference", "--clause", "LABEL-3", "--clause", "CONV-1", *ONE)
    assert found.code == 0
    assert found.err == ""
    assert "reference 1 conforms" in found.out
    assert "2 checks" in found.out
    assert "(profile quick, seed 0)" in found.out
    assert not Path("splash-conformance-failures").exists()


def test_a_violation_is_explained_and_can_be_replayed(
    said: Run, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = said("run", "./mine.py:Wrong", "--clause", "LABEL-3", *ONE)
    assert found.code == 1
    assert "LABEL-3 — " in found.out
    assert ": violates (check_partial_blocks)" in found.out
    assert ": 1×1 blocks (" in found.out
    assert "▒▒" in found.out
    assert "expected: [[[1]]]" in found.out
    assert "actual:   [[[2]]]" in found.out
    assert "./mine.py:Wrong 1.5 does not conform" in found.out
    (line,) = [text for text in found.out.split("\n") if "replay:" in text]
    command, *arguments = line.split("replay:", 1)[1].split()
    assert command == "splash-conformance"
    again = said(*arguments)
    assert again.code == 1
    assert again.out.rstrip().endswith("wrong 1.5: still so")
    # From another folder, and against another implementation.
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    file = home / arguments[1]
    os.chdir(elsewhere)
    assert said("replay", str(file), f"{home / 'mine.py'}:Wrong").code == 1
    right = said("replay", str(file), "reference")
    assert right.code == 0
    assert "reference 1: LABEL-3 holds on this problem (check_partial_blocks)" in right.out


def test_known_deviations_are_neither_passes_nor_failures(said: Run) -> None:
    found = said("run", "mine.py:Old", "--clause", "LABEL-1", *ONE)
    assert found.code == 0
    assert "[known deviation: empty-shard]" in found.out
    assert "1 known deviations (1 clauses)" in found.out
    assert said("run", "mine.py:Old", "--clause", "LABEL-1", "--no-expectations", *ONE).code == 1


def test_a_deviation_that_is_gone_is_stale(said: Run) -> None:
    found = said("run", "mine.py:Renamed", "--clause", "CONV-2", *ONE)
    assert found.code == 3
    assert "stale expectation empty-shard: its fixed problem no longer fails" in found.out
    assert "has stale expectations" in found.out
    assert said("run", "mine.py:Renamed", "--clause", "CONV-2", "--no-expectations", *ONE).code == 0


def test_what_is_not_declared_is_not_applicable(said: Run) -> None:
    clauses = ("--clause", "SHRINK-1", "--clause", "LABEL-1", "--clause", "FLAT-1")
    found = said("run", "mine.py:Plain", *clauses, "--json", "r.json", *ONE)
    assert found.code == 0
    report = json.loads(Path("r.json").read_text())
    assert report["clauses"] == {"LABEL-1": "conforms", "SHRINK-1": "n/a", "FLAT-1": "n/a"}
    reasons = {o["clause"]: o["reason"] for o in report["outcomes"]}
    assert reasons["SHRINK-1"] == "not declared: shrink"


def test_reports_for_machines(said: Run) -> None:
    arguments = (
        "--clause",
        "LABEL-1",
        "--clause",
        "LABEL-3",
        "--clause",
        "SHRINK-4",
        "--seed",
        "7",
    )
    found = said("run", "mine.py:Wrong", *arguments, "--json", "r.json", "--junit", "r.xml", *ONE)
    assert found.code == 1
    report = json.loads(Path("r.json").read_text())
    assert report["implementation"] == "mine.py:Wrong"
    assert (report["version"], report["profile"], report["seed"]) == ("1.5", "quick", 7)
    assert (report["schema"], report["complete"], report["exit_code"]) == (1, True, 1)
    assert report["errors"] == []
    assert report["clauses"] == {
        "LABEL-1": "conforms",
        "LABEL-3": "violates",
        "SHRINK-4": "conforms",
    }
    assert {"python", "platform", "numpy", "hypothesis"} <= set(report["environment"])
    wrong = next(o for o in report["outcomes"] if o["clause"] == "LABEL-3")
    (finding,) = wrong["findings"]
    assert finding["kind"] == "value"
    assert Problem.from_json(finding["problem"]).grid() == (1, 1)
    (file,) = report["replays"].values()
    assert json.loads(Path(file).read_text())["finding"] == finding
    suite = ET.parse("r.xml").getroot()
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
    }
    failed = [case for case in suite if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == ["check_partial_blocks"]
    failure = failed[0].find("failure")
    assert failure is not None
    assert "expected: [[[1]]]" in str(failure.text)


def without_times(path: Path) -> list[dict[str, Any]]:
    outcomes: list[dict[str, Any]] = json.loads(path.read_text())["outcomes"]
    return [{k: v for k, v in o.items() if k != "seconds"} for o in outcomes]


def test_two_processes_find_what_one_finds_and_pipes_stay_plain(said: Run, home: Path) -> None:
    arguments = ("run", "mine.py:Wrong", "--clause", "LABEL-3", "--clause", "DATA-1")
    assert said(*arguments, *ONE, "--json", "one.json").code == 1
    two = child(home, *arguments, "-n", "2", "--json", "two.json")
    assert two.code == 1
    assert without_times(home / "one.json") == without_times(home / "two.json")
    assert len(without_times(home / "two.json")) == 2
    for text in (two.out, two.err):
        assert "\x1b" not in text
        assert "\r" not in text
    assert "checking" not in two.out


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process group")
def test_ctrl_c_leaves_a_partial_report_that_says_so(home: Path) -> None:
    arguments = ("run", "mine.py:Sleepy", "--clause", "LABEL-1", "--clause", "MASK-1", *ONE)
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--json", "r.json"],
        cwd=home,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (home / "asleep").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert "interrupted: this report is partial" in out
    assert "conforms" not in out.rstrip().split("\n")[-1]
    assert "Traceback" not in out + err
    report = json.loads((home / "r.json").read_text())
    assert report["complete"] is False
    assert process.returncode == report["exit_code"] == 2


def test_an_interruption_inside_the_implementation(said: Run) -> None:
    arguments = ("--clause", "CONV-1", "--clause", "DYNAMIC-1", "--json", "r.json", *ONE)
    found = said("run", "mine.py:Interrupted", *arguments)
    assert found.code == 2
    assert "interrupted: this report is partial" in found.out
    report = json.loads(Path("r.json").read_text())
    assert [o["clause"] for o in report["outcomes"]] == ["CONV-1"]


@pytest.mark.parametrize("impl", ["mine.py:ready_made", "./mine.py:Wrong", "mine:Wrong"])
def test_adapters_are_files_or_modules_objects_or_classes(said: Run, impl: str) -> None:
    found = said("smoke", impl)
    assert found.code == 0
    assert found.out.startswith("wrong 1.5\nfeatures: ")
    assert "profiles: mask-info, inference, training" in found.out
    assert "ok   mask_info(fwd)" in found.out


def test_a_file_may_import_its_neighbours(said: Run, home: Path) -> None:
    (home / "inner").mkdir()
    (home / "inner" / "beside.py").write_text("from mine2 import Wrong\n")
    (home / "inner" / "mine2.py").write_text(ADAPTERS)
    assert said("smoke", "inner/beside.py:Wrong").code == 0


@pytest.mark.parametrize(
    ("impl", "words"),
    [
        ("nope", "unknown implementation 'nope': expected one of "),
        ("nope.py:X", "no such file: nope.py"),
        ("nope:X", "cannot import 'nope:X': No module named 'nope'"),
        ("mine.py:Nope", "'mine.py' has no attribute 'Nope'"),
        ("mine.py:three", "'mine.py:three' is not an adapter: it has no method describe()"),
        ("mine.py:broken", "'mine.py:broken' fails: ValueError: not today"),
        (
            "mine.py:Unprepared",
            "'mine.py:Unprepared' is not an adapter: it has no method prepare()",
        ),
        ("mine.py:Undescribed", "fails its smoke test: describe: RuntimeError: boom"),
        ("mine.py:Listing", "fails its smoke test: describe: must return a Description, not list"),
        (
            "mine.py:Unready",
            "fails its smoke test: prepare: prepare raised RuntimeError: no kernel",
        ),
        ("syntax.py:X", "syntax.py fails on import: SyntaxError"),
    ],
)
def test_what_is_no_adapter_is_one_clear_line(said: Run, home: Path, impl: str, words: str) -> None:
    (home / "syntax.py").write_text("def (:\n")
    found = said("run", impl, "--clause", "LABEL-1", *ONE)
    assert found.code == 2
    assert found.out == ""
    assert words in found.err
    assert found.err.startswith("splash-conformance: ")
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(("impl", "package"), [("jax", "jax"), ("tokamax", "tokamax")])
def test_a_missing_library_says_what_to_install(
    said: Run, monkeypatch: pytest.MonkeyPatch, impl: str, package: str
) -> None:
    for name in [*sys.modules]:
        if name.startswith("conformance.adapters.") and "reference" not in name:
            monkeypatch.delitem(sys.modules, name)
        if name == package or name.startswith(package + "."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    found = said("run", impl, "--clause", "LABEL-1", *ONE)
    assert found.code == 2
    assert found.out == ""
    assert found.err.count("\n") == 1
    assert f"cannot import '{impl}'" in found.err
    assert f"pip install 'splash-conformance[{impl}]'" in found.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--clause", "label-1"), "--clause label-1: no such clause; did you mean LABEL-1?"),
        (("--clause", "LABLE-3"), "--clause LABLE-3: no such clause; did you mean LABEL-3?"),
        (("--clause", "zzz"), "--clause zzz: no such clause\n"),
        (("--clause", "UNDEF-1"), "--clause UNDEF-1: nothing to check (undefined)"),
        (("--seed", "x"), "argument --seed: invalid int value: 'x'"),
        (("-n", "0"), "argument -n: must be a whole number of at least 1, got '0'"),
        (("-n", "two"), "argument -n: must be a whole number of at least 1, got 'two'"),
        (("--profile", "huge"), "invalid choice: 'huge' (choose from"),
        (("--json", "nowhere/r.json"), "--json nowhere/r.json: must be a file in a folder that"),
        (("--junit", "."), "--junit .: must be a file in a folder that exists"),
        (("--failures", "mine.py"), "--failures mine.py: is not a folder"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    said: Run, arguments: tuple[str, ...], words: str
) -> None:
    found = said("run", "reference", *arguments)
    assert found.code == 2
    assert found.out == ""
    assert words in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize("arguments", [(), ("rum", "reference")])
def test_unknown_commands(said: Run, arguments: tuple[str, ...]) -> None:
    found = said(*arguments)
    assert found.code == 2
    assert "try: splash-conformance --help" in found.err


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help")])
def test_help_shows_examples(said: Run, arguments: tuple[str, ...]) -> None:
    found = said(*arguments)
    assert found.code == 0
    for text in (
        "examples:",
        "splash-conformance run jax",
        "file.py:attr",
        "exit codes: 0 conforms",
    ):
        assert text in found.out


def test_list(said: Run) -> None:
    everything = said("list")
    assert everything.code == 0
    lines = everything.out.rstrip().split("\n")
    assert any(line.startswith("LABEL-1 ") and "check_empty_blocks" in line for line in lines)
    assert any(line.startswith("UNDEF-1 ") and line.endswith("[—]") for line in lines)
    shrink = said("list", "SHRINK-", "width").out.rstrip().split("\n")
    assert shrink
    assert set(shrink) < set(lines)
    assert all("shrink-" in line.lower() and "width" in line.lower() for line in shrink)


def test_smoke_shows_what_fails(said: Run) -> None:
    found = said("smoke", "mine.py:Unready")
    assert found.code == 2
    assert "FAIL prepare" in found.out
    assert "RuntimeError: no kernel" in found.out
    assert "mask_info" not in found.out.split("FAIL prepare")[1]
    assert said("smoke", "nope").code == 2


@pytest.fixture
def saved(said: Run) -> dict[str, Any]:
    """A replay file, as data."""
    said("run", "mine.py:Wrong", "--clause", "LABEL-3", *ONE)
    (file,) = Path("splash-conformance-failures").glob("*.json")
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def test_corrupt_replay_files(said: Run, saved: dict[str, Any]) -> None:
    finding = saved["finding"]

    def changed(**changes: Any) -> str:
        return json.dumps(saved | {"finding": finding | changes})

    texts = {
        "{": "is not JSON",
        "\x00": "is not JSON",
        "[" * 100_000: "is not JSON",
        "[]": "is not a replay file of format 1",
        "{}": "is not a replay file of format 1",
        json.dumps(saved | {"format": 9}): "is not a replay file of format 1",
        json.dumps({"format": 1}): "is incomplete: 'finding'",
        json.dumps(saved | {"finding": {"clause": "LABEL-3"}}): "is incomplete: ",
        changed(check="check_nothing"): "unknown check 'check_nothing'",
        changed(check=["x"]): r"unknown check ['x']",
        changed(problem=None): "problem must be a JSON object",
        changed(problem=finding["problem"] | {"q_len": "two"}): "q_len must be a whole number",
        changed(
            problem=finding["problem"] | {"masks": [{"kind": "x"}]}
        ): "mask kind 'x' is unknown",
        changed(problem=finding["problem"] | {"regime": "x"}): "unknown regime 'x'",
    }
    for text, words in texts.items():
        Path("bad.json").write_text(text)
        found = said("replay", "bad.json", "mine.py:Wrong")
        assert found.code == 2, text[:60]
        assert found.err.startswith("splash-conformance: bad.json: "), found.err
        assert words in found.err
        assert found.err.count("\n") == 1
    Path("bad.json").write_bytes(b"\xff\xfe\x00")
    assert "is not JSON" in said("replay", "bad.json", "mine.py:Wrong").err
    assert "nowhere.json: cannot be read: No such file" in said("replay", "nowhere.json", "x").err
    assert "cannot be read: Is a directory" in said("replay", ".", "x").err


def test_a_replay_needs_what_its_check_needs(said: Run, saved: dict[str, Any]) -> None:
    finding = saved["finding"] | {"check": "check_width", "clause": "SHRINK-1"}
    Path("other.json").write_text(json.dumps(saved | {"finding": finding}))
    found = said("replay", "other.json", "mine.py:Plain")
    assert found.code == 2
    assert "'mine.py:Plain' does not declare shrink, so check_width says nothing" in found.err


def test_failures_that_cannot_be_written_are_an_error_of_the_harness(
    said: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Path:
        raise PermissionError(13, "Permission denied")

    assert save_findings.__module__ == "conformance.runner"
    monkeypatch.setattr("conformance.runner.save", refuse)
    found = said("run", "mine.py:Wrong", "--clause", "LABEL-3", *ONE)
    assert found.code == 2
    assert "replay files cannot be written: [Errno 13] Permission denied" in found.out
    assert "LABEL-3 — " in found.out
