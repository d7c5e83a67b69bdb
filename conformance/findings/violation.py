"""The exception by which a check, or the fence around an implementation, reports a wrong result."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from conformance.findings import text
from conformance.findings.expectation import Equal, Expectation
from conformance.findings.observation import Observation, observe
from conformance.findings.pictures import Region
from conformance.findings.place import Place
from conformance.findings.values import plain
from conformance.findings.worded import Worded


class Violation(Exception, Worded):
    """An implementation contradicts a clause on one problem.

    Args:
      place: the first difference; a name stands for the whole of a quantity.
      expectation: what the clause asks for; a plain value stands for `Equal`.
      observation: what was found; a plain value stands for `Value`, or for `NotFinite`.
      differing: number of places that differ, of how many.
      region: all places that differ; None if that says nothing more.

    Attributes:
      arrays: all of what was expected and found, if both are arrays of one shape.
      advice: a class of a user that does this loses only time or convenience, see `fence.advising`.
    """

    arrays: tuple[NDArray[Any], NDArray[Any]] | None = None
    advice = False

    def __init__(
        self,
        place: Place | str,
        expectation: Expectation | object,
        observation: Observation | object,
        differing: tuple[int, int] | None = None,
        region: Region | None = None,
    ) -> None:
        super().__init__()
        self.place = place if isinstance(place, Place) else Place(place)
        self.expectation: Expectation = (
            expectation if isinstance(expectation, Expectation) else Equal(plain(expectation))
        )
        self.observation: Observation = (
            observation if isinstance(observation, Observation) else observe(observation)
        )
        self.differing = differing
        self.region = region

    def __str__(self) -> str:
        count = f" ({text.count_text(*self.differing)})" if self.differing else ""
        return f"{self.where}: expected {self.expected}, got {self.actual}{count}"
