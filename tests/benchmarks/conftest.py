"""The tables take minutes: they are made only where this folder is asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves the tables out of a run of all tests."""
    asked = any("benchmarks" in argument for argument in config.args)
    return True if collection_path.name == "test_tables.py" and not asked else None
