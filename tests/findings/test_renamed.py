"""Every message in other words: verdicts, known deviations, smallest problems and scripts stay what they are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from conformance import checks
from conformance.bug_report.case import case_of
from conformance.bug_report.write import script
from conformance.checks.registry import CHECKS
from conformance.contract.fence import Subject
from conformance.findings import text
from conformance.findings.finding import Finding, Outcome
from conformance.mutants import MUTANTS, MutantAdapter, load_all
from conformance.search.effort import PROFILES
from conformance.search.known_deviations import Deviation, mark
from conformance.search.minimise.minimise import Minimiser
from conformance.search.search import evaluate, run_check
from docs.generate import findings as recorded

checks.load_all()
load_all()

#: What gives words to a finding.
WORDS = (
    "place_text", "value_text", "expectation_text", "observation_text", "presence_text", "count_text",
)  # fmt: skip
#: Mutants that are noticed by wrong labels, numbers, unwritten blocks and bad input that is accepted.
NAMES = (
    "partial-block-unmasked", "leaks-next-key", "dv-twice", "binary-residuals", "block-sizes-swapped",
)  # fmt: skip


def in_other_words(words: Callable[..., str], *given: Any) -> str:
    """A message in which every letter and every digit is another."""
    return "".join(chr(ord(letter) + 1) if letter.isalnum() else letter for letter in words(*given))


@pytest.fixture
def rename(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Gives every message other letters when it is called."""

    def patch() -> None:
        for name in WORDS:
            original = getattr(text, name)
            monkeypatch.setattr(text, name, partial(in_other_words, original))

    return patch


def data_of(finding: Finding) -> dict[str, Any]:
    """A finding without its words, of which ``detail`` is one."""
    words = ("where", "expected", "actual", "detail", "signature")
    data = {name: value for name, value in finding.to_json().items() if name not in words}
    return data | {"cause": finding.signature}


def subject_of(name: str) -> Subject:
    adapter = MutantAdapter(MUTANTS[name])
    return Subject(adapter, adapter.describe())


def check_of(name: str) -> str:
    clause = MUTANTS[name].clause
    return next(check.name for check in CHECKS.values() if check.clause_id == clause)


def failing(name: str) -> Iterator[Finding]:
    """The fixed problems that a mutant fails."""
    subject, check = subject_of(name), CHECKS[check_of(name)]
    for item, problem in check.domain.vectors(subject.description, False):
        found = evaluate(check, subject, problem, item.name)
        if found is not None:
            yield found


def judged(name: str) -> Outcome:
    """A search, with a known deviation that matches what it finds."""
    first = next(failing(name))
    known = Deviation(
        "known", (first.clause,), first.kind, (), ("1", "1"), "it was always so",
        place={"quantity": (first.place.quantity,)}, expectation={"kind": (first.expectation.kind,)},
        observation={"kind": (first.observation.kind,)},
    )  # fmt: skip
    few = replace(PROFILES["quick"], numeric_examples=2, heavy_examples=2, examples=5, shrinks=5)
    return run_check(CHECKS[check_of(name)], subject_of(name), few, 0, [known])


def without_words(code: str) -> str:
    """A script without its documentation and without the messages of its assertions; comments are no part of it."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            node.msg = None
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args = []
    return ast.dump(ast.Module(tree.body[1:], []))


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_and_smallest_problems_stay(name: str, rename: Callable[[], None]) -> None:
    before, subject = judged(name), subject_of(name)
    start = max(failing(name), key=lambda finding: finding.size)
    small = Minimiser(subject, tries=15).smallest(start)
    where = small.where
    rename()
    after = judged(name)
    assert before.findings
    assert (after.status, after.examples) == (before.status, before.examples)
    assert list(map(data_of, after.findings)) == list(map(data_of, before.findings))
    again = max(failing(name), key=lambda finding: finding.size)
    assert data_of(Minimiser(subject_of(name), tries=15).smallest(again)) == data_of(small)
    assert where != small.where  # the words are others


@pytest.mark.parametrize("name", NAMES)
def test_scripts_stay(name: str, rename: Callable[[], None]) -> None:
    codes = []
    for change in (lambda: None, rename):
        change()
        case = case_of(next(failing(name)), subject_of(name), "./mine.py:Mine", "")
        codes.append(script(case).text)
    assert codes[0] != codes[1]  # the words are others
    assert without_words(codes[0]) == without_words(codes[1])


@pytest.mark.parametrize("library", recorded.LIBRARIES)
def test_known_deviations_stay(library: str, rename: Callable[[], None]) -> None:
    known = recorded.deviations(library)
    rename()
    for item in known:
        finding = recorded.found(library, item)
        assert item.covers(finding, finding.problem)
        assert mark(replace(finding, deviation=""), finding.problem, [item]).deviation == item.id


def test_bad_input_is_the_same_in_other_words(rename: Callable[[], None]) -> None:
    """A refusal is told by its data, whatever it is called."""
    item = next(d for d in recorded.deviations("jax") if d.id == "soft-cap-not-checked")
    finding = recorded.found("jax", item)
    before = finding.where, finding.expected, finding.actual
    rename()
    assert all(
        new != old
        for new, old in zip((finding.where, finding.expected, finding.actual), before, strict=True)
    )
    assert item.covers(finding, finding.problem)
