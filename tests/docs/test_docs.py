"""The documentation site: what its pages are made from. ``tox -e docs`` builds it and checks its links."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import shlex
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.adapter import FEATURES
from conformance.checks import MODULES
from conformance.commands import COMMANDS
from conformance.commands.cli import build_parser
from conformance.commands.run_options import check_clauses
from conformance.contract.fence import Subject
from conformance.contract.remote.where import Where
from conformance.contract.smoke import ready
from conformance.findings.observation import Raised
from conformance.mutants import MUTANTS
from conformance.search import replay
from conformance.search.known_deviations import version_key
from docs.generate import (
    api,
    arrays,
    budgets,
    chapters,
    checks,
    command_line,
    console,
    findings,
    fragments,
    links,
    readable,
    record,
    registry,
    rooms,
    tables,
)
from spec import all_clauses
from spec.clauses import chapter_files

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/pages").rglob("*.md"))
TEXTS = [path.read_text(encoding="utf-8") for path in PAGES]


def outside_code(markdown: str) -> str:
    return re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)


@pytest.mark.parametrize("path", chapter_files(), ids=lambda path: path.stem)
def test_every_clause_has_its_anchor(path: Path) -> None:
    text = chapters.page(path)
    mine = [item for item in all_clauses().values() if item.chapter == path.stem]
    anchors = re.findall(r"^##+ .* \{ #([\w-]+) \.clause \}$", outside_code(text), re.MULTILINE)
    assert anchors == [item.id for item in mine]
    assert text.count('<p class="badges">') == len(mine)
    for item in mine:
        assert item.sentence.split(" ")[0] in text
        for check in registry.checks_of(item.id):
            assert f"[{check.module}.{check.name}]" in text


@pytest.mark.parametrize("path", chapter_files(), ids=lambda path: path.stem)
def test_examples_of_chapters_are_code(path: Path) -> None:
    source, text = path.read_text(encoding="utf-8"), chapters.page(path)
    assert ">>> " not in outside_code(text)
    blocks = re.findall(r"```pycon\n(.*?)```", text, re.DOTALL)
    shown = [line for block in blocks for line in block.split("\n") if line.startswith(">>> ")]
    assert shown == [line for line in source.split("\n") if line.startswith(">>> ")]


@pytest.mark.parametrize("path", chapter_files(), ids=lambda path: path.stem)
def test_headings_of_chapters_skip_no_level(path: Path) -> None:
    levels = [
        len(m) for m in re.findall(r"^(#+) ", outside_code(chapters.page(path)), re.MULTILINE)
    ]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert levels.count(1) == 1


def test_parts_of_pages_exist() -> None:
    wanted = {name for text in TEXTS for name in re.findall(r"<!-- generated: ([\w-]+)", text)}
    assert wanted == fragments.FRAGMENTS.keys()
    assert fragments.filled("a <!-- generated: mutants --> b").startswith("a ## ")
    with pytest.raises(KeyError, match="nothing-makes-this"):
        fragments.filled("<!-- generated: nothing-makes-this -->")


def test_every_module_of_checks_and_every_mutant_is_shown() -> None:
    assert [f"{checks.FOLDER}/{module}.md" for module in MODULES] == list(checks.pages())
    shown = re.findall(r'id="mutant-([\w-]+)"', checks.mutants())
    assert sorted(shown) == sorted(MUTANTS)


def test_documented_modules_exist() -> None:
    for path in api.pages():
        assert api.summary(Path(path).stem).endswith((".", ";")), path
    for room in api.ROOMS:
        for name in api.modules_of(f"conformance.{room}"):
            assert f"::: conformance.{room}.{name}\n" in api.room_page(f"conformance.{room}")
    assert "make_splash_mha" in api.kernels_page()


def test_what_executes_a_clause_is_on_its_page() -> None:
    page = api.module_page("reference.mask_info")
    (kept,) = re.findall(r'filters: \["(.*)"\]', page)
    hidden = re.compile(kept.removeprefix("!"))
    assert registry.clauses_defined_by()["reference.mask_info._columns"][0] == "DATA-1"
    assert not hidden.search("_columns")
    assert hidden.search("_parts")
    assert hidden.search("_columns_of")


def test_every_feature_has_its_place() -> None:
    text = tables.features()
    for name in FEATURES:
        assert f'id="{tables.anchor(name)}"' in text
    for item in all_clauses().values():
        for name in item.features:
            assert f"adapter.html#{tables.anchor(name)}" in chapters.badges(item)


def test_budgets_tell_right_kernels_from_wrong_ones_and_a_tolerance_does_not() -> None:
    rows = [line.strip("| ").split(" | ") for line in budgets.table().split("\n")[2:]]
    right = [row[-1] == "within its budget" for row in rows]
    assert right == [row[0].startswith("right") for row in rows]
    assert {(row[2], wrong) for row, wrong in zip(rows, right, strict=True)} > {
        ("passes", False), ("fails", True),
    }  # fmt: skip


def test_pictures_of_arrays_are_those_of_the_reference() -> None:
    info = arrays.compiled(shrink=False)
    assert {0, 1, 2} == set(info.block_mask.ravel().tolist())
    cells = re.findall(r'<td class="b(\d)">(\d)</td>', arrays.grid())
    assert info.mask_next is not None
    shown = np.concatenate([a.ravel() for a in (info.block_mask, info.data_next, info.mask_next)])
    assert [int(value) for _, value in cells] == shown.tolist()
    assert [int(label) for label, _ in cells] == np.tile(info.block_mask.ravel(), 3).tolist()


# What is run.

PAGE = """\
```python file=half.py
def half(x):
    return x / 3
```

```console run exit=1 shows=AssertionError first=1 last=1
$ python -c "import half; print('a'); assert half.half(2) == 1"
```

```python edit=half.py
def half(x):
    return x / 2
```

```console run keep=said.txt
$ python -c "import half; print(half.half(4))" > said.txt
$ splash-conformance list LABEL-7
```

```console
$ shown --only
```
"""


def test_pages_are_run() -> None:
    text, kept = console.executed(PAGE)
    assert kept == {"said.txt": "2.0\n"}
    assert console.kept(PAGE) == [*kept]
    first, second, third = re.findall(r"```console\n(.*?)\n```", text, re.DOTALL)
    assert first.split("\n")[1:] == ["a", "⋮", "AssertionError"]
    assert "check_number_of_active_blocks" in second
    assert third == "$ shown --only"
    assert '```python title="half.py"' in text
    assert '```python title="half.py, changed"' in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("exit=1", "exit=3", "ends with 1, not 3"),
        ("shows=AssertionError", "shows=passed", "does not print 'passed'"),
        ("def half(x):\n    return x / 2", "def twice(x):\n    return 2 * x", "nothing to change"),
        ("$ python -c \"import half; print('", "python -c \"import half; print('", "begins with"),
    ],
)
def test_a_page_that_is_not_so_cannot_be_built(old: str, new: str, message: str) -> None:
    assert old in PAGE
    with pytest.raises(console.PageError, match=re.escape(message)):
        console.executed(PAGE.replace(old, new))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_of_pages_exist(path: Path) -> None:
    text = fragments.filled(path.read_text(encoding="utf-8"))
    blocks = re.findall(r"```(?:console|sh)[^\n]*\n(.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.split("\n")]
    for line in lines:
        words = shlex.split(re.split(" 2?> ", line)[0], comments=True)
        if words[:1] == ["splash-conformance"]:
            arguments = build_parser().parse_args(words[1:])
            check_clauses(getattr(arguments, "clause", []))


def test_the_command_line_is_whole() -> None:
    page = command_line.page()
    names = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert names == list(COMMANDS)
    assert all(len(line) < 130 for line in page.split("\n"))


# Findings.

LIBRARIES = tuple(findings.LIBRARIES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_known_deviation_is_shown(library: str) -> None:
    text = findings.page(library)
    for item in findings.deviations(library):
        finding = findings.found(library, item)
        assert f"{{ #{item.id} }}" in text
        assert f"replay docs/findings/{library}-{item.id}.json {library}" in text
        assert item.covers(finding, finding.problem), item.id
        assert finding.expected != finding.actual
        assert finding.detail.count("\n") == 0
    files = {path.name for path in findings.FOLDER.glob(f"{library}-*.json")}
    assert files == {findings.file_of(library, i).name for i in findings.deviations(library)}


def test_no_finding_names_a_folder_of_a_machine() -> None:
    for path in findings.FOLDER.iterdir():
        assert not re.search(r"[\"' ](?:/[\w.]+){2}", path.read_text(encoding="utf-8")), path.name
    crash = replace(
        findings.found("jax", findings.deviations("jax")[0]),
        observation=Raised("ValueError", "raised at /a/b/c.py:3, bad"),
    )
    assert record.portable(crash).observation == Raised("ValueError", "raised at c.py:3, bad")


@functools.cache
def subject_of(library: str) -> Subject:
    return ready(library, Where())[1]


@pytest.mark.parametrize(
    ("library", "name"),
    [
        pytest.param(
            library, item.id, id=f"{library}-{item.id}",
            marks=[pytest.mark.tokamax] if library == "tokamax" else [],
        )
        for library in LIBRARIES
        for item in findings.deviations(library)
    ],
)  # fmt: skip
def test_findings_are_still_so(library: str, name: str) -> None:
    pytest.importorskip(library)
    subject = subject_of(library)
    (item,) = (item for item in findings.deviations(library) if item.id == name)
    low, high = map(version_key, item.versions)
    if not low <= version_key(subject.description.version) <= high:
        pytest.skip(f"seen in {item.versions}, not in {subject.description.version}")
    finding = findings.found(library, item)
    assert replay.not_applicable(finding, subject) == ""
    again = replay.run(finding, subject)
    assert again is not None
    assert item.covers(again, finding.problem)
    stale = f"run: python -m docs.generate.record {library} {name}"
    assert (again.place, again.expectation) == (finding.place, finding.expectation), stale


# Links.


def test_links_are_checked(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/b.html").write_text('<h1 id="top">B</h1><a href="../a.html">a</a>')
    (tmp_path / "a.html").write_text(
        '<a href="sub/b.html#top">b</a> <a href="https://example.org">away</a> <a href="#here"></a>'
        '<a href="c.html">c</a><a href="sub/b.html#nowhere">b</a><p id=here>'
        '<img alt="" src="https://example.org/x.png"><script src="data:,0"></script>'
    )
    assert sorted(links.problems(tmp_path)) == [
        "a.html: c.html: no such file",
        "a.html: https://example.org/x.png: is loaded from elsewhere",
        "a.html: sub/b.html#nowhere: no such place on that page",
    ]


def test_pages_can_be_read_without_seeing_them(tmp_path: Path) -> None:
    right = '<h1>A</h1><h2>B</h2><h3>C</h3><h2>D</h2><img src="x.png" alt="x"><th>n</th>'
    page = tmp_path / "a.html"
    page.write_text(f'<h3>menu</h3><article>{right}<svg role="img"><title>t</title></article>')
    assert list(readable.problems(tmp_path)) == []
    for old, new, wrong in (
        ("<h2>B</h2>", "", "a heading of level 3 follows one of level 1"),
        ("<h2>D</h2>", "<h1>D</h1>", "must begin with its only heading of the first level"),
        ('alt="x"', 'alt=""', 'no words for <img src="x.png" alt="">'),
        ("<th>n</th>", "<th> </th>", "a column without a name"),
        ("<th>n</th>", '<svg role="img"><rect/></svg>', "no words for a drawing"),
    ):
        page.write_text(f"<article>{right.replace(old, new)}</article>")
        assert list(readable.problems(tmp_path)) == [f"a.html: {wrong}"]


# Architecture.

ARCHITECTURE = (ROOT / "docs/pages/architecture.md").read_text(encoding="utf-8")
#: What the answer to each of the stranger's questions must name, and what that file must say.
ANSWERS = (
    ("dq", "reference/error_budget_backward.py", "def gradient_budget("),
    ("dq", "conformance/checks/budgets.py", "gradient_budget("),
    ("fetched", "reference/schedule.py", "def fetches("),
    ("--resume", "conformance/runs/journal.py", "class Journal"),
    ("hang", "conformance/contract/remote/process.py", "TimedOut"),
    ("hang", "conformance/contract/fence.py", "class Crash("),
    ("SHRINK-8", "conformance/mutants/shrink.py", '"SHRINK-8"'),
    ("HTML report", "conformance/reports/html/templates/run.html.j2", "<table"),
    ("HTML report", "conformance/reports/html/content.py", "def shown_chapters("),
)


def test_the_answers_of_the_page_on_architecture_are_right() -> None:
    section = ARCHITECTURE.split("## A stranger's six questions")[1].split("\n## ")[0]
    rows = [line.split("|") for line in section.split("\n") if line.startswith("| ")][1:]
    assert len(rows) == 6
    named = {
        (question, name)
        for _, question, answer, _ in rows
        for name in re.findall(r"`([\w/]+\.[\w.]+)`", answer)
    }
    for words, name, text in ANSWERS:
        assert text in (ROOT / name).read_text(encoding="utf-8"), name
        assert any(words in question for question, found in named if found == name), name
    assert len(named) == len(ANSWERS)
    mutants = {path.name for path in (ROOT / "conformance/mutants").glob("*.py")}
    with_it = {
        name
        for name in mutants
        if '"SHRINK-8"' in (ROOT / "conformance/mutants" / name).read_text(encoding="utf-8")
    }
    assert with_it == {"shrink.py"}


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    imports = rooms.room_imports()
    line = rooms.order(imports)
    assert line[0] == "problems"
    assert line[-1] == "commands"
    assert all(line.index(imported) < line.index(importer) for importer, imported in imports)
    assert imports["search", "checks"] > 0
    assert imports["checks", "search"] == 0
    picture = rooms.picture()
    assert re.findall(r'id="room-(\w+)"', picture) == line
    shown = re.findall(r'class="import from-(\w+) to-(\w+)"', picture)
    assert sorted(shown) == sorted(imports)
    ET.fromstring(picture)


OURS = {"spec", "reference", "conformance", "pallas_impl", "tests", "docs"}
#: What the page on architecture says.
MAY_IMPORT: dict[str, set[str]] = {
    "spec": set(),
    "reference": {"spec"},
    "conformance": {"spec", "reference"},
    "pallas_impl": set(),
    "docs": {"spec", "reference", "conformance"},
}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_one_way(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        allowed = MAY_IMPORT[package] | {package}
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("conformance/adapters/pallas_impl"):
            allowed = allowed | {"pallas_impl"}
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
        assert found & OURS <= allowed, name
        if package in ("spec", "reference", "docs"):
            assert "jax" not in found, name
