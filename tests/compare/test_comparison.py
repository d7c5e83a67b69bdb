"""Implementations side by side: verdicts, the problems behind differences, interruptions, pages."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.compare.comparison import (
    Column,
    Comparison,
    compared,
    conclusion,
    explain,
)
from conformance.compare.comparison_form import SCHEMA_FILE, Trial
from conformance.compare.page import compare_page
from conformance.compare.run import side_of, sides_of
from conformance.contract.remote.where import Where
from conformance.findings.expectation import Equal
from conformance.findings.finding import Finding, Outcome, Status
from conformance.findings.observation import Raised, Value
from conformance.findings.pictures import block_map
from conformance.findings.place import Place
from conformance.problem import BlockSizes, Problem
from conformance.runs.report import Run
from conformance.runs.request import Request
from reference.masks import Causal
from spec import all_clauses
from tests.commands.command_line import COMMAND, ONE, environment
from tests.commands.command_line import Run as Said
from tests.reports.browser import opened, started

FORM = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(FORM)
REQUEST = Request("", Where(), "quick", 0, (), True, 1, Path("f"))
CLAUSES = ("--clause", "LABEL-3", "--clause", "LABEL-1", "--clause", "SHRINK-1")


def finding_of(clause: str, size: int = 1, **more: Any) -> Finding:
    problem = Problem(4 * size, 4 * size, (Causal(),), BlockSizes(4, 4))
    return Finding(
        clause, f"check_{clause}", more.pop("kind", "value"), problem, Place("place"), Equal(1),
        more.pop("observation", Value(2)),
        blocks=block_map(problem), **more,
    )  # fmt: skip


def column_of(name: str, features: tuple[str, ...] = (), **verdicts: Any) -> Column:
    """A column with a verdict, or a finding that makes it one, by clause."""
    outcomes = []
    for key, value in verdicts.items():
        clause = key.replace("_", "-")
        findings = [value] if isinstance(value, Finding) else []
        status: Status = "conforms" if findings else value
        if findings:
            status = "known deviation" if findings[0].deviation else "violates"
        outcomes.append(
            Outcome(
                clause, f"check_{clause}", all_clauses()[clause].chapter, status, findings=findings
            )
        )
    run = Run(name, "1", "quick", 0, f"run {name}", outcomes=outcomes, features=features)
    return Column(run, name)


def explained(columns: list[Column], *trials: Trial) -> Comparison:
    """A comparison in which tried problems come out as given, in order."""
    comparison, left = compared(columns, "compare", True), list(trials)

    def attempt(finding: Finding, n: int) -> tuple[Trial, Finding | None]:
        del n
        trial = left.pop(0)
        return trial, replace(finding, deviation="") if trial == "fails" else None

    explain(comparison, attempt)
    assert left == []
    return comparison


def test_the_smallest_problem_stands_behind_a_difference() -> None:
    columns = [
        column_of("a", LABEL_1=finding_of("LABEL-1", 3), LABEL_2="conforms"),
        column_of("b", LABEL_1=finding_of("LABEL-1", 2), LABEL_2="conforms"),
        column_of("c", LABEL_1="conforms", LABEL_2="conforms"),
    ]
    comparison = explained(columns, "fails", "holds")
    assert comparison.differing() == ["LABEL-1"]
    (difference,) = comparison.differences
    assert (difference.column, difference.trials) == (1, ("fails", "fails", "holds"))
    assert difference.finding.problem.q_len == 8
    assert comparison.verdicts == {
        "LABEL-1": ["violates", "violates", "conforms"],
        "LABEL-2": ["conforms"] * 3,
    }
    assert conclusion(comparison) == "1 of 2 clauses differ"


def test_failures_of_one_clause_by_different_problems_are_two_differences() -> None:
    columns = [
        column_of("a", LABEL_1=finding_of("LABEL-1", 1)),
        column_of("b", LABEL_1=finding_of("LABEL-1", 2)),
        column_of("c", LABEL_1="conforms"),
    ]
    comparison = explained(columns, "holds", "holds", "holds", "holds")
    assert [d.trials for d in comparison.differences] == [
        ("fails", "holds", "holds"),
        ("holds", "fails", "holds"),
    ]


def test_a_problem_of_another_may_change_a_verdict() -> None:
    columns = [
        column_of("a", LABEL_1=finding_of("LABEL-1")),
        column_of("b", LABEL_1="conforms"),
    ]
    comparison = explained(columns, "fails")
    assert comparison.verdicts == {"LABEL-1": ["violates", "violates"]}
    assert comparison.late == {("LABEL-1", 1)}
    assert comparison.differing() == ["LABEL-1"]  # as found in their own runs
    VALIDATOR.validate(json.loads(json.dumps(comparison.to_json())))


def test_one_cause_in_many_clauses_is_one_difference() -> None:
    crash: dict[str, Any] = {"kind": "crash", "observation": Raised("ValueError", "", "f")}
    columns = [
        column_of(
            "a",
            LABEL_1=finding_of("LABEL-1", **crash),
            LABEL_2=finding_of("LABEL-2", **crash),
            LABEL_3=finding_of("LABEL-3", deviation="odd"),
            DATA_1=finding_of("DATA-1", deviation="odd"),
        ),
        column_of("b", LABEL_1="conforms", LABEL_2="conforms", LABEL_3="conforms", DATA_1="n/a"),
    ]
    comparison = explained(columns, "holds", "n/a")
    assert [d.clauses for d in comparison.differences] == [
        ("LABEL-1", "LABEL-2"),
        ("LABEL-3", "DATA-1"),
    ]


def test_a_clause_that_all_fail_is_no_difference() -> None:
    columns = [column_of(name, LABEL_1=finding_of("LABEL-1")) for name in "ab"]
    comparison = explained(columns)
    assert comparison.differing() == []
    assert comparison.differences == []
    assert conclusion(comparison) == "no difference in 1 clause"


def test_names_of_columns_differ() -> None:
    columns = [column_of("jax", LABEL_1="conforms") for _ in range(3)]
    columns[0].source, columns[1].source, columns[2].source = "jax", "jax@old", "jax@old"
    comparison = compared(columns, "", True)
    assert [column.label for column in comparison.columns] == [
        "jax 1 (jax)", "jax 1 (jax@old) (2)", "jax 1 (jax@old) (3)",
    ]  # fmt: skip


def test_features_that_not_all_declare() -> None:
    columns = [
        column_of("a", ("masks", "ring"), LABEL_1="conforms"),
        column_of("b", ("masks", "sinks"), LABEL_1="conforms"),
    ]
    assert compared(columns, "", True).features() == {"ring": [True, False], "sinks": [False, True]}


@pytest.mark.parametrize(
    ("text", "impl", "python"),
    [
        ("jax", "jax", None),
        ("jax@/venvs/old", "jax", "/venvs/old"),
        ("jax@python3.9", "jax", "python3.9"),
        ("jax=my.fork@/venvs/old", "jax=my.fork", "/venvs/old"),
        ("./me@home/a.py:Mine", "./me@home/a.py:Mine", None),
        ("./me@home/a.py:Mine@/venvs/old", "./me@home/a.py:Mine", "/venvs/old"),
        ("pkg.mod:make@/venvs/old", "pkg.mod:make", "/venvs/old"),
    ],
)
def test_an_implementation_may_have_its_own_interpreter(
    text: str, impl: str, python: str | None
) -> None:
    request = side_of(text, REQUEST).request
    assert request is not None
    assert (request.impl, request.where.python) == (impl, python)


def test_an_interpreter_in_the_home_folder() -> None:
    request = side_of("jax@~/venvs/old", REQUEST).request
    assert request is not None
    assert request.where.python == str(Path.home() / "venvs" / "old")


def test_reports_are_told_from_implementations() -> None:
    side = side_of("old/jax.json", REQUEST)
    assert (side.request, side.report) == (None, Path("old/jax.json"))


def test_forks_of_one_library_get_a_process_each() -> None:
    def apart(*texts: str) -> list[bool]:
        found = [side.request for side in sides_of(texts, REQUEST)]
        return [request is not None and request.where.apart for request in found]

    assert apart("jax", "tokamax=fork") == [False, False]
    assert apart("jax", "jax=fork", "tokamax") == [True, True, False]
    stems = {side.stem for side in sides_of(("a/b.py:X", "a-b.py:X", "a b.py:X"), REQUEST)}
    assert len(stems) == 3


@pytest.mark.usefixtures("few")
def test_the_command(said: Said) -> None:
    impls = ("reference", "mine.py:Wrong", "mine.py:Plain")
    found = said("compare", *impls, *CLAUSES, "--json", "c.json", "--html", "c.html", *ONE)
    assert found.code == 0
    assert "LABEL-3 — partial blocks: fails in mine.py:Wrong 1.5; holds in reference 1" in found.out
    rows = [" ".join(line.replace("│", " ").split()) for line in found.out.split("\n")]
    assert "LABEL-3 conforms violates conforms" in rows
    assert "SHRINK-1 conforms conforms n/a" in rows
    assert not any(row.startswith("LABEL-1 ") for row in rows)
    assert "n/a: the implementation does not declare" in found.out
    assert found.out.rstrip().endswith("2 of 3 clauses differ")
    assert "[2/3] mine.py:Wrong 1.5" in found.err
    # Every command does what it is said to do.
    commands = [line.split(":", 1) for line in found.out.split("\n") if " replay " in line]
    assert [name.strip() for name, _ in commands] == ["fails", "holds"]
    for (_, command), code in zip(commands, (1, 0), strict=True):
        assert said(*shlex.split(command)[1:]).code == code
    data = json.loads(Path("c.json").read_text())
    VALIDATOR.validate(data)
    assert data["complete"] is True
    assert data["clauses"]["LABEL-3"] == ["conforms", "violates", "conforms"]
    assert [column["label"] for column in data["columns"]] == [
        "reference 1", "mine.py:Wrong 1.5", "mine.py:Plain 1",
    ]  # fmt: skip
    # The same from the reports of the runs, where nothing can be tried.
    files = sorted(str(path) for path in Path("splash-conformance-compare").glob("[mr]*.json"))
    assert len(files) == 3
    again = said("compare", *files, "--json", "d.json", "--quiet")
    assert again.code == 0
    later = json.loads(Path("d.json").read_text())
    order = [[c["label"] for c in data["columns"]].index(c["label"]) for c in later["columns"]]
    for name, row in later["clauses"].items():
        assert row == [data["clauses"][name][n] for n in order]
    assert "—" not in again.out
    one = said("compare", *files, "--clause", "LABEL-1").out
    assert one.rstrip().endswith("no difference in 1 clause")
    everything = said("compare", *files, "--all").out
    assert "not tried in" in everything
    assert "LABEL-1 empty blocks" in everything


@pytest.mark.usefixtures("few")
def test_another_interpreter(said: Said) -> None:
    here = sys.prefix
    arguments = ("reference", f"reference@{here}", "--clause", "CONV-1", "--json", "c.json")
    found = said("compare", *arguments, *ONE)
    assert found.code == 0
    assert "no difference in 1 clause" in found.out
    columns = json.loads(Path("c.json").read_text())["columns"]
    assert [column["label"] for column in columns] == [
        "reference 1 (reference)", f"reference 1 (reference@{here})",
    ]  # fmt: skip
    assert [column["where"] for column in columns] == ["", f"--python={here}"]


@pytest.mark.usefixtures("few")
def test_resume_reads_what_is_finished_and_runs_the_rest(said: Said) -> None:
    arguments = ("compare", "reference", "mine.py:Plain", "--clause", "CONV-1", *ONE)
    assert said(*arguments).code == 0
    (plain,) = Path("splash-conformance-compare").glob("mine*.json")
    plain.unlink()
    again = said(*arguments, "--resume")
    assert again.code == 0
    assert "[1/2] reference: read again" in again.err
    assert "[2/2] mine.py:Plain 1" in again.err
    other = said(*arguments, "--resume", "--seed", "3")
    assert "read again" not in other.err


@pytest.mark.usefixtures("few")
def test_resume_goes_on_with_the_journal_of_an_interrupted_run(said: Said) -> None:
    clauses = ("--clause", "CONV-1", "--clause", "DYNAMIC-1")
    arguments = ("compare", "mine.py:Interrupted", "reference", *clauses, *ONE)
    first = said(*arguments)
    assert first.code == 2
    assert "not run: reference 1" in first.out
    (journal,) = Path("splash-conformance-compare").glob("*.jsonl")
    text = journal.read_text()
    changed = re.sub(r'"examples": \d+', '"examples": 12345', text)
    assert changed != text
    journal.write_text(changed)
    assert said(*arguments, "--resume").code == 2
    (report,) = Path("splash-conformance-compare").glob("mine*.json")
    outcomes = json.loads(report.read_text())["outcomes"]
    assert [(o["clause"], o["examples"]) for o in outcomes] == [("CONV-1", 12345)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reference",), "compare needs two implementations or reports, or more"),
        (("reference", "reference"), "'reference' is there twice"),
        (("reference", "nope"), "unknown implementation 'nope'"),
        (("reference", "nope.json"), "nope.json: cannot be read: No such file"),
        (("reference", "mine.py:Plain", "--clause", "LABLE-1"), "did you mean LABEL-1?"),
        (
            ("reference", "mine.py:Plain", "--folder", "mine.py"),
            "--folder mine.py: is not a folder",
        ),
        (("reference", "reference@/nowhere"), "--python /nowhere: no such interpreter"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    said: Said, arguments: tuple[str, ...], words: str
) -> None:
    found = said("compare", *arguments, *ONE)
    assert found.code == 2
    assert found.out == ""
    assert words in found.err
    assert "Traceback" not in found.err


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process group")
def test_ctrl_c_leaves_a_partial_comparison_that_says_so(home: Path) -> None:
    clauses = ("--clause", "CONV-1", "--clause", "MASK-1")
    arguments = ("compare", "reference", "mine.py:Sleepy", "mine.py:Plain", *clauses, *ONE)
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--json", "c.json", "--html", "c.html"],
        cwd=home,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while not (home / "asleep").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "Traceback" not in out + err
    assert "interrupted: mine.py:Sleepy" in out
    assert "not run: mine.py:Plain 1" in out
    assert "this comparison is partial" in out
    assert "--resume" in err
    data = json.loads((home / "c.json").read_text())
    VALIDATOR.validate(data)
    assert data["complete"] is False
    assert [column["complete"] for column in data["columns"]] == [True, False, False]
    assert {row[2] for row in data["clauses"].values()} == {"not run"}
    assert "2 clauses judged in one implementation only" in out
    assert "This comparison is partial" in (home / "c.html").read_text()
    assert list((home / "splash-conformance-compare").glob("mine.py-Sleepy-*.jsonl"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = [
        column_of("a", ("ring",), LABEL_1=finding_of("LABEL-1"), LABEL_2="conforms", FWD_1="n/a"),
        column_of("b<i>", LABEL_1="conforms", LABEL_2="conforms", FWD_1="conforms"),
    ]
    path = tmp_path_factory.mktemp("pages") / "compare.html"
    path.write_text(compare_page(explained(columns, "holds")), encoding="utf-8")
    return path


def test_the_page_of_a_comparison(browser: Any, file: Path) -> None:
    def rows(page: Any) -> list[str]:
        return [r.get_attribute("id") for r in page.query_selector_all("tr.row") if r.is_visible()]

    with opened(browser, file) as page:
        assert page.title() == "a 1, b<i> 1: 2 of 3 clauses differ"
        assert rows(page) == ["LABEL-1", "FWD-1"]
        cells = page.query_selector("#LABEL-1").query_selector_all("td")
        assert [cell.inner_text() for cell in cells] == ["✗ violates", "✓ conforms"]
        page.check("#everything")
        assert rows(page) == ["LABEL-1", "LABEL-2", "FWD-1"]
        page.keyboard.press("Tab")
        page.fill("#search", "label-2")
        assert rows(page) == ["LABEL-2"]
        page.press("#search", "Escape")
        page.click("#LABEL-1 a")
        assert page.is_visible("#difference-1 .inside")
        trials = page.query_selector_all("#difference-1 b.trial")
        assert [trial.inner_text() for trial in trials] == ["fails", "holds"]
        assert "ring" in page.inner_text("#features")


def test_the_page_of_a_comparison_fits_a_phone(browser: Any, file: Path) -> None:
    with opened(browser, file, viewport={"width": 360, "height": 700}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.query_selector("#LABEL-1 th").bounding_box()["width"] > 100
