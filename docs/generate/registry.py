"""What the specification, the reference, the checks and the mutants say about each other."""

from __future__ import annotations

import functools
from collections import defaultdict

from conformance import mutants
from conformance.checks.registry import CHECKS, Check
from conformance.commands import matrix
from conformance.mutants.base import Mutant
from spec import all_clauses
from spec.clauses import DEFINITIONS

matrix.load_everything()

#: An id of a clause in running text.
CLAUSE_ID = r"(?<![\w-])(?:{})-\d+(?![\w-])".format(
    "|".join(sorted({name.rsplit("-", 1)[0] for name in all_clauses()}, key=len, reverse=True))
)


@functools.cache
def clauses_defined_by() -> dict[str, tuple[str, ...]]:
    """Clauses by the dotted name of the reference object that executes them."""
    found: dict[str, list[str]] = defaultdict(list)
    for clause_id in all_clauses():
        for name in DEFINITIONS.get(clause_id, []):
            found[name].append(clause_id)
    return {name: tuple(ids) for name, ids in found.items()}


@functools.cache
def checks_by_path() -> dict[str, Check]:
    """Checks by their dotted names."""
    return {f"{check.module}.{check.name}": check for check in CHECKS.values()}


def checks_of(clause_id: str) -> list[Check]:
    """The checks that judge a clause."""
    return [check for check in CHECKS.values() if check.clause_id == clause_id]


def mutants_of(clause_id: str) -> list[Mutant]:
    """The mutants that violate a clause."""
    return [mutant for mutant in mutants.MUTANTS.values() if mutant.clause == clause_id]


def chapter_of(clause_id: str) -> str:
    """File stem of the chapter of a clause."""
    return all_clauses()[clause_id].chapter


def mutant_link(mutant: Mutant, folder: str) -> str:
    """A link to a mutant, from a page to which the pages of checks are in a folder."""
    return f"[{mutant.name}]({folder}mutants.md#mutant-{mutant.name})"
