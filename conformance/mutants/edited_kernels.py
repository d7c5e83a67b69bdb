"""`pallas_impl` with changed source text: a private copy of the package, judged by a private copy of its adapter.

Changing functions of the package itself would not do: what has been compiled before stays in the caches of JAX and of
the package, so that a changed kernel could go on giving the results of the right one, or the right one those of a
changed kernel.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from conformance.contract.protocol import Description

PACKAGE = "pallas_impl"
ADAPTER = "conformance.adapters.pallas_impl.adapter"
#: Modules of this project that hold names of the package.
BOUND = ("conformance.adapters.pallas_impl.numerics", ADAPTER)


@dataclass(frozen=True)
class SourceEdit:
    """A change of the source text of `pallas_impl`.

    Attributes:
      module: name of the module in the package.
      old: text that stands in it exactly once.
      new: what replaces it.
    """

    module: str
    old: str
    new: str


def edited_source(source: str, edits: Sequence[SourceEdit]) -> str:
    """A module's text after edits, one after the other.

    Raises:
      ValueError: a text that is to be replaced does not stand there exactly once.
    """
    for edit in edits:
        count = source.count(edit.old)
        if count != 1:
            raise ValueError(
                f"{PACKAGE}/{edit.module}.py: the text to replace must be found once, "
                f"it is found {count} times: {edit.old!r}"
            )
        source = source.replace(edit.old, edit.new)
    return source


class _Loader(SourceFileLoader):
    """Compiles a module from edited text; nothing is cached in files."""

    def __init__(self, fullname: str, path: str, edits: Sequence[SourceEdit]) -> None:
        super().__init__(fullname, path)
        self.edits = edits

    def get_code(self, fullname: str) -> CodeType:
        source = edited_source(self.get_data(self.path).decode(), self.edits)
        return compile(source, f"{self.path} (edited)", "exec", dont_inherit=True)


class _Finder:
    """Finds the edited modules; leaves the others to the finders after it."""

    def __init__(self, edits: Sequence[SourceEdit]) -> None:
        self.edits: dict[str, list[SourceEdit]] = {}
        for edit in edits:
            self.edits.setdefault(f"{PACKAGE}.{edit.module}", []).append(edit)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self.edits else None
        if spec is not None:
            assert spec.origin is not None
            spec.loader = _Loader(fullname, spec.origin, self.edits.pop(fullname))
        return spec


def is_copied(name: str) -> bool:
    """Whether a module belongs to a copy."""
    return name == PACKAGE or name.startswith(f"{PACKAGE}.") or name in BOUND


@contextmanager
def _set_aside() -> Iterator[None]:
    """Lets the package and what is bound to it be imported anew, and puts the old modules back."""
    folder = importlib.import_module("conformance.adapters.pallas_impl")
    names = [name.rpartition(".")[2] for name in BOUND]
    kept: dict[str, ModuleType] = {n: m for n, m in sys.modules.items() if is_copied(n)}
    attributes = {name: vars(folder)[name] for name in names if name in vars(folder)}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [n for n in sys.modules if is_copied(n)]:
            del sys.modules[name]
        sys.modules.update(kept)
        for name in names:
            vars(folder).pop(name, None)
        vars(folder).update(attributes)


class EditedAdapter:
    """The adapter of an edited copy."""

    def __init__(self, name: str, adapter: Any) -> None:
        self._name, self._adapter = name, adapter

    def describe(self) -> Description:
        """As of the original, under another name."""
        description: Description = self._adapter.describe()
        return replace(description, name=self._name)

    def prepare(self, problem: Any) -> Any:
        """See `Adapter.prepare`."""
        return self._adapter.prepare(problem)


def edited(name: str, edits: Sequence[SourceEdit]) -> EditedAdapter:
    """An adapter of `pallas_impl` with edits; the package that others have imported stays as it is.

    Args:
      name: how the adapter calls itself.
      edits: applied in order; without any this is a copy of the package.

    Raises:
      ValueError: a text to replace is not found exactly once, or a module is not imported.
    """
    finder = _Finder(edits)
    with _set_aside():
        sys.meta_path.insert(0, finder)
        try:
            adapter = importlib.import_module(ADAPTER).make()
        finally:
            sys.meta_path.remove(finder)
    if finder.edits:
        raise ValueError(f"no such modules of {PACKAGE}: {', '.join(sorted(finder.edits))}")
    return EditedAdapter(name, adapter)
