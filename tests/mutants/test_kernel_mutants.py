"""Every mistake in the Pallas kernels is noticed by the clause that it names, in the quick profile."""

from __future__ import annotations

import sys
from functools import cache

import pytest

from conformance.adapters.pallas_impl.adapter import make
from conformance.checks.registry import Check
from conformance.contract.fence import Subject
from conformance.mutants import Mutant, load_all
from conformance.mutants import edited_kernels as pallas_impl_edited
from conformance.mutants.base import adapter_of
from conformance.mutants.edited_kernels import SourceEdit, edited, edited_source
from conformance.mutants.kernels import PREFIX
from conformance.mutants.kill import checks_of, subject_of
from conformance.problem import Problem
from conformance.search.effort import PROFILES
from conformance.search.search import evaluate

KERNELS = {name: mutant for name, mutant in load_all().items() if mutant.kind == "kernel"}
QUICK = PROFILES["quick"]


@cache
def original() -> Subject:
    """The kernels as they are; problems of different mutants share what is compiled for them."""
    return subject_of(make())


def problems(mutant: Mutant, subject: Subject) -> list[tuple[Check, Problem]]:
    """The problem that a mutant names, if the checks of its clause try it in the quick profile."""
    return [
        (check, problem)
        for check in checks_of(mutant)
        if not check.missing(subject)
        for item, problem in check.domain.vectors(subject.description, QUICK.variants)
        if item.name == mutant.vector and set(mutant.options) <= set(problem.options)
    ]


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_mutant_is_killed_by_its_clause(name: str) -> None:
    mutant = KERNELS[name]
    subject = subject_of(adapter_of(mutant))
    tried = problems(mutant, subject)
    assert tried, f"no check of {mutant.clause} tries {mutant.vector}"
    found = (evaluate(check, subject, problem) for check, problem in tried)
    wrong = next((item for item in found if item is not None and item.kind != "quality"), None)
    assert wrong is not None, f"{mutant.clause} does not notice {name}"
    assert wrong.kind == "value", wrong.actual


@pytest.mark.deep
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_pass_where_a_mutant_is_killed(name: str) -> None:
    for check, problem in problems(KERNELS[name], original()):
        right = evaluate(check, original(), problem)
        assert right is None or right.kind == "quality"


def test_kernel_mutants_are_listed_as_such() -> None:
    assert len(KERNELS) >= 25
    for name, mutant in load_all().items():
        assert name.startswith(PREFIX) == (mutant.kind == "kernel"), name


def test_a_text_that_is_not_found_once_is_an_error() -> None:
    assert edited_source("a b c", [SourceEdit("m", "b", "d"), SourceEdit("m", "d c", "e")]) == "a e"
    for text, count in (("x", 0), ("a", 2)):
        with pytest.raises(ValueError, match=rf"m\.py: .* found {count} times: '{text}'"):
            edited_source("a a", [SourceEdit("m", text, "y")])
    with pytest.raises(ValueError, match=r"pallas_impl/forward\.py: .* found 0 times"):
        edited("mine", [SourceEdit("forward", "no such text", "")])
    with pytest.raises(ValueError, match=r"no such modules of pallas_impl: pallas_impl\.nothing"):
        edited("mine", [SourceEdit("nothing", "a", "b")])


def test_a_copy_leaves_the_package_alone() -> None:
    import pallas_impl
    from conformance.adapters import pallas_impl as adapters
    from pallas_impl import config

    before = {n: m for n, m in sys.modules.items() if pallas_impl_edited.is_copied(n)}
    attributes = dict(vars(adapters))
    finders = list(sys.meta_path)
    copy = edited("mine", [SourceEdit("config", "MASK_VALUE =", "CHANGED = 1\nMASK_VALUE =")])
    with pytest.raises(ValueError, match="found 0 times"):
        edited("mine", [SourceEdit("config", "no such text", "")])
    assert {n: m for n, m in sys.modules.items() if pallas_impl_edited.is_copied(n)} == before
    assert dict(vars(adapters)) == attributes
    assert sys.meta_path == finders
    assert sys.modules["pallas_impl"] is pallas_impl
    assert not hasattr(config, "CHANGED")
    assert copy.describe().name == "mine"
    assert copy.describe().features == make().describe().features


def test_a_copy_without_edits_passes_what_its_original_passes() -> None:
    subject = subject_of(edited("mine", []))
    mutant = KERNELS[f"{PREFIX}fwd-label-1-unmasked"]
    for check, problem in problems(mutant, subject):
        assert evaluate(check, subject, problem) is None
