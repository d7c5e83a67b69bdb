"""A compact encoding of a mask, for a page that offers several block sizes.

One number per block of the smallest size: 0 empty, 1 full, 2 + n the n-th distinct partial block. Labels of larger
blocks follow from these numbers, and two larger blocks are equal if and only if their numbers are.
"""

from __future__ import annotations

import base64
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.survey import Cut, prepared
from conformance.explain.costs.sizes import neighbours
from conformance.explain.costs.study import Question
from reference.blocks import FULL, PARTIAL

#: Most blocks on a page.
MOST_BLOCKS = 1 << 20
#: Most bytes of encoded numbers on a page.
MOST_BYTES = 1 << 20
#: Most pictures of distinct partial blocks on a page, and cells along a side of one.
PICTURES, CELLS = 64, 32
#: Most entries read for pictures.
READ = 1 << 26


@dataclass(frozen=True)
class Encoded:
    """The encoded mask.

    Attributes:
      q_sizes, kv_sizes: block sizes on the page, smallest first.
      codes: numbers of the smallest blocks, in base 64.
      pictures: of the first distinct partial blocks: digits, 0 hidden to 4 visible, row by row.
      cells: rows and columns of a picture.
      left_out: sizes too small for a page.
    """

    q_sizes: list[int]
    kv_sizes: list[int]
    codes: str
    pictures: list[str]
    cells: tuple[int, int]
    left_out: list[int]


def encoded(question: Question) -> Encoded:
    """Encodes a mask with the smallest blocks that fit a page.

    Raises:
      ValueError: there are too many blocks even at the largest size.
    """
    expr = prepared(question.expr, question.q_len, question.kv_len)
    q_sizes = neighbours(question.q_len, question.block_q)
    kv_sizes = neighbours(question.kv_len, question.block_kv)
    left_out = set()
    while True:
        rows, columns = question.q_len // q_sizes[0], question.kv_len // kv_sizes[0]
        if rows * columns <= MOST_BLOCKS:
            cut = Cut(expr, question.q_len, question.kv_len, q_sizes[0], kv_sizes[0])
            numbers = _numbers(cut)
            packed = runs(numbers.ravel())
            if len(packed) <= MOST_BYTES:
                break
        smaller = [sizes for sizes in (q_sizes, kv_sizes) if len(sizes) > 1]
        if not smaller:
            raise ValueError(
                f"{rows:,} × {columns:,} blocks are too many for a page: use larger blocks with --html"
            )
        least = min(sizes[0] for sizes in smaller)
        left_out |= {sizes.pop(0) for sizes in smaller if sizes[0] == least}
    pictures, cells = _pictures(cut, numbers)
    return Encoded(
        q_sizes,
        kv_sizes,
        base64.b64encode(packed).decode("ascii"),
        pictures,
        cells,
        sorted(left_out),
    )


def _numbers(cut: Cut) -> NDArray[np.int32]:
    labels = cut.labels()
    ids, _ = cut.partial_ids(labels)
    numbers: NDArray[np.int32] = (labels == FULL).astype(np.int32)
    numbers[labels == PARTIAL] = ids + 2
    return numbers


def runs(numbers: NDArray[np.int32]) -> bytes:
    """Run-length encoding as (number, length) in little-endian base 128, the high bit marking continuation."""
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    lengths = np.diff(starts, append=len(numbers))
    pairs = np.stack([numbers[starts], lengths], axis=1).ravel().astype(np.uint64)
    groups = max(1, math.ceil(int(pairs.max()).bit_length() / 7))
    digits = (pairs[:, None] >> (7 * np.arange(groups, dtype=np.uint64))) & np.uint64(127)
    # A digit is written if it or a higher one is not zero; the lowest always is.
    used = np.cumsum(digits[:, ::-1] > 0, axis=1)[:, ::-1] > 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    return (digits + np.uint64(128) * more)[used].astype(np.uint8).tobytes()


def _pictures(cut: Cut, numbers: NDArray[np.int32]) -> tuple[list[str], tuple[int, int]]:
    """Pictures of the first distinct partial blocks."""
    cells = (math.gcd(cut.block_q, CELLS), math.gcd(cut.block_kv, CELLS))
    _, first = np.unique(numbers, return_index=True)
    columns = numbers.shape[1]
    places = sorted(at for at in first.tolist() if numbers.flat[at] > 1)
    found = []
    for at in itertools.islice(places, min(PICTURES, READ // (cut.block_q * cut.block_kv))):
        found.append(_picture(cut.entries_of(at // columns, at % columns), cells))
    return found, cells


def _picture(entries: NDArray[np.bool_], cells: tuple[int, int]) -> str:
    tall, wide = (size // number for size, number in zip(entries.shape, cells, strict=True))
    share = entries.reshape(cells[0], tall, cells[1], wide).mean(axis=(1, 3))
    # 0 and 4 are for cells without and with every pair; the others round to 1, 2 or 3.
    digits = np.where(share == 0, 0, np.where(share == 1, 4, np.clip(np.rint(share * 4), 1, 3)))
    return "".join(str(int(digit)) for digit in digits.ravel())
