"""What is compiled is kept where the user wants it, and does not grow without end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from conformance.adapters.shared import kernel_cache
from conformance.contract.settings import CACHE

NAMES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where caches are, with nothing chosen; what was chosen is restored."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "splash-conformance"
    for name, value in before.items():
        jax.config.update(name, value)


def chosen() -> str | None:
    value: str | None = jax.config.jax_compilation_cache_dir
    return value


def test_programs_are_kept_in_the_folder_of_caches(home: Path) -> None:
    kernel_cache.keep()
    assert Path(str(chosen())).parent == home
    assert os.path.isdir(str(chosen()))


def test_off_keeps_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, "off")
    kernel_cache.keep()
    assert chosen() is None
    assert not home.exists()


def test_a_choice_of_the_user_stays(home: Path, tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    kernel_cache.keep()
    assert chosen() == str(tmp_path)


def test_old_releases_keep_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "__version_info__", (0, 4, 31))
    kernel_cache.keep()
    assert chosen() is None


def test_without_a_folder_nothing_is_kept(home: Path) -> None:
    home.parent.write_text("a file")
    kernel_cache.keep()
    assert chosen() is None


def test_the_oldest_programs_go_first(tmp_path: Path) -> None:
    for age in range(5):
        path = tmp_path / f"{age}"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    kernel_cache.prune(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    kernel_cache.prune(tmp_path, 200)
    assert len(list(tmp_path.iterdir())) == 2
