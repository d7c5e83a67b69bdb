"""Files of known deviations: what they may say, which versions they speak of, what they cover."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance import checks
from conformance.adapter import Description
from conformance.checks.registry import CHECKS
from conformance.contract.shipped import SHIPPED
from conformance.drawing.mask_vectors import LONG_VECTORS, VECTORS
from conformance.drawing.numeric_vectors import VECTORS as NUMERIC_VECTORS
from conformance.findings.expectation import NoError
from conformance.findings.finding import Finding
from conformance.findings.observation import NotFinite, Raised, Unwritten, Value
from conformance.findings.place import Place
from conformance.packages import ROOT
from conformance.problem import BlockSizes, Problem
from conformance.problems.features import FEATURES
from conformance.problems.mask_json import Blocks
from conformance.problems.predicates import PREDICATES, describe_labels, mask_kinds
from conformance.search.known_deviations import (
    Deviation,
    ExpectationError,
    avoidable,
    load,
    mark,
    parse,
    version_key,
)
from reference.mask_info import Shards
from reference.masks import Causal, Expr, Full, Local

GOOD = """\
[[deviation]]
id = "empty"
clauses = ["LABEL-1", "LABEL-2"]
kind = "crash"
observation = { kind = "raised", type = "AssertionError" }
when = ["static"]
versions = ["1.2", "1.10"]
vector = "causal"
proof = "check_empty_blocks"
reason = "it was never tried"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    assert parse(written(tmp_path, GOOD)) == [
        Deviation(
            "empty",
            ("LABEL-1", "LABEL-2"),
            "crash",
            ("static",),
            ("1.2", "1.10"),
            "it was never tried",
            "causal",
            "check_empty_blocks",
            observation={"kind": ("raised",), "type": ("AssertionError",)},
        )
    ]
    assert parse(written(tmp_path, "")) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[[deviation]]", "[[deviation"), r"mine\.toml: "),
        (("[[deviation]]", "[[deviations]]"), r"mine\.toml: entries must be \[\[deviation\]\]"),
        (("[[deviation]]", "[deviation]"), r"mine\.toml: entries must be \[\[deviation\]\]"),
        (('id = "empty"\n', ""), r"mine\.toml, deviation 1: entry lacks the fields \['id'\]"),
        (("versions", "version"), r"deviation 1: entry has unknown fields \['version'\]"),
        (('["1.2", "1.10"]', '["1.2"]'), "versions must be a list of two, got 1"),
        (('["1.2", "1.10"]', "[1.2, 1.10]"), r"versions\[0\] must be a string, got 1\.2"),
        (('["LABEL-1", "LABEL-2"]', '"LABEL-1"'), "clauses must be a list"),
        (('"LABEL-2"', '"LABEL-99"'), r"unknown clauses \['LABEL-99'\]"),
        (('"static"', '"statik"'), r"unknown predicates \['statik'\]"),
        (('"crash"', '"fault"'), "kind must be 'crash' or 'value', got 'fault'"),
        (('vector = "causal"\n', ""), "vector and proof go together"),
        (('"raised"', '"risen"'), "observation has the unknown kind 'risen'"),
        (("type =", "place ="), r"observation has unknown fields \['place'\]"),
        (
            ('observation = { kind = "raised", type = "AssertionError" }', 'place = "dk"'),
            "place must be a table of fields, got 'dk'",
        ),
        (('kind = "crash"', 'kind = "crash"\navoid = ["mode"]'), "avoid must be a JSON object"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(ExpectationError, match=words):
        parse(written(tmp_path, text))


def test_versions_are_numbers_in_order() -> None:
    ordered = ["0.4.31", "0.12.0", "0.12.0.1", "0.12.1", "0.100", "1"]
    assert sorted(ordered, key=version_key) == ordered
    assert version_key("0.12.0+cuda12") == version_key("0.12.0.dev20250101") == (0, 12, 0)


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("1.1.9", False),
        ("1.2", True),
        ("1.9.3", True),
        ("1.10", True),
        ("1.10.1", False),
        ("2.0", False),
    ],
)
def test_only_versions_that_were_seen(tmp_path: Path, version: str, known: bool) -> None:
    written(tmp_path, GOOD)
    found = load(Description("mine", version, frozenset()), tmp_path)
    assert [item.id for item in found] == ["empty"] * known


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert load(Description("other", "1", frozenset()), tmp_path) == []
    assert load(Description("reference", "1", frozenset())) == []


PROBLEM = Problem(4, 4, (Causal(),), BlockSizes(2, 2))
CRASH = Finding(
    "LABEL-1", "check_empty_blocks", "crash", PROBLEM, Place("prepare", "call"), NoError(),
    Raised("AssertionError", "", "shrink"),
)  # fmt: skip
RAISED = 'observation = { kind = "raised", type = "AssertionError" }'


@pytest.mark.parametrize(
    ("finding", "problem", "covered"),
    [
        (CRASH, PROBLEM, True),
        (replace(CRASH, clause="LABEL-3"), PROBLEM, False),
        (replace(CRASH, kind="value"), PROBLEM, False),
        (replace(CRASH, observation=Raised("ValueError", "", "shrink")), PROBLEM, False),
        (CRASH, PROBLEM.but(dynamic=True), False),
    ],
)
def test_a_finding_is_marked_if_everything_fits(
    tmp_path: Path, finding: Finding, problem: Problem, covered: bool
) -> None:
    known = parse(written(tmp_path, GOOD))
    assert mark(finding, problem, known).deviation == ("empty" if covered else "")
    assert mark(finding, problem, []) == finding


def test_wrong_values_are_known_by_their_place(tmp_path: Path) -> None:
    text = GOOD.replace('"crash"', '"value"').replace(RAISED, 'place = { direction = "fwd" }')
    everywhere = text.replace('["LABEL-1", "LABEL-2"]', '["*"]')
    known = parse(written(tmp_path, everywhere))
    place = Place("labels", direction="fwd")
    value = replace(CRASH, kind="value", clause="DATA-3", place=place, observation=Value(1))
    assert mark(value, PROBLEM, known).deviation == "empty"
    other = replace(value, place=replace(place, direction="dkv"))
    assert mark(other, PROBLEM, known).deviation == ""


def test_wrong_values_are_known_by_what_was_found(tmp_path: Path) -> None:
    text = GOOD.replace('"crash"', '"value"').replace(
        RAISED, 'observation = { kind = "value", value = [-1, "none"] }'
    )
    known = parse(written(tmp_path, text))
    for seen, covered in (
        (Value(-1), True), (Value("none"), True), (Value(-17), False), (Value(1), False),
        (NotFinite("nan"), False), (Unwritten(), False),
    ):  # fmt: skip
        value = replace(CRASH, kind="value", observation=seen)
        assert mark(value, PROBLEM, known).deviation == ("empty" if covered else ""), seen


def test_options_avoid_a_deviation(tmp_path: Path) -> None:
    text = (
        GOOD.replace('["LABEL-1", "LABEL-2"]', '["LABEL-1"]')
        + "avoid = { exact = true, mode = 2 }\n"
    )
    known = parse(written(tmp_path, text))
    found = avoidable("LABEL-1", PROBLEM, known)
    assert found is known[0]
    other = PROBLEM.but(options=(("fast", True), ("mode", 1)))
    assert found.avoided(other).options == (("exact", True), ("fast", True), ("mode", 2))
    assert avoidable("LABEL-1", found.avoided(other), known) is None
    assert avoidable("LABEL-2", PROBLEM, known) is None
    assert avoidable("LABEL-1", PROBLEM.but(dynamic=True), known) is None
    assert avoidable("LABEL-1", PROBLEM, parse(written(tmp_path, GOOD))) is None


SHIPPED_FILES = sorted((ROOT / "conformance" / "expectations").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED_FILES, ids=lambda path: path.stem)
def test_shipped_files_name_what_exists(path: Path) -> None:
    assert path.stem in SHIPPED
    checks.load_all()
    vectors = {v.name for v in (*VECTORS, *LONG_VECTORS)} | {v.name for v in NUMERIC_VECTORS}
    for item in parse(path):
        assert item.reason, item.id
        assert version_key(item.versions[0]) <= version_key(item.versions[1]), item.id
        if item.vector:
            assert item.vector in vectors, item.id
            assert item.proof in CHECKS, item.id
            assert item.covers_clause(CHECKS[item.proof].clause_id), item.id


def pattern(*rows: str, **more: object) -> Problem:
    plain = Problem(2 * len(rows), 2 * len(rows[0]), (Blocks(rows, 2, 2),), BlockSizes(2, 2))
    return plain.but(**more)


def with_mask(*masks: Expr) -> Problem:
    heads = len(masks)
    return Problem(8, 8, masks, BlockSizes(2, 2), heads=heads, kv_heads=heads)


TWO_SHARDS = Shards(q=2)
#: By predicate: problems that have the property, and problems that lack it.
EXAMPLES: dict[str, tuple[list[Problem], list[Problem]]] = {
    "dynamic": ([pattern("2", dynamic=True)], [pattern("2")]),
    "static": ([pattern("2")], [pattern("2", dynamic=True)]),
    "shards:q": (
        [pattern("2", "2", shards=TWO_SHARDS)],
        [pattern("2", "2"), pattern("22", shards=Shards(kv=2), layout="flat")],
    ),
    "several_shards": (
        [pattern("2", "2", shards=TWO_SHARDS), pattern("22", shards=Shards(kv=2), layout="flat")],
        [pattern("2", "2"), pattern("2", heads=2, kv_heads=2, shards=Shards(head=2))],
    ),
    "shrunk": ([pattern("2")], [pattern("2", shrink=False)]),
    "per_head_masks": ([with_mask(Causal(), Full())], [with_mask(Causal(), Causal())]),
    "single_mask": ([with_mask(Causal(), Causal())], [with_mask(Causal(), Full())]),
    "empty_q_shard": (
        [pattern("00", "2a", shards=TWO_SHARDS), pattern("00")],
        [pattern("00", "2a"), pattern("02", "a0", shards=TWO_SHARDS)],
    ),
    "empty_q_block": (
        [pattern("00", "2a"), pattern("02", "a0", shards=Shards(kv=2), layout="flat")],
        [pattern("02", "a0")],
    ),
    "empty_mask": ([pattern("00", "00"), with_mask(Causal(), Causal(-8))], [pattern("00", "0b")]),
    "no_partial_block": (
        [pattern("02", "20"), with_mask(Full(), Full()), pattern("2a", blocks=BlockSizes(1, 1))],
        [pattern("0a", "20")],
    ),
    "unlimited_window": (
        [with_mask(Local(None, None)), with_mask(Causal() & (Full() | Local(None, None, 2)))],
        [with_mask(Local(None, 0)), with_mask(Causal())],
    ),
    "empty_rows": (
        [pattern("2", segments=(((1, 2),), ((2, 2),))), pattern("0")],
        [pattern("2"), pattern("2", segments=(((1, 2),), ((2, 1), (1, 1))))],
    ),
    "empty_q_block_in_backward_block": (
        [pattern("0", "2", blocks=BlockSizes(2, 2, q_dq=4)),
         pattern("b", "0", blocks=BlockSizes(2, 2, q_dkv=4))],
        [pattern("0", "2"), pattern("0", "0", blocks=BlockSizes(2, 2, q_dq=4)),
         pattern("b", "c", blocks=BlockSizes(2, 2, q_dq=4, q_dkv=4))],
    ),
    "unseeing_q_block_in_backward_block": (
        [pattern("2", "2", blocks=BlockSizes(2, 2, q_dq=4), segments=(((1, 2), (2, 2)), ((1, 2),)))],
        [pattern("2", "2", blocks=BlockSizes(2, 2, q_dq=4), segments=(((1, 1), (2, 3)), ((2, 2),))),
         pattern("2", "2", segments=(((1, 2), (2, 2)), ((1, 2),)))],
    ),
    "logits_below_any_sentinel": ([pattern("2", regime="float_edge")], [pattern("2")]),
    "sinks": ([pattern("2", sinks=(0.5,))], [pattern("2")]),
    "computed_full_mask": (
        [with_mask(Causal(7)), with_mask(Local(None, None))],
        [with_mask(Causal()), with_mask(Full()), with_mask(Causal(7), Causal())],
    ),
    "diagonal_skip_off_the_diagonal": (
        [pattern("2", masks=(Causal(1),), options=(("diag_skip", True),))],
        [pattern("2", masks=(Causal(),), options=(("diag_skip", True),)),
         pattern("2", masks=(Causal(1),))],
    ),
    "base2_exponent": (
        [pattern("2"), pattern("2", options=(("use_base2_exp", True),))],
        [pattern("2", options=(("use_base2_exp", False),))],
    ),
    "natural_exponent": (
        [pattern("2", options=(("use_base2_exp", False),))],
        [pattern("2"), pattern("2", options=(("use_base2_exp", True),))],
    ),
    "maximum_given": (
        [pattern("2", options=(("max_logit_const", 0.0),))],
        [pattern("2"), pattern("2", options=(("max_logit_value", None),))],
    ),
    "deferred_reciprocal": (
        [pattern("2", options=(("fuse_reciprocal", False),))],
        [pattern("2"), pattern("2", options=(("fuse_reciprocal", True),))],
    ),
    "ring": ([pattern("22", "22", ring=2)], [pattern("22", "22")]),
    "ring_step_unseeing": (
        [pattern("20", "22", ring=2)],
        [pattern("20", "22"), pattern("2b", "c2", ring=2)],
    ),
    "partial_blocks_backward_only": (
        [pattern("20", "02").but(blocks=BlockSizes(2, 2, q_dkv=4, kv_dkv=2))],
        [
            pattern("20", "02"),
            pattern("a0", "02").but(blocks=BlockSizes(2, 2, q_dkv=4, kv_dkv=2)),
            pattern("22", "22").but(blocks=BlockSizes(2, 2, q_dkv=4, kv_dkv=2)),
        ],
    ),
    "ring_q_block_unseeing": (
        [pattern("22", "02", "22", "22", ring=2)],
        [pattern("22", "02", "22", "22"), pattern("20", "02", ring=2), pattern("22", "22", ring=2)],
    ),
    "empty_row": ([with_mask(Causal(-1)), pattern("a0", "0c")], [with_mask(Causal()), pattern("a")]),
}  # fmt: skip


def test_every_predicate_has_examples() -> None:
    assert PREDICATES.keys() - FEATURES.keys() < EXAMPLES.keys() <= PREDICATES.keys()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_predicates_on_examples(name: str) -> None:
    holds, fails = EXAMPLES[name]
    assert [PREDICATES[name](problem) for problem in holds] == [True] * len(holds)
    assert [PREDICATES[name](problem) for problem in fails] == [False] * len(fails)
    assert name in FEATURES or PREDICATES[name].__doc__


def test_words_for_reports() -> None:
    assert describe_labels(pattern("0a", "22")) == "empty+partial+full"
    assert describe_labels(pattern("22")) == "full"
    assert mask_kinds(with_mask(Causal(), Full() & Full(), Causal(2))) == ["and", "causal"]


def test_rows_that_see_nothing_are_found_in_every_example() -> None:
    for holds, fails in EXAMPLES.values():
        for problem in (*holds, *fails):
            dense = np.stack([mask.dense() for mask in problem.head_masks])
            assert PREDICATES["empty_row"](problem) == bool((dense.sum(axis=2) == 0).any())
