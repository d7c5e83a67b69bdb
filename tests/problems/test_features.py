"""The table of features: names that adapters know, one example a feature, and what must be declared for them."""

from __future__ import annotations

import pytest

from conformance.contract import protocol
from conformance.drawing.signatures import SIGNATURES
from conformance.problems.features import COMPILED, COMPUTED, FEATURES, declared_for, features_of
from conformance.problems.problem import BlockSizes, Problem
from reference.mask_info import Shards
from reference.masks import Causal, Full

PLAIN = Problem(8, 8, (Causal(),), BlockSizes(4, 4), heads=2, kv_heads=2)

#: A problem with one feature, and what comes with it; every problem is static or dynamic.
EXAMPLES: dict[str, tuple[Problem, set[str]]] = {
    "per_head_masks": (PLAIN.but(masks=(Causal(), Full())), set()),
    "gqa": (PLAIN.but(heads=4), set()),
    "mqa": (PLAIN.but(kv_heads=1), set()),
    "segment_ids": (PLAIN.but(segments=(((0, 8),), ((0, 8),))), set()),
    "sinks": (PLAIN.but(sinks=(0.0, 0.0)), set()),
    "soft_cap": (PLAIN.but(soft_cap=2.0), set()),
    "head_dim_v": (PLAIN.but(head_dim_v=64), set()),
    "bfloat16": (PLAIN.but(dtype="bfloat16"), set()),
    "ring": (PLAIN.but(ring=2), set()),
    "static": (PLAIN, set()),
    "dynamic": (PLAIN.but(dynamic=True), set()),
    "shards": (PLAIN.but(shards=Shards(head=2, q=2)), {"shards:head", "shards:q"}),
    "shards:head": (PLAIN.but(shards=Shards(head=2)), {"shards"}),
    "shards:q": (PLAIN.but(shards=Shards(q=2)), {"shards"}),
    "shards:kv": (PLAIN.but(shards=Shards(kv=2)), {"shards"}),
    "blocks": (PLAIN.but(blocks=BlockSizes(4, 4, q_dq=8, kv_compute=2)), {"blocks:backward", "blocks:compute"}),
    "blocks:backward": (PLAIN.but(blocks=BlockSizes(4, 4, kv_dkv=8)), {"blocks"}),
    "blocks:compute": (PLAIN.but(blocks=BlockSizes(4, 4, kv_dkv_compute=2)), {"blocks"}),
    "rectangular": (PLAIN.but(blocks=BlockSizes(4, 8)), set()),
    "layout:grid": (PLAIN.but(layout="grid"), set()),
    "layout:flat": (PLAIN.but(layout="flat"), set()),
    "unshrunk": (PLAIN.but(shrink=False), set()),
    "not_downcast": (PLAIN.but(downcast=False), set()),
    "options": (PLAIN.but(options=(("x", 1),)), set()),
    "empty_rows": (PLAIN.but(masks=(Causal(-1),)), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_one_example_a_feature(name: str) -> None:
    problem, besides = EXAMPLES[name]
    assert features_of(problem) - {"static"} == ({name} | besides) - {"static"}
    assert features_of(problem, [name]) == {name}


def test_adapters_know_what_they_must_declare() -> None:
    assert {item.declared for item in FEATURES.values()} - {""} <= protocol.FEATURES.keys()
    assert COMPILED | COMPUTED | {"blocks:backward", "blocks:compute"} == FEATURES.keys()


def test_some_features_are_declared_together() -> None:
    assert declared_for({"ring"}) == {"ring"}
    assert declared_for({"ring", "sinks", "options"}) == {"ring", "sinks", "ring:sinks"}


def test_a_signature_has_the_features_of_its_problems() -> None:
    features = {item.name: item.features for item in SIGNATURES}
    assert features["plain"] == {"static"}
    assert features["shards-both"] == {"static", "shards", "shards:head", "shards:q", "gqa"}
    assert features["mqa-segments-cap-parts"] == {
        "static", "mqa", "segment_ids", "soft_cap", "blocks", "blocks:backward", "blocks:compute",
    }  # fmt: skip
