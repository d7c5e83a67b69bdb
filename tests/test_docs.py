"""The documentation site: what its pages are made from. ``tox -e docs`` builds it and checks its links."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from conformance.checks import MODULES
from conformance.mutants import MUTANTS
from docs.generate import api, chapters, checks, fragments, registry
from spec import all_clauses
from spec.clauses import chapter_files

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/pages").rglob("*.md"))


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
    wanted = {
        name
        for path in PAGES
        for name in re.findall(r"<!-- generated: ([\w-]+)", path.read_text(encoding="utf-8"))
    }
    assert wanted == fragments.FRAGMENTS.keys()
    assert fragments.filled("a <!-- generated: mutants --> b").startswith("a ## ")
    with pytest.raises(KeyError, match="nothing-makes-this"):
        fragments.filled("<!-- generated: nothing-makes-this -->")


def test_every_module_of_checks_and_every_mutant_is_shown() -> None:
    assert [f"{checks.FOLDER}/{module}.md" for module in MODULES] == list(checks.pages())
    shown = re.findall(r'id="mutant-([\w-]+)"', checks.mutants())
    assert sorted(shown) == sorted(MUTANTS)


def test_documented_modules_exist() -> None:
    for package in api.PACKAGES:
        for name in package.modules:
            assert api.summary(f"{package.name}.{name}").endswith((".", ";"))
    assert "make_splash_mha" in api.kernels_page()


def test_what_executes_a_clause_is_on_its_page() -> None:
    page = api.module_page("reference.mask_info")
    (kept,) = re.findall(r'filters: \["(.*)"\]', page)
    hidden = re.compile(kept.removeprefix("!"))
    assert registry.clauses_defined_by()["reference.mask_info._columns"][0] == "DATA-1"
    assert not hidden.search("_columns")
    assert hidden.search("_parts")
    assert hidden.search("_columns_of")
