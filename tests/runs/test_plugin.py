"""The pytest plugin, as a user of pytest meets it: from a folder of his own, by console script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import conformance

ADAPTERS = '''
from dataclasses import replace

import numpy as np

from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter
from conformance.problems.predicates import empty_q_shard


class FullPrepared(PreparedReference):
    def mask_info(self, direction):
        info = super().mask_info(direction)
        return replace(info, block_mask=np.where(info.block_mask == 1, 2, info.block_mask))


class Wrong(ReferenceAdapter):
    """Calls partial blocks full, cannot shrink, and has a known deviation."""

    def describe(self):
        full = super().describe()
        return replace(full, name="jax", version="0.12.0.1", features=full.features - {"shrink"})

    def prepare(self, problem):
        if problem.shrink and problem.single_mask and not problem.dynamic:
            assert not empty_q_shard(problem)
        return FullPrepared(super().prepare(problem).problem)


class Undescribed(ReferenceAdapter):
    def describe(self):
        raise RuntimeError("boom")
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's project, whose folders are called like packages of this one."""
    (tmp_path / "mine.py").write_text(ADAPTERS, encoding="utf-8")
    for name in ("spec", "reference", "conformance"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not meant')\n")
    (tmp_path / "conftest.py").write_text("def pytest_configure(config):\n    config.mine = True\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    return tmp_path


def pytest_there(folder: Path, *arguments: str, safe: bool = True) -> tuple[int, str]:
    """Exit code and output of ``pytest -p conformance.plugin --pyargs conformance.checks …``.

    Args:
      folder: where it is run.
      arguments: further ones.
      safe: the option -P of Python leaves the current folder out of the path, as the script ``pytest`` does;
        without it ``python -m pytest`` puts that folder first.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    command = [
        sys.executable,
        *(["-P"] if safe else []),
        "-m",
        "pytest",
        "-p",
        "conformance.plugin",
    ]
    done = subprocess.run(
        [*command, "--pyargs", "conformance.checks", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(Path(conformance.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_selection_by_clause_and_by_name(project: Path) -> None:
    code, out = pytest_there(
        project, "--splash-impl", "reference", "-vv", "-k", "LABEL-2 or kept_blocks"
    )
    assert code == 0, out
    assert "check_labels.py::check_full_blocks PASSED" in out
    assert "check_shrink.py::check_kept_blocks PASSED" in out
    assert "2 passed" in out


def test_two_workers_in_a_project_with_folders_of_our_names(project: Path) -> None:
    code, out = pytest_there(
        project, "--splash-impl", "./mine.py:Wrong", "-n", "2", "-rxs",
        "--splash-clause", "LABEL-1", "--splash-clause", "LABEL-3", "--splash-clause", "SHRINK-1",
    )  # fmt: skip
    assert code == 1, out
    assert "1 failed, 1 skipped, 1 xfailed" in out
    assert "known deviation: empty-shard" in out
    assert "n/a: not declared: shrink" in out
    assert "LABEL-3 — " in out
    assert "expected: [[[1]]]" in out
    assert "actual:   [[[2]]]" in out
    assert "Traceback" not in out
    assert "CheckFailed(" not in out


def test_python_m_pytest_finds_our_packages_behind_those_of_the_project(project: Path) -> None:
    shutil.rmtree(project / "conformance")
    code, out = pytest_there(
        project, "--splash-impl", "./mine.py:Wrong", "-n", "2", "-rx",
        "--splash-clause", "LABEL-1", "--splash-clause", "LABEL-3", safe=False,
    )  # fmt: skip
    assert code == 1, out
    assert "1 failed, 1 xfailed" in out
    assert "LABEL-3 — " in out
    assert "not meant" not in out


def test_another_package_of_our_name_is_one_clear_error(project: Path) -> None:
    shutil.rmtree(project / "conformance")
    (project / "spec" / "__init__.py").write_text("")
    code = "import sys; sys.path.insert(0, '.'); import spec; import conformance"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(Path(conformance.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *_, last = done.stderr.rstrip().split("\n")
    assert last.startswith("ImportError: splash-conformance needs its own package 'spec', but ano")
    assert str(project / "spec") in last


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "ERROR: --splash-impl is required: a shipped name"),
        (("--splash-impl", "nope", "-n", "2"), "ERROR: unknown implementation 'nope'"),
        (("--splash-impl", "mine.py:Undescribed"), "describe() raises RuntimeError: boom"),
        (
            ("--splash-impl", "reference", "--splash-clause", "LABEL-99"),
            "ERROR: --splash-clause LABEL-99: no such clause; did you mean LABEL-",
        ),
    ],
)
def test_bad_arguments_are_one_error_before_any_check(
    project: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, out = pytest_there(project, "-k", "LABEL-1", *arguments)
    assert code == pytest.ExitCode.USAGE_ERROR, out
    assert words in out
    assert "Traceback" not in out
    assert "passed" not in out


def test_the_plugin_is_never_loaded_by_itself() -> None:
    values = [point.value for point in metadata.entry_points(group="pytest11")]
    assert [value for value in values if value.startswith("conformance")] == []
