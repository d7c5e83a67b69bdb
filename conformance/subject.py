"""The implementation under test, behind a fence: its failures never look like ours."""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from conformance.adapter import Adapter, Description
from conformance.problem import Problem
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.schedule import Schedule
from reference.sharding import Shard

T = TypeVar("T")


class Crash(Exception):
    """The implementation raised on a problem that is valid.

    Attributes:
      error: what it raised.
      phase: which call, e.g. ``prepare`` or ``mask_info(dkv)``.
    """

    def __init__(self, error: BaseException, phase: str) -> None:
        self.error = error
        self.phase = phase
        super().__init__(f"{phase} raised {describe_error(error)}")

    @property
    def signature(self) -> str:
        """Error type and the place it came from: equal for crashes with one cause."""
        frames = traceback.extract_tb(self.error.__traceback__)
        place = f" in {frames[-1].name}" if frames else ""
        return f"{type(self.error).__name__}{place}"

    @property
    def trace(self) -> str:
        """The end of the traceback, for reports."""
        return "".join(traceback.format_exception(self.error)[-4:])


def describe_error(error: BaseException) -> str:
    """``Type: first lines of the message``; says so when there is no message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else f"a bare {type(error).__name__}"


class Subject:
    """Calls an adapter, keeps recent results and turns its exceptions into `Crash`.

    Checks that draw the same problems share these results, so that a kernel is built and traced once.
    """

    def __init__(self, adapter: Adapter, description: Description, keep: int = 4096) -> None:
        self.adapter = adapter
        self.description = description
        self._keep = keep
        self._cache: OrderedDict[Hashable, Any] = OrderedDict()

    def call(self, phase: str, function: Callable[[], T]) -> T:
        """Runs a piece of the implementation.

        Raises:
          Crash: it raised.
        """
        try:
            return function()
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            raise Crash(error, phase) from error

    def _cached(self, key: Hashable, phase: str, function: Callable[[], T]) -> T:
        if key in self._cache:
            self._cache.move_to_end(key)
        else:
            try:
                self._cache[key] = self.call(phase, function)
            except Crash as crash:
                self._cache[key] = crash
            while len(self._cache) > self._keep:
                self._cache.popitem(last=False)
        value: T = self._cache[key]
        if isinstance(value, Crash):
            raise value
        return value

    def prepare(self, problem: Problem) -> Any:
        """The prepared implementation of a problem."""
        return self._cached(
            ("prepare", problem.key), "prepare", lambda: self.adapter.prepare(problem)
        )

    def fresh(self, problem: Problem) -> Any:
        """Prepared anew, not from the results kept here."""
        return self.call("prepare", lambda: self.adapter.prepare(problem))

    def mask_info(self, problem: Problem, direction: Direction) -> GridMaskInfo | FlatMaskInfo:
        """The compiled arrays of a problem."""
        prepared = self.prepare(problem)
        return self._cached(
            ("mask_info", problem.key, direction),
            f"mask_info({direction})",
            lambda: prepared.mask_info(direction),
        )

    def schedule(self, problem: Problem, direction: Direction, shard: Shard) -> Schedule:
        """The steps of the kernel on one shard."""
        prepared = self.prepare(problem)
        return self._cached(
            ("schedule", problem.key, direction, shard),
            f"schedule({direction})",
            lambda: prepared.schedule(direction, shard),
        )
