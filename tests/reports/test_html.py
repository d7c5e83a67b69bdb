"""The page of a run, in a real browser where there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.findings.budget_use import EDGES, histogram
from conformance.findings.expectation import Equal
from conformance.findings.finding import Finding, Outcome, Status
from conformance.findings.observation import Value
from conformance.findings.pictures import block_map, region
from conformance.findings.place import Place
from conformance.problem import BlockSizes, Problem
from conformance.reports.html.blocks import block_pictures, mask_pictures, ranges, region_pictures
from conformance.reports.html.charts import bin_names, histogram_chart
from conformance.reports.html.page import prose
from conformance.reports.html.run_page import run_page
from conformance.reports.summary import verdict
from conformance.runs.report import Run
from reference.masks import Causal, Full
from spec import all_clauses
from tests.reports.browser import opened, started

NASTY = "<script>alert('no')</script> & \"quoted\""


def problem_of(size: int = 2) -> Problem:
    masks = (Causal(), Full())
    return Problem(size * 4, size * 4, masks, BlockSizes(4, 4), heads=2, kv_heads=2)


def finding_of(clause: str, number: int = 0, **more: Any) -> Finding:
    problem = problem_of(1 + number % 6)
    wrong = np.zeros((2, problem.q_len, 8), dtype=np.bool_)
    wrong[1, :3] = True
    return Finding(
        clause,
        f"check_{number}",
        more.pop("kind", "value"),
        problem,
        Place("output").at(1, number, axes=("head", "row")),
        Equal(0),
        more.pop("observation", Value(f"1 {NASTY}")),
        blocks=block_map(problem),
        region=region("output", wrong, ("head", "row", "dimension"), (4, 0)),
        **more,
    )


def outcome_of(clause: str, status: Status, *findings: Finding, **more: Any) -> Outcome:
    rule = all_clauses()[clause]
    name = findings[0].check if findings else f"check_of_{clause}"
    return Outcome(clause, name, rule.chapter, status, findings=list(findings), **more)


@pytest.fixture(scope="module")
def run() -> Run:
    """A run with everything that a report can show."""
    numbers = {"output": histogram(np.array([0.0, 0.3, 0.7, 2.0, np.inf]))}
    cells = {
        "causal": {"partial": {"float32": {"any": 7, "sinks": 2}, "bfloat16": {"any": 1}}},
        "full": {"full": {"float32": {"any": 4}}},
    }
    outcomes = [
        outcome_of("LABEL-1", "conforms", examples=8, coverage=cells),
        outcome_of("LABEL-3", "violates", finding_of("LABEL-3", 1), examples=3),
        outcome_of("SHRINK-1", "n/a", reason="not declared: shrink"),
        outcome_of("DATA-3", "known deviation", finding_of("DATA-3", 2, deviation="odd")),
        outcome_of("FWD-1", "violates", finding_of("FWD-1", 3, kind="crash"), ratios=numbers),
        outcome_of("FWD-2", "error", reason=f"not judged {NASTY}"),
        outcome_of("SCHED-6", "conforms", replace(finding_of("SCHED-6", 4), kind="quality")),
    ]
    return Run(
        "./mine.py:Mine",
        f"1.0 {NASTY}",
        "quick",
        7,
        "splash-conformance run ./mine.py:Mine",
        features=("masks", "mask_info"),
        started="2026-01-02T03:04:05+00:00",
        outcomes=outcomes,
        errors=[f"it failed {NASTY}"],
        replays={("check_1", 0): "failures/LABEL-3.json"},
        reasons={"odd": "it is odd"},
        complete=False,
    )


@pytest.fixture(scope="module")
def many() -> Run:
    """A run with hundreds of violations."""
    clauses = [c.id for c in all_clauses().values() if c.is_checkable]
    outcomes = [
        outcome_of(clauses[n % len(clauses)], "violates", finding_of(clauses[n % len(clauses)], n))
        for n in range(400)
    ]
    return Run("mine", "1", "quick", 0, "splash-conformance run mine", outcomes=outcomes)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def file(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(run_page(run), encoding="utf-8")
    return path


class Tags(HTMLParser):
    """Tags that are open, and what tags refer to."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "poster"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return  # of SVG

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_refers_to_nothing_else(run: Run) -> None:
    page, tags = run_page(run), Tags()
    tags.feed(page)
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids))
    inside = {address for address in tags.addresses if address.startswith("#")}
    assert {address[1:] for address in inside} <= set(tags.ids)
    assert [a for a in tags.addresses if a not in inside] == ["data:,"]
    assert "@import" not in page
    assert "url(" not in page
    assert "<script>alert" not in page


def shown(page: Any, selector: str) -> list[Any]:
    return [item for item in page.query_selector_all(selector) if item.is_visible()]


def test_the_page_says_what_the_report_says(browser: Any, file: Path, run: Run) -> None:
    data = json.loads(json.dumps(run.to_json()))
    with opened(browser, file) as page:
        assert page.title() == f"{run.implementation} {run.version}: {verdict(run)[0]}"
        assert page.inner_text("h1") == f"{run.implementation} {run.version}"
        clauses = page.query_selector_all("details.clause")
        said = {item.get_attribute("id"): item.get_attribute("data-status") for item in clauses}
        judged = {name: status for name, status in said.items() if status != "undefined"}
        assert judged == data["clauses"]
        for item in clauses:
            chip = item.query_selector(".chip").text_content()
            assert chip == item.get_attribute("data-status")
        violations = page.query_selector_all("#violations details.cause")
        assert len(violations) == 2
        text = page.inner_text("#violations")
        assert "output[head 1, row 1]" in text
        assert f"1 {NASTY}" in text
        command = "splash-conformance replay failures/LABEL-3.json ./mine.py:Mine"
        assert page.query_selector("button.copy").get_attribute("data-copy") == command
        assert "it is odd" in page.query_selector("#deviations").text_content()
        assert f"it failed {NASTY}" in page.inner_text("#summary")
        assert f"FWD-2 (check_of_FWD-2): not judged {NASTY}" in page.inner_text("#summary")
        assert "this report is partial" in page.inner_text("header")
        facts = page.inner_text("#environment")
        assert all(value in facts for value in data["environment"].values())
        assert data["command"] in facts
        assert page.inner_text("#figures tbody").count("SCHED-6") == 1


def test_coverage_can_be_looked_at_in_parts(browser: Any, file: Path) -> None:
    def numbers(page: Any) -> list[list[str]]:
        rows = page.query_selector("table.space").query_selector_all("tbody tr")
        return [[cell.inner_text() for cell in row.query_selector_all("td")] for row in rows]

    with opened(browser, file) as page:
        assert numbers(page) == [["8", "·", "8"], ["·", "4", "4"]]
        page.select_option("#dtype", "float32")
        assert numbers(page) == [["7", "·", "7"], ["·", "4", "4"]]
        page.select_option("#feature", "sinks")
        assert numbers(page) == [["2", "·", "2"], ["·", "·", "·"]]


def test_the_filter_of_clauses(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        page.fill("#search", "label-")
        ids = [item.get_attribute("id") for item in shown(page, "details.clause")]
        assert ids == ["LABEL-1", "LABEL-3"]
        assert page.inner_text("#hits").startswith("2 of ")
        page.uncheck("input[value=conforms]")
        assert [i.get_attribute("id") for i in shown(page, "details.clause")] == ["LABEL-3"]
        page.fill("#search", "no such thing")
        assert page.is_visible("#nothing")
        page.press("#search", "Escape")
        page.check("input[value=conforms]")
        assert page.inner_text("#hits") == ""
        assert not page.is_visible("#nothing")


def test_everything_can_be_reached_by_keyboard(browser: Any, file: Path) -> None:
    def focused(page: Any) -> str:
        return str(page.evaluate("document.activeElement.outerHTML"))

    with opened(browser, file) as page:
        page.keyboard.press("Tab")
        assert "Skip to the content" in focused(page)
        page.keyboard.press("/")
        assert 'id="search"' in focused(page)
        page.keyboard.type("label-3")
        while "<summary" not in focused(page):
            page.keyboard.press("Tab")
        page.keyboard.press("Tab")  # from the chapter to its clause
        clause = page.query_selector("#LABEL-3")
        assert clause.get_attribute("open") is None
        page.keyboard.press("Enter")
        assert clause.get_attribute("open") is not None
        page.keyboard.press("Tab")
        assert 'href="#violation-1"' in focused(page)
        page.keyboard.press("Enter")
        assert page.url.endswith("#violation-1")
        # Nothing that can be used is without focus.
        for item in page.query_selector_all("summary, button, input, select, a[href]"):
            assert item.evaluate("item => item.tabIndex") == 0


def test_links_open_what_they_lead_to(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        assert page.query_selector("#deviation-1").get_attribute("open") is None
        page.evaluate("location.hash = '#deviation-1'")
        page.wait_for_selector("#deviation-1[open]")
        page.fill("#search", "nothing at all")
        page.evaluate("location.hash = '#LABEL-1'")
        page.wait_for_selector("#LABEL-1[open]")
        assert page.is_visible("#LABEL-1")


def test_a_command_is_copied_or_selected(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        button = page.query_selector("#violations button.copy")
        button.click()
        page.wait_for_function("item => item.textContent !== 'copy'", arg=button)
        if button.inner_text() == "selected":
            chosen = page.evaluate("getSelection().toString()")
            assert chosen == button.get_attribute("data-copy")


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_fits_a_phone(browser: Any, file: Path, width: int) -> None:
    with opened(browser, file, viewport={"width": width, "height": 700}) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_light_and_dark(browser: Any, file: Path) -> None:
    script = "getComputedStyle(document.body).backgroundColor"
    colours = []
    for scheme in ("light", "dark"):
        with opened(browser, file, color_scheme=scheme) as page:
            colours.append(page.evaluate(script))
    light, dark = ([int(n) for n in re.findall(r"\d+", colour)] for colour in colours)
    assert min(light) > 200
    assert max(dark) < 60


def test_paper_shows_what_is_closed_on_the_screen(browser: Any, file: Path) -> None:
    with opened(browser, file, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        ink = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ink == "rgb(255, 255, 255)"  # also where the screen is dark
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert not page.is_visible("nav")
        assert page.is_visible("#deviation-1 .inside")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert not page.is_visible("#deviation-1 .inside")


def test_the_page_can_be_read_without_scripts(browser: Any, file: Path) -> None:
    with opened(browser, file, java_script_enabled=False) as page:
        assert "output[head 1, row 1]" in page.inner_text("#violations")
        assert page.inner_text("table.space td") == "8"


def test_hundreds_of_violations_stay_usable(browser: Any, many: Run, tmp_path: Path) -> None:
    file = tmp_path / "many.html"
    file.write_text(run_page(many), encoding="utf-8")
    assert file.stat().st_size < 4_000_000
    with opened(browser, file) as page:
        assert len(page.query_selector_all("#violations details.cause")) == 400
        assert len(page.query_selector_all("#violations details.cause[open]")) == 3
        assert page.evaluate("document.querySelectorAll('*').length") < 60_000
        search = page.query_selector("#violations input.search")
        search.fill("row 399]")
        (found,) = shown(page, "#violations details.cause")
        assert "row 399]" in found.text_content()
        assert page.inner_text("#violations output") == "1 of 400"


def test_pictures_of_blocks_and_regions() -> None:
    problem = problem_of()
    captions = [caption for caption, _ in block_pictures(block_map(problem))]
    assert captions == ["head 0: 2 × 2 blocks, q ↓ kv →", "head 1: 2 × 2 blocks, q ↓ kv →"]
    causal, full = (picture for _, picture in block_pictures(block_map(problem)))
    assert 'class="b1" d="M0 0h1v1h-1zM1 1h1v1h-1z"' in causal
    assert 'class="b2" d="M0 0h2v1h-2zM0 1h2v1h-2z"' in full
    assert "1 empty, 2 partial, 1 full" in causal
    (first, _) = mask_pictures(block_map(problem))
    assert first[0] == "head 0: 8 × 8 tokens"
    wrong = np.zeros((2, 8, 4), dtype=np.bool_)
    wrong[1, 2:4, 1:3] = True
    ((caption, picture),) = region_pictures(
        region("dq", wrong, ("head", "row", "dimension"), (4, 0))
    )
    assert caption == "dq, head 1: row ↓ dimension → (8 × 4)"
    assert 'class="d9" d="M1 2h2v1h-2zM1 3h2v1h-2z"' in picture
    assert 'd="M0 4h4"' in picture  # the border between two blocks
    ((caption, _),) = region_pictures(region("labels", np.ones(3, dtype=np.bool_)))
    assert caption == "labels: axis 0 → (3)"


def test_ranges() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"


def test_bins_have_names_and_the_budget_its_place() -> None:
    assert len(bin_names()) == len(EDGES) + 3
    chart = histogram_chart("output", histogram(np.array([0.7, 1.0, 1.5])))
    assert chart.count('class="within"') == 1
    assert chart.count('class="beyond"') == 1
    assert "<title>0.5 to 1: 2</title>" in chart


def test_prose_keeps_code_and_escapes_the_rest() -> None:
    assert prose("a `x < 1` & b") == "a <code>x &lt; 1</code> &amp; b"
