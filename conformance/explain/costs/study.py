"""All predictions for one mask, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from conformance.explain.blocks.survey import Cut, TooManyEntries, prepared, visible_pairs
from conformance.explain.costs.dynamic import dynamic_schedules
from conformance.explain.costs.layouts import Compiled, Schedule, schedules
from conformance.explain.costs.memory import SIZES, Shape
from conformance.explain.costs.sizes import pairs
from conformance.explain.costs.visits import Heads, flash_fetches
from conformance.explain.language.expressions import is_structured
from reference.blocks import EMPTY, FULL, PARTIAL
from reference.masks import And, Dense, Expr

#: Compare block sizes up to this many blocks: for structured masks, and for others.
COMPARED = 1 << 22
COMPARED_UNSTRUCTURED = 1 << 20
#: Tell partial blocks apart for comparison up to this many, and up to this many entries read.
COMPARED_PARTIAL = 1 << 17
COMPARED_ENTRIES = 1 << 26


ONE_HEAD = Heads(1, 1)


@dataclass(frozen=True)
class Question:
    """The mask and the kernel to predict.

    Attributes:
      text: the mask as written.
      expr: the mask.
      q_len, kv_len: tokens.
      block_q, block_kv: tokens per block, of every kernel.
      heads: query heads and key/value heads.
      head_dim: of q, k and v.
      dtype: of q, k and v.
      segments: the pairs with equal segment ids; None without segment ids, or if they are not known.
      segmented: whether there are segment ids.
      dynamic: whether the mask is an array known only at run time.
    """

    text: str
    expr: Expr
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int
    heads: Heads = ONE_HEAD
    head_dim: int = 128
    dtype: str = "bfloat16"
    segments: Expr | None = None
    segmented: bool = False
    dynamic: bool = False

    @property
    def shape(self) -> Shape:
        """What vector memory depends on."""
        return Shape(self.block_q, self.block_kv, self.head_dim, self.dtype, self.segmented)


@dataclass(frozen=True)
class Counts:
    """Blocks by label."""

    empty: int
    partial: int
    full: int

    @property
    def total(self) -> int:
        """All blocks."""
        return self.empty + self.partial + self.full

    @property
    def running(self) -> int:
        """Blocks that are computed."""
        return self.partial + self.full

    @property
    def skipped(self) -> float:
        """Share of the arithmetic that is skipped."""
        return self.empty / self.total


class Stack(NamedTuple):
    """Stored mask blocks: their number, and their bytes as booleans and in the type that the kernel reads."""

    blocks: int
    stored: int
    read: int


@dataclass(frozen=True)
class Option:
    """Another block size and its figures.

    Attributes:
      block_q, block_kv: tokens per block.
      counts: blocks by label.
      schedules: of the forward kernel in every layout.
      distinct: number of distinct partial blocks; None if there are too many to compare.
    """

    block_q: int
    block_kv: int
    counts: Counts
    schedules: list[Schedule]
    distinct: int | None

    def shape(self, question: Question) -> Shape:
        """What vector memory depends on."""
        same = question.shape
        return Shape(self.block_q, self.block_kv, same.head_dim, same.dtype, same.segments)

    def bytes_of(self, question: Question, fetches: int) -> int:
        """Bytes of k and v together, for this many fetches of each."""
        return fetches * block_bytes(question, self.block_kv)


@dataclass(frozen=True)
class Study:
    """The predictions.

    Attributes:
      question: what was asked.
      compiled: labels and partial blocks.
      counts: blocks by label.
      pairs: visible pairs; None if counting them needs every entry.
      forward, dkv: every layout, of the forward and of the dkv kernel.
      flash: blocks of k that a kernel without skipping fetches, over all heads.
      unseen: blocks that run although segment ids hide every pair; None if the ids are not known.
      options: block sizes to compare, including the one asked for.
    """

    question: Question
    compiled: Compiled
    counts: Counts
    pairs: int | None
    forward: list[Schedule]
    dkv: list[Schedule]
    flash: int
    unseen: int | None
    options: list[Option]

    @property
    def area(self) -> int:
        """Pairs per block."""
        return self.question.block_q * self.question.block_kv

    def stack(self, schedule: Schedule) -> Stack:
        """The mask blocks in main memory: the distinct ones, or all blocks of a run-time mask."""
        number = self.compiled.distinct if schedule.stored else 0
        if self.question.dynamic:
            heads = 1 if schedule.layout == "flat" else self.question.heads.q
            number = heads * self.counts.total
        stored = number * self.area
        # Booleans reach a kernel of jax as int32; the others keep int8.
        return Stack(number, stored, stored * (4 if schedule.layout == "grid" else 1))

    def kv_bytes(self, fetches: int) -> int:
        """Bytes of k and v together, for this many fetches of each."""
        return fetches * block_bytes(self.question, self.question.block_kv)


def block_bytes(question: Question, block_kv: int) -> int:
    """Bytes of a block of k and one of v."""
    return 2 * block_kv * question.head_dim * SIZES[question.dtype]


def counted(compiled: Compiled) -> Counts:
    """Blocks by label."""
    empty, partial, full = (
        int(np.count_nonzero(compiled.labels == label)) for label in (EMPTY, PARTIAL, FULL)
    )
    return Counts(empty, partial, full)


def compiled_at(expr: Expr, question: Question, block_q: int, block_kv: int) -> Compiled:
    """Cuts a mask, in the form of `survey.prepared`, into blocks."""
    cut = Cut(expr, question.q_len, question.kv_len, block_q, block_kv)
    labels = cut.labels()
    ids, distinct = cut.partial_ids(labels)
    return Compiled(question.expr, labels, ids, distinct, block_q, block_kv)


def layouts(compiled: Compiled, question: Question, direction: str = "fwd") -> list[Schedule]:
    """A mask in every layout, known in advance or at run time."""
    make = dynamic_schedules if question.dynamic else schedules
    return make(compiled, question.heads, direction)


def study(question: Question) -> Study:
    """Computes the study of a question.

    Raises:
      ValueError: a block size does not divide its length.
      TooManyEntries: the mask has too many entries to read one by one.
    """
    expr = prepared(question.expr, question.q_len, question.kv_len)
    compiled = compiled_at(expr, question, question.block_q, question.block_kv)
    rows, columns = compiled.labels.shape
    return Study(
        question=question,
        compiled=compiled,
        counts=counted(compiled),
        pairs=visible_pairs(expr, question.q_len, question.kv_len),
        forward=layouts(compiled, question),
        dkv=layouts(compiled, question, "dkv"),
        flash=flash_fetches(rows, columns, question.heads),
        unseen=_unseen(question, compiled),
        options=_options(expr, question, compiled),
    )


def _options(expr: Expr, question: Question, compiled: Compiled) -> list[Option]:
    """The block sizes that are quick to compare."""
    found = []
    for sizes in pairs(question.q_len, question.kv_len, question.block_q, question.block_kv):
        if not _comparable(expr, question, sizes):
            continue
        try:
            found.append(_option(expr, question, compiled, sizes))
        except TooManyEntries:
            continue
    return found


def _unseen(question: Question, compiled: Compiled) -> int | None:
    if question.segments is None:
        return None
    q_len, kv_len = question.q_len, question.kv_len
    both = prepared(And(question.expr, question.segments), q_len, kv_len)
    seen = Cut(both, q_len, kv_len, question.block_q, question.block_kv).labels()
    return int(np.count_nonzero((compiled.labels > 0) & (seen == 0)))


def _comparable(expr: Expr, question: Question, sizes: tuple[int, int]) -> bool:
    if sizes == (question.block_q, question.block_kv):
        return True
    blocks = (question.q_len // sizes[0]) * (question.kv_len // sizes[1])
    return blocks <= (COMPARED if is_structured(expr) else COMPARED_UNSTRUCTURED)


def _option(expr: Expr, question: Question, compiled: Compiled, sizes: tuple[int, int]) -> Option:
    found, known = compiled, True
    if sizes != (question.block_q, question.block_kv):
        cut = Cut(expr, question.q_len, question.kv_len, *sizes)
        labels = cut.labels()
        partial = int(np.count_nonzero(labels == PARTIAL))
        quick = is_structured(expr) or isinstance(expr, Dense)
        known = partial <= COMPARED_PARTIAL and (quick or partial * cut.area <= COMPARED_ENTRIES)
        ids, distinct = np.arange(partial, dtype=np.int32), partial  # if all of them differ
        if known:
            ids, distinct = cut.partial_ids(labels)
        found = Compiled(question.expr, labels, ids, distinct, *sizes)
    made = layouts(found, question)
    return Option(*sizes, counted(found), made, found.distinct if known else None)
