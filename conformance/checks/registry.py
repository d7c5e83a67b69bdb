"""Checks, and how a check is run against an implementation until its verdict.

A check is a function ``(subject, problem) -> None | Measure`` that carries the id of the one clause it
judges and the space of problems it is about. It reports a violation by raising `Violation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.contract.fence import Subject, raised_by
from conformance.contract.remote.errors import Fatal, NotTried, Refused, is_refusal
from conformance.drawing.domain import Domain
from conformance.drawing.mask_domain import MaskDomain
from conformance.findings.expectation import Presence, Refusal
from conformance.findings.observation import Accepted
from conformance.findings.pictures import region
from conformance.findings.place import Place
from conformance.findings.values import MOST_ELEMENTS
from conformance.findings.violation import Violation as Violation
from conformance.problems.problem import Problem
from spec import Clause, clause


@dataclass(frozen=True)
class Measure:
    """A figure of a quality clause on one problem.

    Attributes:
      value: what was measured.
      best: the smallest value possible; 0 means that any excess counts.
      place: what is measured.
    """

    value: float
    best: float
    place: Place

    @property
    def ratio(self) -> float:
        """``value / best``; a best of 0 counts as 1 in both."""
        return self.value / self.best if self.best else 1.0 + self.value


CheckFunction = Callable[[Subject, Problem], Measure | None]


@dataclass(frozen=True)
class Check:
    """A registered check.

    Attributes:
      clause_id: the clause it judges.
      function: the check itself.
      domain: the problems it is about.
      features: what it needs beyond the features of the clause.
    """

    clause_id: str
    function: CheckFunction
    domain: Domain
    features: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.__name__

    @property
    def module(self) -> str:
        """Module that it stands in."""
        return self.function.__module__

    @property
    def clause(self) -> Clause:
        """The clause it judges."""
        return clause(self.clause_id)

    def missing(self, subject: Subject) -> list[str]:
        """Features that the check needs and the implementation does not declare."""
        needed = {*self.clause.features, *self.features}
        return sorted(needed - subject.description.features)


#: All checks by function name, in the order of their modules.
CHECKS: dict[str, Check] = {}


def judges(
    clause_id: str,
    domain: Domain | None = None,
    *,
    features: tuple[str, ...] = (),
) -> Callable[[CheckFunction], CheckFunction]:
    """Registers a check of one clause.

    Args:
      clause_id: an id of the specification.
      domain: the problems that the check is about; every mask that is known in advance if None.
      features: what the check needs beyond the features of the clause.

    Raises:
      KeyError: unknown id.
      ValueError: another check has the name already.
    """
    clause(clause_id)

    def register(function: CheckFunction) -> CheckFunction:
        name = function.__name__
        if name in CHECKS and CHECKS[name].module != function.__module__:
            raise ValueError(f"two checks are called {name}")
        CHECKS[name] = Check(clause_id, function, domain or MaskDomain(), features)
        return function

    return register


def expect(place: Place | str, expected: object, actual: object) -> None:
    """Raises `Violation` unless two plain values are equal."""
    if expected != actual:
        raise Violation(place, expected, actual)


def expect_presence(place: Place, present: bool, array: object) -> None:
    """Raises `Violation` unless an array is there, or is None, as it should."""
    if present != (array is not None):
        raise Violation(place, Presence(present), Presence(not present))


def expect_array(place: Place, expected: NDArray[Any], actual: object) -> None:
    """Raises `Violation` unless an array has the expected shape and values (any integer type)."""
    found = np.asarray(actual)
    if found.shape != expected.shape:
        raise Violation(place.of("shape"), expected.shape, found.shape)
    differs = np.asarray(found != expected)
    if not differs.any():
        return
    count, picture = (int(differs.sum()), differs.size), region(place.quantity, differs)
    if expected.size <= MOST_ELEMENTS and expected.dtype != np.bool_:
        wrong = Violation(place, expected, found, count, picture)
    else:
        first = tuple(np.argwhere(differs)[0])
        wrong = Violation(place.inside(*first), expected[first], found[first], count, picture)
    wrong.arrays = expected, found
    raise wrong


def reject(place: Place, names: tuple[str, ...], call: Callable[[], object]) -> None:
    """Raises `Violation` unless a call refuses its input with an error that names an argument.

    Args:
      place: what was wrong with the input, see `bad_argument`.
      names: words of which the message must contain one.
      call: the call that must raise.
    """
    result = result_unless_refused(place, names, call)
    if result is not None:
        raise Violation(place, Refusal(names), Accepted(type(result).__name__))


def bad_argument(name: str, **given: object) -> Place:
    """An argument that must be refused, and the values that were passed."""
    return Place(name, "argument").under(**given)


def result_unless_refused[T](
    place: Place, names: tuple[str, ...], call: Callable[[], T]
) -> T | None:
    """What a call returns, for input that may be refused.

    Args:
      place: what is special about the input.
      names: words of which the message of an error must contain one.
      call: the call, which does not return None.

    Returns:
      The result; None if the input was refused.

    Raises:
      Violation: an error whose message has none of the names.
      Refused: the implementation says that it does not offer something else.
    """
    try:
        return call()
    except (KeyboardInterrupt, MemoryError, NotTried, Violation):
        raise
    except BaseException as error:
        message = str(error).lower()
        ended = isinstance(error, Fatal)  # whatever its message says
        if not ended and any(name.lower() in message for name in names):
            return None
        if not ended and is_refusal(error):
            raise Refused(error) from error
        raise Violation(place, Refusal(names), raised_by(error)) from error
