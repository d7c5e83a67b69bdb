"""What README.md shows works as shown."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from conformance.commands import cli
from conformance.commands.run_options import check_clauses
from conformance.findings.expectation import Written
from conformance.findings.finding import Finding
from conformance.findings.observation import Unwritten
from conformance.findings.place import Place
from conformance.findings.printed import finding_text
from conformance.problem import BlockSizes, Problem
from reference.masks import Local

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, flags=re.DOTALL)

#: The library of the reader, in plain NumPy: a compiler of one mask for all heads.
MY_SPLASH = '''
from types import SimpleNamespace

import numpy as np


def following(wanted):
    """The next wanted place at or after every place, wrapping around."""
    places = np.flatnonzero(wanted)
    if len(places) == 0:
        return None
    return places[np.searchsorted(places, np.arange(len(wanted))) % len(places)]


def compile_mask(masks, block_q, block_kv, shrink):
    mask = masks[0]
    assert (masks == mask).all()
    rows, columns = mask.shape[0] // block_q, mask.shape[1] // block_kv
    tiles = mask.reshape(rows, block_q, columns, block_kv).swapaxes(1, 2)
    label = tiles.any(axis=(2, 3)).astype(np.int32) + tiles.all(axis=(2, 3))
    stack, place = [], np.zeros((rows, columns), np.int32)
    for i, j in np.argwhere(label == 1):
        known = [n for n, block in enumerate(stack) if (block == tiles[i, j]).all()]
        place[i, j] = known[0] if known else len(stack)
        if not known:
            stack.append(tiles[i, j])
    data = np.broadcast_to(np.arange(columns, dtype=np.int32), (rows, columns))
    if shrink:
        width = max(1, (label > 0).sum(axis=1).max())
        kept = np.argsort(label == 0, axis=1, kind="stable")[:, :width]
        label, place, data = (np.take_along_axis(a, kept, 1) for a in (label, place, data))
    shape = (1, *label.shape)
    some, part = following(label.ravel() > 0), following(label.ravel() == 1)
    return SimpleNamespace(
        block_mask=label.reshape(shape),
        data_next=(0 * label if some is None else data.ravel()[some]).reshape(shape),
        mask_next=None if part is None else place.ravel()[part].reshape(shape),
        partial_mask_blocks=np.stack(stack) if stack else None,
    )
'''

CLAUSES = (
    "CONV-2", "LABEL-3", "DATA-2", "MASKNEXT-1", "PARTIAL-3", "SHRINK-2", "COMPUTE-1", "OUT-3",
)  # fmt: skip


def python_block(first: str) -> str:
    (found,) = (body for kind, body in BLOCKS if kind == "python" and body.startswith(first))
    return str(found)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_splash.py").write_text(MY_SPLASH, encoding="utf-8")
    (tmp_path / "my_adapter.py").write_text(python_block("# my_adapter.py"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_adapter_runs(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["smoke", "./my_adapter.py:Mine"]) == 0
    assert "ok   mask_info(fwd)" in capfd.readouterr().out
    arguments = [part for clause in CLAUSES for part in ("--clause", clause)]
    code = cli.main(["run", "./my_adapter.py:Mine", *arguments, "--json", "r.json", "-n", "1"])
    found = json.loads((home / "r.json").read_text())["clauses"]
    assert code == 0, capfd.readouterr().out
    assert found == dict.fromkeys(CLAUSES, "conforms") | {"COMPUTE-1": "n/a", "OUT-3": "n/a"}


def test_the_adapter_is_caught_when_it_is_wrong(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (home / "my_splash.py").read_text()
    wrong = text.replace("tiles.all(axis=(2, 3))", "tiles[:, :, 1:, 1:].all(axis=(2, 3))")
    assert wrong != text
    (home / "my_splash_wrong.py").write_text(wrong)
    adapter = (
        (home / "my_adapter.py").read_text().replace("from my_splash ", "from my_splash_wrong ")
    )
    (home / "my_wrong_adapter.py").write_text(adapter)
    code = cli.main(["run", "my_wrong_adapter.py:Mine", "--clause", "LABEL-3", "-n", "1"])
    assert code == 1
    assert "LABEL-3 — " in capfd.readouterr().out


def test_the_adapter_is_short() -> None:
    lines = [line for line in python_block("# my_adapter.py").split("\n") if line.strip()]
    assert len(lines) <= 32


def commands() -> list[list[str]]:
    """Every ``splash-conformance`` command of a code block, without its comment."""
    lines = [line for kind, body in BLOCKS if kind != "python" for line in body.split("\n")]
    parts = [part for line in lines for part in line.split("&&")]
    found = [shlex.split(part, comments=True) for part in parts if "splash-conformance " in part]
    return [words[1:] for words in found if words[0] == "splash-conformance"]


def test_commands_exist() -> None:
    assert {words[0] for words in commands()} >= {"run", "list", "smoke", "replay"}
    for words in commands():
        arguments = cli.build_parser().parse_args(words)
        assert arguments.command == words[0]
        check_clauses(getattr(arguments, "clause", []))


def test_install_lines_name_what_exists() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name for group in re.findall(r"'\.\[(.+?)\]'", TEXT) for name in group.split(",")}
    assert extras
    assert extras <= project["optional-dependencies"].keys()
    assert "splash-conformance" in project["scripts"]
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    # One section may describe several environments: testenv:{py313, oldest}.
    environments = {
        name
        for section in tox.sections()
        for name in re.findall(r"[\w-]+", section.partition(":")[2])
    }
    for name in re.findall(r"tox -e ([\w-]+)", TEXT):
        assert name in environments


def test_links_lead_somewhere() -> None:
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in t]
    assert len(targets) > 5
    for target in targets:
        assert (ROOT / target).exists(), target


def test_options_of_the_plugin_exist(pytestconfig: pytest.Config) -> None:
    from conformance.plugin import pytest_addoption

    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    (line,) = re.findall(r"^pytest -p conformance\.plugin .*$", TEXT, flags=re.MULTILINE)
    known = {name for option in parser.getgroup("splash").options for name in option.names()}
    assert set(re.findall(r"--splash[\w-]+", line)) <= known


def test_the_mask_class_is_judged_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "masks.py").write_text(python_block("# masks.py"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (command,) = [words for words in commands() if words[1:2] == ["masks.py:PrefixMask"]]
    assert cli.main([*command, "--stage", "class", "--impl", "reference"]) == 1
    found = capsys.readouterr().out.replace(" --impl reference", "")
    (example,) = (body for _, body in BLOCKS if body.startswith("MASK-12 — "))
    assert found.strip().startswith(example.strip())
    assert "with 2 pieces of advice" in found


def test_the_strategies_example_runs() -> None:
    drawn: list[Problem] = []
    code = python_block("from hypothesis import given").replace(": ...", ": drawn.append(problem)")
    names: dict[str, Any] = {"drawn": drawn}
    exec(code, names)
    settings(max_examples=10, database=None)(names["test_my_compiler"])()
    assert drawn
    assert {problem.blocks.of("fwd") for problem in drawn} == {(128, 128)}
    assert not any(problem.dynamic for problem in drawn)


def test_the_example_of_a_violation_is_how_violations_look() -> None:
    (example,) = (body for _, body in BLOCKS if body.startswith("OUT-3 — "))
    problem = Problem(256, 128, (Local(0, None),), BlockSizes(128, 128))
    finding = Finding(
        "OUT-3", "check_every_output_block_is_written", "value", problem,
        Place("blocks of o", direction="fwd").at(0, 1), Written(), Unwritten(),
        detail="1 of 2 places differ",
    )  # fmt: skip
    shown, replay = example.split("replay:")
    assert shown.split() == finding_text(finding, "tokamax").split()  # lines may break elsewhere
    assert replay.split()[:2] == ["splash-conformance", "replay"]
