"""The checks, one clause each, by chapter. Importing this package registers all of them."""

from __future__ import annotations

import importlib
from pathlib import Path

MODULES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("check_*.py")))


def load_all() -> None:
    """Imports every module of checks, which registers them in `conformance.checks.registry.CHECKS`."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
