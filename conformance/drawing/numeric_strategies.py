"""Hypothesis strategies of numerical problems: structure only, arrays come from regime and seed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from conformance.contract.protocol import Description
from conformance.drawing.numeric_domain import NumericDomain, Runs, Signature, unit, with_options
from conformance.drawing.strategies import differs
from conformance.problems.mask_json import Blocks
from conformance.problems.problem import Problem
from reference.masks import Causal, ChunkedCausal, Expr, Full, Local

#: Letters of block patterns that leave no row without a visible key.
SEEING = "2ade"
#: Letters of block patterns, of few kinds each.
PALETTES = ("02", "02a", "0rst2", "02bcdfgh")
SINKS_NEAR = (0.5, -1.0, 3.0, -4.0)
SINKS_FAR = (200.0, -200.0, 1e4, float("-inf"))


def _cut(length: int, *ids: int) -> Runs:
    """Segments of almost equal lengths that end beside the block edges."""
    edges = [0, *((n * length) // len(ids) + 1 + n % 2 for n in range(1, len(ids))), length]
    return tuple((i, b - a) for i, a, b in zip(ids, edges[:-1], edges[1:], strict=True))


def _two(length: int, later: int, first: int, second: int) -> Runs:
    """Two segments that meet some tokens behind the middle."""
    middle = length // 2 + later
    return ((first, middle), (second, length - middle))


#: Not to be told from its successor as a float32.
LARGE = 2**24
#: Not to be told from 4 in 8 and in 16 bits.
FAR = 4 + 2**16

#: Segment ids of (queries, keys), by name, for given lengths. Those in `EMPTYING` leave rows without a key.
SEGMENTS: dict[str, Callable[[int, int], tuple[Runs, Runs]]] = {
    "ascending": lambda q, kv: (_cut(q, 1, 2, 3), _cut(kv, 1, 2, 3)),
    "descending": lambda q, kv: (_cut(q, LARGE + 1, LARGE, 1), _cut(kv, LARGE + 1, LARGE, 1)),
    "repeating": lambda q, kv: (_cut(q, 4, FAR, 4, FAR, 4), _cut(kv, 4, FAR, 4, FAR, 4)),
    "padding": lambda q, kv: (_cut(q, 1, 0), _cut(kv, 1, 0)),
    "negative": lambda q, kv: (_cut(q, -7, 5, -3), _cut(kv, -7, 5, -3)),
    "unlike": lambda q, kv: (_two(q, 0, 7, 3), _two(kv, -5, 7, 3)),
    "disjoint_tail": lambda q, kv: (_cut(q, 1, 2, 8), _cut(kv, 1, 2, 9)),
    "foreign_block": lambda q, kv: (((1, q - q // 2), (8, q // 2)), ((1, kv),)),
}
EMPTYING = ("disjoint_tail", "foreign_block")


def simple_masks(q: int, kv: int) -> dict[str, Expr]:
    """Computable masks for blocks of the given size; few, since each may be compiled into its kernel."""
    return {
        "causal": Causal(),
        "full": Full(),
        "window": Local(kv // 2, 0),
        "both_sides": Local(1, kv // 2 + 1),
        "chunks": ChunkedCausal(kv // 2 + 3),
        "late_causal": Causal(-q // 2),
        "pairs": ChunkedCausal(2 * kv),
    }


@st.composite
def patterns(draw: st.DrawFn, item: Signature, q: int, kv: int, empty_rows: bool) -> Expr:
    """Block patterns; without ``empty_rows`` every row of blocks has a block in which all rows see something."""
    rows, columns = item.grid
    letters = st.sampled_from(draw(st.sampled_from(PALETTES)))
    made = []
    for _ in range(rows):
        row = draw(st.lists(letters, min_size=columns, max_size=columns))
        if not empty_rows and not set(row) & set(SEEING):
            row[draw(st.integers(0, columns - 1))] = draw(st.sampled_from(SEEING))
        made.append("".join(row))
    return Blocks(tuple(made), q, kv)


@st.composite
def _masks(
    draw: st.DrawFn, domain: NumericDomain, item: Signature, description: Description
) -> tuple[Expr, ...]:
    """One mask for all heads, or two that the heads choose from."""
    q, kv = unit(description)
    empty = "empty_rows" in domain.needs | domain.allows
    simple = simple_masks(q, kv)
    if not empty or item.grid[0] != item.grid[1]:
        del simple["late_causal"]
    pattern = patterns(item, q, kv, empty)
    one = st.one_of(st.sampled_from(list(simple.values())), pattern, pattern)
    first = draw(one)
    choice = domain.may("per_head_masks")
    offered = item.heads > 1 and description.offers("per_head_masks")
    if not offered or choice == "never" or (choice == "any" and draw(st.booleans())):
        return (first,)
    other = draw(pattern.filter(differs(first, item.grid[0] * q, item.grid[1] * kv)))
    rest = draw(
        st.lists(st.sampled_from((first, other)), min_size=item.heads - 2, max_size=item.heads - 2)
    )
    return (first, *rest, other)


@st.composite
def numeric_problems(
    draw: st.DrawFn, domain: NumericDomain, description: Description, pool: list[Signature]
) -> Problem:
    """Problems of a domain, with a signature out of a pool."""
    item = draw(st.sampled_from(pool))
    masks = draw(_masks(domain, item, description))
    q, kv = unit(description)
    segments = sinks = None
    if item.segments:
        names = [*SEGMENTS] if "empty_rows" in domain.needs | domain.allows else [
            name for name in SEGMENTS if name not in EMPTYING
        ]  # fmt: skip
        segments = SEGMENTS[draw(st.sampled_from(names))](item.grid[0] * q, item.grid[1] * kv)
    if item.sinks:
        kinds = {True: (SINKS_FAR,), False: (SINKS_NEAR,), None: (SINKS_NEAR, SINKS_FAR)}
        values = st.sampled_from(draw(st.sampled_from(kinds[domain.extreme_sinks])))
        sinks = tuple(draw(st.lists(values, min_size=item.heads, max_size=item.heads)))
    options = ()
    choice = domain.may("options")
    if choice != "never" and description.options:
        wanted = list(with_options(description))
        options = draw(st.sampled_from([*([()] if choice == "any" else []), *wanted]))
    return item.build(
        description,
        masks,
        regime=draw(st.sampled_from(domain.regimes)),
        seed=draw(st.integers(0, 1)),
        segments=segments,
        sinks=sinks,
        options=options,
    )
