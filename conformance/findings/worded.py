"""What violations and findings have in common: a difference as data, and its words."""

from __future__ import annotations

from conformance.findings import text
from conformance.findings.expectation import Expectation
from conformance.findings.observation import Observation
from conformance.findings.place import Place


class Worded:
    """A difference, which text is made of where it is printed."""

    place: Place
    expectation: Expectation
    observation: Observation

    @property
    def where(self) -> str:
        """The place as text."""
        return text.place_text(self.place)

    @property
    def expected(self) -> str:
        """The expectation as text."""
        return text.expectation_text(self.expectation)

    @property
    def actual(self) -> str:
        """The observation as text."""
        return text.observation_text(self.observation)
