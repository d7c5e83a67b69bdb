"""The command line: adapters, bad arguments, help, smoke tests and replay files."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from conformance.commands import COMMANDS
from tests.commands.command_line import ADAPTERS, ONE, Run, environment


@pytest.mark.parametrize("impl", ["mine.py:ready_made", "./mine.py:Wrong", "mine:Wrong"])
def test_adapters_are_files_or_modules_objects_or_classes(said: Run, impl: str) -> None:
    found = said("smoke", impl)
    assert found.code == 0
    assert found.out.startswith("wrong 1.5\nfeatures: ")
    assert "profiles: mask-info, inference, training" in found.out
    assert "ok   mask_info(fwd)" in found.out


def test_a_file_may_import_its_neighbours(said: Run, home: Path) -> None:
    (home / "inner").mkdir()
    (home / "inner" / "beside.py").write_text("from mine2 import Wrong\n")
    (home / "inner" / "mine2.py").write_text(ADAPTERS)
    assert said("smoke", "inner/beside.py:Wrong").code == 0


@pytest.mark.parametrize(
    ("impl", "words"),
    [
        ("nope", "unknown implementation 'nope': expected one of "),
        ("tokamx", "; did you mean tokamax?"),
        ("jxa=my.fork", "; did you mean jax?"),
        ("mine.py", "'mine.py' names no adapter: write mine.py:NAME"),
        ("mine.py:Wrnog", "'mine.py' has no attribute 'Wrnog'; did you mean Wrong?"),
        ("nope.py:X", "no such file: nope.py"),
        ("nope:X", "cannot import 'nope:X': No module named 'nope'"),
        ("mine.py:Nope", "'mine.py' has no attribute 'Nope'"),
        ("mine.py:three", "'mine.py:three' is not an adapter: it has no method describe()"),
        ("mine.py:broken", "'mine.py:broken' fails: ValueError: not today"),
        (
            "mine.py:Unprepared",
            "'mine.py:Unprepared' is not an adapter: it has no method prepare()",
        ),
        ("mine.py:Undescribed", "fails its smoke test: describe: RuntimeError: boom"),
        ("mine.py:Listing", "fails its smoke test: describe: must return a Description, not list"),
        (
            "mine.py:Unready",
            "fails its smoke test: prepare: prepare raised RuntimeError: no kernel",
        ),
        ("syntax.py:X", "syntax.py fails on import: SyntaxError"),
    ],
)
def test_what_is_no_adapter_is_one_clear_line(said: Run, home: Path, impl: str, words: str) -> None:
    (home / "syntax.py").write_text("def (:\n")
    found = said("run", impl, "--clause", "LABEL-1", *ONE)
    assert found.code == 2
    assert found.out == ""
    assert words in found.err
    assert found.err.startswith("splash-conformance: ")
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(("impl", "package"), [("jax", "jax"), ("tokamax", "tokamax")])
def test_a_missing_library_says_what_to_install(
    said: Run, monkeypatch: pytest.MonkeyPatch, impl: str, package: str
) -> None:
    for name in [*sys.modules]:
        if name.startswith("conformance.adapters.") and "reference" not in name:
            monkeypatch.delitem(sys.modules, name)
        if name == package or name.startswith(package + "."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    found = said("run", impl, "--clause", "LABEL-1", *ONE)
    assert found.code == 2
    assert found.out == ""
    assert found.err.count("\n") == 1
    assert f"cannot import '{impl}'" in found.err
    assert f"pip install 'splash-conformance[{impl}]'" in found.err


def test_a_module_that_a_release_does_not_ask_for(said: Run, home: Path) -> None:
    (home / "old.py").write_text("import absl_of_old\nX = 1\n", encoding="utf-8")
    (home / "absl_of_old.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'absl'\", name='absl')\n", encoding="utf-8"
    )
    found = said("run", "old.py:X", *ONE)
    assert found.code == 2
    assert "try: pip install absl-py" in found.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--clause", "label-1"), "--clause label-1: no such clause; did you mean LABEL-1?"),
        (("--clause", "LABLE-3"), "--clause LABLE-3: no such clause; did you mean LABEL-3?"),
        (("--clause", "zzz"), "--clause zzz: no such clause\n"),
        (("--clause", "check_full_blocks"), "no such clause; it is a check of LABEL-2"),
        (("--clause", "chek_full_blocks"), "no such clause; did you mean check_full_blocks?"),
        (("--profile", "quik"), "did you mean quick?"),
        (("--profle", "quick"), "unrecognized arguments: --profle quick; did you mean --profile?"),
        (("--profle=quick",), "did you mean --profile?"),
        (("more",), "splash-conformance run: unrecognized arguments: more\n"),
        (("--clause", "UNDEF-1"), "--clause UNDEF-1: nothing to check (undefined)"),
        (("--seed", "x"), "argument --seed: invalid int value: 'x'"),
        (("-n", "0"), "argument -n: must be a whole number of at least 1, got '0'"),
        (("-n", "two"), "argument -n: must be a whole number of at least 1, got 'two'"),
        (("--profile", "huge"), "invalid choice: 'huge' (choose from"),
        (("--json", "nowhere/r.json"), "--json nowhere/r.json: must be a file in a folder that"),
        (("--junit", "."), "--junit .: must be a file in a folder that exists"),
        (("--failures", "mine.py"), "--failures mine.py: is not a folder"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    said: Run, arguments: tuple[str, ...], words: str
) -> None:
    found = said("run", "reference", *arguments)
    assert found.code == 2
    assert found.out == ""
    assert words in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize("arguments", [(), ("rum", "reference")])
def test_unknown_commands(said: Run, arguments: tuple[str, ...]) -> None:
    found = said(*arguments)
    assert found.code == 2
    assert "try: splash-conformance --help" in found.err


def test_a_mistyped_command_is_recognised(said: Run) -> None:
    assert "did you mean smoke?" in said("smok").err


def test_the_version(said: Run) -> None:
    found = said("--version")
    version = metadata.version("splash-conformance")
    assert (found.code, found.out) == (0, f"splash-conformance {version}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(said: Run, command: str) -> None:
    found = said(command, "--help")
    assert found.code == 0
    assert f"splash-conformance {command} " in found.out.split("examples:")[1]


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(words)
    done = subprocess.run(
        [
            "bash", "-c",
            f"{script}\nCOMP_WORDS=({line or chr(39) * 2}) COMP_CWORD={len(words) - 1}\n"
            "_shtab_splash_conformance\nprintf '%s\\n' \"${COMPREPLY[@]}\"",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_names(said: Run) -> None:
    script = said("completion", "bash").out
    offered = partial(completed, script, "splash-conformance")
    assert offered("re") == ["report", "replay"]
    assert offered("run", "--cl") == ["--clause"]
    assert offered("run", "--clause", "LABEL-") == [f"LABEL-{n}" for n in range(1, 8)]
    assert offered("run", "--profile", "d") == ["deep"]
    assert offered("run", "to") == ["tokamax"]
    assert offered("run", "mi") == ["mine.py"]
    assert offered("completion", "f") == ["fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(said: Run, shell: str) -> None:
    found = said("completion", shell)
    assert found.code == 0
    for text in ("LABEL-1", "tokamax", "--clause" if shell != "fish" else "-l clause"):
        assert text in found.out
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} to read it with")
    Path("script").write_text(found.out)
    subprocess.run([shell, "-n", "script"], check=True)


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help")])
def test_help_shows_examples(said: Run, arguments: tuple[str, ...]) -> None:
    found = said(*arguments)
    assert found.code == 0
    for text in (
        "examples",
        "splash-conformance run jax",
        "file.py:attr",
        "exit codes: 0 conforms",
    ):
        assert text in found.out


def test_only_the_command_that_was_asked_for_is_imported(home: Path) -> None:
    code = (
        "import sys; from conformance.commands.cli import build_parser; "
        "build_parser().parse(['smoke', 'reference']); "
        "print(sorted(name for name in sys.modules if name.startswith('conformance.commands')))"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        command, cwd=home, env=environment(), capture_output=True, text=True, check=True
    )
    imported = {name.rpartition(".")[2] for name in ast.literal_eval(done.stdout)}
    assert imported & {name.replace("-", "_") for name in COMMANDS} == {"smoke"}


def test_help_imports_nothing_heavy(home: Path) -> None:
    code = (
        "import sys; from conformance.commands.cli import build_parser; build_parser().format_help(); "
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        command, cwd=home, env=environment(), capture_output=True, text=True, check=True
    )
    assert "conformance" in done.stdout
    for name in ("numpy", "hypothesis", "pytest", "rich", "jax"):
        assert f"'{name}'" not in done.stdout


def test_the_device_reaches_the_implementation(
    said: Run, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("SPLASH_CONFORMANCE_DEVICE", "auto")
    (home / "placed.py").write_text(
        "from dataclasses import replace\n"
        "from conformance.adapters.reference.adapter import ReferenceAdapter\n"
        "from conformance.contract.settings import requested_device\n"
        "class Placed(ReferenceAdapter):\n"
        "    def describe(self):\n"
        "        return replace(super().describe(), name='placed', version=requested_device())\n"
    )
    for arguments, version in (((), "auto"), (("--device", "cpu"), "cpu")):
        found = said("run", "placed.py:Placed", "--clause", "CONV-1", *arguments, *ONE)
        assert f"placed.py:Placed {version} conforms" in found.out


def test_list(said: Run) -> None:
    everything = said("list")
    assert everything.code == 0
    lines = everything.out.rstrip().split("\n")
    assert any(line.startswith("LABEL-1 ") and "check_empty_blocks" in line for line in lines)
    assert any(line.startswith("UNDEF-1 ") and line.endswith("[—]") for line in lines)
    shrink = said("list", "SHRINK-", "width").out.rstrip().split("\n")
    assert shrink
    assert set(shrink) < set(lines)
    assert all("shrink-" in line.lower() and "width" in line.lower() for line in shrink)
    nothing = said("list", "DATE-1")
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err.endswith("no clause has the words 'DATE-1'; did you mean DATA-1?\n")


def test_smoke_shows_what_fails(said: Run) -> None:
    found = said("smoke", "mine.py:Unready")
    assert found.code == 2
    assert "FAIL prepare" in found.out
    assert "RuntimeError: no kernel" in found.out
    assert "mask_info" not in found.out.split("FAIL prepare")[1]
    assert said("smoke", "nope").code == 2


@pytest.fixture
def saved(said: Run) -> dict[str, Any]:
    """A replay file, as data."""
    said("run", "mine.py:Wrong", "--clause", "LABEL-3", *ONE)
    (file,) = Path("splash-conformance-failures").glob("*.json")
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def test_corrupt_replay_files(said: Run, saved: dict[str, Any]) -> None:
    finding = saved["finding"]

    def changed(**changes: Any) -> str:
        return json.dumps(saved | {"finding": finding | changes})

    texts = {
        "{": "is not JSON",
        "\x00": "is not JSON",
        "[" * 100_000: "is not JSON",
        "[]": "is not a replay file of format 1",
        "{}": "is not a replay file of format 1",
        json.dumps(saved | {"format": 9}): "is not a replay file of format 1",
        json.dumps({"format": 1}): "is incomplete: 'finding'",
        json.dumps(saved | {"finding": {"clause": "LABEL-3"}}): "is incomplete: ",
        changed(check="check_nothing"): "unknown check 'check_nothing'",
        changed(check=["x"]): r"unknown check ['x']",
        changed(problem=None): "problem must be a JSON object",
        changed(problem=finding["problem"] | {"q_len": "two"}): "q_len must be a whole number",
        changed(
            problem=finding["problem"] | {"masks": [{"kind": "x"}]}
        ): "mask kind 'x' is unknown",
        changed(problem=finding["problem"] | {"regime": "x"}): "unknown regime 'x'",
    }
    for text, words in texts.items():
        Path("bad.json").write_text(text)
        found = said("replay", "bad.json", "mine.py:Wrong")
        assert found.code == 2, text[:60]
        assert found.err.startswith("splash-conformance: bad.json: "), found.err
        assert words in found.err
        assert found.err.count("\n") == 1
    Path("bad.json").write_bytes(b"\xff\xfe\x00")
    assert "is not JSON" in said("replay", "bad.json", "mine.py:Wrong").err
    assert "nowhere.json: cannot be read: No such file" in said("replay", "nowhere.json", "x").err
    assert "cannot be read: Is a directory" in said("replay", ".", "x").err


def test_a_replay_needs_what_its_check_needs(said: Run, saved: dict[str, Any]) -> None:
    finding = saved["finding"] | {"check": "check_width", "clause": "SHRINK-1"}
    Path("other.json").write_text(json.dumps(saved | {"finding": finding}))
    found = said("replay", "other.json", "mine.py:Plain")
    assert found.code == 2
    assert "'mine.py:Plain' does not declare shrink, so check_width says nothing" in found.err
