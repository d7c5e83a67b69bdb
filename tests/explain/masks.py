"""Masks of every kind that `explain` knows, small enough for the dense reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from conformance.explain.language.expressions import Documents, Function, Prefix, Tiles
from conformance.problems.mask_json import Random
from reference.masks import (
    And,
    Causal,
    ChunkedCausal,
    Dense,
    Expr,
    Full,
    Local,
    Mask,
    Or,
)

OFFSETS = st.integers(-7, 8)
SIDES = st.none() | st.integers(-3, 8)

STRUCTURED = st.one_of(
    st.just(Full()),
    st.builds(Causal, OFFSETS),
    st.builds(Local, SIDES, SIDES, OFFSETS),
    st.builds(ChunkedCausal, st.integers(1, 12)),
    st.builds(Prefix, st.integers(0, 30)),
    st.builds(Documents, st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)),
)
SCATTERED = st.one_of(
    st.builds(Random, st.floats(0, 1), st.integers(0, 9)),
    st.builds(Tiles, st.floats(0, 1), st.integers(1, 5), st.integers(0, 9)),
    st.just(Function(lambda q, kv: (q * 3 + kv) % 5 < 2, "stripes")),
)


@dataclass(frozen=True)
class Case:
    """A mask cut into blocks."""

    expr: Expr
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int

    @property
    def mask(self) -> Mask:
        return Mask(self.expr, self.q_len, self.kv_len)


@st.composite
def cases(draw: st.DrawFn, largest: int = 6, scattered: bool = True) -> Case:
    block_q, block_kv = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    q_len, kv_len = block_q * draw(st.integers(1, 7)), block_kv * draw(st.integers(1, 7))
    leaves = STRUCTURED
    if scattered:
        dense = st.integers(0, 99).map(
            lambda seed: Dense(np.random.default_rng(seed).random((q_len, kv_len)) < 0.5)
        )
        leaves = leaves | SCATTERED | dense
    expr = draw(
        st.recursive(
            leaves,
            lambda part: st.builds(And, part, part) | st.builds(Or, part, part),
            max_leaves=4,
        )
    )
    return Case(expr, q_len, kv_len, block_q, block_kv)
