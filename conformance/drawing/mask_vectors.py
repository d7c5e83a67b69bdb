"""Fixed problems that every run tries first, each with the class of bugs that it looks for.

They are the boundary cases that random search meets rarely: wholly empty or full parts, single visible
entries, index values around the ends of the small integer types. Sizes are given in blocks and scale with
the block sizes that an implementation can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from conformance.drawing.domain import Vector
from conformance.problems.mask_json import Blocks, Random
from conformance.problems.problem import BlockSizes, Problem
from reference.mask_info import Shards
from reference.masks import Causal, ChunkedCausal, Expr, Full, Local

Build = Callable[[int, int], Problem]


@dataclass(frozen=True)
class MaskVector(Vector):
    """A fixed problem about a compiled mask.

    Attributes:
      build: the problem for given block sizes (q, kv) in tokens.
      tiny: only for compiling masks: block sizes are its own.
      flat: kernels try it in the flat layout first, not in the grid layout.
      given: values of options, for kernels that have them; others do not try it.
    """

    build: Build
    tiny: bool = False
    flat: bool = False
    given: tuple[tuple[str, Any], ...] = ()


def _pattern(
    *rows: str,
    heads: int = 1,
    kv_heads: int | None = None,
    shards: Shards = Shards(),  # noqa: B008  (frozen)
    dynamic: bool = False,
) -> Build:
    def build(q: int, kv: int) -> Problem:
        return Problem(
            len(rows) * q,
            len(rows[0]) * kv,
            (Blocks(rows, q, kv),),
            BlockSizes(q, kv),
            heads=heads,
            kv_heads=kv_heads or heads,
            shards=shards,
            dynamic=dynamic,
        )

    return build


def _square(
    blocks: int,
    make: Callable[[int], Expr],
    heads: int = 1,
    shards: Shards = Shards(),  # noqa: B008
) -> Build:
    """A mask over ``blocks`` × ``blocks`` blocks; ``make`` gets the larger block size."""

    def build(q: int, kv: int) -> Problem:
        return Problem(
            blocks * q,
            blocks * kv,
            (make(max(q, kv)),),
            BlockSizes(q, kv),
            heads=heads,
            kv_heads=heads,
            shards=shards,
        )

    return build


def _two_heads(first: Expr, second: Expr) -> Build:
    def build(q: int, kv: int) -> Problem:
        return Problem(2 * q, 2 * kv, (first, second), BlockSizes(q, kv), heads=2, kv_heads=2)

    return build


def _long_row(columns: int) -> Build:
    """A single row of blocks of one entry whose last block is the only visible one."""

    def build(q: int, kv: int) -> Problem:
        return Problem(1, columns, (Local(0, None, offset=columns - 1),), BlockSizes(1, 1))

    return build


def _of_head_shards(*masks: Expr) -> Build:
    """Two heads of each mask, in a head shard of their own."""

    def build(q: int, kv: int) -> Problem:
        heads = tuple(mask for mask in masks for _ in range(2))
        return Problem(
            2 * q,
            2 * kv,
            heads,
            BlockSizes(q, kv),
            heads=len(heads),
            kv_heads=len(heads),
            shards=Shards(head=len(masks)),
        )

    return build


def _run_time(q_blocks: int, kv_blocks: int) -> Build:
    """A run-time mask with a few partial blocks of two entries among many full and empty ones."""

    def build(q: int, kv: int) -> Problem:
        sizes = BlockSizes(1, 2)
        mask = Random(0.9, seed=q_blocks)
        return Problem(q_blocks, 2 * kv_blocks, (mask,), sizes, dynamic=True)

    return build


def _few_entries(dynamic: bool) -> Build:
    """Blocks of 128 tokens that are full or empty but for a single entry: what a sum in low precision misses."""

    def build(q: int, kv: int) -> Problem:
        sizes = BlockSizes(128, 128)
        return Problem(256, 256, (Blocks(("bd", "ec"), 128, 128),), sizes, dynamic=dynamic)

    return build


def _late_differences(block_q: int, block_kv: int) -> Build:
    """Blocks that differ in their last entry and in one of the middle only, on both sides of the diagonal."""

    def build(q: int, kv: int) -> Problem:
        sizes = BlockSizes(block_q, block_kv)
        return Problem(2 * block_q, 2 * block_kv, (Blocks(("el", "kc"), block_q, block_kv),), sizes)

    return build


def _many_stored(count: int) -> Build:
    """``count`` different partial blocks, so that mask_next reaches the end of a type."""

    def build(q: int, kv: int) -> Problem:
        return Problem(count, 32, (Random(0.5, seed=5),), BlockSizes(1, 32))

    return build


def _long_rows(q: int, kv: int) -> Problem:
    """Two masks with a row and a column of five blocks: more than some kernels work on in one step."""
    first = Blocks(("22222", "2a000", "20000", "2r000", "s0000"), q, kv)
    second = Blocks(("t0000", "s222r", "00020", "000a0", "00020"), q, kv)
    return Problem(5 * q, 5 * kv, (first, second), BlockSizes(q, kv), heads=2, kv_heads=2)


VECTORS: tuple[MaskVector, ...] = (
    MaskVector("one-full-block", "single block", _pattern("2")),
    MaskVector("one-partial-block", "single block", _pattern("a")),
    MaskVector("one-empty-block", "nothing visible", _pattern("0")),
    MaskVector("nothing-visible", "nothing visible", _pattern("00", "00")),
    MaskVector("everything-visible", "no partial block", _square(2, lambda b: Full())),
    MaskVector(
        "everything-visible-two-q-shards",
        "no partial block",
        _square(4, lambda b: Full(), heads=2, shards=Shards(q=2)),
    ),
    MaskVector(
        "aligned-blocks-two-q-shards", "no partial block", _pattern("20", "02", shards=Shards(q=2))
    ),
    MaskVector("empty-first-q-shard", "empty shard", _pattern("00", "a2", shards=Shards(q=2))),
    MaskVector(
        "empty-last-q-shard", "empty shard", _pattern("2a", "00", shards=Shards(q=2)), flat=True
    ),
    MaskVector("stored-in-one-q-shard", "empty stack", _pattern("r0", "20", shards=Shards(q=2))),
    MaskVector(
        "uneven-q-shards",
        "padding between shards",
        _pattern("a00000", "222222", shards=Shards(q=2)),
        flat=True,
    ),
    MaskVector("empty-middle-row", "empty row of blocks", _pattern("200", "000", "0a2")),
    MaskVector("empty-middle-column", "empty column of blocks", _pattern("20a", "b02"), flat=True),
    MaskVector("corner-entries", "block edges", _pattern("de", "gc")),
    MaskVector("corner-holes", "block edges", _pattern("bc", "fb")),
    MaskVector("tail-after-last-block", "wrap-around", _pattern("0a0", "200"), flat=True),
    MaskVector("stored-tail", "wrap-around", _pattern("a0r", "020")),
    MaskVector("many-stored-blocks", "deduplication", _pattern("rst", "tsr", "rrs")),
    MaskVector("almost-equal-blocks", "deduplication", _pattern("bc", "cb")),
    MaskVector("last-column-only", "shrink drops a column", _pattern("002", "220", "222")),
    MaskVector("diagonal", "shrink", _pattern("a00", "0a0", "00a")),
    MaskVector("causal", "causal", _square(4, lambda b: Causal())),
    MaskVector("causal-negative-offset", "rows that see nothing", _square(4, lambda b: Causal(-b))),
    MaskVector(
        "causal-far-negative", "rows that see nothing", _square(3, lambda b: Causal(-2 * b + 1))
    ),
    MaskVector("causal-positive-offset", "offset", _square(3, lambda b: Causal(b // 2 + 1))),
    MaskVector("sliding-window", "window edges", _square(4, lambda b: Local(b, 0)), flat=True),
    MaskVector("window-one-short", "window edges", _square(4, lambda b: Local(b - 1, 0))),
    MaskVector(
        "unlimited-window", "window without limits", _square(2, lambda b: Local(None, None))
    ),
    MaskVector("right-window", "window edges", _square(3, lambda b: Local(None, b))),
    MaskVector("left-only-window", "window edges", _square(3, lambda b: Local(b, None, offset=-b))),
    MaskVector("chunks-of-a-block", "chunk edges", _square(4, ChunkedCausal)),
    MaskVector(
        "chunks-across-blocks", "chunk edges", _square(3, lambda b: ChunkedCausal(b + b // 2 + 1))
    ),
    MaskVector("two-different-heads", "several masks", _two_heads(Causal(), Full())),
    MaskVector("one-empty-head", "several masks", _two_heads(Causal(), Causal(-(10**6)))),
    MaskVector("masks-of-head-shards", "several masks", _of_head_shards(Causal(), Full())),
    MaskVector("grouped-heads", "head map", _pattern("a0", "2a", heads=6, kv_heads=2)),
    MaskVector(
        "dynamic-causal-pattern", "run-time mask", _pattern("a00", "2a0", "22a", dynamic=True)
    ),
    MaskVector("large-blocks", "one entry in many", _few_entries(False), tiny=True),
    MaskVector("dynamic-large-blocks", "one entry in many", _few_entries(True), tiny=True),
    MaskVector("late-columns", "deduplication", _late_differences(2, 256), tiny=True),
    MaskVector("late-rows", "deduplication", _late_differences(256, 2), tiny=True),
    MaskVector("dynamic-129-q-blocks", "downcast boundary", _run_time(129, 1), tiny=True),
    MaskVector("dynamic-129-kv-blocks", "downcast boundary", _run_time(1, 129), tiny=True),
    MaskVector(
        "dynamic-empty-columns", "run-time mask", _pattern("020", "0a0", "0r0", dynamic=True)
    ),
    MaskVector("inner-entries", "labels from corners or edges", _pattern("k2", "0l")),
    MaskVector("long-rows", "rows of several steps", _long_rows),
    MaskVector(
        "long-rows-split",
        "rows of several steps",
        _long_rows,
        given=(("use_fused_bwd_kernel", False),),
    ),
    MaskVector("data-127", "downcast boundary", _long_row(128), tiny=True),
    MaskVector("data-128", "downcast boundary", _long_row(129), tiny=True),
    MaskVector("stored-127", "downcast boundary", _many_stored(128), tiny=True),
    MaskVector("stored-128", "downcast boundary", _many_stored(129), tiny=True),
)

#: Too long for every check; for the checks of the int16 boundary only.
LONG_VECTORS: tuple[MaskVector, ...] = (
    MaskVector("data-32767", "downcast boundary", _long_row(32768), tiny=True),
    MaskVector("data-32768", "downcast boundary", _long_row(32769), tiny=True),
)


def vectors(
    block_q: int, block_kv: int, tiny: bool, only: tuple[str, ...] = ()
) -> Iterator[tuple[MaskVector, Problem]]:
    """The fixed problems for given block sizes.

    Args:
      block_q, block_kv: tokens a block.
      tiny: whether blocks of a single token can be compiled.
      only: names to choose from; all but the long ones if empty.
    """
    for item in (*VECTORS, *LONG_VECTORS) if only else VECTORS:
        if (tiny or not item.tiny) and (not only or item.name in only):
            yield item, item.build(block_q, block_kv)
