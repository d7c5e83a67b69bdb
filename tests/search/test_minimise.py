"""Minimising: problems become smaller, stay valid, and fail in the same way."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS, bad_argument
from conformance.contract.fence import Subject
from conformance.findings.finding import Finding
from conformance.findings.place import Place, ShardIndex
from conformance.mutants import MUTANTS, MutantAdapter, load_all
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Blocks, Random
from conformance.search import known_deviations as expectation
from conformance.search.minimise import minimise
from conformance.search.minimise.minimise import Minimiser, can_be_given, same_failure
from conformance.search.minimise.simpler_masks import complexity, crop, drawn, scale, simpler_masks
from conformance.search.minimise.simpler_problems import PASSES, is_whole, size
from conformance.search.search import evaluate
from conformance.strategies import Space, masks, problems
from reference.mask_info import Shards
from reference.masks import And, Causal, Dense, Expr, Full, Local, Mask
from tests.commands.command_line import ONE, Run

checks.load_all()
load_all()
FEW = settings(max_examples=80, deadline=None, database=None, derandomize=True)
SUBJECT = Subject(ReferenceAdapter(), ReferenceAdapter().describe())

kept = st.lists(st.booleans(), min_size=12, max_size=12).filter(any)


@FEW
@given(masks(12, 12, 4, 2), kept, kept)
def test_a_cropped_mask_has_the_values_of_its_rows_and_columns(
    expr: Expr, rows: list[bool], columns: list[bool]
) -> None:
    at = tuple(np.flatnonzero(chosen) for chosen in (rows, columns))
    dense = Mask(expr, 12, 12).dense()
    found = Mask(crop(expr, (12, 12), *at), len(at[0]), len(at[1]))
    assert np.array_equal(found.dense(), dense[at[0]][:, at[1]])


def test_cropped_masks_keep_their_kind_where_they_can() -> None:
    first, last = np.arange(4), np.arange(8, 12)
    blocks = Blocks(("20a", "022", "a2b"), 4, 4)
    assert crop(Causal(), (12, 12), first, first) == Causal()
    assert crop(Local(3, 1, 2), (12, 12), last, first) == Local(3, 1, 10)
    assert crop(Random(0.5), (12, 12), first, first) == Random(0.5)
    assert crop(blocks, (12, 12), last, np.arange(4, 12)) == Blocks(("2b",), 4, 4)
    assert crop(And(Causal(), blocks), (12, 12), first, first) == And(
        Causal(), Blocks(("2",), 4, 4)
    )


def test_masks_are_scaled_with_their_blocks() -> None:
    shape = (16, 8)
    assert scale(Causal(8), shape, 0.5, 0.5) == Causal(4)
    assert scale(Local(4, None, -8), shape, 0.25, 0.25) == Local(1, None, -2)
    assert scale(Blocks(("2a", "02"), 8, 4), shape, 0.5, 0.25) == Blocks(("2a", "02"), 4, 1)
    assert scale(Blocks(("2a", "02"), 8, 4), shape, 1, 0.125) is None
    dense = Dense(np.kron(np.array([[1, 0], [0, 1]]), np.ones((8, 4))).astype(bool))
    smaller = scale(dense, shape, 0.25, 0.5)
    assert isinstance(smaller, Dense)
    assert np.array_equal(smaller.array, np.kron(np.eye(2), np.ones((2, 2))).astype(bool))
    assert scale(And(Causal(4), Full()), shape, 0.5, 0.5) == And(Causal(2), Full())


@FEW
@given(masks(12, 8, 4, 2))
def test_simpler_masks_are_simpler(expr: Expr) -> None:
    for other in simpler_masks(expr, (12, 8), (4, 2)):
        assert complexity(other) < complexity(expr)
        Mask(other, 12, 8)


def test_a_drawing_looks_like_the_mask() -> None:
    dense = Blocks(("20a", "bcr"), 4, 2).dense()
    assert drawn(dense, 4, 2) == Blocks(("20a", "bca"), 4, 2)


@FEW
@given(
    problems(
        Space(per_head="any", dynamic=True, layouts=("grid", "flat"), kv_shards="any", grouped=True)
    )
)
def test_every_pass_offers_valid_problems_or_is_told_so(problem: Problem) -> None:
    for simplify in PASSES:
        for candidate in simplify(problem, SUBJECT.description):
            if is_whole(candidate):
                candidate.check()
                assert candidate.head_masks


def failing(name: str, check: str | None = None) -> tuple[Subject, Finding]:
    """A mutant, and a problem that it fails: of the largest fixed ones."""
    adapter = MutantAdapter(MUTANTS[name])
    subject = Subject(adapter, adapter.describe())
    names = [c.name for c in CHECKS.values() if c.clause_id == MUTANTS[name].clause]
    found = [
        one
        for item, problem in CHECKS[check or names[0]].domain.vectors(subject.description, True)
        if (one := evaluate(CHECKS[check or names[0]], subject, problem, item.name)) is not None
    ]
    return subject, max(found, key=lambda f: f.size)


#: Mutants, with what must be left of the problem.
SMALLEST: dict[str, dict[str, Any]] = {
    "partial-block-unmasked": {"grid": (1, 1), "heads": 1, "q_len": 1, "kv_len": 2},
    "second-head-has-first-mask": {"heads": 2, "kv_heads": 1},
    "interleaved-head-map": {"grid": (1, 1), "heads": 4, "kv_heads": 2, "masks": (Full(),)},
    "leaks-next-key": {"grid": (1, 1), "heads": 1, "segments": None},
    "maximum-from-zero": {"heads": 1, "kv_heads": 1},
    "dk-lacks-last-q-block": {"heads": 1},
    "segments-not-in-full-blocks": {"heads": 1, "masks": (Full(),)},
    "cap-after-mask": {"heads": 1, "grid": (1, 1)},
    "combine-without-rescaling": {"ring": 2, "heads": 1, "masks": (Full(),)},
}


@pytest.mark.parametrize("name", SMALLEST)
def test_mutants_fail_on_small_problems(name: str) -> None:
    subject, finding = failing(name)
    small = Minimiser(subject).smallest(finding)
    problem, before = (f.problem for f in (small, finding))
    assert size(problem) <= size(before)
    assert same_failure(small, finding)
    check = CHECKS[small.check]
    again = evaluate(check, subject, problem)
    assert again is not None
    assert (again.where, again.expected, again.actual) == (
        small.where,
        small.expected,
        small.actual,
    )
    assert can_be_given(problem, check, before, subject.description)
    wanted = SMALLEST[name]
    found = {key: problem.grid() if key == "grid" else getattr(problem, key) for key in wanted}
    assert found == wanted
    # What is right stays right on the smaller problem: nobody is accused by a wrong simplification.
    assert evaluate(check, SUBJECT, problem) is None


def test_every_simplification_of_a_numerical_problem_is_one_that_the_reference_passes() -> None:
    """Checks judge problems with simple arrays as they judge others: the reference never fails."""
    tried = 0
    for check in CHECKS.values():
        if check.domain.work not in ("numbers", "ring"):
            continue
        found = check.domain.vectors(SUBJECT.description, False)
        for _, problem in itertools.islice(found, 1):
            for regime in ("zeros", "counting", "few"):
                small = problem.but(regime=regime)
                if can_be_given(small, check, problem, SUBJECT.description):
                    wrong = evaluate(check, SUBJECT, small)
                    assert wrong is None or wrong.kind == "quality", (check.name, regime, wrong)
                    tried += 1
    assert tried > 100


def test_the_number_of_tries_is_a_limit_and_progress_is_told() -> None:
    subject, finding = failing("interleaved-head-map")
    told: list[tuple[int, tuple[int, ...]]] = []
    minimiser = Minimiser(subject, tries=3, tell=lambda n, f: told.append((n, size(f.problem))))
    minimiser.smallest(finding)
    assert minimiser.tried == 3
    assert [n for n, _ in told] == [1, 2, 3]
    assert [s for _, s in told] == sorted((s for _, s in told), reverse=True)


def test_an_interruption_keeps_the_smallest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, finding = failing("partial-block-unmasked")
    calls = 0

    def interrupted(*arguments: Any) -> Finding | None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(minimise, "evaluate", interrupted)
    small = Minimiser(subject).smallest(finding)
    assert calls == 4
    assert size(small.problem) < size(finding.problem)


def test_a_known_deviation_stays_the_same_one() -> None:
    """A failure that nobody knows must not turn into one that is known, nor the other way round."""

    class Crashing(ReferenceAdapter):
        def prepare(self, problem: Problem) -> Any:
            if problem.grid()[0] > 1 or problem.heads > 1:
                raise AssertionError
            return super().prepare(problem)

    subject = Subject(
        Crashing(), replace(ReferenceAdapter().describe(), name="jax", version="0.12.0.1")
    )
    known = expectation.load(subject.description)
    empty = Problem(4, 2, (Blocks(("0", "2"), 2, 2),), BlockSizes(2, 2), shards=Shards(q=2))
    other = empty.but(masks=(Full(),), heads=2, kv_heads=2)
    for problem, deviation in ((empty, "empty-shard"), (other, "")):
        minimiser = Minimiser(subject, known)
        found = evaluate(CHECKS["check_every_mask_compiles"], subject, problem)
        assert found is not None
        again = minimiser.reproduce(found)
        assert again is not None
        assert again.deviation == deviation
        small = minimiser.smallest(again)
        assert small.deviation == deviation
        assert bool((~small.problem.head_masks[0].dense()).any()) == bool(deviation)


def test_kinds_of_places() -> None:
    dk, labels = Place("dk"), Place("labels", direction="fwd")
    assert dk.at(0, 3, 5, block=1).subject == dk.subject
    assert replace(labels, shard=ShardIndex(q=1)).subject == labels.subject
    assert replace(labels, direction="dkv").subject != labels.subject
    assert labels.of("shape").subject != labels.subject
    few, many = (bad_argument("sinks", sinks=n + 1, heads=n) for n in (1, 3))
    assert few.subject == many.subject != bad_argument("sinks", ring=2).subject
    assert dk.under(loss="on output and logsumexp").subject != dk.subject


# The command.


@pytest.fixture
def file(said: Run) -> Path:
    said("run", "mine.py:Wrong", "--clause", "LABEL-3", *ONE)
    (path,) = Path("splash-conformance-failures").iterdir()
    data = json.loads(path.read_text())
    problem = Problem(
        8, 8, (Blocks(("2a", "b0"), 4, 4),), BlockSizes(4, 4), heads=2, kv_heads=2, dynamic=True
    )
    data["finding"]["problem"] = problem.to_json()
    Path("large.json").write_text(json.dumps(data))
    return Path("large.json")


def test_the_command_prints_the_script_alone(said: Run, file: Path) -> None:
    found = said("minimise", str(file), "mine.py:Wrong", "--output", "small.json")
    assert found.code == 0
    assert compile(found.out, "script", "exec")
    assert found.out.startswith('"""wrong 1.5 is wrong: ')
    assert "compile_mask(visible, block_q=" in found.out
    assert "LABEL-3 — " in found.err
    assert "problems tried" in found.err
    assert "put your call where the script says so" in found.err
    problem = Problem.from_json(json.loads(Path("small.json").read_text())["finding"]["problem"])
    assert (problem.grid(), problem.heads, problem.dynamic) == ((1, 1), 1, False)
    again = said("replay", "small.json", "mine.py:Wrong")
    assert again.code == 1
    assert "still so" in again.out


def test_the_smaller_problem_stands_beside_the_first(said: Run, file: Path) -> None:
    assert said("minimise", str(file), "mine.py:Wrong", "--tries", "2").code == 0
    (written,) = Path().glob("LABEL-3-check_partial_blocks-*.json")
    assert said("replay", str(written), "mine.py:Wrong").code == 1


def test_errors_of_the_command(said: Run, file: Path) -> None:
    for arguments, words in (
        (("none.json", "reference"), "none.json: cannot be read"),
        (
            (str(file), "reference"),
            "reference 1: LABEL-3 holds on this problem (check_partial_blocks)",
        ),
        ((str(file), "mine.py:Plain"), "cannot be given this problem"),
        ((str(file), "mine.py:Nothing"), "has no attribute 'Nothing'"),
        ((str(file), "reference", "--tries", "0"), "must be a whole number of at least 1"),
        (
            (str(file), "reference", "--output", "no/x.json"),
            "must be a file in a folder that exists",
        ),
    ):
        found = said("minimise", *arguments)
        assert found.code == 2
        assert found.out == ""
        assert words in found.err
