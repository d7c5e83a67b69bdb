"""The verdict in plain words follows from the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.explain.blocks.reorder import best_share
from conformance.explain.costs.sizes import dividing, neighbours, pairs
from conformance.explain.costs.study import Question, study
from conformance.explain.language.grammar import parse
from conformance.explain.output.advice import Remark, remarks
from conformance.explain.output.wording import beside, listing, share, size
from reference.masks import Dense, Expr


def said(mask: str | Expr, length: int, block: int, **options: Any) -> list[Remark]:
    expr = parse(mask, length, length) if isinstance(mask, str) else mask
    return remarks(study(Question("mask", expr, length, length, block, block, **options)))


def text(found: list[Remark], kind: str) -> str:
    return "\n".join(remark.text for remark in found if remark.kind == kind)


def test_causal_skips_half_and_does_not_shrink() -> None:
    found = said("causal", 8192, 128)
    assert found[0] == Remark(
        "verdict",
        "Skips 49.2 % of the arithmetic at 128×128: 2,016 of 4,096 blocks are empty. 50.0 % of the pairs are "
        "hidden, and no block size skips more than that.",
    )
    assert "does not shrink: the longest row needs all 64 columns" in text(found, "cost")
    assert "A flat list takes 2,080." in text(found, "cost")
    assert "the kernel fetches 130 MiB, flash attention would fetch 256 MiB" in text(found, "good")
    assert "Blocks of 512×512 skip nearly as much (46.9 %) in 136 instead of 2,080" in text(
        found, "try"
    )
    assert not text(found, "limit")


def test_a_window_shrinks_the_grid() -> None:
    found = text(said("local:1024,0", 8192, 128), "good")
    assert "The grid shrinks from 64 to 9 columns: 576 instead of 4,096 steps per head." in found


@pytest.mark.parametrize(
    ("mask", "block", "words"),
    [
        ("full", 128, "This mask hides nothing: every block is full"),
        ("causal:-9999", 128, "Nothing is visible: no block runs"),
        ("random:0.9", 128, "This mask gains nothing at 128×128: every block is partial."),
        ("causal", 1024, "This mask gains nothing at 1024×1024: every block is partial."),
        ("causal:500", 512, "Nothing is skipped at 512×512: no block is empty. 25.0 % of the"),
        ("local:64,0", 512, "Skips 25.0 % of the arithmetic at 512×512: 1 of 4 blocks is empty."),
    ],
)
def test_verdicts(mask: str, block: int, words: str) -> None:
    assert said(mask, 1024, block)[0].text.startswith(words)


def test_smaller_blocks_are_tried() -> None:
    found = text(said("local:64,0", 4096, 2048), "try")
    assert "Blocks of 128×128 would skip 93.8 % instead of 25.0 %, in 63 steps per head." in found
    found = text(said("random:0.9", 2048, 512), "try")
    assert "Smaller blocks do not help: 128×128 and 256×256 skip next to nothing" in found


def test_sorting_is_tried() -> None:
    found = said("random:0.9", 512, 128)
    assert "Sorting the tokens does not help" in text(found, "try")
    document = np.arange(512) % 4
    interleaved = Dense(document[:, None] == document[None, :])
    found = said(interleaved, 512, 128)
    assert found[0].text.startswith("This mask gains nothing")
    assert "Sorting the tokens so that similar rows and columns are adjacent would skip 75.0 %" in (
        text(found, "try")
    )


def test_a_shuffled_band_is_sorted_towards_the_diagonal() -> None:
    rng = np.random.default_rng(0)
    near = np.abs(np.arange(256)[:, None] - np.arange(256)[None]) < 16
    shuffled = near[np.ix_(rng.permutation(256), rng.permutation(256))]
    assert best_share(shuffled, 32, 32) > 0.5


def test_combinations_are_stored_by_some() -> None:
    found = said("prefix:100+causal", 8192, 1024)
    assert "2 distinct partial blocks of 8 are stored: 2.0 MiB of booleans" in text(found, "cost")
    assert "passes to the kernel as int32 (8.0 MiB)" in text(found, "cost")
    assert "Write this mask as a function of positions" in text(found, "try")
    found = said("causal & local:3000,0", 8192, 1024)
    assert "pallas_impl computes this combination of masks" in text(found, "good")


def test_documents_that_nobody_told_the_mask() -> None:
    found = text(said("causal", 8192, 512, segmented=True, segments=parse("documents:2048")), "try")
    # 16 × 16 blocks, of which 136 run; 4 documents of 4 × 4 blocks each need 10.
    assert f"Segment ids hide every pair of {136 - 4 * 10} blocks that still run (37.5 %" in found
    assert "Segment ids" not in text(said("causal", 8192, 512, segmented=True), "try")


def test_what_fits_where() -> None:
    found = said("causal", 1 << 20, 1024)
    limits = text(found, "limit")
    assert "jax cannot run the forward kernel on any TPU: its arrays need 3.0 MiB" in limits
    assert "It would fit at 2048×2048." in limits
    assert "tokamax cannot run the forward kernel" in limits
    assert "The arrays of pallas_impl fit." in text(found, "good")
    found = said("causal", 8192, 2048, head_dim=256)
    assert "The forward kernel of jax needs about 30.0 MiB of vector memory" in text(found, "limit")
    assert "on v4, v5e and v5p" in text(found, "limit")


def test_block_sizes_that_no_kernel_takes() -> None:
    found = text(said("causal", 1000, 100), "limit")
    assert "TPU kernels take blocks of 128, 256, … tokens: the figures at 100×100 are only" in found
    assert "A sequence of 1,000 tokens has to be padded to 1,024." in found
    assert "padded" not in text(said("causal", 1024, 64), "limit")
    assert not text(said("causal", 1024, 128), "limit")


def test_block_sizes_to_compare() -> None:
    assert neighbours(8192, 512) == [128, 256, 512, 1024, 2048]
    assert neighbours(768, 384) == [384, 768]
    assert neighbours(96, 16) == [8, 16, 32]
    assert neighbours(96, 4) == [4, 8, 16, 32]
    assert pairs(512, 1024, 128, 256) == [
        (128, 128),
        (128, 256),
        (256, 256),
        (256, 512),
        (512, 512),
        (512, 1024),
    ]
    assert dividing(8192, 1000) == 512
    assert dividing(100, 128) == 100
    assert dividing(1000, 300) == 250


def test_wording() -> None:
    sizes = [size(n) for n in (512, 1 << 10, 1536, 150 << 20, 3 << 30, 1 << 40)]
    assert sizes == ["512 B", "1.0 KiB", "1.5 KiB", "150 MiB", "3.0 GiB", "1.0 TiB"]
    assert [beside(n, 1 << 20) for n in (1 << 20, (1 << 20) + 1, 3 << 20)] == [
        "1.0 MiB",
        "1,025 KiB",
        "3.0 MiB",
    ]
    shares = [share(part) for part in (0, 1, 0.5, 0.0001, 0.99999, 1.004)]
    assert shares == ["0 %", "100 %", "50.0 %", "under 0.1 %", "over 99.9 %", "100.4 %"]
    assert [listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]
