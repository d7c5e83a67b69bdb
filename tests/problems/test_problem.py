"""Problems as plain data: JSON and back, keys, and errors that name what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.drawing.numeric_domain import NumericDomain
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Blocks, Random, expr_from_json, expr_to_json, kind_of
from conformance.strategies import Space, problems
from reference.mask_info import Shards
from reference.masks import Causal, Dense, Expr, Full, Int, Local, Mask

EVERYTHING = Space(
    dynamic=True, layouts=(None, "grid", "flat"), grouped=True, options=(("fused", (True, False)),)
)
NUMERIC = NumericDomain().strategy(ReferenceAdapter().describe())


def through_text(problem: Problem) -> Problem:
    return Problem.from_json(json.loads(problem.dumps()))


@given(st.one_of(problems(EVERYTHING), NUMERIC))
@settings(max_examples=80)
def test_json_keeps_everything(problem: Problem) -> None:
    again = through_text(problem)
    assert again == problem
    assert again.key == problem.key
    assert again.dumps() == problem.dumps()
    assert [m.dense().tolist() for m in again.head_masks] == [
        m.dense().tolist() for m in problem.head_masks
    ]


FULL = Problem(
    8,
    12,
    (Local(2, None, -1), Dense(np.eye(8, 12, dtype=np.bool_))) * 2,
    BlockSizes(2, 3, q_dkv=4, kv_dkv=6, q_dq=4, kv_dq=12, kv_compute=1, kv_dkv_compute=3),
    heads=4,
    kv_heads=2,
    head_dim=64,
    head_dim_v=32,
    dtype="bfloat16",
    segments=(((1, 5), (-2, 3)), ((1, 12),)),
    sinks=(0.5, float("-inf"), -3.0, 0.0),
    soft_cap=30.0,
    shards=Shards(2, 2, 1),
    ring=2,
    dynamic=True,
    shrink=False,
    downcast=False,
    layout="grid",
    options=(("fused", True),),
    regime="flat",
    seed=7,
)


def test_json_of_every_field() -> None:
    assert through_text(FULL) == FULL
    assert set(FULL.to_json()) == {"format", *Problem.__dataclass_fields__}


def test_defaults_are_left_out() -> None:
    plain = Problem(4, 4, (Causal(),), BlockSizes(2, 2))
    assert plain.to_json() == {
        "format": 1,
        "q_len": 4,
        "kv_len": 4,
        "masks": [{"kind": "causal", "offset": 0}],
        "blocks": {"q": 2, "kv": 2},
    }


def test_every_field_is_part_of_the_key() -> None:
    changes: list[dict[str, Any]] = [
        {"q_len": 16}, {"kv_len": 24}, {"masks": (Full(),)}, {"blocks": BlockSizes(4, 3)},
        {"kv_heads": 4}, {"head_dim": 128}, {"head_dim_v": 64}, {"dtype": "float32"},
        {"segments": None}, {"sinks": None}, {"soft_cap": None}, {"shards": Shards()}, {"ring": 1},
        {"dynamic": False}, {"shrink": True}, {"downcast": True}, {"layout": None},
        {"options": ()}, {"regime": "signed"}, {"seed": 0},
        {"heads": 2, "masks": (Full(),), "sinks": (0.5, 0.5)},
    ]  # fmt: skip
    assert {name for change in changes for name in change} == {*Problem.__dataclass_fields__}
    assert len({FULL.key, *(FULL.but(**change).key for change in changes)}) == 1 + len(changes)


def test_keys_are_the_same_in_every_process() -> None:
    code = (
        "import sys, json; from conformance.problem import Problem; "
        "print(*[Problem.from_json(p).key for p in json.load(sys.stdin)])"
    )
    mine = [FULL, Problem(4, 4, (Random(0.5, 3),), BlockSizes(2, 2))]
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps([p.to_json() for p in mine]),
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert out.split() == [p.key for p in mine]


def test_block_sizes_of_a_numpy_type_have_the_same_key() -> None:
    plain = Problem(4, 4, (Causal(),), BlockSizes(2, 2))
    typed = Problem(4, 4, (Causal(),), BlockSizes(np.int32(2), np.int64(2)))  # type: ignore[arg-type]
    assert typed.key == plain.key


def test_directions_without_sizes_of_their_own_use_the_forward_ones() -> None:
    assert BlockSizes(2, 3).of("dkv") == BlockSizes(2, 3).of("dq") == (2, 3)
    sizes = BlockSizes(2, 3, q_dkv=4, kv_dq=6)
    assert (sizes.of("fwd"), sizes.of("dkv"), sizes.of("dq")) == ((2, 3), (4, 3), (2, 6))


GOOD: dict[str, Any] = {
    "format": 1,
    "q_len": 8,
    "kv_len": 8,
    "masks": [{"kind": "causal"}],
    "blocks": {"q": 2, "kv": 2},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "problem has format 2, this version reads format 1"),
        ({"format": None}, "problem has format None"),
        ({"qlen": 8}, r"problem has unknown fields \['qlen'\]"),
        ({"q_len": "8"}, "q_len must be a whole number, got '8'"),
        ({"q_len": 8.0}, r"q_len must be a whole number, got 8\.0"),
        ({"q_len": True}, "q_len must be a whole number, got True"),
        ({"q_len": None}, "q_len must be a whole number, got None"),
        ({"q_len": 0}, "q_len must be at least 1, got 0"),
        ({"kv_len": -8}, "kv_len must be at least 1, got -8"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"heads": [1]}, r"heads must be a whole number, got \[1\]"),
        ({"kv_heads": 3}, "kv_heads=3 must divide heads=1"),
        ({"head_dim": 0}, "head_dim must be at least 1"),
        ({"ring": 0}, "ring must be at least 1"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"dtype": "float16"}, "dtype 'float16' is unknown"),
        ({"dtype": 32}, "dtype must be a string"),
        ({"layout": "round"}, "layout 'round' is unknown"),
        ({"regime": 3}, "regime must be a string"),
        ({"dynamic": 1}, "dynamic must be true or false, got 1"),
        ({"shrink": "yes"}, "shrink must be true or false"),
        ({"soft_cap": "30"}, "soft_cap must be a number"),
        ({"options": [1]}, r"options must be a JSON object, got \[1\]"),
        ({"sinks": 0.5}, "sinks must be a list"),
        ({"sinks": [1, 2]}, "sinks must hold heads=1 values, got 2"),
        ({"sinks": ["a"]}, r"sinks\[0\] must be a number"),
        ({"segments": [[[1, 8]]]}, "segments must be a list of two, got 1"),
        ({"segments": [[[1, 8]], [[1]]]}, r"segments\[1\]\[0\] must be a list of two"),
        ({"segments": [[[1, 8]], [[1, 7]]]}, "segments of the keys must cover 8 tokens"),
        ({"segments": [[[1, 9], [2, -1]], [[1, 8]]]}, "segments of the queries must not have neg"),
        ({"masks": []}, "masks must hold 1 or heads=1 masks, got 0"),
        ({"masks": [{"kind": "causal"}] * 2}, "masks must hold 1 or heads=1 masks, got 2"),
        ({"masks": {"kind": "causal"}}, "masks must be a list"),
        ({"masks": ["causal"]}, "mask must be an object with a 'kind', got 'causal'"),
        ({"blocks": [2, 2]}, r"blocks must be a JSON object, got \[2, 2\]"),
        ({"blocks": {"q": 2}}, r"blocks lacks the fields \['kv'\]"),
        ({"blocks": {"q": 2, "kv": 2, "k": 2}}, r"blocks has unknown fields \['k'\]"),
        ({"blocks": {"q": 2, "kv": "2"}}, r"blocks\.kv must be a whole number"),
        ({"blocks": {"q": 0, "kv": 2}}, r"blocks\.q must be at least 1"),
        ({"blocks": {"q": 3, "kv": 2}}, "block_q=3 must divide q_len=8"),
        ({"blocks": {"q": 2, "kv": 2, "kv_dkv": 5}}, "block_kv=5 must divide kv_len=8"),
        ({"shards": {"q": 3}}, "q_shards=3 must divide the number of q blocks"),
        ({"shards": {"head": 2}}, "head_shards=2 must divide the number of heads"),
        ({"shards": {"rows": 2}}, r"shards has unknown fields \['rows'\]"),
        ({"shards": 2}, "shards must be a JSON object, got 2"),
    ],
)
def test_bad_fields_are_named(change: dict[str, Any], words: str) -> None:
    assert Problem.from_json(GOOD).grid() == (4, 4)
    with pytest.raises(ValueError, match=words):
        Problem.from_json({**GOOD, **change})


@pytest.mark.parametrize("field", ["q_len", "kv_len", "masks", "blocks"])
def test_missing_fields_are_named(field: str) -> None:
    with pytest.raises(ValueError, match=rf"problem lacks the fields \['{field}'\]"):
        Problem.from_json({k: v for k, v in GOOD.items() if k != field})


@pytest.mark.parametrize("obj", [None, [], "x", 3])
def test_a_problem_is_an_object(obj: object) -> None:
    with pytest.raises(ValueError, match="problem must be a JSON object, got"):
        Problem.from_json(obj)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ({}, "mask must be an object with a 'kind'"),
        ({"kind": "casual"}, r"mask kind 'casual' is unknown, expected one of \['and', 'blocks'"),
        ({"kind": ["causal"]}, "mask kind .* is unknown"),
        ({"kind": "causal", "ofset": 1}, r"mask of kind 'causal' has unknown fields \['ofset'\]"),
        ({"kind": "causal", "offset": "1"}, "offset must be a whole number, got '1'"),
        ({"kind": "causal", "offset": 1.5}, r"offset must be a whole number, got 1\.5"),
        ({"kind": "local", "left": 3}, r"mask of kind 'local' lacks the fields \['right'\]"),
        ({"kind": "local", "left": 3, "right": "0"}, "right must be a whole number"),
        ({"kind": "chunked_causal"}, r"lacks the fields \['chunk_size'\]"),
        ({"kind": "chunked_causal", "chunk_size": 0}, "chunk_size must be at least 1"),
        ({"kind": "dense", "rows": 3}, "rows must be a list"),
        ({"kind": "dense", "rows": []}, "rows of a dense mask must be strings of 0 and 1"),
        ({"kind": "dense", "rows": ["10", "1"]}, "of one length"),
        ({"kind": "dense", "rows": ["12", "11"]}, "strings of 0 and 1"),
        ({"kind": "dense", "rows": [[1, 0]]}, r"rows\[0\] must be a string"),
        ({"kind": "blocks", "rows": ["2"], "block_q": 2}, r"lacks the fields \['block_kv'\]"),
        ({"kind": "blocks", "rows": [], "block_q": 2, "block_kv": 2}, "at least one block"),
        ({"kind": "blocks", "rows": ["z"], "block_q": 2, "block_kv": 2}, "unknown pattern"),
        ({"kind": "blocks", "rows": ["2"], "block_q": 0, "block_kv": 2}, "block_q must be at"),
        ({"kind": "random", "density": "x"}, "density must be a number"),
        ({"kind": "random", "density": 1.5}, "density must be between 0 and 1"),
        ({"kind": "random", "density": float("nan")}, "density must be between 0 and 1"),
        ({"kind": "and", "left": {"kind": "full"}}, r"mask of kind 'and' lacks the fields"),
        ({"kind": "or", "left": {"kind": "full"}, "right": 3}, "mask must be an object"),
    ],
)
def test_bad_masks_are_named(mask: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expr_from_json(mask)


@pytest.mark.parametrize("rows", [["11", "01"], ["1111"]])
def test_a_dense_mask_of_another_shape_is_refused(rows: list[str]) -> None:
    with pytest.raises(ValueError, match=r"dense mask array has shape .* expected \(8, 8\)"):
        Problem.from_json(GOOD | {"masks": [{"kind": "dense", "rows": rows}]})
    pattern = {"kind": "blocks", "rows": ["2"], "block_q": 4, "block_kv": 8}
    with pytest.raises(ValueError, match=r"block pattern covers .* expected \(8, 8\)"):
        Problem.from_json(GOOD | {"masks": [pattern]})


class Diagonal(Expr):
    """A mask of somebody else."""

    def visible(self, q_ids: Int, kv_ids: Int) -> Any:
        return q_ids == kv_ids


def test_masks_of_others_have_no_json_form() -> None:
    assert kind_of(Diagonal()) == "user"
    assert kind_of(Random(0.5)) == "random"
    with pytest.raises(ValueError, match="mask expression Diagonal has no JSON form"):
        expr_to_json(Diagonal())


@given(st.integers(0, 3), st.sampled_from((0.0, 0.3, 1.0)), st.data())
def test_random_masks_do_not_depend_on_the_slice(
    seed: int, density: float, data: st.DataObject
) -> None:
    mask = Mask(Random(density, seed), 16, 24)
    rows = slice(*sorted(data.draw(st.tuples(st.integers(0, 16), st.integers(0, 16)))))
    columns = slice(*sorted(data.draw(st.tuples(st.integers(0, 24), st.integers(0, 24)))))
    assert mask[rows, columns].tolist() == mask.dense()[rows, columns].tolist()
    if density in (0.0, 1.0):
        assert (mask.dense() == bool(density)).all()


def test_block_patterns_look_as_written() -> None:
    mask = Mask(Blocks(("02", "ag"), 2, 3), 4, 6)
    assert mask.dense().astype(int).tolist() == [
        [0, 0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1, 1],
        [1, 0, 0, 1, 1, 1],
        [1, 1, 0, 0, 1, 1],
    ]


def test_heads_take_turns_or_share() -> None:
    shared = Problem(4, 4, (Causal(),), BlockSizes(2, 2), heads=3, kv_heads=3)
    assert shared.single_mask
    assert [m.expr for m in shared.head_masks] == [Causal()] * 3
    split = replace(shared, masks=(Causal(), Full(), Causal()))
    assert not split.single_mask
    assert [m.expr for m in split.head_masks] == [Causal(), Full(), Causal()]
    assert split.but(seed=3).seed == 3
    assert split.option("fused", "neither") == "neither"
    assert FULL.option("fused") is True
