"""What the processes of checks inherit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conformance.contract.settings import ONE_PROCESS_A_PROCESSOR, inherited


def test_processes_inherit_what_is_set_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPLASH_TEST", raising=False)
    code = "import os; print(os.environ.get('SPLASH_TEST'))"
    with inherited({"SPLASH_TEST": "7"}):
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout.strip() == "7"
    assert "SPLASH_TEST" not in os.environ


def test_what_a_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    with inherited(ONE_PROCESS_A_PROCESSOR):
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


def test_an_error_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPLASH_TEST", raising=False)
    with pytest.raises(KeyError), inherited({"SPLASH_TEST": "7"}):
        raise KeyError
    assert "SPLASH_TEST" not in os.environ
