"""The command ``explain``: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from rich.console import Console

from conformance.explain.costs.study import Question, study
from conformance.explain.output.advice import remarks
from conformance.explain.output.report_form import SCHEMA, SCHEMA_FILE
from conformance.explain.output.terminal import print_study
from reference.masks import Causal
from tests.commands.command_line import Run

FORM = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
jsonschema.Draft202012Validator.check_schema(FORM)
VALIDATOR = jsonschema.Draft202012Validator(FORM)


def test_what_is_printed(said: Run) -> None:
    found = said("explain", "causal", "--seq", "1024", "--heads", "4", "--kv-heads", "2")
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    assert lines[0] == (
        "causal · 1,024 × 1,024 tokens · blocks 128×128 · 4 heads (2 kv) · head_dim 128 · bfloat16"
    )
    assert lines[2].startswith("  Skips 43.8 % of the arithmetic at 128×128: 28 of 64 blocks")
    assert "  ▒▒··············" in lines
    assert "  ██████████████▒▒" in lines
    assert "  ·· empty 28 (43.8 %)  ▒▒ partial 8 (12.5 %)  ██ full 28 (43.8 %)" in found.out
    assert "flat list, 4 blocks per step (pallas_impl)" in found.out
    assert (
        "Scalar memory, as the compiler pads it (1.0 MiB per core on v4, v5e, v5p, v6e, v7x)"
        in lines
    )
    assert "Partial mask blocks, as booleans: 8 take 128 KiB, 1 distinct one 16.0 KiB." in lines
    assert "\x1b" not in found.out
    assert max(map(len, lines)) <= 110
    assert not any(line.endswith(" ") for line in lines)


def test_large_grids_are_drawn_small(said: Run) -> None:
    out = said("explain", "local:9000,0", "--seq", "256k", "--block", "512").out
    assert "512 × 512 blocks on 32 × 48 cells: ·· no block of the cell runs" in out
    drawn = [
        line for line in out.splitlines() if line.startswith("  ") and set(line) <= set(" ·░▒▓█")
    ]
    assert len(drawn) == 32
    assert {len(line) for line in drawn} == {2 + 2 * 48}
    assert all("▓" in line or "▒" in line for line in drawn)


@pytest.mark.parametrize("no_color", [False, True])
def test_colours(no_color: bool, capsys: pytest.CaptureFixture[str]) -> None:
    found = study(Question("causal", Causal(), 512, 512, 128, 128))
    console = Console(force_terminal=True, color_system="standard", no_color=no_color, width=100)
    print_study(found, remarks(found), console)
    out = capsys.readouterr().out
    assert ("\x1b[34m██" in out) == (not no_color)
    assert "██" in out


def test_a_narrow_window(capsys: pytest.CaptureFixture[str]) -> None:
    found = study(Question("causal", Causal(), 8192, 8192, 128, 128))
    print_study(found, remarks(found), Console(width=60, no_color=True))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60


def figures(said: Run, *arguments: str) -> dict[str, Any]:
    found = said("explain", *arguments, "--json")
    assert (found.code, found.err) == (0, "")
    data: dict[str, Any] = json.loads(found.out)
    VALIDATOR.validate(data)
    return data


def test_figures_for_machines(said: Run) -> None:
    data = figures(said, "causal", "--seq", "8k", "--dtype", "float32", "--head-dim", "64")
    assert data["schema"] == SCHEMA == 1
    assert data["mask"] == {
        "text": "causal",
        "structured": True,
        "parts": [{"kind": "causal", "offset": 0}],
    }
    assert data["blocks"] == {
        "q": 64, "kv": 64, "total": 4096, "empty": 2016, "partial": 64, "full": 2016,
    }  # fmt: skip
    assert data["pairs"] == {
        "total": 1 << 26,
        "visible": 8192 * 8193 // 2,
        "computed": 2080 * 128 * 128,
    }
    before, after, flat, ours = data["forward"]
    assert [s["as_in"] for s in (before, flat, ours)] == ["jax", "tokamax", "pallas_impl"]
    assert after["kv_bytes"] == after["k_fetches"] * 2 * 128 * 64 * 4
    assert data["flash"]["k_fetches"] == 4096
    assert after["smem"]["bytes"] == sum(a["bytes"] for a in after["smem"]["arrays"]) + 3072
    assert after["vmem"]["bytes"] == sum(after["vmem"]["buffers"].values())
    assert set(after["vmem"]["verdict"].values()) == {"fits"}
    assert [s["mask"] for s in data["forward"]] == ["computed"] * 4
    assert [o["block_q"] for o in data["block_sizes"]] == [128, 256, 512, 1024, 2048]
    assert data["segments"] is None
    assert data["verdict"][0]["kind"] == "verdict"


def test_run_time_masks_and_segments(said: Run) -> None:
    data = figures(
        said, "causal", "--seq", "32k", "--block", "256", "--heads", "8", "--dynamic", "--segments", "4k"
    )  # fmt: skip
    assert data["forward"][0]["stored_blocks"]["read_bytes"] == 32 << 30
    assert data["forward"][0]["k_fetches"] is None
    assert data["segments"]["unseen_blocks"] == 128 * 129 // 2 - 8 * (16 * 17 // 2)
    assert data["problem"]["dynamic"] is True
    printed = said(
        "explain", "causal", "--seq", "32k", "--block", "256", "--heads", "8", "--dynamic"
    )
    assert "at run time" in printed.out
    assert "run-time mask" in printed.out


def test_stored_masks_bring_their_lengths(said: Run, home: Path) -> None:
    np.save("m.npy", np.tri(256, 512, dtype=np.bool_))
    data = figures(said, "m.npy & causal", "--block", "128x256")
    assert (data["problem"]["q_len"], data["problem"]["kv_len"]) == (256, 512)
    assert data["mask"]["parts"][0] == {"kind": "dense"}
    assert data["pairs"]["visible"] == 256 * 257 // 2
    assert (home / "m.npy").exists()


def test_a_million_tokens_take_seconds(said: Run) -> None:
    started = time.process_time()
    data = figures(said, "causal & local:100k,0", "--seq", "1M", "--block", "1024")
    assert time.process_time() - started < 20
    assert data["blocks"]["total"] == 1 << 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["casual", "--seq", "8"], "MASK: unknown mask 'casual'; did you mean causal?\n  casual\n  ^^^^^^"),
        (["causal"], "--seq is needed"),
        (["causal", "--seq", "8k", "--block", "100"], "must divide 8192×8192 tokens; --block 64x64 does"),
        (["causal", "--seq", "8k", "--block", "1x2x3"], "must be one size, or two as in 128x256"),
        (["causal", "--seq", "x"], "--seq: must be a whole number of at least 1, got 'x'"),
        (["causal", "--seq", "0"], "--seq: must be a whole number of at least 1, got '0'"),
        (["causal", "--seq", "8k", "--heads", "8", "--kv-heads", "3"], "--kv-heads 3 must divide --heads 8"),
        (["causal", "--seq", "8k", "--dtype", "int8"], "--dtype int8: must be one of bfloat16"),
        (["causal", "--seq", "8k", "--segments", "3,4"], "--segments 3,4: documents must add up to the 8,192 tokens"),
        (["documents:3,4", "--seq", "8k"], "documents must add up to the 8,192 tokens"),
        (["causal", "--seq", "8k", "--png", "no/such/folder.png"], "must be a file in a folder that exists"),
        (["random:1", "--seq", "256k", "--block", "1024"], "entries of this mask need reading one by one"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(said: Run, arguments: list[str], message: str) -> None:
    found = said("explain", *arguments)
    assert found.code == 2
    assert found.err.startswith("splash-conformance: ")
    assert message in found.err
    assert found.out == ""


def test_the_example_of_the_readme_is_real(said: Run) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    section = text.split("## What a mask costs")[1].split("\n## ")[0]
    command, shown = re.findall(r"```\n(.*?)```", section, flags=re.DOTALL)[:2]
    out = said(*shlex.split(command)[1:]).out
    assert out.startswith(shown)


def test_quiet_and_without_colours(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    found = said("explain", "causal", "--seq", "1024", "--quiet", "--no-color")
    assert found.out.splitlines()[2].startswith("  Skips 43.8 %")
    assert "██" not in found.out
    assert "\x1b[3" not in found.out
    assert "\x1b[3" in said("explain", "causal", "--seq", "1024").out


def test_the_page_is_written(said: Run, home: Path) -> None:
    found = said("explain", "causal", "--seq", "1024", "--html", "map.html", "--json")
    assert (found.code, found.err) == (0, "written: map.html\n")
    assert json.loads(found.out)["blocks"]["total"] == 64
    assert "<title>causal: what this mask costs</title>" in (home / "map.html").read_text()
    found = said("explain", "causal", "--seq", "1024", "--html", "map.html", "--dynamic")
    assert "--html shows the blocks of a mask that is known" in found.err


def test_a_shape_that_does_not_fit(said: Run, home: Path) -> None:
    np.save("m.npy", np.ones((4, 4), dtype=np.bool_))
    found = said("explain", "m.npy", "--seq", "8")
    assert "dense mask array has shape (4, 4), expected (8, 8)" in found.err
    (home / "odd.py").write_text("def f(q, k):\n    return q + k\n")
    found = said("explain", "odd.py:f", "--seq", "8", "--block", "4")
    assert "odd.py:f must give booleans, got int64" in found.err


def test_the_picture(said: Run, home: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from matplotlib.image import imread

    found = said("explain", "causal", "--seq", "2048", "--png", "map.png")
    assert (found.code, found.err) == (0, "written: map.png\n")
    picture = (imread(home / "map.png")[..., :3] * 255).round().astype(int)
    colours, counts = np.unique(picture @ [1 << 16, 1 << 8, 1], return_counts=True)
    share = {c: n / counts.sum() for c, n in zip(colours.tolist(), counts, strict=True)}
    empty, partial, full = 0xEEF1F5, 0x9EC5F5, 0x1D5FB8
    assert share[empty] > 0.2
    assert abs(share[empty] / share[full] - 1) < 0.1
    assert 0.04 < share[partial] / share[full] < 0.3
    found = said("explain", "causal", "--seq", "2048", "--png", "map.txt")
    assert (found.code, found.err.count("\n")) == (2, 1)


def test_a_picture_without_matplotlib(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.commands.explain.find_spec", lambda name: None)
    found = said("explain", "causal", "--seq", "2048", "--png", "map.png")
    assert found.code == 2
    assert "--png needs matplotlib: pip install 'splash-conformance[plots]'" in found.err
