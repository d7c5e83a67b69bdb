"""Places, expectations and observations: they survive JSON, and read well."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conformance.checks.registry import bad_argument
from conformance.findings import expectation as expect
from conformance.findings import observation as saw
from conformance.findings.finding import Finding
from conformance.findings.place import Place, ShardIndex
from conformance.findings.text import expectation_text, observation_text, place_text
from conformance.findings.values import as_json, number, plain
from conformance.findings.violation import Violation
from conformance.problems.problem import BlockSizes, Problem
from reference.masks import Causal

LABELS = Place("labels", direction="dkv", shard=ShardIndex(q=1))
PLACES = {
    "labels (dkv, q shard 1)": LABELS,
    "labels (dkv, q shard 1)[2, 0]": LABELS.at(2, 0),
    "shape of labels (dkv, q shard 1)": LABELS.of("shape"),
    "mask_next (dkv, q shard 1) with block=(0, 1)": LABELS.named("mask_next").under(block=(0, 1)),
    "k (fwd)[step 3]": Place("k", direction="fwd").at(3, axes=("step",)),
    "dk[kv head 1, key 9 (kv block 2), 0]": Place("dk").at(
        1, 9, 0, axes=("kv head", "key", ""), block=2
    ),
    "output with heads in reverse order, call=2": Place("output").under(
        heads="in reverse order", call=2
    ),
    "soft_cap=nan": bad_argument("soft_cap", soft_cap=np.nan),
    "sinks=3, heads=2": bad_argument("sinks", sinks=3, heads=np.int64(2)),
    "mask_info(fwd)": Place("mask_info(fwd)", "call"),
}
EXPECTATIONS: dict[str, expect.Expectation] = {
    "0.5": expect.Equal(0.5),
    "(2, 16)": expect.Equal((2, 16)),
    "[[0 1]\n [2 0]]": expect.Equal(((0, 1), (2, 0))),
    "-inf within 0": expect.Within("-inf", 0.0),
    "0.123456789 within 0.00012": expect.Within(0.12345678912, 0.000123),
    "a finite number": expect.Finite(),
    "2, unchanged": expect.Unchanged(2.0),
    "a number from 0 to 3": expect.InRange(0, 3),
    "at least 0.25": expect.InRange(0.25, None),
    "at most 4": expect.InRange(None, 4),
    "-inf or -1": expect.OneOf(("-inf", -1)),
    "one of the existing blocks": expect.OneOf(of="the existing blocks"),
    "absent": expect.Presence(False),
    "reset before it accumulates": expect.Written("after a reset"),
    "Forward or tuple": expect.OfForm(("Forward", "tuple")),
    "an error that names q or k": expect.Refusal(("q", "k")),
    "no error on a valid problem": expect.NoError(),
}
OBSERVATIONS: dict[str, saw.Observation] = {
    "3": saw.Value(3),
    "0.5, off by 0.25, 12 times the budget": saw.Value(0.5, 0.25, 12.0),
    "8 (2.00 times the minimum)": saw.Value(8, times=2.0),
    "1, as if the row lacked key 13": saw.Value(1.0, as_if=saw.AsIf("lacked", "key", 13)),
    "nan": saw.NotFinite("nan"),
    "unwritten": saw.Unwritten(),
    "not reset": saw.Miswritten("not reset"),
    "present": expect.Presence(True),
    "int32 array of shape (2, 3)": saw.Form("ndarray", dtype="int32", shape=(2, 3)),
    "NoneType None": saw.Form("NoneType", "None"),
    "ValueError: bad": saw.Raised("ValueError", "bad", "shrink"),
    "a bare AssertionError": saw.Raised("AssertionError", ""),
    "no error, but a Forward": saw.Accepted("Forward"),
}


def test_places_read_well() -> None:
    assert {place_text(place): place for place in PLACES.values()} == PLACES


def test_expectations_read_well() -> None:
    assert {expectation_text(item): item for item in EXPECTATIONS.values()} == EXPECTATIONS
    assert {type(item) for item in EXPECTATIONS.values()} == {*expect.BY_KIND.values()}


def test_observations_read_well() -> None:
    assert {observation_text(item): item for item in OBSERVATIONS.values()} == OBSERVATIONS
    assert {type(item) for item in OBSERVATIONS.values()} == {*saw.BY_KIND.values()}


def test_records_survive_json() -> None:
    def again(record: object) -> object:
        text = json.dumps(as_json(record), allow_nan=False)
        data = json.loads(text)
        assert data == as_json(record)  # lists and dictionaries, not what json makes of others
        return data

    for place in PLACES.values():
        assert Place.from_json(again(place)) == place  # type: ignore[arg-type]
    for wanted in EXPECTATIONS.values():
        assert expect.expectation_from_json(again(wanted)) == wanted  # type: ignore[arg-type]
    for seen in OBSERVATIONS.values():
        assert saw.observation_from_json(again(seen)) == seen  # type: ignore[arg-type]


def test_words_of_a_finding_are_written_and_not_read() -> None:
    problem = Problem(4, 4, (Causal(),), BlockSizes(2, 2))
    finding = Finding(
        "LABEL-1", "check_empty_blocks", "value", problem, LABELS, expect.Equal(1), saw.Value(2)
    )
    data = finding.to_json()
    assert (data["where"], data["expected"], data["actual"]) == (
        "labels (dkv, q shard 1)",
        "1",
        "2",
    )
    assert Finding.from_json(data | {"where": "x", "expected": "y", "actual": "z"}) == finding


@pytest.mark.parametrize("broken", [{}, {"kind": "nothing"}, {"kind": "within", "value": 1}])
def test_incomplete_records_are_refused(broken: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        expect.expectation_from_json(broken)


def test_values_become_plain() -> None:
    assert plain(np.int8(3)) == 3
    assert plain(np.array([[True, False]])) == ((True, False),)
    assert plain(np.zeros(65)) == "float64 array of shape (65,)"
    assert plain((1, [np.float32(0.5), None])) == (1, (0.5, None))
    assert plain(np.dtype(np.int16)) == "int16"
    assert [number(x) for x in (1, np.inf, -np.inf, np.nan)] == [1.0, "inf", "-inf", "nan"]
    assert saw.observe(np.float64("nan")) == saw.NotFinite("nan")


def test_plain_values_stand_for_records() -> None:
    wrong = Violation("width", 3, np.inf, (1, 2))
    assert wrong.place == Place("width")
    assert wrong.expectation == expect.Equal(3)
    assert wrong.observation == saw.NotFinite("inf")
    assert str(wrong) == "width: expected 3, got inf (1 of 2 places differ)"
