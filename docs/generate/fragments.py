"""Generated parts of pages that people write: ``<!-- generated: NAME -->`` stands where one goes."""

from __future__ import annotations

import re
from collections.abc import Callable

from conformance.checks.registry import CHECKS
from conformance.mutants import MUTANTS
from docs.generate import (
    api,
    arrays,
    budgets,
    chapters,
    checks,
    command_line,
    findings,
    rooms,
    tables,
)
from spec import all_clauses

#: What makes a part, by name.
FRAGMENTS: dict[str, Callable[[], str]] = {
    "all-modules": api.all_modules,
    "arrays-flat": arrays.flat,
    "arrays-grid": arrays.grid,
    "arrays-mask": arrays.mask,
    "arrays-shrunk": arrays.shrunk,
    "arrays-stored": arrays.stored,
    "budgets": budgets.table,
    "check-count": lambda: str(len(CHECKS)),
    "clause-count": lambda: str(len(all_clauses())),
    "clauses": chapters.clauses,
    "commands": command_line.page,
    "feature-profiles": tables.feature_profiles,
    "features": tables.features,
    "findings-jax": lambda: findings.page("jax"),
    "findings-tokamax": lambda: findings.page("tokamax"),
    "modules": api.modules,
    "mutant-count": lambda: str(len(MUTANTS)),
    "mutants": checks.mutants,
    "regimes": tables.regimes,
    "rooms": rooms.picture,
    "search-profiles": tables.search_profiles,
    "traceability": checks.traceability,
}

_PLACE = re.compile(r"<!-- generated: ([\w-]+) -->")


def filled(markdown: str) -> str:
    """A page with its generated parts.

    Raises:
      KeyError: a part that nothing makes.
    """
    return _PLACE.sub(lambda match: FRAGMENTS[match[1]](), markdown)
