"""An adapter whose implementation runs in another process, possibly of another interpreter.

It behaves as the adapter itself would in this process, except that a crash, a hang or runaway memory ends only the
process of the implementation: the call raises, and the next call starts another process.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from conformance.contract.protocol import Adapter, AdapterError, Description
from conformance.contract.remote.errors import Elsewhere, Fatal, NotTried, TimedOut, raised
from conformance.contract.remote.process import (
    Limits,
    Process,
    executable,
    is_own,
    private_copy,
    temporary,
)
from conformance.findings.violation import Violation
from conformance.packages import ROOT
from conformance.problems.problem import Problem

#: Stop calling a method after this many consecutive process deaths, or hangs: a hang costs its whole timeout.
DEATHS_IN_A_ROW = 20
HANGS_IN_A_ROW = 3


class ForeignAdapter:
    """The adapter ``impl``, loaded by a worker.

    Args:
      impl: as for `conformance.contract.protocol.load`.
      python: interpreter or virtual environment; the one of this process if None.
      limits: what the implementation may take.

    Raises:
      AdapterError: there is no such interpreter.
    """

    def __init__(self, impl: str, python: str | None, limits: Limits) -> None:
        self.impl = impl
        self.limits = limits
        self.environment: dict[str, str] = {}
        self._python = executable(python) if python else sys.executable
        self._folder = temporary()
        self.close = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        (self._folder / "arrays").mkdir()
        self._root = ROOT
        if not is_own(self._python):
            self._root = private_copy(self._folder / "packages")
        self._process: Process | None = None
        self._called: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._tokens = itertools.count(1)

    def describe(self) -> Description:
        """See `Adapter.describe`.

        Raises:
          AdapterError: the interpreter cannot run a worker, or the adapter cannot be loaded.
        """
        try:
            opened = self._open()
        except Elsewhere as error:
            where = "" if is_own(self._python) else f" in {self._python}"
            raise AdapterError(f"{self.impl!r} cannot be loaded{where}: {error}") from error
        self.environment = opened["environment"]
        description: Description = opened["description"]
        return description

    def prepare(self, problem: Problem) -> ForeignPrepared:
        """See `Adapter.prepare`."""
        return ForeignPrepared(self, problem, next(self._tokens))

    def new_token(self) -> int:
        """A number for something that the worker keeps."""
        return next(self._tokens)

    def stop(self) -> None:
        """Ends the worker; a later call starts another."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _open(self) -> Any:
        self.stop()
        self._called = set()
        self._process = Process(self._python, self._root, self._folder / "arrays", self.limits)
        request = {"op": "open", "impl": self.impl}
        return self._reply(request, "describe", self.limits.of_start(), None)

    def ask(
        self, request: dict[str, Any], phase: str, edit: Callable[[Any], Any] | None = None
    ) -> Any:
        """Sends a request and returns the value of the reply.

        Args:
          request: operation with its arguments.
          phase: the method that is called.
          edit: changes the compiled arrays that the worker sends, before it runs them.

        Raises:
          Elsewhere: the implementation raised, or its process ended.
          NotTried: the method ended its process too often in a row.
          Violation: the answer is for another problem.
        """
        if self._deaths[phase] >= DEATHS_IN_A_ROW:
            raise NotTried(f"{phase} ended its process too often in a row and is not called again")
        if self._process is None:
            self._open()
        first = phase not in self._called
        self._called.add(phase)
        try:
            value = self._reply(request, phase, self.limits.of_call(first), edit)
        except Fatal as error:
            weight = -(-DEATHS_IN_A_ROW // HANGS_IN_A_ROW) if isinstance(error, TimedOut) else 1
            self._deaths[phase] += weight
            raise
        except Elsewhere:
            self._deaths[phase] = 0
            raise
        self._deaths[phase] = 0
        return value

    def _reply(
        self,
        request: dict[str, Any],
        phase: str,
        seconds: float,
        edit: Callable[[Any], Any] | None,
    ) -> Any:
        assert self._process is not None
        try:
            reply = self._process.ask(request, phase, seconds, edit)
        except BaseException:
            self.stop()  # a late reply would answer no request
            raise
        target = request.get("target") or request.get("mask", {}).get("target", {"key": ""})
        if reply["key"] != target["key"]:
            raise Violation(f"the problem that {phase} answers for", target["key"], reply["key"])
        if "error" not in reply:
            return reply["value"]
        if reply["error"]["adapter"]:
            raise AdapterError(str(reply["error"]["message"]))
        raise raised(reply["error"])


class ForeignPrepared:
    """A problem prepared in a worker; it has the methods of the object there."""

    def __init__(self, adapter: ForeignAdapter, problem: Problem, token: int) -> None:
        self._adapter = adapter
        self.target = {"token": token, "key": _key(problem), "problem": problem}
        found = adapter.ask({"op": "prepare", "target": self.target}, "prepare")
        self._methods = frozenset(found["methods"])
        self.directions = found["directions"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self._methods:
            raise AttributeError(f"the prepared problem has no method {name}()")

        def method(*arguments: Any, **keywords: Any) -> Any:
            edit = keywords.pop("edit", None)
            request = {
                "op": "call",
                "target": self.target,
                "method": name,
                "arguments": list(arguments),
                "keywords": keywords,
                "edit": edit is not None,
            }
            return self._adapter.ask(request, name, edit)

        return self._mask if name == "mask" else method

    def _mask(self, head: int) -> ForeignMask:
        mask = {"token": self._adapter.new_token(), "target": self.target, "head": head}
        self._adapter.ask({"op": "make_mask", "mask": mask}, "mask")
        return ForeignMask(self._adapter, mask)


class ForeignMask:
    """A mask object in a worker, which slices, compares and hashes it."""

    def __init__(self, adapter: ForeignAdapter, mask: dict[str, Any]) -> None:
        self._adapter = adapter
        self._at = mask

    def _use(self, use: str, **more: Any) -> Any:
        return self._adapter.ask({"op": "use_mask", "mask": self._at, "use": use, **more}, "mask")

    @property
    def shape(self) -> Any:
        """The attribute ``shape`` of the mask."""
        return self._use("attribute", name="shape")

    def __getitem__(self, index: Any) -> Any:
        return self._use("index", index=index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForeignMask):
            return NotImplemented
        return bool(self._use("equal", other=other._at))

    def __hash__(self) -> int:
        return int(self._use("hash"))


def _key(problem: Problem) -> str:
    """The key of a problem; an id for a problem that is invalid and has no JSON form."""
    try:
        return problem.key
    except Exception:
        return f"spoiled-{id(problem)}"


def environment_of(adapter: Adapter) -> dict[str, str]:
    """The versions that an adapter's worker runs on; empty for an adapter of this process."""
    return adapter.environment if isinstance(adapter, ForeignAdapter) else {}


def close(adapter: Adapter) -> None:
    """Ends the worker of an adapter, if it has one."""
    if isinstance(adapter, ForeignAdapter):
        adapter.stop()
        adapter.close()
