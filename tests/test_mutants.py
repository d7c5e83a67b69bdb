"""Every mutant is noticed by the check of the clause that it names."""

from __future__ import annotations

from typing import Any

import pytest

from conformance import checks
from conformance.adapters.reference import ReferenceAdapter
from conformance.judge import CHECKS
from conformance.mutants import Mutant, MutantAdapter, load_all
from conformance.search import PROFILES, run_check
from conformance.subject import Subject
from conformance.verdict import Outcome
from spec import all_clauses

checks.load_all()
MUTANTS = load_all()
SEEDS: list[Any] = [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2, 3, 7))]


def outcomes(adapter: ReferenceAdapter, clause: str, seed: int) -> list[Outcome]:
    subject = Subject(adapter, adapter.describe())
    mine = [check for check in CHECKS.values() if check.clause_id == clause]
    return [run_check(check, subject, PROFILES["quick"], seed) for check in mine]


def worst_ratio(found: list[Outcome]) -> float:
    return max((f.ratio for o in found for f in o.findings if f.kind == "quality"), default=1.0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_killed_by_its_clause(name: str, seed: int) -> None:
    mutant = MUTANTS[name]
    found = outcomes(MutantAdapter(mutant), mutant.clause, seed)
    if mutant.quality:
        unchanged = MutantAdapter(Mutant("unchanged", mutant.clause, "none"))
        assert worst_ratio(found) > worst_ratio(outcomes(unchanged, mutant.clause, seed))
        return
    assert any(o.status == "violates" for o in found), f"{mutant.clause} does not notice {name}"
    for outcome in found:
        for finding in outcome.of_kind("value", "crash"):
            assert finding.check == outcome.check


def test_mutants_name_existing_clauses_and_a_class() -> None:
    for mutant in MUTANTS.values():
        assert mutant.clause in all_clauses()
        assert mutant.bug_class
