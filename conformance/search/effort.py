"""How much a run tries, by name of the profile."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.drawing.domain import Domain, Work


@dataclass(frozen=True)
class Profile:
    """How much is tried.

    Attributes:
      examples: problems a check draws.
      heavy_examples: problems a check that builds kernels draws.
      broad_examples: problems a check of numerical results draws whose domain holds every feature.
      numeric_examples: problems any other check of numerical results draws.
      shrinks: further problems tried to make a failing one smaller (a quarter where kernels run).
      variants: try fixed problems in every layout and shrink option.
    """

    examples: int
    heavy_examples: int
    broad_examples: int
    numeric_examples: int
    shrinks: int
    variants: bool

    def examples_by(self, work: Work) -> int:
        """Problems that a check draws, by what it does to them."""
        numbers: dict[Work, int] = {
            "structure": self.examples,
            "kernels": self.heavy_examples,
            "numbers": self.numeric_examples,
            "ring": self.numeric_examples,
            "broad": self.broad_examples,
        }
        return numbers[work]

    def examples_of(self, domain: Domain) -> int:
        """Problems that a check of a domain draws."""
        number = self.examples_by(domain.work)
        return number // 2 if domain.costly and not self.variants else number

    def shrinks_of(self, domain: Domain) -> int:
        """Further problems that such a check tries to make a failing one smaller."""
        return self.shrinks if domain.work == "structure" else self.shrinks // 4


PROFILES: dict[str, Profile] = {
    "quick": Profile(
        examples=60,
        heavy_examples=12,
        broad_examples=5,
        numeric_examples=0,
        shrinks=200,
        variants=False,
    ),
    "ci": Profile(
        examples=300,
        heavy_examples=60,
        broad_examples=40,
        numeric_examples=6,
        shrinks=400,
        variants=True,
    ),
    "deep": Profile(
        examples=800,
        heavy_examples=150,
        broad_examples=120,
        numeric_examples=15,
        shrinks=1000,
        variants=True,
    ),
}
