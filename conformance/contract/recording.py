"""Records the calls that a check makes, so that a script can repeat them without the suite."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.contract.forms import FORMS
from conformance.contract.protocol import Adapter, Description
from conformance.problems.problem import Problem


@dataclass(frozen=True)
class Call:
    """One call of an implementation.

    Attributes:
      problem: the problem that was prepared.
      method: the method that was called; ``prepare`` for the preparation itself.
      arguments, keywords: what it was given.
      answer: what it returned; None if it raised.
      error: what it raised; None if it returned.
    """

    problem: Problem
    method: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    answer: Any = None
    error: BaseException | None = None


class _Recorded:
    """A prepared problem whose calls are recorded."""

    def __init__(self, prepared: Any, problem: Problem, calls: list[Call]) -> None:
        self._prepared = prepared
        self._problem = problem
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._prepared, name)
        if name not in {*FORMS, "mask"} or name == "arithmetic":
            return found

        def method(*arguments: Any, **keywords: Any) -> Any:
            call = (self._problem, name, arguments, keywords)
            try:
                answer = found(*arguments, **keywords)
            except BaseException as error:
                self._calls.append(Call(*call, error=error))
                raise
            self._calls.append(Call(*call, answer=answer))
            return answer

        return method


class Recorder:
    """An adapter that records the calls of another one.

    Attributes:
      calls: in the order in which they were made.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.calls: list[Call] = []

    def describe(self) -> Description:
        """See `Adapter`."""
        return self.adapter.describe()

    def prepare(self, problem: Problem) -> _Recorded:
        """See `Adapter`."""
        try:
            prepared = self.adapter.prepare(problem)
        except BaseException as error:
            self.calls.append(Call(problem, "prepare", error=error))
            raise
        self.calls.append(Call(problem, "prepare"))
        return _Recorded(prepared, problem, self.calls)
