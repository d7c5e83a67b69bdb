"""Checks of the REJECT clauses: bad input is refused with an error that names the argument.

The check is handed a valid problem and spoils one argument of it. Spoiled problems are built past the
validation of `Problem`, which would refuse them itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from conformance.checks.registry import bad_argument, judges, reject
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import ONE_MASK, ONE_SHARD, SHRUNK, MaskDomain
from conformance.problems.problem import BlockSizes, Problem
from reference.mask_info import Shards
from reference.masks import ChunkedCausal, Dense, Full

PLAIN = MaskDomain(allows=ONE_MASK & ONE_SHARD & SHRUNK)

BLOCK_Q = ("block_q", "q_block", "bq", "block_size", "block size")
BLOCK_KV = ("block_kv", "kv_block", "bkv", "block_size", "block size")


def compile_all(subject: Subject, problem: Problem) -> list[Any]:
    """Prepares a problem and compiles its forward arrays."""
    prepared = subject.adapter.prepare(problem)
    return [prepared.mask_info("fwd")]


def spoiled(expr: type, **fields: Any) -> Any:
    """An expression with fields that its own constructor would refuse."""
    made: Any = object.__new__(expr)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


@judges("REJECT-1", PLAIN)
def check_block_size_that_does_not_divide(subject: Subject, problem: Problem) -> None:
    """Block sizes of length + 1 tokens more than a divisor."""
    q, kv = problem.q_len, problem.kv_len
    full = problem.but(masks=(Full(),))
    if q > 2:
        bad = full.but(blocks=BlockSizes(q - 1, kv))
        place = bad_argument("block_q", block_q=q - 1, q_len=q)
        reject(place, BLOCK_Q, lambda: compile_all(subject, bad))
    if kv > 2:
        worse = full.but(blocks=BlockSizes(q, kv - 1))
        place = bad_argument("block_kv", block_kv=kv - 1, kv_len=kv)
        reject(place, BLOCK_KV, lambda: compile_all(subject, worse))


@judges("REJECT-2", PLAIN)
def check_block_size_below_one(subject: Subject, problem: Problem) -> None:
    """Block sizes of 0 and below."""
    full = problem.but(masks=(Full(),))
    for size in (0, -1):
        for name, blocks, names in (
            ("block_q", BlockSizes(size, problem.blocks.kv), BLOCK_Q),
            ("block_kv", BlockSizes(problem.blocks.q, size), BLOCK_KV),
        ):
            bad = full.but(blocks=blocks)
            place = bad_argument(name, block_q=blocks.q, block_kv=blocks.kv)
            reject(place, names, partial(compile_all, subject, bad))


@judges("REJECT-3", PLAIN)
def check_rank_of_dense_mask(subject: Subject, problem: Problem) -> None:
    """A dense mask of rank 1 and of rank 3."""
    for shape in ((problem.q_len,), (1, problem.q_len, problem.kv_len)):
        expr = spoiled(Dense, array=np.ones(shape, dtype=np.bool_))
        bad = problem.but(masks=(expr,))
        names = ("array", "mask", "shape", "rank", "dim")
        place = bad_argument("dense mask", shape_of_dense_mask=shape)
        reject(place, names, partial(_mask_of, subject, bad))


@judges("REJECT-4", PLAIN)
def check_type_of_dense_mask(subject: Subject, problem: Problem) -> None:
    """Dense masks of floats and integers."""
    for dtype in (np.float32, np.int32):
        expr = spoiled(Dense, array=np.ones((problem.q_len, problem.kv_len), dtype=dtype))
        bad = problem.but(masks=(expr,))
        names = ("array", "mask", "bool", "dtype")
        place = bad_argument("dense mask", dense_mask=f"of {np.dtype(dtype)}")
        reject(place, names, partial(_mask_of, subject, bad))


def _mask_of(subject: Subject, problem: Problem) -> Any:
    return subject.adapter.prepare(problem).mask(0)


@judges("REJECT-5", PLAIN)
def check_heads_with_masks_of_different_shapes(subject: Subject, problem: Problem) -> None:
    """A full mask for one head and a wider dense mask for the other."""
    wide = Dense(np.ones((problem.q_len, 2 * problem.kv_len), dtype=np.bool_))
    bad = problem.but(heads=2, kv_heads=2, masks=(Full(), wide))
    place = bad_argument("masks", heads="with masks of two shapes")
    reject(place, ("shape",), lambda: compile_all(subject, bad))


@judges("REJECT-6", PLAIN)
def check_q_shards_that_do_not_divide(subject: Subject, problem: Problem) -> None:
    """More q shards than blocks."""
    count = problem.grid()[0] + 1
    bad = problem.but(shards=Shards(q=count))
    names = ("shard", "q_seq_len_per_shard")
    place = bad_argument("q_shards", q_shards=count, q_blocks=count - 1)
    reject(place, names, lambda: compile_all(subject, bad))


@judges("REJECT-7", PLAIN)
def check_chunk_size(subject: Subject, problem: Problem) -> None:
    """Chunk sizes of 0 and below."""
    for size in (0, -4):
        bad = problem.but(masks=(spoiled(ChunkedCausal, chunk_size=size),))
        place = bad_argument("chunk_size", chunk_size=size)
        reject(place, ("chunk",), partial(_mask_of, subject, bad))


@judges("REJECT-8", PLAIN)
def check_head_shards_that_do_not_divide(subject: Subject, problem: Problem) -> None:
    """More head shards than heads."""
    count = problem.heads + 1
    bad = problem.but(shards=Shards(head=count))
    names = ("head_shards", "head_count", "heads", "shard")
    place = bad_argument("head_shards", head_shards=count, heads=problem.heads)
    reject(place, names, lambda: compile_all(subject, bad))
