"""What the command line names: a class, a strategy, an oracle, out of files of the user."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.contract.suggest import did_you_mean
from conformance.packages import ROOT


class LoadError(Exception):
    """What is named cannot be had; the message says why and ends with the user's own traceback, if any."""


def own_trace(error: BaseException, file: str) -> str:
    """The traceback of an error from the first frame inside a file on, all of it if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((n for n, frame in enumerate(frames) if frame.filename == file), 0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[first:])]
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def own_frames(error: BaseException, file: str, most: int, also_others: bool = True) -> str:
    """The last frames of an error inside a file of the user, or else inside of what it called; none of this suite."""
    suite = str(ROOT / "conformance")
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not frame.filename.startswith(suite)]
    own = [frame for frame in foreign if frame.filename == file]
    chosen = own or (foreign if also_others else [])
    return "".join(traceback.format_list(chosen[-most:])).rstrip()


def short(error: BaseException) -> str:
    """Type and first line of an error."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:240]}" if text else f"a bare {type(error).__name__}"


class Loader:
    """Imports files and modules, each once."""

    def __init__(self) -> None:
        self._files: dict[Path, ModuleType] = {}

    def attribute(self, reference: str, option: str) -> tuple[Any, ModuleType]:
        """An attribute of a file or module, and the module.

        Args:
          reference: ``path/to/file.py:name`` or ``package.module:name``; the name may have dots.
          option: of the command line, for errors.

        Raises:
          LoadError: no such file, module or attribute, or the file fails.
        """
        source, colon, name = reference.rpartition(":")
        if not colon or not source or not name:
            raise LoadError(
                f"{option} {reference}: expected path/to/file.py:name or package.module:name"
            )
        module = self._file(source) if source.endswith(".py") else _module(source)
        found: Any = module
        for part in name.split("."):
            if not hasattr(found, part):
                raise LoadError(f"{option} {reference}: no {name!r}{_offer(module, source, name)}")
            found = getattr(found, part)
        return found, module

    def owns(self, error: BaseException) -> bool:
        """Whether an error comes out of one of the files."""
        frames = traceback.extract_tb(error.__traceback__)
        return any(Path(frame.filename) in self._files for frame in frames)

    def _file(self, source: str) -> ModuleType:
        path = Path(source).resolve()
        if path in self._files:
            return self._files[path]
        if not path.is_file():
            raise LoadError(f"no such file: {source}")
        folder = str(path.parent)
        if (
            folder not in sys.path
        ):  # as for a script: its neighbours can be imported, after all others
            sys.path.append(folder)
        name = f"_splash_masks_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (KeyboardInterrupt, MemoryError):
            raise
        except SyntaxError as error:
            text = "".join(traceback.format_exception_only(error)).rstrip()
            raise LoadError(f"{source} is not Python:\n{text}") from error
        except BaseException as error:
            raise LoadError(f"{source} fails on import:\n{own_trace(error, str(path))}") from error
        self._files[path] = module
        return module


def _module(source: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(source)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and source.startswith(error.name or "?"):
            raise LoadError(f"no such module: {source}") from None
        raise LoadError(f"{source} fails on import:\n{own_trace(error, '')}") from error
    finally:
        sys.path.remove("")


def _offer(module: ModuleType, source: str, name: str) -> str:
    """The names that a module defines itself, and the one that may have been meant, for an error."""
    own = [
        own_name
        for own_name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    meant = did_you_mean(name, own) or (f"; it has {', '.join(own)}" if own else "")
    return f" in {source}{meant}"
