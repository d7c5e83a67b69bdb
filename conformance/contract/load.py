"""Loads an adapter by its name, its module or its file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.contract import library
from conformance.contract.protocol import Adapter, AdapterError
from conformance.contract.shipped import SHIPPED, UNASKED
from conformance.contract.suggest import did_you_mean


def load(impl: str) -> Adapter:
    """Loads an adapter.

    Args:
      impl: a name from `SHIPPED`, ``package.module:attribute`` or ``path/to/file.py:attribute``. The
        attribute is an adapter, or a class or function that makes one without arguments. ``jax=PACKAGE``
        and ``tokamax=PACKAGE`` run the adapter of a library on a fork of it.

    Raises:
      AdapterError: it cannot be found or imported, or is not an adapter.
    """
    hint = ""
    shipped, _, package = impl.partition("=")
    if shipped in SHIPPED:
        if package or shipped in library.PACKAGES:
            try:
                library.want(shipped, package or None)
            except ValueError as error:
                raise AdapterError(f"{impl!r}: {error}") from error
        module_name, hint = SHIPPED[shipped]
        source, attribute = module_name, "make"
    elif ":" in impl:
        source, attribute = impl.rsplit(":", 1)
    else:
        if impl.endswith(".py"):
            raise AdapterError(f"{impl!r} names no adapter: write {impl}:NAME")
        raise AdapterError(
            f"unknown implementation {impl!r}: expected one of {', '.join(SHIPPED)}, "
            f"'package.module:attribute' or 'path/to/file.py:attribute'{did_you_mean(shipped, SHIPPED)}"
        )
    try:
        module = _import(source)
    except ImportError as error:
        if error.name in UNASKED:
            hint = f"pip install {UNASKED[error.name]}"
        reason = f"; try: {hint}" if hint else ""
        raise AdapterError(f"cannot import {impl!r}: {error}{reason}") from error
    try:
        found = getattr(module, attribute)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        hint = did_you_mean(attribute, public)
        raise AdapterError(f"{source!r} has no attribute {attribute!r}{hint}") from None
    return _instantiate(found, impl)


def _import(source: str) -> Any:
    if not source.endswith(".py"):
        sys.path.insert(0, "")
        try:
            return importlib.import_module(source)
        finally:
            sys.path.remove("")
    path = Path(source)
    if not path.is_file():
        raise AdapterError(f"no such file: {source}")
    name = f"_splash_adapter_{path.stem}"
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # as for a script: its neighbours can be imported, after all others
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError:
        raise
    except Exception as error:
        raise AdapterError(f"{source} fails on import: {type(error).__name__}: {error}") from error
    return module


def _instantiate(found: Any, impl: str) -> Adapter:
    make: Callable[[], Any] | None = None
    if isinstance(found, type) or not hasattr(found, "describe"):
        make = found
    if make is not None and not callable(make):
        raise AdapterError(f"{impl!r} is not an adapter: it has no method describe()")
    try:
        adapter = found if make is None else make()
    except ImportError as error:
        raise AdapterError(f"{impl!r} cannot be used: {error}") from error
    except Exception as error:
        raise AdapterError(f"{impl!r} fails: {type(error).__name__}: {error}") from error
    for method in ("describe", "prepare"):
        if not callable(getattr(adapter, method, None)):
            raise AdapterError(f"{impl!r} is not an adapter: it has no method {method}()")
    checked: Adapter = adapter
    return checked
