"""Loads what users name: an adapter, a mask class, a strategy, as ``FILE.py:NAME`` or ``package.module:NAME``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.contract import library
from conformance.contract.protocol import Adapter, AdapterError
from conformance.contract.shipped import SHIPPED, UNASKED
from conformance.contract.suggest import did_you_mean


class LoadError(Exception):
    """What was named cannot be loaded; ``str`` of it is the summary, followed by the trace.

    Attributes:
      summary: why, on one line.
      trace: traceback of the user's own code; "" if none of it failed.
    """

    def __init__(self, summary: str, trace: str = "") -> None:
        super().__init__(f"{summary}\n{trace}" if trace else summary)
        self.summary, self.trace = summary, trace


class Loader:
    """Imports files and modules, each file once."""

    def __init__(self) -> None:
        self._files: dict[Path, ModuleType] = {}

    def load(self, reference: str) -> tuple[Any, ModuleType]:
        """An attribute of a file or module, and the module.

        Args:
          reference: ``path/to/file.py:NAME`` or ``package.module:NAME``; the name may have dots.

        Raises:
          LoadError: no such file, module or attribute, or it fails on import; that error is its cause.
        """
        source, colon, name = reference.rpartition(":")
        if not colon or not source or not name:
            raise LoadError(
                f"expected path/to/file.py:NAME or package.module:NAME, got {reference!r}"
            )
        module = self.import_source(source)
        found: Any = module
        for part in name.split("."):
            if not hasattr(found, part):
                hint = _suggest_attribute(module, name)
                raise LoadError(f"{source!r} has no attribute {name!r}{hint}")
            found = getattr(found, part)
        return found, module

    def import_source(self, source: str) -> ModuleType:
        """The module of a file, whose name ends in ``.py``, or of a dotted name.

        Raises:
          LoadError: there is none, or it fails on import; that error is its cause.
        """
        if not source.endswith(".py"):
            sys.path.insert(0, "")
            try:
                return _run(source, lambda: importlib.import_module(source))
            finally:
                sys.path.remove("")
        path = Path(source).resolve()
        if path not in self._files:
            if not path.is_file():
                raise LoadError(f"no such file: {source}{suggest_file(Path(source))}")
            self._files[path] = _run(source, lambda: _import_file(path))
        return self._files[path]

    def owns(self, error: BaseException) -> bool:
        """Whether an error comes out of one of the files."""
        frames = traceback.extract_tb(error.__traceback__)
        return any(Path(frame.filename) in self._files for frame in frames)


def suggest_file(path: Path) -> str:
    """``; did you mean …?`` with the file whose name is most like that of a missing one ("" if none is)."""
    folder = path.parent
    names = [str(folder / other.name) for other in folder.iterdir()] if folder.is_dir() else []
    return did_you_mean(str(path), names)


def _suggest_attribute(module: ModuleType, name: str) -> str:
    """The attribute that may have been meant, or else the classes and functions that a module defines."""
    own = [
        own_name
        for own_name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    public = [other for other in vars(module) if not other.startswith("_")]
    return did_you_mean(name, public) or (f"; it has {', '.join(own)}" if own else "")


def _import_file(path: Path) -> ModuleType:
    folder = str(path.parent)
    if folder not in sys.path:  # as for a script: its neighbours can be imported, after all others
        sys.path.append(folder)
    name = f"_splash_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look it up
    spec.loader.exec_module(module)
    return module


def _run(source: str, imports: Callable[[], ModuleType]) -> ModuleType:
    """Imports, and turns whatever the user's code raises into a `LoadError`."""
    try:
        return imports()
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and source.startswith(error.name or "?"):
            raise LoadError(f"no such module: {source}") from error
        text = str(error).strip().split("\n")[0]
        summary = f"{source} fails on import: {type(error).__name__}: {text}"
        raise LoadError(summary, _trace_outside_imports(error)) from error


def _trace_outside_imports(error: BaseException) -> str:
    """A traceback without the frames of this module and of Python's import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen importlib")
    ]
    lines = (
        ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    )
    return "".join([*lines, *traceback.format_exception_only(type(error), error)]).rstrip()


def load(impl: str) -> Adapter:
    """Loads an adapter.

    Args:
      impl: a name from `SHIPPED`, ``package.module:attribute`` or ``path/to/file.py:attribute``. The
        attribute is an adapter, or a class or function that makes one without arguments. ``jax=PACKAGE``
        and ``tokamax=PACKAGE`` run the adapter of a library on a fork of it.

    Raises:
      AdapterError: it cannot be found or imported, or is not an adapter.
    """
    reference, hint = impl, ""
    shipped, _, package = impl.partition("=")
    if shipped in SHIPPED:
        if package or shipped in library.PACKAGES:
            try:
                library.judge_package(shipped, package or None)
            except ValueError as error:
                raise AdapterError(f"{impl!r}: {error}") from error
        module, hint = SHIPPED[shipped]
        reference = f"{module}:make"
    elif impl.endswith(".py"):
        raise AdapterError(f"{impl!r} names no adapter: write {impl}:NAME")
    elif ":" not in impl:
        raise AdapterError(
            f"unknown implementation {impl!r}: expected one of {', '.join(SHIPPED)}, "
            f"'package.module:attribute' or 'path/to/file.py:attribute'{did_you_mean(shipped, SHIPPED)}"
        )
    try:
        found, _ = Loader().load(reference)
    except LoadError as error:
        cause = error.__cause__
        if not isinstance(cause, ImportError):
            raise AdapterError(error.summary) from error
        if cause.name in UNASKED:
            hint = f"pip install {UNASKED[cause.name]}"
        reason = f"; try: {hint}" if hint else ""
        raise AdapterError(f"cannot import {impl!r}: {cause}{reason}") from error
    return _instantiate(found, impl)


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
