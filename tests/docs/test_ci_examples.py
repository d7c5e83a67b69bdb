"""The examples for other people's continuous integration: they parse, and so do the commands in them."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.commands.cli import build_parser
from conformance.commands.run_options import check_clauses

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "ci"
WORKFLOW: dict[Any, Any] = yaml.safe_load((FOLDER / "github-actions.yml").read_text())
HOOKS: dict[str, Any] = yaml.safe_load((FOLDER / "pre-commit-config.yaml").read_text())


def steps() -> list[dict[str, Any]]:
    return [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def hooks() -> list[dict[str, Any]]:
    return [hook for repository in HOOKS["repos"] for hook in repository["hooks"]]


def commands() -> list[list[str]]:
    """Every command of ours, with expressions of the workflow filled in."""
    lines = [line for step in steps() for line in step.get("run", "").splitlines()]
    lines += [hook["entry"] for hook in hooks()]
    found = []
    for line in lines:
        words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "1", line).split("|")[0])
        if words and words[0] == "splash-conformance":
            found.append(words[1:])
    return found


def test_all_our_commands_are_found() -> None:
    text = "".join(path.read_text() for path in FOLDER.iterdir())
    used = re.findall(
        r"^(?:.*(?:run|entry): (?:>-\n +)?)splash-conformance (\w+)", text, re.MULTILINE
    )
    assert sorted(used) == sorted(words[0] for words in commands())
    assert set(used) == {"smoke", "run", "report", "merge"}


@pytest.mark.parametrize("words", commands(), ids=lambda words: "-".join(words[:1]))
def test_the_commands_exist(words: list[str]) -> None:
    arguments = build_parser().parse(words)
    check_clauses(getattr(arguments, "clause", []))


def test_the_workflow_is_one() -> None:
    # YAML 1.1 reads the key "on" as true.
    assert set(WORKFLOW) == {"name", True, "jobs"}
    for name, job in WORKFLOW["jobs"].items():
        assert job["runs-on"] == "ubuntu-latest", name
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        assert set(job.get("needs", "").split()) <= set(WORKFLOW["jobs"])
    shards = WORKFLOW["jobs"]["deep"]["strategy"]["matrix"]["shard"]
    (line,) = [step["run"] for step in steps() if "--shard" in step.get("run", "")]
    assert f"--shard ${{{{ matrix.shard }}}}/{len(shards)} " in line
    assert shards == list(range(1, len(shards) + 1))


def test_what_is_uploaded_is_what_is_written() -> None:
    quick = WORKFLOW["jobs"]["quick"]["steps"]
    kept = next(step["with"]["path"] for step in quick if "upload" in step.get("uses", ""))
    defaults = vars(build_parser().parse(["run"]))
    assert f"{defaults['failures']}/" in kept.split()
    for words in commands():
        arguments = vars(build_parser().parse(words))
        for option in ("json", "html", "junit"):
            if words[0] in ("run", "merge") and arguments.get(option):
                assert re.fullmatch(
                    r"(report|shard-1|splash-conformance)\.\w+", str(arguments[option])
                )


def test_installed_extras_exist() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (FOLDER / "github-actions.yml").read_text()
    extras = set(re.findall(rf"{project['name']}\[(\w+)\]", text))
    assert extras
    assert extras <= project["optional-dependencies"].keys()
    versions = {
        step["with"]["python-version"] for step in steps() if "setup-python" in step.get("uses", "")
    }
    assert versions == {project["requires-python"].removeprefix(">=")}


def test_the_hooks_have_what_pre_commit_asks_for() -> None:
    for hook in hooks():
        assert {"id", "name", "entry", "language"} <= hook.keys()
        assert hook["pass_filenames"] is False
        re.compile(hook["files"])
    assert len({hook["id"] for hook in hooks()}) == len(hooks())
