"""Drawn problems are valid, honour their space, and reach the cases that compilers get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.adapter import Description
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.drawing.mask_domain import ANY, ONE_MASK, SHRUNK, MaskDomain
from conformance.drawing.mask_vectors import LONG_VECTORS, VECTORS, vectors
from conformance.drawing.strategies import (
    Choice,
    Space,
    mask_strategies,
    masks,
    near,
    parts,
    problems,
)
from conformance.problem import Problem
from conformance.problems.mask_json import kind_of
from conformance.problems.predicates import label_grids
from reference.mask_info import DIRECTIONS
from reference.masks import Mask

REFERENCE = ReferenceAdapter().describe()


def sample(strategy: st.SearchStrategy[Any], number: int) -> list[Any]:
    """The same draws in every run."""
    drawn: list[Any] = []

    @settings(
        max_examples=number,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(item: Any) -> None:
        drawn.append(item)

    collect()
    return drawn


@cache
def structural() -> list[Problem]:
    return sample(problems(), 150)


def test_drawn_problems_are_valid() -> None:
    everything = Space(dynamic=True, layouts=(None, "grid", "flat"), kv_shards="any", grouped=True)
    for problem in sample(problems(everything), 80):
        problem.check()
        for direction in DIRECTIONS:
            q_blocks, kv_blocks = problem.grid(direction)
            assert q_blocks % problem.shards.q == kv_blocks % problem.shards.kv == 0
        assert [mask.shape for mask in problem.head_masks] == [
            (problem.q_len, problem.kv_len)
        ] * problem.heads
        assert problem.heads % problem.kv_heads == problem.kv_heads % problem.shards.head == 0
        if problem.layout == "flat":
            assert problem.single_mask
            assert problem.shards.head == 1
        else:
            assert problem.shards.kv == 1


def grids(problem: Problem) -> Any:
    return label_grids(problem)


COVERED: dict[str, Callable[[Problem], bool]] = {
    "empty row": lambda p: any((~m.dense().any(axis=1)).any() for m in p.head_masks),
    "empty column": lambda p: any((~m.dense().any(axis=0)).any() for m in p.head_masks),
    "empty row of blocks": lambda p: bool(
        ((grids(p) == 0).all(axis=2) & (grids(p) > 0).any(axis=(1, 2))[:, None]).any()
    ),
    "empty column of blocks": lambda p: bool(
        ((grids(p) == 0).all(axis=1) & (grids(p) > 0).any(axis=(1, 2))[:, None]).any()
    ),
    "empty shard beside another": lambda p: (
        p.shards.q > 1
        and len({bool(part.any()) for part in np.split(grids(p), p.shards.q, axis=1)}) == 2
    ),
    "all three labels": lambda p: set(np.unique(grids(p))) == {0, 1, 2},
    "full blocks only": lambda p: set(np.unique(grids(p))) == {2},
    "partial blocks only": lambda p: set(np.unique(grids(p))) == {1},
    "nothing visible": lambda p: set(np.unique(grids(p))) == {0},
    "no partial block beside empty ones": lambda p: set(np.unique(grids(p))) == {0, 2},
    "more queries": lambda p: p.q_len > p.kv_len,
    "more keys": lambda p: p.q_len < p.kv_len,
    "square": lambda p: p.q_len == p.kv_len,
    "tall blocks": lambda p: p.blocks.q > p.blocks.kv,
    "wide blocks": lambda p: p.blocks.q < p.blocks.kv,
    "single block": lambda p: p.grid() == (1, 1),
    "blocks of one token": lambda p: p.blocks.of("fwd") == (1, 1),
    "other blocks backward": lambda p: p.blocks.of("dkv") != p.blocks.of("fwd"),
    "several q shards": lambda p: p.shards.q > 1,
    "several head shards": lambda p: p.shards.head > 1,
    "head shards of different masks": lambda p: p.shards.head > 1 and not p.single_mask,
    "heads with one mask": lambda p: p.heads > 1 and p.single_mask,
    "repeated stored block": lambda p: repeats_a_partial_block(p),
}


def repeats_a_partial_block(problem: Problem) -> bool:
    q, kv = problem.blocks.of("fwd")
    if q * kv == 1:
        return False
    for mask, grid in zip(problem.head_masks, label_grids(problem), strict=True):
        stored = [
            mask[i * q : (i + 1) * q, j * kv : (j + 1) * kv].tobytes()
            for i, j in np.argwhere(grid == 1)
        ]
        if len(set(stored)) < len(stored):
            return True
    return False


@pytest.mark.parametrize("trait", COVERED)
def test_search_reaches(trait: str) -> None:
    """At least one in a hundred problems: a quick search tries 60 a check and there are many checks."""
    found = sum(COVERED[trait](problem) for problem in structural())
    assert found >= len(structural()) / 100, f"{trait}: {found} of {len(structural())}"


@pytest.mark.parametrize("kind", list(mask_strategies(4, 4, 2, 2)))
def test_every_kind_of_mask_is_drawn(kind: str) -> None:
    found = {kind_of(expr) for problem in structural() for expr in problem.masks}
    assert kind in found
    only = sample(masks(6, 8, 3, 2, (kind,)), 20)
    assert {kind_of(expr) for expr in only} == {kind}
    for expr in only:
        assert Mask(expr, 6, 8).dense().shape == (6, 8)


TRAITS: dict[str, Callable[[Problem], bool]] = {
    "per_head": lambda p: not p.single_mask,
    "q_shards": lambda p: p.shards.q > 1,
    "head_shards": lambda p: p.shards.head > 1,
    "kv_shards": lambda p: p.shards.kv > 1,
}


@pytest.mark.parametrize("choice", ["any", "always", "never"])
@pytest.mark.parametrize("trait", TRAITS)
def test_choices_are_honoured(trait: str, choice: Choice) -> None:
    chosen: dict[str, Any] = {trait: choice}
    space = replace(Space(), **chosen)
    if trait == "kv_shards":
        space = replace(space, layouts=("flat",))
    seen = {TRAITS[trait](problem) for problem in sample(problems(space), 30)}
    assert seen == {"any": {False, True}, "always": {True}, "never": {False}}[choice]


def test_sizes_and_options_come_from_the_space() -> None:
    space = Space(
        block_q=(3,),
        block_kv=(5, 10),
        blocks=2,
        heads=2,
        static=False,
        dynamic=True,
        shrink=(False,),
        backward_blocks=False,
        layouts=("grid",),
        kinds=("full", "causal"),
        options=(("b", (1, 2)), ("a", ("x",))),
    )
    drawn = sample(problems(space), 40)
    for problem in drawn:
        assert problem.blocks.q == 3
        assert max(problem.grid()) <= 2
        assert problem.blocks.of("dkv") == problem.blocks.of("dq") == problem.blocks.of("fwd")
        assert problem.heads <= 2
        assert problem.dynamic
        assert not problem.shrink
        assert problem.layout == "grid"
        assert {kind_of(expr) for expr in problem.masks} <= {"full", "causal"}
        assert problem.option("a") == "x"
    assert {problem.blocks.kv for problem in drawn} == {5, 10}
    assert {problem.option("b") for problem in drawn} == {1, 2}


def test_both_static_and_dynamic_masks_are_drawn_where_both_are_wanted() -> None:
    assert {p.dynamic for p in sample(problems(Space(dynamic=True)), 40)} == {False, True}
    assert {p.kv_heads < p.heads for p in sample(problems(Space(grouped=True)), 40)} == {
        False,
        True,
    }


def test_near_and_parts() -> None:
    assert set(sample(near([4, 8]), 60)) == {3, 4, 5, 7, 8, 9}
    assert (parts(6, "any"), parts(6, "never"), parts(6, "always")) == (
        [1, 2, 3, 6],
        [1],
        [2, 3, 6],
    )


FLAT_ONLY = Description(
    "flat", "1", REFERENCE.features - {"layout:grid", "dynamic_masks", "shards:head"}
)
BIG_BLOCKS = Description(
    "big",
    "1",
    REFERENCE.features - {"per_head_masks", "layout:flat"},
    info_block_multiples=(8, 128),
)


@pytest.mark.parametrize("description", [REFERENCE, FLAT_ONLY, BIG_BLOCKS], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "domain",
    [
        MaskDomain(),
        MaskDomain({"shards:q"}, ANY | {"dynamic"}),
        MaskDomain({"rectangular"}, SHRUNK),
        MaskDomain(kinds=("local",), where=lambda p: p.heads == 1),
        MaskDomain(allows=ONE_MASK | {"shards:kv"}),
        MaskDomain(kernel=True),
    ],
    ids=["all", "q shards", "rectangular", "local", "kv shards", "kernel"],
)
def test_a_domain_draws_what_it_contains(domain: MaskDomain, description: Description) -> None:
    drawn = sample(domain.strategy(description), 20)
    assert len(drawn) >= 10
    for problem in drawn:
        assert domain.contains(problem)
        assert domain.accepts(problem, description)
        if description is FLAT_ONLY:
            assert problem.single_mask
            assert problem.shards.head == 1
        if description is BIG_BLOCKS and not domain.kernel:
            assert problem.blocks.q % 8 == problem.blocks.kv % 128 == 0


def test_names_of_fixed_problems_are_unique_and_scale_with_the_blocks() -> None:
    names = [item.name for item in (*VECTORS, *LONG_VECTORS)]
    assert len(set(names)) == len(names)
    assert all(item.bug_class for item in VECTORS)
    for sizes, tiny in (((4, 4), True), ((8, 128), False), ((2, 6), False)):
        found = list(vectors(*sizes, tiny))
        assert len(found) == sum(tiny or not item.tiny for item in VECTORS)
        for item, problem in found:
            problem.check()
            if not item.tiny:
                assert problem.blocks.of("fwd") == sizes, item.name


def test_only_wanted_fixed_problems() -> None:
    (found,) = vectors(4, 4, True, only=("data-32768",))
    assert found[0].name == "data-32768"
    assert found[1].kv_len == 32769


def test_fixed_problems_of_a_domain_belong_to_it() -> None:
    from conformance import checks
    from conformance.checks.registry import CHECKS

    checks.load_all()
    for description in (REFERENCE, FLAT_ONLY, BIG_BLOCKS):
        for check in CHECKS.values():
            for _, problem in check.domain.vectors(description):
                assert check.domain.contains(problem)
                assert check.domain.accepts(problem, description)


@pytest.mark.parametrize("length", [1, 2, 8])
def test_heads_with_different_masks_have_different_values(length: int) -> None:
    space = Space((length,), (length,), blocks=1, per_head="always", q_shards="never")

    @settings(max_examples=50)
    @given(problems(space))
    def look(problem: Problem) -> None:
        values = {mask.dense().tobytes() for mask in problem.head_masks}
        assert len(values) == len(set(problem.masks)) == 2

    look()
