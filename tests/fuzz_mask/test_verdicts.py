"""Advice, notes, oracles, instances, and where the blame goes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.adapter import Description
from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter, validated
from conformance.contract.load import LoadError
from conformance.fuzz_mask.class_checks import OracleError
from conformance.fuzz_mask.run import Effort
from conformance.fuzz_mask.show import by_cause
from conformance.problem import Problem
from conformance.problems.user_mask import UserMask
from reference.mask_info import Direction
from tests.fuzz_mask import broken
from tests.fuzz_mask.harness import FEW, judged

TINY = Effort(6, 0, 4, 0, 0, 10, 5)
ALL = ("class", "compiled", "kernels", "attention")


@pytest.mark.parametrize("name", ["Causal", "Positions", "Prefix"])
def test_right_classes_conform(name: str) -> None:
    run = judged(broken, name, stages=("class", "compiled"))
    assert (run.exit_code, run.faults) == (0, [])
    assert {stage.status for stage in run.stages.values()} == {"conforms", "not tried"}
    clauses = run.stages["class"].clauses.keys()
    assert clauses >= {"CONV-1", "MASK-12", "MASK-15"}
    assert ("COMPUTE-2" in clauses) == (name != "Causal")  # what a class does not have is no pass
    assert not clauses & {"MASK-20", "MASK-21"}
    assert run.stages["compiled"].clauses.keys() >= {"LABEL-1", "DATA-1", "SHRINK-2", "DOWNCAST-1"}
    assert any("consistency only" in note for note in run.notes)


@pytest.mark.parametrize(
    ("name", "clause", "check", "part"),
    [
        ("NoEquality", "MASK-14", "check_equal_masks", "has no parameters()"),
        ("ComparesAnything", "MASK-15", "check_masks_of_other_classes", "AttributeError"),
        ("WrongConstructor", "", "constructor", "ZeroDivisionError"),
    ],
)
def test_what_only_costs_something_is_advice(name: str, clause: str, check: str, part: str) -> None:
    run = judged(broken, name)
    assert run.exit_code == 0
    (fault,) = run.faults
    assert (fault.severity, fault.clause, fault.check) == ("advice", clause, check)
    assert part in fault.actual + fault.detail


def test_rows_that_nobody_moves_are_advice() -> None:
    run = judged(broken, "FixedPositions")
    assert [(f.severity, f.check) for f in run.faults] == [("advice", "check_rows_that_are_moved")]


class OnDevice(broken.Causal):
    """Gives arrays of JAX."""

    def __getitem__(self, index: Any) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(super().__getitem__(index))


class Open(broken.Causal):
    """Wants the ends of a slice."""

    def ids(self, index: Any) -> tuple[Any, Any]:
        rows, columns = (np.arange(part.start, part.stop) for part in index)
        return rows[:, None], columns[None, :]


def test_slices_that_no_compiler_asks_for_are_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken, "Open", Open, raising=False)
    run = judged(broken, "Open")
    assert [(f.severity, f.check) for f in run.faults] == [("advice", "check_slices")]
    assert "TypeError" in run.faults[0].actual


def test_arrays_of_other_libraries_are_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken, "OnDevice", OnDevice, raising=False)
    run = judged(broken, "OnDevice", calls=["OnDevice((2, 3))"])
    assert [(f.severity, f.check) for f in run.faults] == [("advice", "check_arrays_of_numpy")]


def test_an_oracle_tells_what_consistency_does_not() -> None:
    assert judged(broken, "WrongOnRectangles").exit_code == 0
    run = judged(broken, "WrongOnRectangles", broken.declared)
    (fault,) = run.faults
    assert (fault.severity, fault.clause) == ("required", "")
    assert fault.calls == ("WrongOnRectangles((1, 2))",)
    assert fault.lines == ("expected   actual", "X-         XX")
    assert not any("consistency only" in note for note in run.notes)


def test_an_oracle_is_asked_about_the_positions_that_were_given() -> None:
    def declared(q_ids: Any, kv_ids: Any, prefix: int) -> Any:
        return np.maximum(q_ids + 1, prefix) > kv_ids

    def by_rows(q_ids: Any, kv_ids: Any, prefix: int, q_sequence: Any) -> Any:
        positions = q_ids if q_sequence is None else np.asarray(q_sequence)[q_ids]
        return declared(positions, kv_ids, prefix)

    def with_everything(q_ids: Any, kv_ids: Any, **parameters: Any) -> Any:
        return by_rows(q_ids, kv_ids, parameters["prefix"], parameters["q_sequence"])

    for oracle in (declared, by_rows, with_everything):
        assert judged(broken, "Prefix", oracle).faults == []


def test_oracles_that_fail_are_their_own_errors() -> None:
    def not_boolean(q_ids: Any, kv_ids: Any) -> Any:
        return q_ids + kv_ids

    def broken_oracle(q_ids: Any, kv_ids: Any) -> Any:
        raise RuntimeError("boom")

    for oracle, message in ((not_boolean, "not bool"), (broken_oracle, "boom")):
        with pytest.raises(OracleError, match=message):
            judged(broken, "Causal", oracle)


def test_single_instances_are_judged() -> None:
    calls = ["ForgetsOffset((1, 1))", "ForgetsOffset(shape=(1, 1), offset=np.int64(-1))"]
    run = judged(broken, "ForgetsOffset", calls=calls)
    (fault,) = run.faults
    assert fault.calls == ("ForgetsOffset((1, 1))", "ForgetsOffset((1, 1), offset=-1)")
    assert judged(broken, "ForgetsOffset", calls=calls[:1]).faults == []
    right = judged(broken, "Prefix", calls=["Prefix((4, 6), 2)"], stages=("class", "compiled"))
    assert (right.exit_code, right.refused) == (0, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("Causal((1, 1)", "SyntaxError"),
        ("Causal", "expected a call"),
        ("Prefix((1, 1), 2)", "expected a call of Causal"),
        ("Causal((1, 1), nothing)", "NameError"),
        ("Causal((1, 1), 2, 3)", "too many positional arguments"),
        ("Causal(**{})", "expected a call"),
    ],
)
def test_bad_instances_are_clear_errors(call: str, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        judged(broken, "Causal", calls=[call])


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 4))


@pytest.mark.parametrize(
    "strategy",
    [
        st.fixed_dictionaries({"shape": SHAPES, "key": st.just(4711)}),
        st.tuples(SHAPES, st.just(4711)),
        st.builds(broken.Picky, SHAPES, st.just(4711)),
        lambda: st.fixed_dictionaries({"shape": SHAPES, "key": st.just(4711)}),
        lambda shape: st.fixed_dictionaries({"shape": st.just(shape), "key": st.just(4711)}),
        {"key": st.just(4711)},
    ],
    ids=["dicts", "tuples", "masks", "function", "of-a-shape", "by-parameter"],
)
@pytest.mark.parametrize("how", ["option", "class", "module"])
def test_strategies_of_every_form(strategy: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"strategy": strategy} if how == "option" else {}
    own = staticmethod(strategy) if callable(strategy) else strategy
    if how == "class":
        monkeypatch.setattr(broken.Picky, "fuzz_parameters", own, raising=False)
    if how == "module":
        monkeypatch.setattr(broken, "fuzz_parameters", strategy, raising=False)
    run = judged(broken, "Picky", stages=("class", "compiled"), effort=TINY, **more)
    assert (run.exit_code, run.faults, run.refused) == (0, [], 0)
    assert run.stages["compiled"].cases > 0


class Square(broken.Causal):
    """Of one length."""

    def __init__(self, seq_len: int) -> None:
        super().__init__((seq_len, seq_len))


def test_masks_of_one_length_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken, "Square", Square, raising=False)
    run = judged(broken, "Square")
    assert run.faults == []
    assert any("only square masks" in note for note in run.notes)


def test_refusals_are_counted_and_explained() -> None:
    run = judged(broken, "Prefix")
    assert run.refused == sum(run.reasons.values()) > 0
    assert "prefix: must not be negative" in run.reasons
    with pytest.raises(LoadError) as error:
        judged(broken, "Picky")
    text = str(error.value)
    assert "key: must be 4711, got 0" in text
    assert '"shape": st.just(shape), "key": st.…' in text
    key = {"key": st.just(4711)}
    assert judged(broken, "Picky", strategy=key).exit_code == 0


def test_parameters_without_values_are_clear_errors() -> None:
    with pytest.raises(LoadError, match="the parameter rule: Any") as error:
        judged(broken, "Opaque")
    assert "fuzz_parameters" in str(error.value)
    assert judged(broken, "Opaque", strategy={"rule": st.none()}).exit_code == 0


def test_a_constructor_that_always_fails_shows_its_traceback() -> None:
    with pytest.raises(LoadError, match=r"(?s)WrongConstructor\(.*parts=0\).*ZeroDivisionError"):
        judged(broken, "WrongConstructor", strategy={"parts": st.just(0)})


def test_what_a_strategy_gives_must_not_fail() -> None:
    run = judged(broken, "WrongConstructor", strategy={
        "shape": st.tuples(st.integers(1, 4), st.integers(1, 4)), "parts": st.integers(0, 2)
    })  # fmt: skip
    (fault,) = run.faults
    assert (fault.severity, fault.check) == ("required", "constructor")
    assert fault.calls == ("WrongConstructor((1, 1), parts=0)",)
    assert "broken.py" in fault.detail


def test_one_error_is_shown_once() -> None:
    run = judged(broken, "Causal", stages=("class", "kernels"), adapter=Crashing(),
                 effort=dataclasses.replace(FEW, kernels=2))  # fmt: skip
    faults = run.of("required")
    assert len(faults) > 3
    ((first, *others),) = by_cause(faults)
    assert first.clause == "SCHED-1"
    assert {fault.actual for fault in others} == {"RuntimeError: no kernel"}


class Crashing(ReferenceAdapter):
    """Cannot make kernels of masks of users."""

    def prepare(self, problem: Problem) -> PreparedReference:
        made = super().prepare(problem)
        if isinstance(problem.masks[0], UserMask):
            made.schedule = no_kernel  # type: ignore[method-assign]
        return made


def no_kernel(direction: Direction, shard: Any) -> Any:
    raise RuntimeError("no kernel")


class Blamed(ReferenceAdapter):
    """Compiles masks of users, or all masks, wrongly."""

    def __init__(self, users_only: bool) -> None:
        self.users_only = users_only

    def describe(self) -> Description:
        return dataclasses.replace(super().describe(), name="blamed")

    def prepare(self, problem: Problem) -> PreparedReference:
        wrong = not self.users_only or isinstance(problem.masks[0], UserMask)
        return Full(validated(problem)) if wrong else PreparedReference(validated(problem))


class Full(PreparedReference):
    """Calls every block full."""

    def mask_info(self, direction: Direction) -> Any:
        info = super().mask_info(direction)
        return dataclasses.replace(info, block_mask=np.where(info.block_mask == 1, 2, 0))


def test_a_class_is_blamed_for_what_dense_masks_do_not_show() -> None:
    run = judged(broken, "Causal", stages=("class", "compiled"), adapter=Blamed(users_only=True))
    assert run.exit_code == 1
    fault = run.of("required")[0]
    assert fault.clause.startswith("LABEL-")
    assert fault.lines[0].startswith("q_len=")
    assert not run.elsewhere


def test_a_class_is_not_blamed_for_what_dense_masks_show_too() -> None:
    run = judged(broken, "Causal", stages=("class", "compiled"), adapter=Blamed(users_only=False))
    assert (run.exit_code, run.faults) == (0, [])
    assert any(line.startswith("LABEL-") for line in run.elsewhere)


def test_what_is_wrong_stops_later_stages() -> None:
    run = judged(broken, "Integers", stages=ALL)
    assert run.stages["compiled"].reason == "something above is wrong"
    further = judged(broken, "Integers", stages=("class", "compiled"), keep_going=True)
    assert further.stages["compiled"].cases > 0


def test_the_same_seed_finds_the_same() -> None:
    runs = [judged(broken, "ForgetsOffset", seed=seed).to_json() for seed in (1, 1, 2)]
    for run in runs:
        for stage in run["stages"].values():
            del stage["seconds"]
        del run["seconds"]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert runs[0]["faults"][0]["check"] == runs[2]["faults"][0]["check"]


def test_interruptions_leave_a_partial_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, index: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(broken.Causal, "__getitem__", interrupt)
    run = judged(broken, "Causal", effort=FEW)
    assert (run.complete, run.exit_code) == (False, 2)
