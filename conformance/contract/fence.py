"""The implementation under test, behind a fence: its failures never look like ours."""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from conformance.contract.forms import FORMS
from conformance.contract.protocol import Adapter, Description, Forward, Gradients
from conformance.contract.remote.errors import (
    Elsewhere,
    Fatal,
    NotTried,
    Refused,
    TimedOut,
    is_refusal,
)
from conformance.findings import text
from conformance.findings.observation import Raised
from conformance.findings.violation import Violation
from conformance.problems.arrays import Cotangent, d_logsumexp, d_out, inputs
from conformance.problems.problem import Problem
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.schedule import Schedule
from reference.sharding import Shard

T = TypeVar("T")

#: Arrays that a kernel returned are kept for this many calls.
KEEP_RESULTS = 256

#: Methods that a declared feature promises.
PROMISED = frozenset(FORMS) - {"arithmetic"} | {"mask"}

#: What a hang costs compared with a process that ends itself, see `Subject.losses`.
HANG = 6


class Crash(Exception):
    """The implementation raised on a problem that is valid.

    Attributes:
      error: what it raised.
      phase: which call, e.g. ``prepare`` or ``mask_info(dkv)``.
      advice: as in `Violation`.
    """

    advice = False

    def __init__(self, error: BaseException, phase: str) -> None:
        self.error = error
        self.phase = phase
        super().__init__(f"{phase} raised {text.observation_text(raised_by(error))}")

    @property
    def signature(self) -> str:
        """Equal for crashes with one cause."""
        return raised_by(self.error).cause

    @property
    def trace(self) -> str:
        """The end of the traceback, for reports."""
        if isinstance(self.error, Elsewhere):
            return self.error.trace
        frames = traceback.extract_tb(self.error.__traceback__)[-3:]
        return "".join(traceback.format_list(frames)) + text.observation_text(raised_by(self.error))


def raised_by(error: BaseException) -> Raised:
    """An exception of an implementation, or the end of its process."""
    name, message = type(error).__name__, " ".join(str(error).split())[:300]
    if isinstance(error, Elsewhere):
        return Raised(name, message, error.function, error.ended)
    frames = traceback.extract_tb(error.__traceback__)
    return Raised(name, message, frames[-1].name if frames else "")


@contextmanager
def advising() -> Iterator[None]:
    """Marks what goes wrong inside as advice.

    A clause asks it of every mask, but no compiler needs it: a library's own masks violate the clause, a class of a
    user gets advice.
    """
    try:
        yield
    except (Crash, Violation) as wrong:
        wrong.advice = True
        raise


class Fence:
    """A prepared problem whose methods raise `Crash` or `Violation`, whatever the implementation does."""

    def __init__(self, subject: Subject, prepared: Any) -> None:
        self._subject = subject
        self._prepared = prepared

    def __getattr__(self, name: str) -> Any:
        try:
            found = getattr(self._prepared, name)
        except AttributeError as error:
            if name in PROMISED:
                raise Crash(error, name) from error
            raise
        if not callable(found):
            return found

        def method(*arguments: Any, **keywords: Any) -> Any:
            which = arguments[0] if arguments and isinstance(arguments[0], str) else ""
            phase = f"{name}({which})" if which else name
            answer = self._subject.call(phase, lambda: found(*arguments, **keywords))
            if name in FORMS:
                FORMS[name](answer, arguments)
            return answer

        return method


class Subject:
    """Calls an adapter, keeps recent results and turns its exceptions into `Crash`.

    Checks that draw the same problems share these results, so that a kernel is built and traced once.

    Attributes:
      losses: processes that the implementation has ended, a hang counts as `HANG` of them.
    """

    def __init__(self, adapter: Adapter, description: Description, keep: int = 4096) -> None:
        self.adapter = adapter
        self.description = description
        self.losses = 0
        self._keep = keep
        self._cache: OrderedDict[Hashable, Any] = OrderedDict()
        self._results: OrderedDict[Hashable, Any] = OrderedDict()

    def call(self, phase: str, function: Callable[[], T]) -> T:
        """Runs a piece of the implementation.

        Raises:
          Crash: it raised.
          Violation: what it returned has not the promised form.
          NotTried: it was not called.
          Refused: it says that it does not offer this.
        """
        try:
            return function()
        except (KeyboardInterrupt, MemoryError, Crash, Violation, NotTried):
            raise
        except BaseException as error:
            if isinstance(error, Fatal):
                self.losses += HANG if isinstance(error, TimedOut) else 1
            if is_refusal(error):
                raise Refused(error) from error
            raise Crash(error, phase) from error

    def _cached(self, key: Hashable, phase: str, function: Callable[[], T]) -> T:
        return self._kept(self._cache, self._keep, key, phase, function)

    def _kept(
        self,
        cache: OrderedDict[Hashable, Any],
        keep: int,
        key: Hashable,
        phase: str,
        function: Callable[[], T],
    ) -> T:
        if key in cache:
            cache.move_to_end(key)
        else:
            try:
                cache[key] = self.call(phase, function)
            except (Crash, Violation, Refused) as wrong:
                cache[key] = wrong
            while len(cache) > keep:
                cache.popitem(last=False)
        value: T = cache[key]
        if isinstance(value, (Crash, Violation, Refused)):
            raise value
        return value

    def prepare(self, problem: Problem) -> Any:
        """The prepared implementation of a problem."""
        return self._cached(
            ("prepare", problem.key), "prepare", lambda: Fence(self, self.adapter.prepare(problem))
        )

    def directions(self, problem: Problem) -> tuple[Direction, ...]:
        """The directions that have a kernel of their own for a problem.

        A prepared object may say so itself in an attribute ``directions``, where options decide (a fused
        backward kernel has no ``dq`` of its own); otherwise they are those of the description.
        """
        own: tuple[Direction, ...] | None = getattr(self.prepare(problem), "directions", None)
        return self.description.directions if own is None else own

    def fresh(self, problem: Problem) -> Any:
        """Prepared anew, not from the results kept here."""
        return self.call("prepare", lambda: Fence(self, self.adapter.prepare(problem)))

    def mask_info(self, problem: Problem, direction: Direction) -> GridMaskInfo | FlatMaskInfo:
        """The compiled arrays of a problem."""
        prepared = self.prepare(problem)
        found: GridMaskInfo | FlatMaskInfo = self._cached(
            ("mask_info", problem.key, direction),
            f"mask_info({direction})",
            lambda: prepared.mask_info(direction),
        )
        return found

    def schedule(self, problem: Problem, direction: Direction, shard: Shard) -> Schedule:
        """The steps of the kernel on one shard."""
        prepared = self.prepare(problem)
        found: Schedule = self._cached(
            ("schedule", problem.key, direction, shard),
            f"schedule({direction})",
            lambda: prepared.schedule(direction, shard),
        )
        return found

    def forward(self, problem: Problem, *, residuals: bool = False) -> Forward:
        """The output for the arrays of a problem, with residuals if asked for."""
        prepared = self.prepare(problem)
        more = {"residuals": True} if residuals else {}
        found: Forward = self._kept(
            self._results,
            KEEP_RESULTS,
            ("forward", problem.key, residuals),
            "forward with residuals" if residuals else "forward",
            lambda: prepared.forward(inputs(problem), **more),
        )
        return found

    def backward(
        self,
        problem: Problem,
        kind: Cotangent = "quiet",
        *,
        with_residuals: bool = False,
        with_lse: bool = False,
    ) -> Gradients:
        """The gradients for the arrays of a problem.

        Args:
          problem: what to run.
          kind: the gradient with respect to the output.
          with_residuals: differentiate the call that returns residuals.
          with_lse: add a loss on logsumexp.
        """
        prepared = self.prepare(problem)
        more: dict[str, Any] = {"with_residuals": True} if with_residuals else {}
        if with_lse:
            more["d_logsumexp"] = d_logsumexp(problem)
        gradients: Gradients = self._kept(
            self._results,
            KEEP_RESULTS,
            ("backward", problem.key, kind, with_residuals, with_lse),
            "backward",
            lambda: prepared.backward(inputs(problem), d_out(problem, kind), **more),
        )
        return gradients
