"""The command line: verdicts, reports, interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from conformance.problem import Problem
from tests.commands.command_line import COMMAND, ONE, Run, child, environment


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
    assert "empty-shard" in found.out
    assert "conforms apart from 1 known deviation (1 clause judged, 1 with known" in found.out
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
    assert (report["schema"], report["complete"], report["exit_code"]) == (2, True, 1)
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


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize("how", ["ctrl-c", "sigterm", "sigterm, isolated"])
def test_an_interruption_leaves_a_partial_report_that_says_so(home: Path, how: str) -> None:
    where = ("--isolate",) if "isolated" in how else ()
    arguments = ("run", "mine.py:Sleepy", "--clause", "LABEL-1", "--clause", "MASK-1", *ONE, *where)
    temporary = home / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--json", "r.json", "--html", "r.html", "--junit", "r.xml"],
        cwd=home,
        env=environment() | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A background job is started with SIGINT ignored, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while not (home / "asleep").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if how == "ctrl-c":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    out, err = process.communicate(timeout=120)
    assert "interrupted: this report is partial" in out
    assert "conforms" not in out.rstrip().split("\n")[-1]
    assert "Traceback" not in out + err
    report = json.loads((home / "r.json").read_text())
    assert report["complete"] is False
    assert process.returncode == report["exit_code"] == 2
    assert "The run was interrupted" in (home / "r.html").read_text()
    assert ET.parse(home / "r.xml").getroot().get("errors") == "1"
    assert not list(temporary.iterdir())


def test_an_interruption_inside_the_implementation(said: Run) -> None:
    arguments = ("--clause", "CONV-1", "--clause", "DYNAMIC-1", "--json", "r.json", *ONE)
    found = said("run", "mine.py:Interrupted", *arguments)
    assert found.code == 2
    assert "interrupted: this report is partial" in found.out
    report = json.loads(Path("r.json").read_text())
    assert [o["clause"] for o in report["outcomes"]] == ["CONV-1"]


def test_failures_that_cannot_be_written_are_an_error_of_the_harness(
    said: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("conformance.runs.runner.save", refuse)
    found = said("run", "mine.py:Wrong", "--clause", "LABEL-3", *ONE)
    assert found.code == 2
    assert "replay files cannot be written: [Errno 13] Permission denied" in found.out
    assert "LABEL-3 — " in found.out
