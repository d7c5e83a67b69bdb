"""Mistakes in the computation: all the well-known ones are planted, and reports blame the right clause.

That every planted mistake is noticed by its clause is tested with the other mutants, in ``test_mutants.py``.
"""

from __future__ import annotations

import pytest

from conformance import checks
from conformance.checks.registry import CHECKS
from conformance.contract.fence import Subject
from conformance.findings.finding import Outcome
from conformance.mutants import MUTANTS, MutantAdapter, load_all
from conformance.search.search import PROFILES, run_check

checks.load_all()
load_all()

KNOWN_MISTAKES = {
    "missing rescale of the accumulator": ("accumulator-not-rescaled", "FWD-1"),
    "maximum started at 0": ("maximum-from-zero", "FWD-1"),
    "one key leaked past the causal edge": ("leaks-next-key", "FWD-2"),
    "wrong head map of grouped queries": ("interleaved-head-map", "FWD-3"),
    "segment ids compared with <=": ("segments-compared-in-order", "FWD-7"),
    "cap after mask": ("cap-after-mask", "FWD-8"),
    "sink added as a key": ("sink-as-key", "FWD-9"),
    "sum in bfloat16": ("bfloat16-accumulator", "NUM-2"),
    "logsumexp without the maximum": ("logsumexp-without-maximum", "RES-1"),
    "residual in powers of two": ("binary-residuals", "RES-4"),
    "dv accumulated twice": ("dv-twice", "BWD-1"),
    "dk without the last q block": ("dk-lacks-last-q-block", "BWD-4"),
    "sign of dsinks": ("dsinks-sign", "BWD-5"),
    "ring combined without rescaling": ("combine-without-rescaling", "RING-4"),
    "ring off by one shard": ("next-shard", "RING-2"),
    "empty shard contributes": ("empty-shard-contributes", "RING-6"),
}

#: Mistakes in a feature, and clauses about plain attention that they must not touch.
ELSEWHERE = {
    "interleaved-head-map": ("FWD-1", "FWD-4", "BWD-3"),
    "segments-compared-in-order": ("FWD-1", "BWD-3"),
    "segment-zero-is-padding": ("FWD-1", "BWD-3"),
    "cap-after-mask": ("FWD-1", "FWD-9", "BWD-3"),
    "sink-as-key": ("FWD-1", "FWD-8", "RES-1", "BWD-3"),
    "sink-is-maximum": ("FWD-1", "FWD-9"),
    "binary-residuals": ("FWD-1", "RES-1", "RES-10"),
    "narrow-values": ("FWD-1", "BWD-3"),
    "empty-rows-divide": ("FWD-1", "FWD-18", "BWD-3"),
    "sentinel-for-hidden": ("FWD-1", "FWD-2", "FWD-23"),
    "cap-without-slope": ("FWD-8", "BWD-3", "BWD-5"),
    "dk-lacks-last-q-block": ("FWD-1", "BWD-1"),
    "dv-twice": ("BWD-3", "BWD-4"),
    "empty-rows-uniform": ("BWD-3", "BWD-14"),
    "sink-capped": ("FWD-8", "FWD-9"),
    "next-shard": ("FWD-1", "BWD-3"),
    "units-mixed-in-ring": ("RING-1", "RING-4", "RES-5"),
}


def outcomes(mutant: str, clause: str) -> list[Outcome]:
    adapter = MutantAdapter(MUTANTS[mutant])
    subject = Subject(adapter, adapter.describe())
    mine = [check for check in CHECKS.values() if check.clause_id == clause]
    return [run_check(check, subject, PROFILES["quick"], 0) for check in mine]


@pytest.mark.parametrize("mistake", sorted(KNOWN_MISTAKES))
def test_known_mistake_is_planted_and_names_its_clause(mistake: str) -> None:
    name, clause = KNOWN_MISTAKES[mistake]
    assert MUTANTS[name].clause == clause
    assert any(outcome.status == "violates" for outcome in outcomes(name, clause))


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_a_mistake_is_not_blamed_on_what_it_does_not_touch(name: str) -> None:
    for clause in ELSEWHERE[name]:
        for outcome in outcomes(name, clause):
            assert outcome.status == "conforms", (clause, outcome.findings)


def test_a_report_names_the_key_that_leaks() -> None:
    (outcome,) = outcomes("leaks-next-key", "FWD-2")
    assert "as if the row had the hidden key" in outcome.findings[0].actual


def test_a_report_names_the_unwritten_block() -> None:
    (outcome,) = outcomes("empty-blocks-unwritten", "FWD-17")
    assert "(q block 0)" in outcome.findings[0].where
    assert outcome.findings[0].actual == "nan"
