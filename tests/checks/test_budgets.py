"""Comparison: places, explanations, caches, and what it accepts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.adapter import Forward, Inputs
from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter, validated
from conformance.checks import budgets as lib
from conformance.checks.comparison import (
    compare,
    element,
    forward_matches,
    gradients_match,
    same_bits,
)
from conformance.checks.registry import Violation
from conformance.contract.fence import Subject
from conformance.findings.observation import AsIf, Value
from conformance.findings.text import place_text
from conformance.problem import BlockSizes, Problem
from conformance.problems.arrays import inputs
from reference.attention import attend
from reference.error_budget import FLOAT32
from reference.masks import Causal, Dense, Full, Mask

PROBLEM = Problem(
    16, 24, (Full(),), BlockSizes(8, 8), heads=2, kv_heads=2, head_dim=64, head_dim_v=64
)


class Wrong(ReferenceAdapter):
    """The reference with another mask, or with a changed output."""

    def __init__(self, mask: np.ndarray | None = None, change: Any = None) -> None:
        self.mask, self.change = mask, change

    def prepare(self, problem: Problem) -> PreparedReference:
        if self.mask is not None:
            problem = problem.but(masks=(Dense(self.mask),))
        change = self.change

        class Changed(PreparedReference):
            def forward(self, inputs: Inputs, **more: Any) -> Forward:
                found = super().forward(inputs, **more)
                if change is None:
                    return found
                output = np.array(found.output)
                change(output)
                return replace(found, output=output)

        return Changed(validated(problem))


def subject(**wrong: Any) -> Subject:
    adapter = Wrong(**wrong)
    return Subject(adapter, adapter.describe())


def message(problem: Problem, **wrong: Any) -> Violation:
    with pytest.raises(Violation) as found:
        forward_matches(subject(**wrong), problem)
    return found.value


def explained(wrong: Violation) -> AsIf | None:
    assert isinstance(wrong.observation, Value)
    return wrong.observation.as_if


def test_the_reference_matches() -> None:
    forward_matches(subject(), PROBLEM, residuals=True)
    gradients_match(subject(), PROBLEM)


def test_non_finite_comes_first_in_both_directions() -> None:
    def spoil(output: np.ndarray) -> None:
        output[0, 3, 5] = 1e6
        output[1, 9, 2] = np.nan

    wrong = message(PROBLEM, change=spoil)
    assert wrong.where == "output[head 1, row 9 (q block 1), 2]"
    assert wrong.actual == "nan"
    assert wrong.differing == (2, 2 * 16 * 64)
    exact = np.full((2, 16), -np.inf)
    with pytest.raises(Violation, match="expected -inf within 0, got 0"):
        compare("logsumexp", np.zeros((2, 16)), exact, np.zeros((2, 16)), PROBLEM)


def test_the_largest_excess_is_named() -> None:
    def spoil(output: np.ndarray) -> None:
        output[0, 1, 0] += 0.5
        output[0, 8, 7] += 500.0

    wrong = message(PROBLEM, change=spoil)
    assert wrong.where.startswith("output[head 0, row 8 (q block 1), 7]")
    assert "off by 500, " in wrong.actual
    assert "times the budget" in wrong.actual


@pytest.mark.parametrize(
    ("change", "as_if"),
    [
        ((slice(None), slice(8, 16), False), AsIf("lacked", "kv block", 1)),
        ((slice(None), slice(13, 14), False), AsIf("lacked", "key", 13)),
    ],
)
def test_missing_keys_are_named(change: tuple[slice, slice, bool], as_if: AsIf) -> None:
    mask = np.ones((16, 24), dtype=bool)
    mask[change[:2]] = change[2]
    assert explained(message(PROBLEM.but(regime="flat"), mask=mask)) == as_if


def test_leaked_keys_are_named() -> None:
    problem = PROBLEM.but(masks=(Causal(),), regime="flat")
    shown = Mask(Causal(), 16, 24).dense()
    block, key = shown.copy(), shown.copy()
    block[:, 16:] = True
    key[:, 20] = True
    assert explained(message(problem, mask=block)) == AsIf("had the hidden", "kv block", 2)
    wrong = message(problem, mask=key)
    assert explained(wrong) == AsIf("had the hidden", "key", 20)
    assert wrong.actual.endswith("as if the row had the hidden key 20")


def test_an_error_that_no_key_explains_is_not_explained() -> None:
    def spoil(output: np.ndarray) -> None:
        output[0, 1] = np.arange(64)

    assert explained(message(PROBLEM, change=spoil)) is None


def test_rows_restrict_the_comparison() -> None:
    def spoil(output: np.ndarray) -> None:
        output[:, 3] = np.nan

    rows = np.ones((2, 16), dtype=bool)
    rows[:, 3] = False
    forward_matches(subject(change=spoil), PROBLEM, rows=rows)
    with pytest.raises(Violation):
        forward_matches(subject(change=spoil), PROBLEM, rows=~rows)


def test_another_shape_is_a_violation() -> None:
    exact = np.zeros((2, 16, 64))
    with pytest.raises(Violation, match=r"shape of output: expected \(2, 16, 64\), got \(2, 16\)"):
        compare("output", np.zeros((2, 16)), exact, exact, PROBLEM)


def test_same_bits() -> None:
    a = np.array([[1.0, np.nan], [np.inf, 0.0]])
    same_bits("logsumexp", a, a.copy(), PROBLEM)
    b = a.copy()
    b[1, 1] = 1e-30
    with pytest.raises(Violation, match=r"logsumexp\[head 1, row 1 \(q block 0\)\]"):
        same_bits("logsumexp", b, a, PROBLEM)


def test_places_of_gradients_count_their_own_blocks() -> None:
    problem = PROBLEM.but(blocks=BlockSizes(8, 8, kv_dkv=24, q_dq=4))
    assert place_text(element("dk", (1, 9, 0), problem)) == "dk[kv head 1, key 9 (kv block 0), 0]"
    assert place_text(element("dq", (1, 9, 0), problem)) == "dq[head 1, row 9 (q block 2), 0]"
    assert place_text(element("dsinks", (1,), problem)) == "dsinks[head 1]"


def test_block_sizes_and_options_share_the_exact_result() -> None:
    other = PROBLEM.but(
        blocks=BlockSizes(16, 8), options=(("order", "reversed"),), shrink=False, layout="grid"
    )
    assert lib.core(PROBLEM) == lib.core(other)
    one, two = (lib.exact_forward(subject(), p) for p in (PROBLEM, other))
    assert one is two


def test_rescales_count_blocks_of_every_direction_and_steps() -> None:
    assert lib.rescales(PROBLEM) == 3
    assert lib.rescales(PROBLEM.but(blocks=BlockSizes(8, 24, kv_compute=4))) == 6
    assert lib.rescales(PROBLEM.but(blocks=BlockSizes(8, 24, q_dkv=2))) == 8
    assert lib.rescales(PROBLEM.but(kv_len=32, ring=2)) == 6


def test_parts_combine_within_their_budget_and_no_other_way() -> None:
    problem = PROBLEM.but(regime="rising")
    left = np.zeros((16, 24), dtype=bool)
    left[:, :8] = True
    parts = [problem.but(masks=(Dense(m),)) for m in (left, ~left)]
    run = subject()
    found = [run.forward(part, residuals=True) for part in parts]
    exacts = [lib.exact_forward(run, part) for part in parts]
    whole = lib.exact_forward(run, problem)
    output, budget = lib.combined_parts(found, exacts, whole)
    compare("output", output, whole.output, budget, problem)
    assert budget.max() < 1e-3
    wrong = [replace(part, logsumexp=np.asarray(part.logsumexp) / np.log(2)) for part in found]
    output, _ = lib.combined_parts(wrong, exacts, whole)
    with pytest.raises(Violation):
        compare("output", output, whole.output, budget, problem)


def test_equal_logits_have_the_budget_of_logits_zero() -> None:
    run, problem = subject(), PROBLEM.but(regime="sentinel")
    made = inputs(problem)
    right = attend(made.q, made.k, made.v, np.ones((1, 16, 24), dtype=bool)).output
    level = lib.shift_equivalent(run, problem)
    assert np.array_equal(right, level.output)
    assert level.budget.output.max() < 1e-4 < lib.exact_forward(run, problem).budget.output.max()


def test_arithmetic_follows_the_options_of_the_problem() -> None:
    run = subject()
    assert lib.arithmetic_of(run, PROBLEM).forward == FLOAT32
    assert lib.arithmetic_of(run, PROBLEM.but(options=(("exponent", "base2"),))).forward.base2
