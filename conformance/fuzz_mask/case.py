"""One mask that is judged, and what is wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from conformance.contract.fence import Crash
from conformance.findings.violation import Violation
from conformance.fuzz_mask.source import Arguments, Source
from conformance.problems.user_mask import UserMask
from reference.masks import Bool

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Any], None])
Kind = Literal["value", "crash", "advice"]


class Difference(Violation):
    """A violation between two boolean arrays that a report can draw.

    Attributes:
      arrays: expected and actual.
    """

    def __init__(
        self, where: str, expected: object, actual: object, arrays: tuple[Bool, Bool], count: int
    ) -> None:
        super().__init__(where, expected, actual, (count, arrays[0].size))
        self.arrays = arrays


class Advice(Violation):
    """Something that costs time or convenience, while every result is right."""


class NotAsked(Exception):
    """A judge has nothing to say about a case."""


class NotToBlame(NotAsked):
    """Something is wrong in a case that is no fault of what is judged: those that come after say nothing."""


def expect_same(where: str, expected: Bool, actual: Any) -> None:
    """Raises `Difference` unless an array has the expected values and, as it is, their shape."""
    found = np.asarray(actual)
    if found.shape != expected.shape:
        raise Violation(f"shape of {where}", expected.shape, found.shape)
    wrong = np.argwhere(np.asarray(found != expected))
    if len(wrong):
        at = tuple(int(k) for k in wrong[0])
        place = f"{where}, entry [{', '.join(map(str, at))}]"
        arrays = (expected, np.asarray(found, dtype=np.bool_))
        raise Difference(place, expected[at], found[at], arrays, len(wrong))


class Case:
    """A mask, read in many ways; exceptions of its class are raised as `Crash`.

    Attributes:
      expr: the mask as an expression of problems.
      arguments: of the call that made it.
      source: which made it.
    """

    def __init__(self, expr: UserMask, arguments: Arguments, source: Source) -> None:
        self.expr = expr
        self.arguments = arguments
        self.source = source

    @property
    def mask(self) -> Any:
        """The mask object."""
        return self.expr.instance

    @property
    def size(self) -> tuple[int, ...]:
        """Sort key: small masks and short calls first."""
        try:
            q_len, kv_len = self.expr.shape
        except Exception:
            q_len = kv_len = 0
        return q_len * kv_len, q_len, len(self.expr.text)

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers that depend on the call alone."""
        digest = hashlib.sha256(self.expr.text.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "little"))

    def call(self, phase: str, function: Callable[[], T]) -> T:
        """Runs a piece of the user's class.

        Raises:
          Crash: it raised.
        """
        try:
            return function()
        except (KeyboardInterrupt, MemoryError, Violation):
            raise
        except Exception as error:
            raise Crash(error, phase) from error

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(q_len, kv_len), checked.

        Raises:
          Violation: the mask has no such shape.
        """
        found = self.call("shape", lambda: self.mask.shape)
        wanted = "a tuple (q_len, kv_len) of two positive whole numbers"
        if not isinstance(found, tuple) or len(found) != 2:
            raise Violation("shape", wanted, repr(found))
        for length in found:
            if not isinstance(length, int | np.integer) or isinstance(length, bool) or length < 1:
                raise Violation("shape", wanted, repr(found))
        return int(found[0]), int(found[1])

    def read(self, rows: slice, columns: slice) -> Any:
        """A slice of the mask as it gives it."""
        where = f"mask[{_bounds(rows)}, {_bounds(columns)}]"
        return self.call(where, lambda: self.mask[rows, columns])

    @cached_property
    def whole(self) -> Bool:
        """All entries.

        Raises:
          Crash: reading raises.
          Violation: the mask gives something else than an array of its shape.
        """
        q_len, kv_len = self.shape
        where = f"mask[0:{q_len}, 0:{kv_len}]"
        found = self.read(slice(0, q_len), slice(0, kv_len))
        if not hasattr(found, "dtype") or not hasattr(found, "shape"):
            raise Violation(where, "an array of booleans", f"{type(found).__name__} {found!r:.60}")
        array = np.asarray(found)
        if array.shape != self.shape:
            raise Violation(f"shape of {where}", self.shape, array.shape)
        return np.array(array != 0)

    def attribute(self, name: str) -> Any:
        """An attribute of the mask, None if it has none of that name."""
        return self.call(name, lambda: getattr(self.mask, name, None))

    @property
    def function(self) -> Any:
        """The mask function.

        Raises:
          NotAsked: the class has none.
        """
        found = self.attribute("mask_function")
        if found is None:
            raise NotAsked
        return found

    @cached_property
    def positions(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Positions of the rows and of the columns: their numbers, unless the mask has others."""
        found = []
        for name, length in zip(("q_sequence", "kv_sequence"), self.shape, strict=True):
            given = self.attribute(name)
            found.append(np.arange(length, dtype=np.int32) if given is None else np.asarray(given))
        return found[0], found[1]

    def again(self) -> Any:
        """Another object from the same arguments."""
        return self.call("making the mask again", lambda: self.source.build(self.arguments))


def _bounds(part: slice) -> str:
    start, stop = ("" if end is None else str(end) for end in (part.start, part.stop))
    return f"{start}:{stop}"


@dataclass(frozen=True)
class Pair:
    """Two masks of one class that were made by different calls.

    Attributes:
      first, second: the masks.
      differ: the parameters whose values differ.
    """

    first: Case
    second: Case
    differ: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, ...]:
        """Sort key: small masks and short calls first."""
        return tuple(a + b for a, b in zip(self.first.size, self.second.size, strict=True))


@dataclass(frozen=True)
class Judge:
    """A check of a class.

    Attributes:
      clause: what it judges ("" where the specification has none).
      function: raises `Violation`, `Advice` or `Crash`.
      after: names of judges that must find nothing before this one says anything.
    """

    clause: str
    function: Callable[[Any], None]
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.__name__


class Judges(dict[str, Judge]):
    """Judges by name, those that others come after first."""

    def judge(self, clause: str, *after: str) -> Callable[[F], F]:
        """Registers a judge.

        Args:
          clause: what it judges.
          after: names of judges that must find nothing before it says anything.
        """

        def register(function: F) -> F:
            made = Judge(clause, function, after)
            self[made.name] = made
            return function

        return register
