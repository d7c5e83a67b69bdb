"""What numerical problems are put together from: a few masks, patterns of segment ids, values of sinks."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from conformance.drawing.signatures import Runs, Signature
from conformance.problems.mask_json import Blocks
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
