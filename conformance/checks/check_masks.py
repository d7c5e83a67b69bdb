"""Checks of the MASK clauses: the implementation's own mask objects."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from conformance.checks.registry import Violation, expect, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import ONE_HEAD_SHARD, ONE_MASK, ONE_SHARD, MaskDomain
from conformance.problems.mask_json import Blocks, Random
from conformance.problems.mask_queries import Rectangles, askings, tiles, times_covered
from conformance.problems.neighbours import neighbours
from conformance.problems.problem import Problem
from reference.masks import Bool, Causal, Local, Mask
from reference.sharding import Shard


def kinds(*names: str, **more: Any) -> MaskDomain:
    """Problems whose single mask is of one of these kinds."""
    return MaskDomain(allows=ONE_MASK & ONE_SHARD, kinds=names, **more)


def read(subject: Subject, mask: Any, rows: slice, columns: slice) -> Bool:
    """A slice of an implementation's mask, as an array."""
    return subject.call(f"mask[{rows}, {columns}]", lambda: np.asarray(mask[rows, columns]))


def compare_dense(subject: Subject, problem: Problem, head: int = 0) -> None:
    """Compares every entry of a mask, and its type."""
    mask = subject.prepare(problem).mask(head)
    got = read(subject, mask, slice(0, problem.q_len), slice(0, problem.kv_len))
    expect("mask values: dtype", np.dtype(np.bool_), got.dtype)
    expect_array("mask", problem.head_masks[head].dense(), got)


@judges("MASK-1", kinds("full"))
def check_full_mask(subject: Subject, problem: Problem) -> None:
    """Every entry of a full mask."""
    compare_dense(subject, problem)


@judges("MASK-2", kinds("causal"))
def check_causal_mask(subject: Subject, problem: Problem) -> None:
    """Every entry of a causal mask."""
    compare_dense(subject, problem)


@judges("MASK-3", kinds("causal", where=lambda p: p.masks[0].offset < 0))
def check_negative_offset_empties_rows(subject: Subject, problem: Problem) -> None:
    """The first rows of a causal mask with a negative offset."""
    expr = problem.masks[0]
    assert isinstance(expr, Causal)
    rows = min(-expr.offset, problem.q_len)
    mask = subject.prepare(problem).mask(0)
    got = read(subject, mask, slice(0, rows), slice(0, problem.kv_len))
    expect_array(f"first {rows} rows", np.zeros((rows, problem.kv_len), np.bool_), got)


def unlimited(problem: Problem) -> bool:
    """Whether the mask is a window without limits."""
    expr = problem.masks[0]
    return isinstance(expr, Local) and expr.left is None and expr.right is None


@judges("MASK-4", kinds("local", where=lambda p: not unlimited(p)))
def check_local_mask(subject: Subject, problem: Problem) -> None:
    """Every entry of a local mask with at least one limit."""
    compare_dense(subject, problem)


@judges("MASK-5", kinds("local", where=unlimited))
def check_local_mask_without_limits(subject: Subject, problem: Problem) -> None:
    """A window without limits sees everything, also where it is computed."""
    compare_dense(subject, problem)
    if subject.description.offers("mask_info"):
        computed = subject.mask_info(problem, "fwd").computed_mask
        if computed is not None:
            expect_array("mask function", problem.head_masks[0].dense(), computed)


@judges("MASK-5", kinds("local", where=unlimited, kernel=True), features=("schedule",))
def check_kernel_with_unlimited_window(subject: Subject, problem: Problem) -> None:
    """A kernel with a window without limits can be built, and runs every block."""
    for direction in subject.directions(problem):
        q_blocks, kv_blocks = problem.grid(direction)
        steps = subject.schedule(problem, direction, Shard())
        expect(
            f"running steps ({direction})", problem.heads * q_blocks * kv_blocks, len(steps.work())
        )


@judges("MASK-6", kinds("chunked_causal"))
def check_chunked_causal_mask(subject: Subject, problem: Problem) -> None:
    """Every entry of a chunked causal mask."""
    compare_dense(subject, problem)


@judges("MASK-7", kinds("blocks", "random"))
def check_dense_mask(subject: Subject, problem: Problem) -> None:
    """Every entry of a dense mask."""
    compare_dense(subject, problem)


@judges("MASK-8", kinds("and"))
def check_intersection(subject: Subject, problem: Problem) -> None:
    """Every entry of an intersection."""
    compare_dense(subject, problem)


@judges("MASK-9", kinds("or"))
def check_union(subject: Subject, problem: Problem) -> None:
    """Every entry of a union."""
    compare_dense(subject, problem)


@judges("MASK-10", MaskDomain({"per_head_masks"}, ONE_SHARD))
def check_mask_of_every_head(subject: Subject, problem: Problem) -> None:
    """Every head has the entries of its own mask."""
    for head in range(problem.heads):
        mask = subject.prepare(problem).mask(head)
        got = read(subject, mask, slice(0, problem.q_len), slice(0, problem.kv_len))
        expect_array(f"mask of head {head}", problem.head_masks[head].dense(), got)


@judges(
    "MASK-11",
    MaskDomain(allows=ONE_MASK & ONE_HEAD_SHARD, where=lambda p: p.q_len != p.kv_len),
)
def check_rectangular_mask(subject: Subject, problem: Problem) -> None:
    """Every entry of a mask that is not square."""
    compare_dense(subject, problem)


def either_equal(first: Any, second: Any) -> bool:
    """Whether either operand calls the other equal."""
    return bool(first == second) or bool(second == first)


def some_slices(length: int, rng: np.random.Generator) -> list[slice]:
    """Full, half, odd and random slices of an axis, none of them empty."""
    half = max(1, length // 2)
    a, b = sorted(int(x) for x in rng.integers(0, length + 1, 2))
    chosen = [slice(None), slice(0, length), slice(0, half), slice(half - 1, length)]
    chosen += [slice(None, half), slice(length - 1, None)]
    return chosen if a == b else [*chosen, slice(a, b)]


@judges("MASK-12", MaskDomain(allows=ONE_MASK & ONE_SHARD))
def check_slices(subject: Subject, problem: Problem) -> None:
    """Slices equal the same slices of the dense form."""
    rng = np.random.default_rng(int(problem.key, 16))
    dense, mask = problem.head_masks[0].dense(), subject.prepare(problem).mask(0)
    for rows in some_slices(problem.q_len, rng):
        for columns in some_slices(problem.kv_len, rng):
            got = read(subject, mask, rows, columns)
            where = f"mask[{rows.start}:{rows.stop}, {columns.start}:{columns.stop}]"
            expect_array(where, dense[rows, columns], got)


@judges("MASK-13", MaskDomain(allows=ONE_MASK & ONE_SHARD))
def check_empty_and_single_slices(subject: Subject, problem: Problem) -> None:
    """Slices of length 0 and 1 keep their axis."""
    dense, mask = problem.head_masks[0].dense(), subject.prepare(problem).mask(0)
    q, kv = problem.q_len, problem.kv_len
    for rows, columns in (
        (slice(0, 0), slice(0, kv)),
        (slice(0, q), slice(kv, kv)),
        (slice(q // 2, q // 2), slice(kv // 2, kv // 2)),
        (slice(q - 1, q), slice(0, kv)),
        (slice(0, q), slice(kv - 1, kv)),
        (slice(q // 2, q // 2 + 1), slice(kv // 2, kv // 2 + 1)),
    ):
        got = read(subject, mask, rows, columns)
        where = f"mask[{rows.start}:{rows.stop}, {columns.start}:{columns.stop}]"
        expect_array(where, dense[rows, columns], got)


@judges("MASK-14", MaskDomain(allows=ONE_MASK & ONE_SHARD))
def check_equal_masks(subject: Subject, problem: Problem) -> None:
    """The same mask made twice is equal and has one hash."""
    first, second = subject.fresh(problem).mask(0), subject.fresh(problem).mask(0)
    equal = subject.call("mask == mask", lambda: bool(first == second))
    expect(f"{problem.masks[0]} == the same mask made again", True, equal)
    hashes = subject.call("hash(mask)", lambda: (hash(first), hash(second)))
    expect("hashes of equal masks", hashes[0], hashes[1])


def other_shapes(problem: Problem) -> list[Problem]:
    """The mask with more queries, with more keys, and with both lengths exchanged."""
    q, kv, blocks = problem.q_len, problem.kv_len, problem.blocks
    made = [problem.but(q_len=2 * q), problem.but(kv_len=2 * kv)]
    if q != kv:
        made.append(problem.but(q_len=kv, kv_len=q, blocks=type(blocks)(blocks.kv, blocks.q)))
    return made


@judges("MASK-15", MaskDomain(allows=ONE_MASK & ONE_SHARD))
def check_different_masks(subject: Subject, problem: Problem) -> None:
    """Masks that differ in one parameter, or in shape, are not equal."""
    mask = problem.head_masks[0]
    others = [problem.but(masks=(expr,)) for expr in neighbours(problem.masks[0])]
    if not isinstance(problem.masks[0], Blocks | Random):
        others += other_shapes(problem)
    mine = subject.prepare(problem).mask(0)
    for other in others:
        try:
            different = Mask(other.masks[0], other.q_len, other.kv_len)
        except ValueError:
            continue  # a combination that contains a pattern of the other shape
        if different.shape == mask.shape and (different.dense() == mask.dense()).all():
            continue
        theirs = subject.fresh(other).mask(0)
        if subject.call("mask == mask", partial(either_equal, mine, theirs)):
            raise Violation(f"{mask} == {different}", False, True)


ONE = MaskDomain(allows=ONE_MASK & ONE_SHARD)


@judges("MASK-16", ONE)
def check_values_are_booleans(subject: Subject, problem: Problem) -> None:
    """The type of the whole, of a part and of an empty slice."""
    mask = subject.prepare(problem).mask(0)
    for rows in (slice(0, problem.q_len), slice(0, 1), slice(0, 0)):
        got = read(subject, mask, rows, slice(0, problem.kv_len))
        where = f"mask[{rows.start}:{rows.stop}, 0:{problem.kv_len}]: dtype"
        expect(where, np.dtype(np.bool_), got.dtype)


@judges("MASK-17", ONE)
def check_reading_again(subject: Subject, problem: Problem) -> None:
    """The whole, its halves, and the whole again, several times."""
    mask = subject.prepare(problem).mask(0)
    whole, columns = slice(0, problem.q_len), slice(0, problem.kv_len)
    half = slice(problem.q_len // 2, problem.q_len)
    first = {rows.start: read(subject, mask, rows, columns).copy() for rows in (whole, half)}
    for times in (2, 3):
        for rows in (half, whole):
            got = read(subject, mask, rows, columns)
            where = f"mask[{rows.start}:{rows.stop}, 0:{problem.kv_len}], read {times} times"
            expect_array(where, first[rows.start], got)


@judges("MASK-18", ONE)
def check_mask_function_is_asked_pair_by_pair(subject: Subject, problem: Problem) -> None:
    """The mask function at pairs in arrays of every form."""
    dense, prepared = problem.head_masks[0].dense(), subject.prepare(problem)
    rng = np.random.default_rng(int(problem.key, 16))
    for asking in askings(problem.q_len, problem.kv_len, rng):
        rows, columns = asking.rows.astype(np.int32), asking.columns.astype(np.int32)
        got = prepared.mask_at(0, rows, columns)
        if got is not None:
            where = f"mask function, asked with {asking.name}"
            expect_array(where, asking.of(dense), np.broadcast_to(got, asking.shape))


@judges("MASK-19", replace(ONE, traced=True))
def check_mask_function_inside_a_kernel(subject: Subject, problem: Problem) -> None:
    """The mask function of tiles, inside a kernel."""
    dense, prepared = problem.head_masks[0].dense(), subject.prepare(problem)
    for asking in tiles(problem.q_len, problem.kv_len):
        rows, columns = asking.rows.astype(np.int32), asking.columns.astype(np.int32)
        got = prepared.mask_at(0, rows, columns, kernel=True)
        if got is None:
            return
        where = f"mask function inside a kernel, asked with {asking.name}"
        expect_array(where, asking.of(dense), np.broadcast_to(got, asking.shape))


@judges("MASK-20", ONE)
def check_rectangles(subject: Subject, problem: Problem) -> None:
    """Both answers for every rectangle of a small mask, for some of a large one."""
    dense = problem.head_masks[0].dense()
    asked = Rectangles.of(
        problem.q_len, problem.kv_len, np.random.default_rng(int(problem.key, 16))
    )
    q, kv = asked.q.astype(np.int32), asked.kv.astype(np.int32)
    bounds = q[:, 0, None], q[:, 1, None], kv[None, :, 0], kv[None, :, 1]
    got = subject.prepare(problem).mask_bounds(0, *bounds)
    if got is None:
        return
    for word, expected, answer in zip(("any", "all"), asked.answers(dense), got, strict=True):
        answer = np.broadcast_to(answer, expected.shape)
        wrong = np.argwhere(answer != expected)
        if len(wrong):
            at = tuple(int(k) for k in wrong[0])
            where = f"{word} visible: {asked.name(at)}"
            raise Violation(where, expected[at], answer[at], (len(wrong), expected.size))


@judges("MASK-21", ONE)
def check_intervals(subject: Subject, problem: Problem) -> None:
    """How many intervals hold every key position of every query."""
    dense = problem.head_masks[0].dense()
    got = subject.prepare(problem).mask_intervals(0, np.arange(problem.q_len, dtype=np.int32))
    if got is not None:
        covered = times_covered(got[0], got[1], np.arange(problem.kv_len))
        where = "intervals that hold the key, [query, key]"
        expect_array(where, dense.astype(np.int64), covered)
