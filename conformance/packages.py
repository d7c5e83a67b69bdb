"""Our own packages, also in a project that has packages of the same names."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path

#: Packages that stand beside this one and are imported by it.
NAMES = ("spec", "reference")

ROOT = Path(__file__).resolve().parents[1]


def claim() -> None:
    """Loads our own packages where an import would find others first.

    ``python -m pytest`` puts the current folder first on the path, and so does a script in it.

    Raises:
      ImportError: another package of that name is loaded already.
    """
    for name in NAMES:
        loaded = sys.modules.get(name)
        if loaded is not None:
            _check(name, getattr(loaded, "__file__", None))
            continue
        found = find_spec(name)
        if found is not None and _ours(found.origin):
            continue
        own = PathFinder.find_spec(name, [str(ROOT)])
        if own is not None and own.loader is not None:
            sys.modules[name] = module = module_from_spec(own)
            own.loader.exec_module(module)


def _ours(file: str | None) -> bool:
    return file is not None and ROOT in Path(file).resolve().parents


def _check(name: str, file: str | None) -> None:
    if not _ours(file):
        raise ImportError(
            f"splash-conformance needs its own package {name!r}, but another one is loaded: {file}. "
            "In one process there is room for one of them: import conformance first, or run the suite by its "
            "command, splash-conformance run"
        )
