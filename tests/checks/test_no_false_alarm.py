"""Correct implementations pass every numerical check, whatever the seed.

Variants of the reference compute the same in another way: in blocks of half the size, in another order of blocks, with
powers of two, with sums in any order. One test tries the fixed problems, the others what seeds draw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance import checks
from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter, validated
from conformance.checks.registry import CHECKS, Check
from conformance.contract.fence import Subject
from conformance.contract.protocol import Description, Edit, Gradients
from conformance.drawing.mask_domain import MaskDomain
from conformance.drawing.numeric_domain import NumericDomain
from conformance.problem import BlockSizes, Problem
from conformance.problems.inputs import Inputs
from conformance.search.search import PROFILES, Profile, run_check
from reference.error_budget import ArithmeticProfile
from reference.mask_info import Direction
from reference.online import OnlineResult, Program, reordered
from reference.sharding import Shard
from reference.summation import MIXED, PAIRWISE, SUMMATIONS, Summation, summation_order

checks.load_all()
NUMERIC = [check for check in CHECKS.values() if check.domain.regimes]
SEEDS = range(10)
#: Problems a check draws for a seed.
DRAWN = replace(PROFILES["quick"], broad_examples=4, numeric_examples=1)


class HalfBlocks(PreparedReference):
    """Computes in blocks of half the size in both directions."""

    def program(
        self,
        problem: Problem,
        direction: Direction,
        edit: Edit | None = None,
        shard: Shard = Shard(),  # noqa: B008
    ) -> Program:
        assert edit is None
        q, kv = problem.blocks.of(direction)
        halved = {"q": q // 2, "kv": kv // 2}
        if direction != "fwd":
            halved |= {f"q_{direction}": q // 2, f"kv_{direction}": kv // 2}
        return super().program(problem.but(blocks=BlockSizes(**halved)), direction, None, shard)


class Reversed(PreparedReference):
    """Visits the blocks of a row, or of a column, from the last to the first."""

    def program(
        self,
        problem: Problem,
        direction: Direction,
        edit: Edit | None = None,
        shard: Shard = Shard(),  # noqa: B008
    ) -> Program:
        return reordered(super().program(problem, direction, edit, shard), "reversed")


class PowersOfTwo(PreparedReference):
    """Works with powers of two."""

    def profile(self) -> ArithmeticProfile:
        return replace(super().profile(), base2=True)


def summed(forward: Summation, backward: Summation) -> type[PreparedReference]:
    """The reference with sums in other orders, whatever BLAS there is."""

    class Summed(PreparedReference):
        def run(self, inputs: Inputs, edit: Edit | None = None) -> OnlineResult:
            with summation_order(forward):
                return super().run(inputs, edit)

        def backward(self, *arguments: Any, **keywords: Any) -> Gradients:
            with summation_order(backward):
                return super().backward(*arguments, **keywords)

    return Summed


class Variant(ReferenceAdapter):
    def __init__(self, kind: type[PreparedReference]) -> None:
        self.kind = kind

    def describe(self) -> Description:
        description = super().describe()
        if self.kind is HalfBlocks:
            # Edited arrays are about blocks of the declared size.
            return replace(description, features=description.features - {"edit_mask_info"})
        return description

    def prepare(self, problem: Problem) -> PreparedReference:
        return self.kind(validated(problem))


def alarms(
    kind: type[PreparedReference], selected: list[Check], profile: Profile, seed: int
) -> list[str]:
    adapter = Variant(kind)
    subject = Subject(adapter, adapter.describe())
    outcomes = [run_check(check, subject, profile, seed) for check in selected]
    return [
        f"{outcome.clause}: {finding.problem.dumps()} {finding.where}: {finding.expected}, {finding.actual}"
        for outcome in outcomes
        for finding in outcome.of_kind("value", "crash")
    ]


@pytest.mark.parametrize("kind", [HalfBlocks, Reversed, PowersOfTwo, summed(MIXED, PAIRWISE)])
def test_correct_variants_pass_every_check(kind: type[PreparedReference]) -> None:
    assert alarms(kind, NUMERIC, PROFILES["quick"], 0) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [HalfBlocks, Reversed, PowersOfTwo])
def test_correct_variants_pass_what_other_seeds_draw(
    kind: type[PreparedReference], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for domain in (MaskDomain, NumericDomain):
        monkeypatch.setattr(domain, "vectors", lambda *arguments: iter(()))
    assert alarms(kind, NUMERIC, DRAWN, seed) == []


@pytest.mark.parametrize("number", range(len(SUMMATIONS)), ids=lambda n: SUMMATIONS[n].name)
def test_no_order_of_summation_raises_an_alarm(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for domain in (MaskDomain, NumericDomain):
        monkeypatch.setattr(domain, "vectors", lambda *arguments: iter(()))
    kind = summed(SUMMATIONS[number], SUMMATIONS[number - 1])
    assert alarms(kind, NUMERIC, replace(DRAWN, broad_examples=2), number) == []
