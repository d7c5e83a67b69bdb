"""Checks, the search and its verdicts, on implementations that are wrong on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance import checks
from conformance.adapter import Description
from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter
from conformance.checks.compiled_arrays import expected_labels
from conformance.checks.registry import (
    CHECKS,
    Measure,
    Violation,
    bad_argument,
    expect,
    expect_array,
    judges,
    reject,
)
from conformance.contract.fence import Crash, Subject
from conformance.drawing.mask_domain import MaskDomain
from conformance.findings.expectation import Equal
from conformance.findings.finding import Finding, Outcome
from conformance.findings.observation import Value
from conformance.findings.place import Place
from conformance.problem import BlockSizes, Problem
from conformance.search.known_deviations import Deviation
from conformance.search.search import PROFILES, evaluate, run_check
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Causal
from reference.sharding import Shard

checks.load_all()
SMALL = replace(PROFILES["quick"], examples=20, shrinks=60)
ANY = CHECKS["check_partial_blocks"]

Change = Callable[[GridMaskInfo, Problem], GridMaskInfo]


class Prepared(PreparedReference):
    """The reference, whose grid arrays are changed."""

    change: Change | None = None

    def mask_info(self, direction: Direction) -> Any:
        info = super().mask_info(direction)
        if self.change is None or not isinstance(info, GridMaskInfo):
            return info
        return self.change(info, self.problem)


class Wrong(ReferenceAdapter):
    """The reference with some features, and a mistake."""

    def __init__(self, change: Change | None = None, without: tuple[str, ...] = ()) -> None:
        self.change = change
        self.without = without
        self.prepared: list[str] = []

    def describe(self) -> Description:
        full = super().describe()
        return replace(full, name="wrong", features=full.features - {*self.without})

    def prepare(self, problem: Problem) -> PreparedReference:
        self.prepared.append(problem.key)
        made = Prepared(super().prepare(problem).problem)
        made.change = self.change
        return made

    def subject(self) -> Subject:
        return Subject(self, self.describe())


def third_head_is_wrong(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Partial blocks are called full, in problems of at least three heads and six blocks."""
    if problem.heads < 3 or np.prod(problem.grid()) < 6:
        return info
    return replace(info, block_mask=np.where(info.block_mask == 1, 2, info.block_mask))


def run(adapter: Wrong, name: str = "check_partial_blocks", seed: int = 0, **more: Any) -> Outcome:
    return run_check(CHECKS[name], adapter.subject(), more.pop("profile", SMALL), seed, **more)


def test_the_reference_conforms() -> None:
    outcome = run(Wrong())
    assert (outcome.status, outcome.findings, outcome.stale) == ("conforms", [], [])
    assert (outcome.clause, outcome.chapter) == ("LABEL-3", "03_labels")
    assert outcome.seconds > 0


def test_one_seed_one_search() -> None:
    tried = []
    for seed in (3, 3, 4):
        adapter = Wrong()
        run(adapter, seed=seed)
        tried.append(adapter.prepared)
    assert tried[0] == tried[1]
    assert tried[0] != tried[2]
    fixed = [a for a, b in zip(tried[0], tried[2], strict=False) if a == b]
    assert tried[0][: len(fixed)] == fixed  # fixed problems come first, whatever the seed


PROCESS = """
from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS
from conformance.search.search import PROFILES, run_check
from conformance.contract.fence import Subject

class Noting(ReferenceAdapter):
    def prepare(self, problem):
        print(problem.key)
        return super().prepare(problem)

checks.load_all()
run_check(CHECKS["check_full_blocks"], Subject(Noting(), Noting().describe()), PROFILES["quick"], 5)
"""


def test_one_seed_one_search_in_every_process() -> None:
    tried = [
        subprocess.run(
            [sys.executable, "-c", PROCESS],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert tried[0] == tried[1]
    assert len(set(tried[0].split())) > PROFILES["quick"].examples


def test_findings_are_shrunk_to_the_smallest_problem() -> None:
    outcome = run(Wrong(third_head_is_wrong), profile=PROFILES["quick"])
    assert outcome.status == "violates"
    (finding,) = outcome.findings
    problem = finding.problem
    assert finding.kind == "value"
    assert problem.heads == 3  # the least that shows the mistake
    assert np.prod(problem.grid()) == 6
    assert (problem.shards.q, problem.shards.head) == (1, 1)
    assert finding.where == "labels (fwd)"
    assert "1 of" in finding.detail or "differ" in finding.detail


def test_the_smallest_finding_is_the_one_that_is_reported() -> None:
    adapter = Wrong(third_head_is_wrong)
    sizes = []
    wrong = [
        Problem(8, 4 * n, (Causal(),), BlockSizes(2, 2), heads=h, kv_heads=h, shrink=False)
        for n in (2, 1)
        for h in (4, 3)
    ]
    for problem in wrong:
        found = evaluate(ANY, adapter.subject(), problem)
        assert found is not None
        sizes.append(found.size)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0][:2] == (16, 4)


def two_mistakes(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    """Raises with q shards, and calls full blocks empty elsewhere."""
    if problem.shards.q > 1:
        raise RuntimeError("no shards today")
    return replace(info, block_mask=np.where(info.block_mask == 1, 0, info.block_mask))


def test_crashes_and_wrong_values_are_both_reported() -> None:
    outcome = run(Wrong(two_mistakes))
    assert {f.kind for f in outcome.findings} == {"value", "crash"}
    crash = next(f for f in outcome.findings if f.kind == "crash")
    assert crash.where == "mask_info(fwd)"
    assert crash.signature == "RuntimeError in two_mistakes"
    assert crash.actual == "RuntimeError: no shards today"
    assert "two_mistakes" in crash.detail
    assert crash.problem.shards.q == 2


def bare(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    raise AssertionError


def leaving(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("change", "words"), [(bare, "a bare AssertionError"), (leaving, "SystemExit: 0")]
)
def test_any_exception_is_a_crash_of_the_implementation(change: Change, words: str) -> None:
    (finding,) = run(Wrong(change)).findings
    assert finding.kind == "crash"
    assert words in finding.actual
    assert finding.problem.grid() == (1, 1)


def interrupting(info: GridMaskInfo, problem: Problem) -> GridMaskInfo:
    raise KeyboardInterrupt


def test_an_interruption_is_not_a_crash_of_the_implementation() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Wrong(interrupting))


@pytest.mark.parametrize("change", [None, third_head_is_wrong, bare])
def test_the_budget_is_respected(change: Change | None) -> None:
    adapter = Wrong(change)
    outcome = run(adapter)
    fixed = run(Wrong(change), profile=replace(SMALL, examples=1, shrinks=0)).examples
    assert outcome.examples == len(set(adapter.prepared)) == len(adapter.prepared)
    assert outcome.examples <= fixed + 2 * (SMALL.examples + SMALL.shrinks)
    if change is None:
        assert fixed < outcome.examples <= fixed + SMALL.examples


def test_what_is_not_declared_is_not_applicable() -> None:
    adapter = Wrong(without=("shrink", "downcast"))
    outcome = run(adapter, "check_width")
    assert (outcome.status, outcome.reason) == ("n/a", "not declared: shrink")
    assert adapter.prepared == []
    assert run(adapter, "check_smallest_type").reason == "not declared: downcast"


def test_a_domain_without_problems_is_not_applicable() -> None:
    long = replace(ANY, domain=MaskDomain(only=("data-127",)))  # blocks of a single token
    adapter = Wrong()
    coarse = Subject(adapter, replace(adapter.describe(), info_block_multiples=(8, 128)))
    assert run_check(long, adapter.subject(), SMALL, 0).examples == 1
    every = replace(SMALL, variants=True)
    assert run_check(long, adapter.subject(), every, 0).examples == 4  # layouts × shrink options
    outcome = run_check(long, coarse, SMALL, 0)
    assert outcome.status == "n/a"
    assert outcome.reason == "no problem that the implementation can be given"
    sharded = replace(ANY, domain=MaskDomain({"shards:q"}))
    assert run_check(sharded, Wrong(without=("shards:q",)).subject(), SMALL, 0).status == "n/a"


def measured(subject: Subject, problem: Problem) -> Measure | None:
    """Twice the best at three blocks or more."""
    blocks = int(np.prod(problem.grid()))
    return Measure(
        2.0 * blocks if blocks > 2 else float(blocks), float(blocks), Place(f"{blocks} blocks")
    )


def test_figures_never_fail() -> None:
    outcome = run_check(replace(ANY, function=measured), Wrong().subject(), SMALL, 0)
    assert outcome.status == "conforms"
    (finding,) = outcome.findings
    assert (finding.kind, finding.ratio) == ("quality", 2.0)
    assert finding.actual.endswith("(2.00 times the minimum)")
    assert np.prod(finding.problem.grid()) == 3  # the smallest of the worst


def test_ratios_of_measures() -> None:
    x = Place("x")
    assert [Measure(*pair, x).ratio for pair in ((6, 3), (3, 3), (0, 0), (2, 0))] == [2, 1, 1, 3]


KNOWN = Deviation("known", ("LABEL-3",), "value", (), ("1", "1"), "known for long")


def test_known_deviations_do_not_hide_others() -> None:
    adapter = Wrong(two_mistakes)
    outcome = run(adapter, deviations=[KNOWN])
    assert outcome.status == "violates"  # the crash is not known
    assert {(f.kind, f.deviation) for f in outcome.findings} == {("value", "known"), ("crash", "")}
    crash = replace(KNOWN, id="shards", kind="crash", when=("shards:q",))
    assert run(adapter, deviations=[KNOWN, crash]).status == "known deviation"
    elsewhere = replace(KNOWN, clauses=("LABEL-1",))
    assert run(adapter, deviations=[elsewhere, crash]).status == "violates"


def test_deviations_whose_proof_no_longer_fails_are_stale() -> None:
    proof = replace(KNOWN, vector="causal", proof="check_partial_blocks")
    assert run(Wrong(two_mistakes), deviations=[proof]).stale == []
    assert run(Wrong(), deviations=[proof]).stale == ["known"]
    assert run(Wrong(), deviations=[replace(proof, proof="check_full_blocks")]).stale == []
    assert run(Wrong(), deviations=[KNOWN]).stale == []


def test_outcomes_survive_json() -> None:
    outcome = run(Wrong(two_mistakes), deviations=[KNOWN])
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert [f.kind for f in outcome.of_kind("value", "crash")] == ["crash"]


def test_expectations_of_arrays_say_where() -> None:
    big = np.zeros((10, 10), dtype=np.int32)
    other = big.copy()
    other[3, 4], other[9, 9] = 7, 1
    with pytest.raises(Violation) as wrong:
        expect_array(Place("labels"), big, other)
    assert (wrong.value.where, wrong.value.expected, wrong.value.actual) == (
        "labels[3, 4]",
        "0",
        "7",
    )
    assert wrong.value.differing == (2, 100)
    with pytest.raises(Violation, match=r"shape of labels: expected \(10, 10\), got \(2, 2\)"):
        expect_array(Place("labels"), big, big[:2, :2])
    with pytest.raises(Violation, match="labels: expected"):
        expect_array(Place("labels"), big[0, :2], other[9, 8:])
    expect_array(Place("labels"), big, big.astype(np.int8))
    expect("width", 3, 3)
    with pytest.raises(Violation, match="width: expected 3, got 4"):
        expect("width", 3, 4)


def test_rejections_need_an_error_that_names_the_argument() -> None:
    def refuse(message: str) -> Callable[[], object]:
        def call() -> object:
            raise ValueError(message)

        return call

    reject(bad_argument("block_q", block_q=3), ("block_q",), refuse("BLOCK_Q must divide"))
    with pytest.raises(Violation, match="names block_q or bq, got ValueError: wrong shape"):
        reject(bad_argument("block_q", block_q=3), ("block_q", "bq"), refuse("wrong shape"))
    with pytest.raises(Violation, match="got a bare ValueError"):
        reject(bad_argument("block_q", block_q=3), ("block_q",), refuse(""))
    with pytest.raises(Violation, match="got no error, but a int"):
        reject(bad_argument("block_q", block_q=3), ("block_q",), lambda: 3)


def test_checks_are_registered_once_for_existing_clauses() -> None:
    with pytest.raises(KeyError, match="NOPE-1"):
        judges("NOPE-1")

    def check_partial_blocks(subject: Subject, problem: Problem) -> None:
        """Has the name of another check."""

    with pytest.raises(ValueError, match="two checks are called check_partial_blocks"):
        judges("LABEL-3")(check_partial_blocks)
    assert CHECKS["check_partial_blocks"] is ANY


def test_results_and_crashes_are_kept() -> None:
    adapter = Wrong(bare)
    subject = adapter.subject()
    problem = Problem(4, 4, (Causal(),), BlockSizes(2, 2))
    for _ in range(3):
        with pytest.raises(Crash, match=r"mask_info\(fwd\) raised a bare AssertionError"):
            subject.mask_info(problem, "fwd")
    assert adapter.prepared == [problem.key]
    subject.fresh(problem)
    assert len(adapter.prepared) == 2


def test_expected_labels_follow_shards() -> None:
    problem = Problem(8, 8, (Causal(),), BlockSizes(2, 2), heads=2, kv_heads=2)
    sharded = problem.but(shards=replace(problem.shards, q=2))
    assert (
        expected_labels(sharded, "fwd", Shard(q=1)).tolist() == [[[2, 2, 1, 0], [2, 2, 2, 1]]] * 2
    )


def test_findings_order_by_blocks_then_heads_then_shards() -> None:
    def size(problem: Problem) -> tuple[int, ...]:
        return Finding("LABEL-3", ANY.name, "value", problem, Place(""), Equal(0), Value(1)).size

    small = Problem(4, 4, (Causal(),), BlockSizes(2, 2))
    heads = small.but(heads=2, kv_heads=2)
    wide = small.but(kv_len=6)
    shards = small.but(shards=replace(small.shards, q=2))
    assert size(small) < size(shards) < size(heads) < size(wide)


def test_a_known_deviation_hides_nothing_that_its_options_avoid() -> None:
    tried = []

    def check_two_mistakes(subject: Subject, problem: Problem) -> None:
        del subject
        tried.append(problem)
        expect("what is known", "avoided", "" if problem.option("mode") != 1 else "avoided")
        expect("what is not", 1, problem.heads)

    known = Deviation("known", ("*",), "value", (), ("1", "1"), "…", avoid=(("mode", 1),))
    check = replace(ANY, function=check_two_mistakes)
    outcome = run_check(check, Wrong().subject(), SMALL, 0, [known])
    assert outcome.status == "violates"
    places = {(finding.where, finding.deviation) for finding in outcome.findings}
    assert places == {("what is known", "known"), ("what is not", "")}
    assert sum(problem.option("mode") != 1 for problem in tried) == 1
    assert len(tried) > SMALL.examples
