"""Every clause has what its status asks for: a definition, a check, a mutant that the check kills."""

from __future__ import annotations

import pytest

from conformance.checks.registry import CHECKS
from conformance.commands import matrix
from spec.clauses import DEFINITIONS, Clause, SpecError, all_clauses, clause, defines, parse

matrix.load_everything()
CHECKABLE = [item for item in all_clauses().values() if item.is_checkable]


@pytest.mark.parametrize("item", CHECKABLE, ids=lambda item: item.id)
def test_clause_is_defined_judged_and_falsifiable(item: Clause) -> None:
    assert DEFINITIONS.get(item.id), f"{item.id}: no reference function defines it"
    assert matrix.checks_of(item.id), f"{item.id}: no check judges it"
    assert matrix.mutants_of(item.id), f"{item.id}: no mutant shows that its check can fail"


def test_every_check_is_documented_and_named_after_what_it_does() -> None:
    for check in CHECKS.values():
        assert check.function.__doc__, check.name
        assert check.name.startswith(("check_", "measure_")), check.name
        assert check.clause.is_checkable, check.name


def test_matrix_is_fresh() -> None:
    assert matrix.main(["--check"]) == 0


def test_unknown_ids_are_refused_where_they_are_written() -> None:
    with pytest.raises(KeyError, match="NOPE-1"):
        clause("NOPE-1")
    with pytest.raises(KeyError, match="NOPE-1"):
        defines("NOPE-1")


GOOD = "### T-1 — title\nstatus: required · kind: exact · since: 1\n\nOne sentence.\n"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (("### T-1 — title", "### T1 title"), "expected '### ID-1"),
        (("status: required", "status: wanted"), "unknown status"),
        (("kind: exact", "kind: vague"), "unknown kind"),
        (("since: 1", "since: one"), "whole number"),
        ((" · since: 1", ""), "'since' is missing"),
        (("One sentence.", ""), "no body"),
        (("kind: exact", "kind: untestable"), "gives its reason"),
        (("status: required", "status: required-if"), "names the features"),
    ],
)
def test_malformed_clauses_are_refused(spoil: tuple[str, str], message: str) -> None:
    assert parse(GOOD, "t")[0].sentence == "One sentence."
    with pytest.raises(SpecError, match=message):
        parse(GOOD.replace(*spoil), "t")
