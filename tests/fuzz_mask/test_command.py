"""The command ``fuzz-mask``: reports, exit codes, errors in files of the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.fuzz_mask import run as run_module
from conformance.fuzz_mask.outcome import SCHEMA_FILE
from tests.commands.command_line import Run
from tests.fuzz_mask.harness import FEW

MASKS = '''
import numpy as np
from hypothesis import strategies as st


class Window:
    """Keys of the last tokens."""

    def __init__(self, shape: tuple[int, int], width: int) -> None:
        if width < 1:
            raise ValueError(f"width: must be at least 1, got {width}")
        self.shape, self.width = shape, width

    def __getitem__(self, index):
        rows, columns = (np.arange(n)[part] for n, part in zip(self.shape, index))
        back = rows[:, None] - columns[None, :]
        return (back >= 0) & (back < self.width)

    def __eq__(self, other):
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self):
        return hash((self.shape, self.width))


class Wrong(Window):
    def __getitem__(self, index):
        return super().__getitem__(index).astype(int)


class Crashes(Window):
    def __getitem__(self, index):
        return helper(super().__getitem__(index))


def helper(array):
    raise RuntimeError("no such window")


def declared(q_ids, kv_ids, width):
    return (kv_ids <= q_ids) & (kv_ids > q_ids - width)


def fails(q_ids, kv_ids):
    return q_ids + nothing


def widths(shape):
    return st.fixed_dictionaries({"shape": st.just(shape), "width": st.integers(1, 3)})


def no_strategy(shape):
    return shape


def failing_strategy(shape):
    return {}[shape]


@st.composite
def failing_draw(draw):
    return draw(st.integers()).nothing


three = 3
'''


@pytest.fixture
def masks(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with masks, tried with little effort."""
    file = home / "masks.py"
    file.write_text(MASKS, encoding="utf-8")
    monkeypatch.setitem(run_module.EFFORTS, "quick", FEW)
    return file


FORM = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
CLASS = ("--stage", "class", "--stage", "compiled", "--impl", "reference")


def test_a_right_class(said: Run, masks: Path) -> None:
    options = (*CLASS, "--oracle", "masks.py:declared", "--json", "report.json")
    found = said("fuzz-mask", "masks.py:Window", *options)
    assert (found.code, found.err) == (0, "")
    assert "masks.py:Window conforms" in found.out
    assert "\x1b" not in found.out
    assert "not a mask of reference" not in found.out
    report = json.loads(Path("report.json").read_text())
    FORM.validate(report)
    assert report["kind"] == "fuzz-mask"
    assert (report["exit_code"], report["complete"], report["faults"]) == (0, True, [])
    assert report["oracle"] == "masks.py:declared"
    assert report["refused"] > 0
    assert list(report["reasons"]) == ["width: must be at least 1, got 0"]
    assert report["stages"]["compiled"]["clauses"]["LABEL-1"] == "conforms"
    assert report["environment"]["numpy"]


def test_a_wrong_class_is_shown_and_can_be_seen_again(said: Run, masks: Path) -> None:
    found = said("fuzz-mask", "masks.py:Wrong", *CLASS, "--json", "wrong.json")
    assert found.code == 1
    FORM.validate(json.loads(Path("wrong.json").read_text()))
    assert "MASK-16 — values are booleans: violates (check_values_are_booleans)" in found.out
    assert "mask:     Wrong((1, 1), width=1)\n  X\n" in found.out
    assert "expected: bool" in found.out
    assert "actual:   int64" in found.out
    assert "not tried: something above is wrong" in found.out
    assert "masks.py:Wrong does not conform" in found.out
    (line,) = [text for text in found.out.split("\n") if "again:" in text]
    command = line.split("again:", 1)[1].strip()
    assert command.startswith("splash-conformance fuzz-mask masks.py:Wrong --impl reference")
    import shlex

    again = said(*shlex.split(command)[1:])
    assert again.code == 1
    assert "Wrong((1, 1), width=1)" in again.out


def test_errors_show_the_lines_of_the_user(said: Run, masks: Path) -> None:
    found = said("fuzz-mask", "masks.py:Crashes", *CLASS)
    assert found.code == 1
    assert "RuntimeError: no such window" in found.out
    assert "in helper" in found.out
    assert "fuzz_mask/case.py" not in found.out


def test_a_strategy_of_a_shape(said: Run, masks: Path) -> None:
    found = said("fuzz-mask", "masks.py:Window", *CLASS, "--strategy", "masks.py:widths")
    assert found.code == 0
    assert "refused" not in found.out


def test_masks_of_no_library_are_wrapped(said: Run, masks: Path) -> None:
    stages = ("--stage", "class", "--stage", "compiled")
    found = said("fuzz-mask", "masks.py:Window", *stages)
    assert found.code == 0
    assert "Window on pallas_impl" in found.out
    assert "not a mask of pallas_impl, so it is given to pallas_impl in a wrapper" in found.out


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["masks.py"], ["expected path/to/file.py:NAME"]),
        (["nowhere.py:Window"], ["no such file: nowhere.py"]),
        (["nowhere.at.all:Window"], ["no such module: nowhere.at.all"]),
        (["masks.py:Windo"], ["'masks.py' has no attribute 'Windo'; did you mean Window?"]),
        (["masks.py:Nothing"], ["'masks.py' has no attribute 'Nothing'; it has Window, Wrong"]),
        (["masks.py:three"], ["three is not a class but a int"]),
        (["masks.py:Window", "--impl", "nothing"], ["unknown implementation 'nothing'"]),
        (["masks.py:Window", "--oracle", "masks.py:three"], ["is not a function"]),
        (["masks.py:Window", "--oracle", "masks.py:fails"], ["fails for Window(", "NameError"]),
        (["masks.py:Window", "--strategy", "masks.py:three"], ["got a int"]),
        (["masks.py:Window", "--strategy", "masks.py:no_strategy"], ["must return one, got (1, 1)"]),
        (["masks.py:Window", "--strategy", "masks.py:failing_strategy"], ["KeyError", "masks.py"]),
        (["masks.py:Window", "--strategy", "masks.py:failing_draw"], ["AttributeError", "masks.py"]),
        (["masks.py:Window", "--json", "nowhere/report.json"], ["--json", "folder that exists"]),
    ],
)  # fmt: skip
def test_errors_are_clear(
    said: Run, masks: Path, arguments: list[str], messages: list[str]
) -> None:
    found = said("fuzz-mask", *arguments, *([] if "--impl" in arguments else CLASS))
    assert found.code == 2
    assert found.err.startswith("splash-conformance: ")
    assert all(message in found.err for message in messages), found.err


@pytest.mark.parametrize(
    ("text", "message"),
    [("def f(:\n", "SyntaxError"), ("import nowhere\n", "No module named 'nowhere'"), ("1 / 0\n", "1 / 0")],
)  # fmt: skip
def test_files_that_fail_show_their_own_traceback(
    said: Run, home: Path, text: str, message: str
) -> None:
    (home / "bad.py").write_text(text, encoding="utf-8")
    found = said("fuzz-mask", "bad.py:Window")
    assert found.code == 2
    assert message in found.err
    assert "importlib" not in found.err
    assert "conformance/" not in found.err


def test_a_class_is_given_to_the_library_that_it_extends() -> None:
    from conformance.commands.fuzz_mask import implementation_of

    def of(module: str) -> str:
        base: Any = type("Mask", (), {"__module__": module})
        return implementation_of(type("Mine", (base,), {}))

    assert of("jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask") == "jax"
    assert (
        of("tokamax._src.ops.experimental.tpu.splash_attention.splash_attention_mask") == "tokamax"
    )
    assert of("pallas_impl.mask_base") == of("elsewhere") == implementation_of(len) == "pallas_impl"
