"""The same seed tries the same problems, whatever else is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from hypothesis import strategies as st

from conformance import checks
from conformance.adapter import Description
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS
from conformance.contract.fence import Subject
from conformance.drawing import constants
from conformance.drawing.mask_domain import MaskDomain
from conformance.problem import BlockSizes, Problem
from conformance.search.effort import PROFILES
from conformance.search.search import Search, hypothesis_settings
from reference.masks import Causal

checks.load_all()
#: Unlikely to be drawn by chance.
NUMBERS = set(range(41041, 41061))
PROBLEM = Problem(4, 4, (Causal(),), BlockSizes(2, 2))


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """A module of this project as Hypothesis sees it, with numbers in its source."""
    path = tmp_path / "numbers_of_mine.py"
    path.write_text(f"NUMBERS = {sorted(NUMBERS)}\n")
    spec = importlib.util.spec_from_file_location("numbers_of_mine", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield made
    sys.modules.pop("numbers_of_mine", None)


class AnySeed(MaskDomain):
    """One problem, with arrays of any seed."""

    def strategy(self, description: Description) -> st.SearchStrategy[Problem]:
        return st.integers(0, 10**6).map(lambda seed: replace(PROBLEM, seed=seed))


def tried() -> list[str]:
    """The problems of a search, by their keys."""
    adapter = ReferenceAdapter()
    check = replace(CHECKS["check_partial_blocks"], domain=AnySeed())
    subject = Subject(adapter, adapter.describe())
    search = Search(check, subject, PROFILES["deep"], (), None)
    search.hunt("value", seed=3)
    return list(search.seen)


def test_imports_do_not_change_the_problems(module: ModuleType) -> None:
    before = tried()
    assert len(before) > 100
    sys.modules["numbers_of_mine"] = module
    assert tried() == before


def drawn(*modules: ModuleType) -> set[int]:
    numbers: set[int] = set()

    @hypothesis.given(st.integers(0, 10**6))
    def test(number: int) -> None:
        numbers.add(number)

    with constants.only_of(*modules):
        hypothesis_settings(300)(hypothesis.seed(1)(test))()
    return numbers


def test_numbers_of_a_named_module_are_drawn(module: ModuleType) -> None:
    assert NUMBERS & drawn(module)
    assert not NUMBERS & drawn()
