"""What a check is about: the questions that every domain answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from hypothesis import strategies as st

from conformance.contract.protocol import Description
from conformance.drawing.strategies import Choice
from conformance.problems.features import FEATURES, declared_for, features_of
from conformance.problems.problem import Problem
from conformance.problems.regimes import BARE, SIMPLE

#: What a check of a domain does to a problem, from the cheapest to the dearest.
Work = Literal["structure", "kernels", "numbers", "ring", "broad"]


@dataclass(frozen=True)
class Vector:
    """A fixed problem.

    Attributes:
      name: for reports and expectation files.
      bug_class: what kind of mistake it finds.
    """

    name: str
    bug_class: str


@dataclass(frozen=True)
class Domain(ABC):
    """The problems that a check is about.

    Features are names of `conformance.problems.features`. Only those of `about` are asked for.

    Attributes:
      needs: features that every problem has.
      allows: features that a problem may have.
      where: a further condition that problems must meet.
      only: names of fixed problems; nothing else is tried.
      regimes: regimes to choose from; none if arrays do not matter.
      costly: a kernel takes seconds to build, and other checks try the options on cheaper ones: the quick
        profile repeats no problem for every option, and draws half as many.
      group: checks of one group run in one process, where they share kernels ("" for any process).
    """

    needs: Set[str] = frozenset()
    allows: Set[str] = frozenset()
    where: Callable[[Problem], bool] | None = None
    only: tuple[str, ...] = ()
    regimes: tuple[str, ...] = ()
    costly: bool = False
    group: str = ""

    #: The features that such domains choose.
    about: ClassVar[frozenset[str]]
    #: Features of `about` that a problem may have in every domain.
    free: ClassVar[frozenset[str]] = frozenset()
    #: The features that an implementation must declare to be given a problem.
    required: ClassVar[Set[str]] = FEATURES.keys()

    @property
    @abstractmethod
    def work(self) -> Work:
        """What a check of the domain does to a problem."""

    @abstractmethod
    def strategy(self, description: Description) -> st.SearchStrategy[Problem]:
        """Problems of the domain that the implementation can be given."""

    @abstractmethod
    def vectors(
        self, description: Description, every_variant: bool = True
    ) -> Iterator[tuple[Vector, Problem]]:
        """The fixed problems of the domain that the implementation can be given.

        Args:
          description: of the implementation.
          every_variant: repeat problems in every layout and with every option, instead of the first that fits.
        """

    @property
    def backward(self) -> bool:
        """Whether the checks look at gradients."""
        return self.group.endswith("backward")

    def multiples(self, description: Description) -> tuple[int, int]:
        """The multiples (q, kv) that block sizes must have."""
        return description.kernel_block_multiples

    def may(self, feature: str) -> Choice:
        """Whether problems have a feature always, never, or any of both."""
        if feature in self.needs:
            return "always"
        return "any" if feature in self.allows else "never"

    def contains(self, problem: Problem) -> bool:
        """Whether a problem belongs to the domain."""
        return (
            self.needs <= features_of(problem, self.about) <= self.needs | self.allows | self.free
            and (not self.regimes or problem.regime in self.regimes)
            and (self.where is None or self.where(problem))
        )

    def contains_simplified(self, problem: Problem) -> bool:
        """Whether a problem belongs to the domain if few values count as any, and a level as one with noise.

        What holds for numbers of any kind holds for few values; where arrays do not matter, they are no simpler.
        """
        regime = problem.regime.removeprefix(BARE)
        if regime in SIMPLE:
            if "signed" not in self.regimes:
                return False
            regime = "signed"
        return self.contains(problem.but(regime=regime))

    def possible(self, description: Description) -> bool:
        """Whether an implementation declares what all problems of the domain need."""
        return description.offers(*declared_for(self.needs))

    def accepts(self, problem: Problem, description: Description) -> bool:
        """Whether an implementation declares what a problem needs, and has kernels for its block sizes."""
        q, kv = self.multiples(description)
        sizes: dict[str, Any] = vars(problem.blocks)
        return description.offers(*declared_for(features_of(problem, self.required))) and not any(
            size % (q if name.startswith("q") else kv) for name, size in sizes.items() if size
        )
