"""The command line: pages, reports of earlier runs, and how much of a report is printed."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from conformance.reports.terminal import IN_FULL, console_for
from tests.commands.command_line import ONE, Run, child

pytestmark = pytest.mark.usefixtures("few")

WRONG = ("mine.py:Wrong", "--clause", "LABEL-3", "--clause", "LABEL-1")


def test_pages_and_junit_can_be_derived_later(said: Run) -> None:
    first = said("run", *WRONG, "--json", "r.json", "--html", "a.html", "--junit", "a.xml", *ONE)
    assert first.code == 1
    assert said("report", "r.json", "--html", "b.html", "--junit", "b.xml").code == 0
    for kind in ("html", "xml"):
        one, other = Path(f"a.{kind}").read_bytes(), Path(f"b.{kind}").read_bytes()
        # Times are rounded in JSON.
        assert len(one) - 20 < len(other) < len(one) + 20
    assert "<title>mine.py:Wrong 1.5: does not conform" in Path("b.html").read_text()
    shown = said("report", "r.json")
    assert shown.code == 1
    assert shown.out.split("\n")[:12] == first.out.split("\n")[:12]
    assert shown.out.rstrip().endswith(first.out.rstrip().split("\n")[-1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.json",), "nowhere.json: cannot be read: No such file"),
        (("mine.py",), "mine.py: is not JSON"),
        (("mine.py", "--html", "nowhere/r.html"), "--html nowhere/r.html: must be a file in a"),
    ],
)
def test_what_is_no_report_is_one_clear_line(
    said: Run, arguments: tuple[str, ...], words: str
) -> None:
    found = said("report", *arguments)
    assert found.code == 2
    assert words in found.err
    assert found.err.count("\n") == 1


def test_an_interrupted_run_says_so_in_every_report(said: Run) -> None:
    clauses = ("--clause", "CONV-1", "--clause", "DYNAMIC-1")
    reports = ("--json", "r.json", "--html", "r.html", "--junit", "r.xml")
    assert said("run", "mine.py:Interrupted", *clauses, *reports, *ONE).code == 2
    assert json.loads(Path("r.json").read_text())["complete"] is False
    assert "this report is partial" in Path("r.html").read_text()
    suite = ET.parse("r.xml").getroot()
    assert suite.get("errors") == "1"
    (error,) = suite.iter("error")
    assert error.get("message") == "interrupted: this report is partial"
    assert "interrupted: this report is partial" in said("report", "r.json", "--quiet").out


def test_what_could_not_be_judged_is_an_error_in_junit(said: Run) -> None:
    said("run", "reference", "--clause", "CONV-1", "--json", "r.json", *ONE)
    data = json.loads(Path("r.json").read_text())
    data["outcomes"][0] |= {"status": "error", "reason": "not today"}
    Path("r.json").write_text(json.dumps(data))
    said("report", "r.json", "--junit", "r.xml")
    suite = ET.parse("r.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert [error.get("message") for error in suite.iter("error")] == ["not today"]


def test_known_deviations_are_a_line_each_unless_asked_for(said: Run) -> None:
    said("run", "mine.py:Old", "--clause", "LABEL-1", "--json", "r.json", *ONE)
    folded = said("report", "r.json").out
    (line,) = [text for text in folded.split("\n") if "empty-shard" in text]
    assert line.split("  ")[1:3] == ["empty-shard", "1 clause"]
    assert "ends in a bare assertion" in line
    assert "replay:" not in folded
    full = said("report", "r.json", "--verbose").out
    assert "[known deviation: empty-shard]" in full
    assert "known:    shrinking a q shard" in full
    assert "replay:" in full
    quiet = said("report", "r.json", "-q").out
    assert quiet == (
        "mine.py:Old 0.12.0.1 conforms apart from 1 known deviation "
        "(1 clause judged, 1 with known deviations)\n"
    )


def test_quiet_prints_violations_and_the_verdict(said: Run) -> None:
    found = said("run", *WRONG, "--quiet", *ONE)
    assert found.code == 1
    assert found.out.startswith("\nLABEL-3 — ")
    assert "┃" not in found.out
    assert found.out.rstrip().split("\n")[-1] == (
        "mine.py:Wrong 1.5 does not conform (2 clauses judged, 1 violated)"
    )


def test_many_violations_are_printed_in_full_when_asked_for(said: Run) -> None:
    said("run", *WRONG, "--json", "r.json", *ONE)
    data = json.loads(Path("r.json").read_text())
    (outcome,) = [o for o in data["outcomes"] if o["status"] == "violates"]
    finding = outcome["findings"][0]
    outcome["findings"] = [
        finding
        | {
            "kind": "crash",
            "place": finding["place"] | {"quantity": f"place {n}"},
            "observation": {
                "kind": "raised",
                "type": f"Cause{n}",
                "message": "",
                "function": "",
                "ended": "",
            },
        }
        for n in range(IN_FULL + 3)
    ]
    Path("r.json").write_text(json.dumps(data))
    found = said("report", "r.json").out
    assert found.count(": crashes (check_partial_blocks)") == IN_FULL
    assert "3 further violations (in full: --verbose)" in found
    assert all(f"place {n}" in found for n in range(IN_FULL + 3))
    full = said("report", "r.json", "--verbose").out
    assert full.count(": crashes (check_partial_blocks)") == IN_FULL + 3
    assert "further" not in full


def test_the_table_has_the_columns_that_it_needs(said: Run) -> None:
    alone = said("run", "reference", "--clause", "DATA-3", *ONE).out
    (head,) = [line for line in alone.split("\n") if "clauses of chapter" in line]
    assert [word.strip() for word in head.split("┃")[1:-1]] == [
        "clauses of chapter", "conforms", "violates",
    ]  # fmt: skip
    assert "reference 1 conforms (1 clause judged)" in alone
    other = said("run", "mine.py:Plain", "--clause", "SHRINK-1", "--clause", "LABEL-1", *ONE).out
    assert "n/a" in other
    assert "does not declare what the clause is about, or refuses it; never a pass" in other
    assert "mine.py:Plain 1 conforms (1 clause judged, 1 n/a)" in other


@pytest.mark.parametrize("wanted", ["verbose", "quiet"])
def test_quiet_and_verbose_are_options_of_run(said: Run, wanted: str) -> None:
    found = said("run", "reference", "--quiet", "--verbose")
    assert found.code == 2
    assert "not allowed with argument" in found.err
    assert f"--{wanted}" in said("run", "--help").out


def test_colours_follow_the_environment_and_the_option(
    home: Path, said: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    said("run", *WRONG, "--json", "r.json", *ONE)
    for variables, options, coloured in (
        ({}, (), False),  # a pipe
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "1"}, ("--no-color",), False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
    ):
        for name in ("FORCE_COLOR", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        found = child(home, "report", "r.json", *options)
        assert found.code == 1
        assert ("\x1b[" in found.out) == coloured, (variables, options)
        assert "LABEL-3 — " in found.out


def test_a_coloured_file_is_no_terminal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    found = child(home, "run", "reference", "--clause", "CONV-1", *ONE)
    assert "\x1b[" in found.out  # the table
    assert "checking" not in found.out
    assert "\r" not in found.out


@pytest.mark.skipif(os.name != "posix", reason="needs pseudo-terminals")
def test_no_colour_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    import pty

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main, side = pty.openpty()
    with os.fdopen(side, "w") as stream, os.fdopen(main, "rb", buffering=0) as screen:
        for console, coloured in (
            (console_for(stream), True),
            (console_for(stream, color=False), False),
        ):
            assert console.is_terminal
            console.print("[bold red]red[/]")
            stream.flush()
            assert (b"\x1b[" in screen.read(200)) == coloured
