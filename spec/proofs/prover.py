"""Lemmas, and how z3 proves or refutes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import z3

from spec import clause

#: Milliseconds before a lemma counts as undecided. All of them take well under a second.
TIMEOUT = 30_000


class Refuted(AssertionError):
    """A lemma is false; the message holds a counterexample."""


class Undecided(AssertionError):
    """z3 could neither prove nor refute a lemma in time."""


@dataclass(frozen=True)
class Lemma:
    """A statement that follows from assumptions.

    Attributes:
      name: what is stated, in words.
      goal: the statement.
      given: assumptions.
    """

    name: str
    goal: Any
    given: tuple[Any, ...] = ()


Proof = Callable[[], list[Lemma]]

#: Proofs by clause.
PROOFS: dict[str, list[Proof]] = {}


def proves(*clause_ids: str) -> Callable[[Proof], Proof]:
    """Ties a proof to the clauses that it proves.

    Raises:
      KeyError: an id is not in the specification.
    """

    def register(proof: Proof) -> Proof:
        for clause_id in clause_ids:
            clause(clause_id)
            PROOFS.setdefault(clause_id, []).append(proof)
        return proof

    return register


def check(lemma: Lemma) -> None:
    """Proves one lemma.

    Raises:
      Refuted: it is false.
      Undecided: z3 gave up.
    """
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT)
    solver.add(*lemma.given)
    solver.add(z3.Not(lemma.goal))
    answer = solver.check()
    if answer == z3.sat:
        raise Refuted(f"{lemma.name}: counterexample {solver.model()}")
    if answer != z3.unsat:
        raise Undecided(f"{lemma.name}: {solver.reason_unknown()}")


def consistent(lemma: Lemma) -> bool:
    """Whether the assumptions of a lemma can hold at all: nothing is proved from a contradiction."""
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT)
    solver.add(*lemma.given)
    return bool(solver.check() != z3.unsat)
