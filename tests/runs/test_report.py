"""The canonical report: its schema, what it records, and that it can be read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from conformance.findings import budget_use as ratios
from conformance.findings import coverage
from conformance.findings.coverage import ANY, LABELS, labels_of
from conformance.findings.pictures import CELLS, PLANES, block_map, region
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Blocks
from conformance.runs.report import ReportError, Run, read
from conformance.runs.report_form import SCHEMA, SCHEMA_FILE
from reference.mask_info import Shards
from reference.masks import Causal, Dense, Full
from tests.commands.command_line import ONE
from tests.commands.command_line import Run as Said

FORM: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
pytestmark = pytest.mark.usefixtures("few")
VALIDATOR = jsonschema.Draft202012Validator(FORM)


def strict(text: str) -> Any:
    """JSON without the NaN and infinity that Python would accept."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def report_of(said: Said, impl: str, *arguments: str) -> dict[str, Any]:
    said("run", impl, *arguments, "--json", "r.json", *ONE)
    data: dict[str, Any] = strict(Path("r.json").read_text(encoding="utf-8"))
    return data


CASES = {
    "violation": ("mine.py:Wrong", "--clause", "LABEL-3", "--clause", "LABEL-1"),
    "known deviation": ("mine.py:Old", "--clause", "LABEL-1"),
    "stale": ("mine.py:Renamed", "--clause", "CONV-2"),
    "n/a": ("mine.py:Plain", "--clause", "SHRINK-1", "--clause", "CONV-1"),
    "numbers": ("reference", "--clause", "FWD-1", "--clause", "RES-1"),
    "interrupted": ("mine.py:Interrupted", "--clause", "CONV-1", "--clause", "DYNAMIC-1"),
}


@pytest.mark.parametrize("case", CASES)
def test_reports_follow_their_schema_and_can_be_read_again(said: Said, case: str) -> None:
    data = report_of(said, *CASES[case])
    VALIDATOR.validate(data)
    assert data["schema"] == SCHEMA
    assert read(Path("r.json")).to_json() == data
    statuses = {outcome["status"] for outcome in data["outcomes"]}
    if case in ("n/a", "known deviation"):
        assert case in statuses
    assert any(outcome["stale"] for outcome in data["outcomes"]) == (case == "stale")
    assert data["complete"] == (case != "interrupted")


def test_the_schema_knows_every_version_of_itself() -> None:
    VALIDATOR.check_schema(FORM)
    assert FORM["properties"]["schema"]["const"] == SCHEMA
    counts = FORM["$defs"]["Histogram"]["properties"]["counts"]
    assert counts["minItems"] == counts["maxItems"] == ratios.BINS


@pytest.mark.parametrize(
    "change",
    [
        {"schema": SCHEMA + 1},
        {"exit_code": 4},
        {"clauses": {"label-1": "conforms"}},
        {"clauses": {"LABEL-1": "fine"}},
        {"coverage": {"causal": {"full": {"float32": {"sinks": 1}}}}},
        {"outcomes": [{}]},
        {"more": 1},
    ],
)
def test_the_schema_refuses(change: dict[str, Any]) -> None:
    data = Run("mine", "1", "quick", 0, "splash-conformance run mine").to_json()
    VALIDATOR.validate(data)
    assert not VALIDATOR.is_valid(data | change)


def test_reports_of_another_schema_are_refused(said: Said, tmp_path: Path) -> None:
    data = report_of(said, "reference", "--clause", "CONV-1")
    path = tmp_path / "other.json"
    for text, words in {
        json.dumps(data | {"schema": 1}): "is a report of schema 1, this version reads schema 3",
        json.dumps(data | {"schema": 99}): "is a report of schema 99",
        json.dumps({"format": 1, "finding": {}}): "is not a report of splash-conformance",
        "[]": "is not a report of splash-conformance",
        "{": "is not JSON",
        json.dumps({k: v for k, v in data.items() if k != "replays"}): "is incomplete: KeyError",
        json.dumps(data | {"outcomes": [{"findings": []}]}): "is incomplete: TypeError",
    }.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ReportError, match=r"^.*other\.json: ") as error:
            read(path)
        assert words in str(error.value)
    with pytest.raises(ReportError, match="cannot be read: No such file"):
        read(tmp_path / "nowhere.json")


def test_a_violation_is_recorded_with_its_pictures(said: Said) -> None:
    data = report_of(said, "mine.py:Wrong", "--clause", "LABEL-3")
    (finding,) = data["outcomes"][0]["findings"]
    assert finding["blocks"] == block_map(Problem.from_json(finding["problem"]))
    assert finding["blocks"]["grids"] == [["1"]]
    assert finding["region"]["shape"] == [1, 1, 1]
    assert finding["region"]["planes"] == [{"at": [0], "rows": ["9"]}]


def test_coverage_counts_every_problem_that_was_tried(said: Said) -> None:
    data = report_of(said, "reference", "--clause", "LABEL-1", "--clause", "SHRINK-1")
    tried = sum(outcome["examples"] for outcome in data["outcomes"])
    assert tried > 50
    assert coverage.problems(data["coverage"]) == tried
    features = {
        name
        for labels in data["coverage"].values()
        for dtypes in labels.values()
        for cell in dtypes.values()
        for name in cell
    }
    assert features <= {ANY, *LABELS.values()}
    assert {"q shards", "several masks", "unshrunk"} <= features


def test_numbers_are_recorded_with_the_share_of_their_budget(said: Said) -> None:
    data = report_of(said, "reference", "--clause", "FWD-1", "--clause", "LABEL-1")
    by_clause = {outcome["clause"]: outcome["ratios"] for outcome in data["outcomes"]}
    assert by_clause["LABEL-1"] == {}
    assert set(by_clause["FWD-1"]) == {"output"}
    found = by_clause["FWD-1"]["output"]
    assert sum(found["counts"]) > 1000
    assert 0 < found["worst"] <= 1
    assert data["ratio_edges"] == list(ratios.EDGES)


def test_a_continued_run_has_the_coverage_of_both_parts(said: Said) -> None:
    arguments = ("--clause", "CONV-1", "--clause", "DYNAMIC-1")
    first = report_of(said, "mine.py:Interrupted", *arguments)
    assert not first["complete"]
    again = report_of(said, "mine.py:Interrupted", *arguments, "--resume", "r.jsonl")
    assert again["coverage"] == first["coverage"] != {}


def test_histogram_bins() -> None:
    values = np.array([0.0, 0.0005, 0.001, 0.7, 1.0, 1.5, 1e9, np.inf])
    found = ratios.histogram(values)
    by_edge = dict(zip(("exact", *ratios.EDGES, "above", "infinite"), found["counts"], strict=True))
    assert {k: v for k, v in by_edge.items() if v} == {
        "exact": 1, 0.001: 2, 1.0: 2, 10.0: 1, "above": 1, "infinite": 1,
    }  # fmt: skip
    assert found["worst"] == 1e9
    both = ratios.together(found, ratios.histogram(np.array([0.0, 2e9])))
    assert sum(both["counts"]) == 10
    assert both["worst"] == 2e9


def test_ratios_are_noted_only_where_they_are_recorded() -> None:
    ratios.note("output", np.zeros(3))
    with ratios.recording() as outer:
        ratios.note("output", np.zeros(3))
        with ratios.recording() as inner:
            ratios.note("dq", np.ones(2))
        ratios.note("output", np.zeros((2, 2)))
    assert sum(outer["output"]["counts"]) == 7
    assert set(inner) == {"dq"}


def test_block_map_of_heads_with_different_masks() -> None:
    problem = Problem(4, 4, (Full(), Causal(), Full()), BlockSizes(2, 2), heads=3, kv_heads=3)
    assert block_map(problem) == {
        "grids": [["22", "22"], ["10", "21"]],
        "masks": [["9999"] * 4, ["9000", "9900", "9990", "9999"]],
        "heads": [0, 1, 0],
        "blocks": [2, 2],
        "cell": [1, 1],
        "mask_cell": [1, 1],
        "block": [2, 2],
    }


def test_block_map_of_many_blocks_merges_them() -> None:
    size = 2 * CELLS + 1
    problem = Problem(size, size, (Causal(),), BlockSizes(1, 1))
    found = block_map(problem)
    assert found["blocks"] == [size, size]
    assert found["cell"] == [3, 3]
    (grid,) = found["grids"]
    assert len(grid) == len(grid[0]) == 43
    assert all(row == "2" * n + "1" + "0" * (42 - n) for n, row in enumerate(grid))


def test_region_says_which_share_of_a_cell_differs() -> None:
    wrong = np.zeros((2, 256, 3), dtype=np.bool_)
    wrong[1, :4] = True
    wrong[1, 4, 0] = True
    found = region("output", wrong, ("head", "row", "dimension"), (128, 0))
    assert found["cell"] == [4, 1]
    assert [plane["at"] for plane in found["planes"]] == [[1]]
    assert found["planes"][0]["rows"] == ["999", "200", *["000"] * 62]
    assert found["left_out"] == 0
    assert found["block"] == [128, 0]


@pytest.mark.parametrize("shape", [(), (5,), (3, 70), (9, 2, 2, 2)])
def test_regions_of_any_rank(shape: tuple[int, ...]) -> None:
    found = region("x", np.ones(shape, dtype=np.bool_))
    assert found["shape"] == list(shape)
    assert len(found["planes"]) + found["left_out"] == max(1, int(np.prod(shape[:-2])))
    assert len(found["planes"]) <= PLANES
    assert all(set("".join(plane["rows"])) == {"9"} for plane in found["planes"])


def test_every_feature_of_a_problem_is_counted() -> None:
    plain = Problem(8, 8, (Causal(),), BlockSizes(4, 4), heads=2, kv_heads=2)
    assert labels_of(plain) == []
    changed = {
        "several masks": plain.but(masks=(Causal(), Full())),
        "grouped heads": plain.but(heads=4),
        "one kv head": plain.but(kv_heads=1),
        "segment ids": plain.but(segments=(((0, 8),), ((0, 8),))),
        "sinks": plain.but(sinks=(0.0, 0.0)),
        "soft cap": plain.but(soft_cap=2.0),
        "other v head dim": plain.but(head_dim_v=64),
        "ring": plain.but(ring=2),
        "run-time mask": plain.but(dynamic=True),
        "head shards": plain.but(shards=Shards(head=2)),
        "q shards": plain.but(shards=Shards(q=2)),
        "kv shards": plain.but(shards=Shards(kv=2)),
        "other backward blocks": plain.but(blocks=BlockSizes(4, 4, q_dq=8)),
        "compute blocks": plain.but(blocks=BlockSizes(4, 4, kv_compute=2)),
        "grid layout": plain.but(layout="grid"),
        "flat layout": plain.but(layout="flat"),
        "unshrunk": plain.but(shrink=False),
        "not downcast": plain.but(downcast=False),
        "options": plain.but(options=(("x", 1),)),
    }
    assert list(changed) == [*LABELS.values()]
    for name, problem in changed.items():
        assert labels_of(problem) == [name]


def test_coverage_adds_up() -> None:
    total: coverage.Coverage = {}
    dense = Dense(np.eye(2, dtype=np.bool_))
    problems = [
        Problem(2, 2, (Blocks(("20",), 2, 1),), BlockSizes(2, 1), dtype="bfloat16"),
        Problem(2, 2, (dense, Causal()), BlockSizes(2, 2), heads=2, kv_heads=2),
    ]
    for problem in problems:
        one: coverage.Coverage = {}
        coverage.count(one, problem)
        coverage.add(total, one)
        coverage.add(total, one)
    assert total == {
        "blocks": {"empty+full": {"bfloat16": {ANY: 2}}},
        "several kinds": {"partial": {"float32": {ANY: 2, "several masks": 2}}},
    }
    assert coverage.problems(total) == 4


def test_a_report_without_outcomes_can_be_read() -> None:
    run = Run("mine", "1", "quick", 0, "splash-conformance run mine", errors=["it failed"])
    data = json.loads(json.dumps(run.to_json()))
    VALIDATOR.validate(data)
    assert Run.from_json(data) == run
