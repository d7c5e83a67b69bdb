"""The page in a real browser: it computes what Python computes, and can be used with hands, eyes and keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.explain.blocks.survey import prepared
from conformance.explain.costs.layouts import Schedule
from conformance.explain.costs.memory import smem_total
from conformance.explain.costs.study import Question, compiled_at, layouts, study
from conformance.explain.costs.visits import Heads
from conformance.explain.language.grammar import parse
from conformance.explain.output import encode
from conformance.explain.output.advice import remarks
from conformance.explain.output.encode import encoded, runs
from conformance.explain.output.page import page, write_page
from reference.flat import compile_flat
from reference.mask_info import compile_grid
from reference.masks import Mask
from tests.reports.browser import opened, started
from tests.reports.test_html import Tags

MASKS = {
    "causal": ("causal", 1024, 1024, 128, 128),
    "stored": ("prefix:300+local:200,0", 1024, 512, 256, 128),
    "scattered": ("random:0.9,block=32,seed=1", 256, 512, 32, 128),
    "holes": ("causal:-300 & (random:0.5,block=128 | local:10,10)", 1024, 1024, 256, 256),
    "empty": ("causal:-9999", 256, 256, 128, 128),
}


def question_of(name: str, **more: Any) -> Question:
    text, q_len, kv_len, block_q, block_kv = MASKS[name]
    expr = parse(text, q_len, kv_len)
    return Question(text, expr, q_len, kv_len, block_q, block_kv, Heads(4, 2), **more)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("explained")
    made = {}
    for name in MASKS:
        found = study(question_of(name))
        made[name] = folder / f"{name}.html"
        write_page(found, remarks(found), made[name])
    return made


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    expr = parse("causal")
    found = study(Question("causal", expr, 4096, 4096, 128, 128))
    path = tmp_path_factory.mktemp("explained") / "causal.html"
    write_page(found, remarks(found), path)
    return path


COMPUTED = """([q, kv]) => {
  const { model } = explained, list = (array) => array && Array.from(array);
  const cutting = splash.cut(model, q, kv), stored = splash.isStored(model, cutting);
  const found = { labels: list(cutting.labels), ids: list(cutting.ids) };
  for (const [name, make] of Object.entries(splash.layouts)) {
    const made = make(cutting, stored);
    found[name] = {
      row: list(made.row), label: list(made.label), data: list(made.data), mask: list(made.mask), width: made.width,
      fetches: splash.fetches(made, model.heads, model.kv_heads), smem: splash.smem(made, cutting.rows),
    };
  }
  return found;
}"""


def expect_grid(found: dict[str, Any], info: Any, schedule: Schedule) -> None:
    assert found["label"] == info.block_mask.ravel().tolist()
    assert found["data"] == info.data_next.ravel().tolist()
    mask = None if info.mask_next is None else info.mask_next.ravel().tolist()
    assert found["mask"] == mask
    assert found["width"] == info.block_mask.shape[2]
    expect_counts(found, schedule)


def expect_counts(found: dict[str, Any], schedule: Schedule) -> None:
    assert found["fetches"] == {"k": schedule.k_fetches, "mask": schedule.mask_fetches}
    assert sum(found["smem"].values()) + 3072 == smem_total(schedule)
    assert set(found["smem"]) == {array.name for array in schedule.arrays}


@pytest.mark.parametrize("name", MASKS)
def test_every_block_size_is_computed_as_python_does(
    name: str, browser: Any, files: dict[str, Path]
) -> None:
    question = question_of(name)
    expr = prepared(question.expr, question.q_len, question.kv_len)
    mask = Mask(expr, question.q_len, question.kv_len)
    if question.expr.computable:
        mask = Mask(question.expr, question.q_len, question.kv_len)
    with opened(browser, files[name]) as shown:
        model = shown.evaluate("explained.model")
        pairs = [(q, kv) for q in model["q_sizes"] for kv in model["kv_sizes"]]
        assert len(pairs) > 1
        for q, kv in pairs:
            found = shown.evaluate(COMPUTED, [q, kv])
            compiled = compiled_at(expr, question, q, kv)
            assert found["labels"] == compiled.labels.ravel().tolist()
            ids = np.array(found["ids"])
            assert ids[ids >= 0].tolist() == compiled.ids.tolist()
            before, after, flat, _ = layouts(compiled, question)
            for form, shrink, schedule in (("before", False, before), ("after", True, after)):
                info = compile_grid([mask], q, kv, shrink=shrink)
                expect_grid(found[form], info, schedule)
            listed = compile_flat(mask, q, kv)
            assert found["flat"]["row"] == listed.active_rows.tolist()
            assert found["flat"]["data"] == listed.active_cols.tolist()
            assert found["flat"]["label"] == listed.block_mask.tolist()
            stored = None if listed.mask_next is None else listed.mask_next.tolist()
            assert found["flat"]["mask"] == stored
            expect_counts(found["flat"], flat)


def test_runs_of_numbers() -> None:
    numbers = np.array([0, 0, 0, 300, 300, 2, 0], dtype=np.int32)
    assert list(runs(numbers)) == [0, 3, 0xAC, 2, 2, 2, 1, 0, 1]
    assert list(runs(np.zeros(128, dtype=np.int32))) == [0, 0x80, 1]


def detail(shown: Any) -> dict[str, str]:
    names = shown.locator("#detail dt").all_inner_texts()
    return dict(zip(names, shown.locator("#detail dd").all_inner_texts(), strict=True))


def point_at(shown: Any, row: int, column: int, rows: int, columns: int) -> None:
    shown.locator("#canvas").scroll_into_view_if_needed()
    box = shown.locator("#canvas").bounding_box()
    x = box["x"] + (column + 0.5) * box["width"] / columns
    shown.mouse.move(x, box["y"] + (row + 0.5) * box["height"] / rows)


def test_pointing_at_a_block(browser: Any, files: dict[str, Path], causal: Path) -> None:
    with opened(browser, causal, viewport={"width": 1280, "height": 1200}) as shown:
        point_at(shown, 5, 3, 32, 32)
        assert shown.inner_text("#detail h3") == "Block (5, 3)"
        found = detail(shown)
        assert found["q block"] == "5: tokens 640–767"
        assert found["block_mask"] == "2, full: runs without masking"
        assert found["data_next"] == "3: its own block"
        assert found["mask_next"] == "none: the mask is not stored"
        point_at(shown, 5, 20, 32, 32)
        assert detail(shown)["data_next"] == "0: the next block that runs"
        point_at(shown, 7, 7, 32, 32)
        assert "what the kernel computes here" in shown.inner_text("#detail")
        picture = shown.evaluate(
            "() => { const c = document.querySelector('#detail canvas');"
            "return Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data) }"
        )
        pixels = np.array(picture).reshape(32, 32, 4)
        hidden, seen = pixels[0, 31], pixels[31, 0]
        assert (pixels[np.tri(32, k=-1, dtype=bool)] == seen).all()
        assert (pixels[~np.tri(32, dtype=bool)] == hidden).all()
        assert (hidden != seen).any()
    with opened(browser, files["stored"], viewport={"width": 1280, "height": 1200}) as shown:
        mask = Mask(question_of("stored").expr, 1024, 512)
        info = compile_grid([mask], 256, 128, shrink=False)
        assert info.mask_next is not None
        for row, column in ((0, 3), (1, 2), (3, 0)):
            point_at(shown, row, column, 4, 4)
            assert detail(shown)["mask_next"] == str(info.mask_next[0, row, column])
            assert detail(shown)["data_next"].startswith(f"{info.data_next[0, row, column]}: ")
        shown.select_option("#form", "after")
        width = compile_grid([mask], 256, 128).data_next.shape[2]
        point_at(shown, 3, width - 1, 4, width)
        assert detail(shown)["kv block"] == "none: padding of a short row"


def headline(shown: Any) -> str:
    return str(shown.inner_text("#headline"))


def test_stepping_by_keyboard(browser: Any, causal: Path) -> None:
    with opened(browser, causal) as shown:
        shown.focus("#step")
        assert headline(shown) == (
            "Step 1 of 1,024: q block 0 × kv block 0, partial: runs and masks. The output block begins."
        )
        shown.keyboard.press("ArrowRight")
        assert headline(shown) == (
            "Step 2 of 1,024: q block 0, empty: nothing to compute, the step is skipped."
        )
        assert shown.locator("#operands tr").all_inner_texts() == [
            "q\t0\theld\t",
            "k and v\t0\theld\t",
        ]
        shown.keyboard.press("n")
        assert headline(shown).startswith("Step 33 of 1,024: q block 1 × kv block 0, full")
        assert shown.locator("#operands tr").all_inner_texts()[0] == "q\t1\tfetched\t32.0 KiB"
        shown.keyboard.press("End")
        assert headline(shown).endswith("The output block is written.")
        assert "528 of 528 blocks computed" in shown.inner_text("#totals")
        assert "527 of 527 blocks of k and v fetched (flash attention: 1,024)" in (
            shown.inner_text("#totals")
        )
        shown.keyboard.press("ArrowLeft")
        assert headline(shown).startswith("Step 1,023 of 1,024")
        shown.select_option("#form", "flat")
        assert headline(shown).startswith("Step 1 of 528: ")


def test_a_link_to_a_step(browser: Any, causal: Path) -> None:
    with opened(browser, causal) as shown:
        shown.evaluate("location.hash = '#step=34'")
        shown.wait_for_selector(
            "#headline:text('Step 34 of 1,024: q block 1 × kv block 1, partial')"
        )
        assert shown.inner_text("#detail h3") == "Block (1, 1)"
        assert shown.evaluate("document.querySelector('#map').getBoundingClientRect().top") < 100


def test_everything_can_be_reached_by_keyboard(browser: Any, causal: Path) -> None:
    with opened(browser, causal) as shown:
        seen = []
        for _ in range(40):
            shown.keyboard.press("Tab")
            seen.append(
                shown.evaluate("document.activeElement.id || document.activeElement.tagName")
            )
            if seen[-1] == "BODY":
                break
        wanted = [
            "block-q",
            "block-kv",
            "together",
            "form",
            "canvas",
            "first",
            "next-run",
            "play",
            "step",
        ]
        assert [name for name in seen if name in wanted] == wanted
        shown.focus("#canvas")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "End", "Home"):
            shown.keyboard.press(key)
        assert shown.inner_text("#detail h3") == "Block (1, 0)"
        shown.keyboard.press("Enter")
        assert headline(shown).startswith("Step 33 of 1,024: q block 1 × kv block 0")
        names = shown.evaluate(
            "[...document.querySelectorAll('input, select, button, canvas')].map((e) =>"
            "e.ariaLabel || e.labels?.[0]?.innerText || e.innerText)"
        )
        assert all(names)


def test_the_slider_cuts_anew(browser: Any, causal: Path) -> None:
    with opened(browser, causal) as shown:
        shown.focus("#block-q")
        shown.keyboard.press("ArrowRight")
        shown.keyboard.press("ArrowRight")
        assert shown.inner_text("#block-q-out") == shown.inner_text("#block-kv-out") == "512"
        assert "8 × 8" in shown.inner_text("#cut")
        assert "28 (43.8 %)" in shown.inner_text("#cut")
        assert headline(shown).startswith("Step 1 of 64: ")
        shown.uncheck("#together")
        shown.focus("#block-kv")
        shown.keyboard.press("ArrowRight")
        assert (shown.inner_text("#block-q-out"), shown.inner_text("#block-kv-out")) == (
            "512",
            "1,024",
        )
        assert "8 × 4" in shown.inner_text("#cut")
        shown.click("#table button:text-is('256×256')")
        assert headline(shown).startswith("Step 1 of 256: ")
        assert shown.inner_text("#table tr.here th") == "256×256"
        row = shown.locator("#table tr.here td").all_inner_texts()
        assert row[:6] == ["46.9 %", "16", "1", "256", "256", "136"]


def test_playing(browser: Any, files: dict[str, Path]) -> None:
    with opened(browser, files["empty"]) as shown:
        shown.click("#play")
        assert shown.get_attribute("#said", "aria-live") == "off"
        shown.wait_for_selector("#play:text-is('play')")
        assert headline(shown).startswith("Step 4 of 4: q block 1, empty")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_windows_and_eyes(scheme: str, width: int, browser: Any, causal: Path) -> None:
    with opened(
        browser, causal, color_scheme=scheme, viewport={"width": width, "height": 800}
    ) as shown:
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        tones = shown.evaluate(
            "() => { const c = document.querySelector('#canvas'), g = c.getContext('2d');"
            "const all = g.getImageData(0, 0, c.width, c.height).data;"
            "const middle = (block, size) => Math.floor((block + .5) * size / 32);"
            "return [[5, 20], [9, 9], [20, 5]].map(([row, column]) => {"
            "const at = 4 * (middle(row, c.height) * c.width + middle(column, c.width));"
            "return Array.from(all.slice(at, at + 3)) }) }"
        )
        styles = ("--b0", "--b1", "--b2")
        expected = [
            shown.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('{name}')")
            for name in styles
        ]
        assert [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in tones] == [
            tone.strip() for tone in expected
        ]


def test_a_million_tokens_in_a_page(browser: Any, tmp_path: Path) -> None:
    question = Question("causal", parse("causal"), 1 << 20, 1 << 20, 512, 512)
    parts = encoded(question)
    assert parts.q_sizes == parts.kv_sizes == [1024, 2048]
    assert parts.left_out == [128, 256, 512]
    assert len(parts.codes) < 60_000
    expr = parse("causal")
    found = study(Question("causal", expr, 1 << 20, 1 << 20, 2048, 2048))
    write_page(found, remarks(found), tmp_path / "million.html")
    with opened(browser, tmp_path / "million.html") as shown:
        assert headline(shown).startswith("Step 1 of 262,144: ")
        assert "131,328 flat" in shown.inner_text("#cut")
        assert "Blocks of 128, 256 and 512 tokens are left out" in shown.inner_text("#map")


def test_masks_that_do_not_compress_leave_out_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MOST_BYTES", 2000)
    parts = encoded(Question("", parse("random:0.9"), 4096, 4096, 128, 128))
    assert parts.q_sizes == parts.kv_sizes == [256, 512, 1024, 2048]
    assert len(parts.pictures) == encode.PICTURES
    monkeypatch.setattr(encode, "MOST_BLOCKS", 3)
    with pytest.raises(ValueError, match="2 × 2 blocks are too many for a page"):
        encoded(Question("", parse("random:0.9"), 4096, 4096, 2048, 2048))


def test_pages_are_whole_and_small(causal: Path) -> None:
    text = causal.read_text()
    assert len(text) < 100_000
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids))
    assert [a for a in tags.addresses if not a.startswith("#")] == ["data:,"]
    assert "url(" not in text
    assert "http" not in text.replace('http-equiv="', "")
    model = json.loads(re.findall(r'id="model">(.*?)</script>', text)[0])
    assert model["base"] == [128, 128]


def test_names_cannot_break_out_of_the_page() -> None:
    nasty = "</script><script>alert(1)</script>"
    found = study(Question(nasty, parse("causal"), 256, 256, 128, 128))
    assert "<script>alert" not in page(found, remarks(found))
