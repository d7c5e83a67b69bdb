"""Deselects what only a deep run wants; runs the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from conformance.commands import cli
from conformance.contract.memory_maps import ROOM
from conformance.drawing import constants
from conformance.search.effort import PROFILES, Profile
from tests.commands.command_line import ADAPTERS, Run, Said

# Before JAX starts: devices for rings, whichever test comes first, and compilers in several processes.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

# The same examples on every machine; see also `same_constants`.
hypothesis.settings.register_profile("tests", derandomize=True, deadline=None)
hypothesis.settings.load_profile("tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs tests marked ``deep`` only where the marker expression asks for them."""
    if "deep" in (config.option.markexpr or ""):
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    if deep:
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


@pytest.fixture(scope="session", autouse=True)
def same_constants() -> Iterator[None]:
    """What is imported by other tests changes no examples."""
    with constants.only_of():
        yield


@pytest.fixture(scope="module", autouse=True)
def room() -> Iterator[None]:
    """The programs of many tests do not use up the memory maps of a process."""
    yield
    ROOM.make(every=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nothing but the adapters of `tests.commands.command_line`."""
    (tmp_path / "mine.py").write_text(ADAPTERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick profile tries little, in this process."""
    little = Profile(
        examples=5,
        heavy_examples=2,
        broad_examples=2,
        numeric_examples=0,
        shrinks=20,
        variants=False,
    )
    monkeypatch.setitem(PROFILES, "quick", little)


@pytest.fixture
def said(home: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process, in the folder of the adapters."""

    def call(*arguments: str) -> Said:
        capfd.readouterr()
        try:
            code = cli.main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return call
