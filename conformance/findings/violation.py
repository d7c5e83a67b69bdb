"""The exception by which a check, or the fence around an implementation, reports a wrong result."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


class Violation(Exception):
    """An implementation contradicts a clause on one problem.

    Attributes:
      where: array, direction, shard and place of the first difference.
      expected, actual: what the clause asks for and what was found, as text.
      differing: number of places that differ, of how many.
      region: all places that differ, see `conformance.findings.pictures.Region`; None if that says nothing more.
      arrays: all of what was expected and found, if both are arrays of one shape.
      advice: a class of a user that does this loses only time or convenience, see `fence.advising`.
    """

    arrays: tuple[NDArray[Any], NDArray[Any]] | None = None
    advice = False

    def __init__(
        self,
        where: str,
        expected: object,
        actual: object,
        differing: tuple[int, int] | None = None,
        region: Any = None,
    ) -> None:
        self.where = where
        self.expected = str(expected)
        self.actual = str(actual)
        self.differing = differing
        self.region = region
        count = f" ({differing[0]} of {differing[1]} differ)" if differing else ""
        super().__init__(f"{where}: expected {self.expected}, got {self.actual}{count}")
