"""Scripts for bug reports: they make the same arrays and masks, compute the same, and fail where they must."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from conformance import checks
from conformance.adapter import load
from conformance.bug_report import arrays, masks
from conformance.bug_report.case import case_of
from conformance.bug_report.code import WIDTH, folded
from conformance.bug_report.dense import Parts, attention
from conformance.bug_report.own_calls import MARK
from conformance.bug_report.run import outcome_of, run
from conformance.bug_report.write import Script, script
from conformance.checks.registry import CHECKS
from conformance.contract import library
from conformance.contract.fence import Subject
from conformance.findings.finding import Finding
from conformance.mutants import MUTANTS, MutantAdapter, load_all
from conformance.problem import BlockSizes, Problem
from conformance.problems.arrays import Cotangent, d_out, inputs, visible
from conformance.problems.mask_json import PATTERNS, Blocks, Random
from conformance.problems.regimes import BARE, REGIMES, SIMPLE
from conformance.search import known_deviations as expectation
from conformance.search.search import evaluate
from conformance.strategies import masks as drawn_masks
from reference.attention import attend
from reference.gradients import gradients
from reference.masks import And, Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask, Or

checks.load_all()
load_all()
FEW = settings(max_examples=60, deadline=None, database=None, derandomize=True)

NUMBERS = hnp.arrays(
    st.sampled_from([np.float32, np.int32, np.bool_]),
    hnp.array_shapes(max_dims=3, max_side=6),
    fill=st.nothing(),
)


@FEW
@given(NUMBERS)
def test_any_array_is_made_by_its_expression(array: NDArray[Any]) -> None:
    assert arrays.same(array, arrays.value_of(arrays.expression(array)))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 256, 64), np.float32),
        np.full((3, 5), -300.0, np.float32),
        np.full((1, 2), np.nan, np.float32),
        np.arange(4096, dtype=np.int32),
        np.tile((np.arange(256) % 8 / 8).astype(np.float32)[None, :, None], (1, 1, 64)),
        np.repeat([5, 7, 5], [100, 100, 56]).astype(np.int32),
        np.full((1, 128, 1), 2.0**55, np.float32),
        np.repeat(np.arange(64), 4).astype(np.float32),
        np.array([[[1, 0], [2, 1]]], np.int32),
    ],
)
def test_arrays_with_a_pattern_are_written_in_one_line(array: NDArray[Any]) -> None:
    code = arrays.expression(array)
    assert len(code) < WIDTH
    assert "unpacked" not in code
    assert arrays.same(array, arrays.value_of(code))


MANY = Problem(
    256, 256, (Full(),), BlockSizes(128, 128), heads=2, kv_heads=2, head_dim=64, head_dim_v=128
)


@pytest.mark.parametrize(
    "regime", [name for name in REGIMES if name in SIMPLE or name.startswith(BARE)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_of_the_simple_regimes_are_short(regime: str, dtype: str) -> None:
    problem = MANY.but(regime=regime, dtype=dtype, masks=(Blocks(("00", "2a"), 128, 128),))
    made, unseeing = inputs(problem), ~visible(problem).any(axis=2)
    for name, array in (("q", made.q), ("k", made.k), ("v", made.v)):
        lines = arrays.statements(name, array)
        space: dict[str, Any] = {"np": np}
        code = "\n".join(lines)
        exec(arrays.imports(code) + arrays.helpers(code) + code, space)
        assert arrays.same(array, space[name])
        assert "huge" in regime or len(code) < 170, code
    kinds: tuple[Cotangent, ...] = ("quiet", "loud")
    for kind in kinds:
        lines = arrays.statements("d_out", d_out(problem, kind), unseeing)
        if regime in SIMPLE:
            assert len("\n".join(lines)) < 150
        space = {"np": np, "seen": ~unseeing}
        code = "\n".join(lines)
        exec(arrays.imports(code) + arrays.helpers(code) + code, space)
        assert arrays.same(d_out(problem, kind), space["d_out"])


def values_of(expr: Expr, q_len: int, kv_len: int) -> Any:
    space: dict[str, Any] = {}
    lines = masks.values(expr, q_len, kv_len)
    exec("import base64, zlib\nimport numpy as np\n" + "\n".join(lines), space)
    return space["visible"]


@FEW
@given(drawn_masks(12, 8, 4, 2))
def test_any_mask_is_made_by_its_statements(expr: Expr) -> None:
    found = values_of(expr, 12, 8)
    assert found.dtype == np.bool_
    assert np.array_equal(found, Mask(expr, 12, 8).dense())


@pytest.mark.parametrize("letter", PATTERNS)
def test_every_letter_of_a_drawing(letter: str) -> None:
    expr = Blocks((f"2{letter}", "00"), 128, 128)
    lines = masks.values(expr, 256, 256)
    assert np.array_equal(values_of(expr, 256, 256), expr.dense())
    assert not any("zlib" in line for line in lines)
    assert max(map(len, lines)) < WIDTH


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        (Full(), "masks.FullMask((8, 8))"),
        (Causal(-2), "masks.CausalMask((8, 8), offset=-2)"),
        (Local(1, None, 3), "masks.LocalMask((8, 8), (1, None), offset=3)"),
        (ChunkedCausal(4), "masks.ChunkedCausalMask((8, 8), chunk_size=4)"),
        (Or(Causal(), Local(1, 1)), "masks.CausalMask((8, 8), offset=0) | masks.LocalMask((8, 8), (1, 1), offset=0)"),
        (And(Causal(), Random(0.5)), "masks.NumpyMask(visible[0])"),
        (Dense(np.ones((8, 8), bool)), "masks.NumpyMask(visible[0])"),
    ],
)  # fmt: skip
def test_masks_of_the_libraries(expr: Expr, wanted: str) -> None:
    assert masks.library(expr, "(8, 8)", "visible[0]") == wanted


@pytest.mark.parametrize(
    "parts", [Parts(*flags) for flags in itertools.product((False, True), repeat=4)]
)
def test_the_formulas_are_those_of_the_reference(parts: Parts) -> None:
    problem = MANY.but(
        q_len=6,
        kv_len=8,
        blocks=BlockSizes(2, 2),
        heads=4,
        head_dim=8,
        head_dim_v=4,
        masks=(Blocks(("0022", "r2aa", "b0ct"), 2, 2),),
        sinks=(0.5, -1.0, 3.0, -np.inf),
    )
    made = inputs(problem)
    given: dict[str, Any] = {"soft_cap": 2.0} if parts.cap else {}
    given |= {"sinks": made.sinks} if parts.sinks else {}
    space: dict[str, Any] = {"np": np}
    exec(attention(parts), space)
    seen = visible(problem)
    arguments = (made.q, made.k, made.v, seen, *given.values())
    output, logsumexp, max_logits, *_ = space["attention"](*arguments)
    right = attend(made.q, made.k, made.v, seen, **given)
    close: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(output, right.output, **close)
    np.testing.assert_allclose(logsumexp, right.logsumexp, **close)
    np.testing.assert_allclose(max_logits, right.max_logits, **close)
    assert ("gradients" in space) == parts.backward
    if parts.backward:
        loss = d_out(problem).astype(np.float64)
        d_lse = np.cos(np.arange(24.0)).reshape(4, 6) * seen.any(-1)
        more = (d_lse,) if parts.lse else ()
        found = space["gradients"](*arguments, loss, *more)
        q, k, v = (np.asarray(x, np.float64) for x in (made.q, made.k, made.v))
        exact = gradients(q, k, v, seen, loss, d_logsumexp=d_lse if parts.lse else None, **given)
        for name, array in zip(("dq", "dk", "dv", "dsinks"), found, strict=False):
            np.testing.assert_allclose(array, getattr(exact, name), **close)
        assert len(found) == 3 + parts.sinks


def test_long_lines_are_folded_and_mean_the_same() -> None:
    text = "found = dict(first=list(range(10000, 100000000, 10000000)), second=('a, (b', [1, 2]), third={'x': (1, 2)})"
    lines = folded([text])
    assert max(map(len, lines)) <= WIDTH
    one: dict[str, Any] = {}
    other: dict[str, Any] = {}
    exec(text, one)
    exec("\n".join(lines), other)
    assert one["found"] == other["found"]


# Scripts of an implementation that is known through its adapter alone.


def failing(subject: Subject, check: str, *, every: bool = False) -> Finding:
    """The first fixed problem of a check that fails."""
    for item, problem in CHECKS[check].domain.vectors(subject.description, every):
        found = evaluate(CHECKS[check], subject, problem, item.name)
        if found is not None:
            return found
    raise AssertionError(f"{check} holds")


def of_mutant(name: str, check: str) -> tuple[Script, Any]:
    adapter = MutantAdapter(MUTANTS[name])
    subject = Subject(adapter, adapter.describe())
    case = case_of(failing(subject, check), subject, "./mine.py:Mine", "")
    return script(case), case


OWN = (
    "interleaved-head-map", "leaks-next-key", "binary-residuals", "dv-twice", "dsinks-sign",
    "cap-without-slope", "segments-compared-in-order", "partial-block-unmasked", "block-sizes-swapped",
)  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_script_fails_with_the_mistake_and_holds_without(name: str) -> None:
    """What the reader puts in is here the mutant, and then the reference."""
    made, case = of_mutant(name, checks_of(name))
    assert not made.runs
    assert case.finding.where in made.text
    lines = made.text.split("\n")
    place = lines.index(MARK) + 1
    names = lines[place].split(" = ")[0].split(", ")
    for adapter, right in ((MutantAdapter(MUTANTS[name]), False), (load("reference"), True)):
        prepared = adapter.prepare(case.problem)
        answer = getattr(prepared, case.call.method)(*case.call.arguments, **case.call.keywords)
        given = {n: answer if n == "info" else getattr(answer, n) for n in names}
        text = "\n".join([*lines[:place], *lines[place + 1 :]])
        if right:
            exec(compile(text, "script", "exec"), given)
        else:
            with pytest.raises(AssertionError):
                exec(compile(text, "script", "exec"), given)


def checks_of(name: str) -> str:
    """A check that notices a mutant."""
    clause = MUTANTS[name].clause
    return next(check.name for check in CHECKS.values() if check.clause_id == clause)


# Scripts of the libraries, run as a reader would.


def of_deviation(implementation: str, name: str) -> Script:
    """The script of a known deviation, from its fixed problem as it is."""
    adapter = load(implementation)
    subject = Subject(adapter, adapter.describe())
    known = expectation.load(subject.description)
    (item,) = [item for item in known if item.id == name]
    for vector, problem in CHECKS[item.proof].domain.vectors(subject.description, True):
        if vector.name == item.vector:
            found = evaluate(CHECKS[item.proof], subject, problem, vector.name)
            if found is not None and expectation.mark(found, problem, known).deviation == name:
                return script(
                    case_of(found, subject, implementation, library.judged_package(implementation))
                )
    raise AssertionError(f"{name} does not show")


def imported(text: str) -> set[str]:
    """The packages that a script imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        found |= {name.split(".")[0] for name in names}
    return found


#: What running a script says, by library and known deviation.
SAID = {
    ("jax", "empty-shard"): "AssertionError",
    ("jax", "empty-q-block-in-backward-block"): "AssertionError:; Not equal to tolerance rtol=0",
    (
        "jax",
        "sinks-bare-assertion",
    ): "AssertionError: the error does not say what is wrong: AssertionError()",
}
SAID_DEEP = {
    ("jax", "no-partial-block-in-q-shards"): "ValueError: need at least one array to concatenate",
    ("jax", "unlimited-window"): "ValueError: The kernel function",
    ("jax", "logits-below-mask-value"): "AssertionError:",
    ("jax", "lengths-not-checked"): "AssertionError: kv_len=",
    ("jax", "heads-not-checked"): "AssertionError: heads_of_q=4, masks=2: accepted",
    ("jax", "mask-value-not-checked"): "AssertionError: mask_value=-inf: accepted",
    ("jax", "soft-cap-not-checked"): "AssertionError: soft_cap=0: accepted",
}
SAID_TOKAMAX = {
    ("tokamax", "ring-base-2"): "AssertionError:",
    (
        "tokamax",
        "empty-q-block-unwritten",
    ): "AssertionError: blocks of o (fwd)[0, 1] is not written",
    ("tokamax", "stored-index-minus-one"): "AssertionError:",
}
SAID_TOKAMAX_DEEP = {
    ("tokamax", "nothing-visible"): "IndexError",
    ("tokamax", "empty-q-block-in-backward-block"): "AssertionError:",
    ("tokamax", "segments-empty-q-block-in-backward-block"): "AssertionError:",
    ("tokamax", "max-logits-of-sinks"): "AssertionError:",
    ("tokamax", "max-logits-given"): "AssertionError:",
    ("tokamax", "loss-on-logsumexp-dropped"): "AssertionError:",
    ("tokamax", "ring-residuals-ignored"): "AssertionError: no logsumexp is returned",
    ("tokamax", "empty-q-block-output"): "AssertionError: output (fwd)[head",
}
MARKS = {
    "jax": (SAID, ()),
    "deep": (SAID_DEEP, (pytest.mark.deep,)),
    "tokamax": (SAID_TOKAMAX, (pytest.mark.tokamax,)),
    "tokamax deep": (SAID_TOKAMAX_DEEP, (pytest.mark.tokamax, pytest.mark.deep)),
}


@pytest.mark.parametrize(
    ("implementation", "name", "said"),
    [
        pytest.param(*key, said, marks=marks, id="-".join(key))
        for table, marks in MARKS.values()
        for key, said in table.items()
    ],
)
def test_a_script_of_a_library_shows_the_failure(implementation: str, name: str, said: str) -> None:
    pytest.importorskip(implementation)
    made = of_deviation(implementation, name)
    assert made.runs
    assert not made.note
    assert not {"conformance", "hypothesis", "reference"} & imported(made.text)
    found = outcome_of(made.text)
    assert found.startswith(said), found


def test_what_is_said_about_scripts_that_do_not_fail() -> None:
    assert outcome_of("print(1)") == "it ends without an error, so it does not show the failure"
    assert outcome_of("import sys; sys.exit(3)") == "exit status 3"
    assert outcome_of("raise ValueError('a: b')") == "ValueError: a: b"
    assert outcome_of("raise AssertionError('\\nx\\n y\\nz')") == "AssertionError:; x; y"
    assert run("import os; print('XLA_FLAGS' in os.environ)").stdout == "False\n"
