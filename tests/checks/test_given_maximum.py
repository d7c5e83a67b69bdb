"""Nothing is promised of logits that are far from a maximum which an option gives (UNDEF-10)."""

from __future__ import annotations

import pytest

from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.given_maximum import may_be_far
from conformance.checks.registry import CHECKS, Violation
from conformance.contract.fence import Subject
from conformance.drawing.numeric_vectors import VECTORS
from conformance.problem import Problem
from conformance.search.search import evaluate

GIVEN = (("maximum", 10.0),)


@pytest.fixture(scope="module")
def subject() -> Subject:
    adapter = ReferenceAdapter()
    return Subject(adapter, adapter.describe())


def vector(subject: Subject, name: str) -> Problem:
    return next(item for item in VECTORS if item.name == name).build(subject.description)


@pytest.mark.parametrize(
    ("name", "options", "far"),
    [
        ("plain-low", GIVEN, True),
        ("plain-low", (), False),
        ("plain-causal-signed", GIVEN, False),
        ("sinks-large", GIVEN, True),
        ("sinks", GIVEN, False),
    ],
)
def test_what_may_be_far(
    subject: Subject, name: str, options: tuple[tuple[str, float], ...], far: bool
) -> None:
    assert may_be_far(subject, vector(subject, name).but(options=options)) == far


def test_no_check_judges_it(subject: Subject) -> None:
    checks.load_all()
    check, huge = CHECKS["check_huge_logits"], vector(subject, "huge").but(options=GIVEN)
    with pytest.raises(Violation):
        check.function(subject, huge)
    assert evaluate(check, subject, huge) is None
