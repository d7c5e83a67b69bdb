"""Checks of the MASK clauses: the implementation's own mask objects."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.checks.registry import Violation, expect, expect_array, judges
from conformance.contract.fence import Crash, Subject, advising
from conformance.drawing.mask_domain import ONE_HEAD_SHARD, ONE_MASK, ONE_SHARD, MaskDomain
from conformance.findings.place import Place
from conformance.problems.mask_json import Blocks, Random
from conformance.problems.mask_queries import Rectangles, askings, positions, tiles, times_covered
from conformance.problems.neighbours import neighbours
from conformance.problems.problem import Problem
from conformance.problems.user_mask import UserMask
from reference.masks import Bool, Causal, Local, Mask
from reference.sharding import Shard


def kinds(*names: str, **more: Any) -> MaskDomain:
    """Problems whose single mask is of one of these kinds."""
    return MaskDomain(allows=ONE_MASK & ONE_SHARD, kinds=names, **more)


def read(subject: Subject, mask: Any, rows: slice, columns: slice) -> Bool:
    """A slice of an implementation's mask, as an array."""
    return subject.call(slice_text(rows, columns), lambda: np.asarray(mask[rows, columns]))


def slice_text(rows: slice, columns: slice) -> str:
    """How a slice of a mask is written."""
    bounds = (
        "" if n is None else str(n) for n in (rows.start, rows.stop, columns.start, columns.stop)
    )
    return "mask[{}:{}, {}:{}]".format(*bounds)


def compare_dense(subject: Subject, problem: Problem, head: int = 0) -> None:
    """Compares every entry of a mask, and its type."""
    mask = subject.prepare(problem).mask(head)
    got = read(subject, mask, slice(0, problem.q_len), slice(0, problem.kv_len))
    expect(Place("mask", "dtype"), np.dtype(np.bool_), got.dtype)
    expect_array(Place("mask"), problem.head_masks[head].dense(), got)


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
    expect_array(
        Place("mask").under(first_rows=rows), np.zeros((rows, problem.kv_len), np.bool_), got
    )


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
            expect_array(
                Place("mask function", direction="fwd"), problem.head_masks[0].dense(), computed
            )


@judges("MASK-5", kinds("local", where=unlimited, kernel=True), features=("schedule",))
def check_kernel_with_unlimited_window(subject: Subject, problem: Problem) -> None:
    """A kernel with a window without limits can be built, and runs every block."""
    for direction in subject.directions(problem):
        q_blocks, kv_blocks = problem.grid(direction)
        steps = subject.schedule(problem, direction, Shard())
        blocks = problem.heads * q_blocks * kv_blocks
        expect(Place("running steps", "length", direction), blocks, len(steps.work()))


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
        expect_array(Place("mask").under(head=head), problem.head_masks[head].dense(), got)


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


#: The clauses below hold for mask classes of users too: `fuzz-mask` runs these checks on them.
ONE = MaskDomain(allows=ONE_MASK & ONE_SHARD)

#: All slices of axes of so many tokens are read; of longer ones halves, ends, odd ones and blocks.
ALL_SLICES_OF = 5

#: Rectangles lie between positions of an axis that span no more than this, where these are not 0, 1, 2….
SPAN = 160


def generator_for(problem: Problem) -> np.random.Generator:
    """Random numbers that depend on the mask alone."""
    text = f"{problem.masks[0]} {problem.q_len} {problem.kv_len}"
    return np.random.default_rng(zlib.crc32(text.encode()))


def bounded_slices(length: int, rng: np.random.Generator) -> list[slice]:
    """Slices of an axis with both bounds, none of them empty: all of a short axis, some of a long one."""
    if length <= ALL_SLICES_OF:
        return [slice(a, b) for a in range(length) for b in range(a + 1, length + 1)]
    half = length // 2
    ends = [(0, 1), (0, half), (half, length), (half - 1, half + 1), (length - 1, length)]
    ends += [tuple(sorted(pair)) for pair in rng.integers(0, length + 1, (3, 2)).tolist()]
    return [slice(a, b) for a, b in [*ends, (0, length)] if a < b]


def open_slices(length: int) -> list[slice]:
    """Slices of an axis that lack a bound: people write them, compilers do not."""
    half = length // 2
    return [slice(None), slice(half, None), slice(None, half + 1)]


def compare_slice(
    subject: Subject, problem: Problem, mask: Any, where: tuple[slice, slice]
) -> None:
    """Compares a slice with that of the dense form, unless it lost an axis of length 1: a matter of MASK-13."""
    expected, got = problem.head_masks[0].dense()[where], read(subject, mask, *where)
    if got.shape == expected.shape or 1 not in expected.shape:
        expect_array(Place(slice_text(*where)), expected, got)


@judges("MASK-12", ONE)
def check_slices(subject: Subject, problem: Problem) -> None:
    """Slices equal the same slices of the dense form."""
    rng, mask = generator_for(problem), subject.prepare(problem).mask(0)
    columns = bounded_slices(problem.kv_len, rng)
    for where in itertools.product(bounded_slices(problem.q_len, rng), columns):
        compare_slice(subject, problem, mask, where)
    with advising():
        for where in itertools.product(open_slices(problem.q_len), open_slices(problem.kv_len)):
            compare_slice(subject, problem, mask, where)


@judges("MASK-13", ONE)
def check_empty_and_single_slices(subject: Subject, problem: Problem) -> None:
    """Slices of length 1 keep their axis, and those of length 0, for which compilers do not ask."""
    dense, mask = problem.head_masks[0].dense(), subject.prepare(problem).mask(0)
    q, kv = problem.q_len, problem.kv_len
    for rows, columns in (
        (slice(q - 1, q), slice(kv - 1, kv)),
        (slice(q - 1, q), slice(0, kv)),
        (slice(0, q), slice(kv - 1, kv)),
        (slice(q // 2, q // 2 + 1), slice(kv // 2, kv // 2 + 1)),
    ):
        got = read(subject, mask, rows, columns)
        expect_array(Place(slice_text(rows, columns)), dense[rows, columns], got)
    with advising():
        for rows, columns in (
            (slice(0, 0), slice(0, kv)),
            (slice(0, q), slice(kv, kv)),
            (slice(0, q), slice(kv // 2, kv // 2)),
            (slice(q // 2, q // 2), slice(kv // 2, kv // 2)),
        ):
            got = read(subject, mask, rows, columns)
            expect_array(Place(slice_text(rows, columns)), dense[rows, columns], got)


@judges("MASK-14", ONE)
def check_equal_masks(subject: Subject, problem: Problem) -> None:
    """The same mask made twice has the same entries and one hash, and is equal."""
    first, second = subject.fresh(problem).mask(0), subject.fresh(problem).mask(0)
    entries = read(subject, second, slice(0, problem.q_len), slice(0, problem.kv_len))
    expect_array(Place("mask").under(made="again"), problem.head_masks[0].dense(), entries)
    equal = subject.call("mask == the same mask made again", lambda: bool(first == second))
    hashes = subject.call("hash(mask)", lambda: (hash(first), hash(second)))
    if equal:
        expect(Place("hash of an equal mask"), hashes[0], hashes[1])
    with advising():  # every such mask is compiled and stored anew, but the results are right
        expect(Place("mask == the same mask made again"), True, equal)


def other_shapes(problem: Problem) -> list[Problem]:
    """The mask with more queries, with more keys, and with both lengths exchanged."""
    q, kv, blocks = problem.q_len, problem.kv_len, problem.blocks
    made = [problem.but(q_len=2 * q), problem.but(kv_len=2 * kv)]
    if q != kv:
        made.append(problem.but(q_len=kv, kv_len=q, blocks=type(blocks)(blocks.kv, blocks.q)))
    return made


def other_masks(problem: Problem) -> list[Problem]:
    """Problems whose masks differ from that of a problem in one parameter or in shape."""
    expr = problem.masks[0]
    if isinstance(expr, UserMask):
        shapes = [(other, *other.shape) for other in expr.others]
        return [problem.but(masks=(o,), q_len=q_len, kv_len=kv_len) for o, q_len, kv_len in shapes]
    others = [problem.but(masks=(other,)) for other in neighbours(expr)]
    return others if isinstance(expr, Blocks | Random) else others + other_shapes(problem)


@judges("MASK-15", ONE)
def check_different_masks(subject: Subject, problem: Problem) -> None:
    """Masks that differ in one parameter, or in shape, are not equal."""
    mask, mine = problem.head_masks[0], subject.prepare(problem).mask(0)
    for other in other_masks(problem):
        try:
            different = Mask(other.masks[0], other.q_len, other.kv_len)
        except ValueError:
            continue  # a combination that contains a pattern of the other shape
        if different.shape == mask.shape and (different.dense() == mask.dense()).all():
            continue
        theirs = subject.fresh(other).mask(0)
        if subject.call("mask == mask", partial(either_equal, mine, theirs)):
            place = Place("mask == other mask").under(mask=mask, other=different)
            raise Violation(place, False, True)


@judges("MASK-16", ONE)
def check_values_are_booleans(subject: Subject, problem: Problem) -> None:
    """The type of the whole, of parts and of an empty slice."""
    mask, q = subject.prepare(problem).mask(0), problem.q_len
    columns = slice(0, problem.kv_len)
    for rows in (slice(0, q), slice(0, 1), slice(q - 1, q)):
        got = read(subject, mask, rows, columns)
        expect(Place(slice_text(rows, columns), "dtype"), np.dtype(np.bool_), got.dtype)
    empty = slice(0, 0)
    try:
        got = read(subject, mask, empty, columns)
    except Crash:
        return  # a matter of MASK-13
    with advising():
        expect(Place(slice_text(empty, columns), "dtype"), np.dtype(np.bool_), got.dtype)


@judges("MASK-17", ONE)
def check_reading_again(subject: Subject, problem: Problem) -> None:
    """The whole of a new mask, a half of it, and both again, several times."""
    mask = subject.fresh(problem).mask(0)
    whole, columns = slice(0, problem.q_len), slice(0, problem.kv_len)
    half = slice(problem.q_len // 2, problem.q_len)
    first = {rows.start: read(subject, mask, rows, columns).copy() for rows in (whole, half)}
    for times in (2, 3):
        for rows in (half, whole):
            got = read(subject, mask, rows, columns)
            place = Place(slice_text(rows, columns)).under(times_read=times)
            expect_array(place, first[rows.start], got)


def compare_mask_function(subject: Subject, problem: Problem, name: str, *, kernel: bool) -> None:
    """Compares the mask function at pairs of positions in arrays of every form that is asked with there."""
    mask, prepared = problem.head_masks[0], subject.prepare(problem)
    sizes, (q, kv) = (problem.q_len, problem.kv_len), positions(mask)
    for asking in tiles(*sizes) if kernel else askings(*sizes, generator_for(problem)):
        ids = q[asking.rows], kv[asking.columns]
        got = prepared.mask_at(0, *ids, **({"kernel": True} if kernel else {}))
        if got is None:
            return
        got = np.broadcast_to(got, asking.shape)
        place = Place(name).under(asked_with=asking.name)
        expect_array(place, asking.of(mask.dense()), got)


@judges("MASK-18", ONE)
def check_mask_function_is_asked_pair_by_pair(subject: Subject, problem: Problem) -> None:
    """The mask function at pairs in arrays of every form."""
    compare_mask_function(subject, problem, "mask function", kernel=False)


@judges("MASK-19", replace(ONE, traced=True))
def check_mask_function_inside_a_kernel(subject: Subject, problem: Problem) -> None:
    """The mask function of tiles, inside a kernel."""
    compare_mask_function(subject, problem, "mask function inside a kernel", kernel=True)


def positions_between(given: NDArray[np.int32]) -> NDArray[np.int32]:
    """All positions from the smallest of some to the largest, or to `SPAN` of them."""
    first = int(given.min())
    return np.arange(first, min(int(given.max()) + 1, first + SPAN), dtype=np.int32)


@judges("MASK-20", ONE)
def check_rectangles(subject: Subject, problem: Problem) -> None:
    """Both answers for every rectangle of a small mask, for some of a large one."""
    mask, prepared = problem.head_masks[0], subject.prepare(problem)
    (q, kv), table = positions(mask), mask.dense()
    if any((ids != np.arange(len(ids))).any() for ids in (q, kv)):
        q, kv = positions_between(q), positions_between(kv)
        table = np.broadcast_to(prepared.mask_at(0, q[:, None], kv[None, :]), (len(q), len(kv)))
    chosen = Rectangles.of(len(q), len(kv), generator_for(problem))
    rows, columns = q[chosen.q], kv[chosen.kv]
    bounds = rows[:, 0, None], rows[:, 1, None], columns[None, :, 0], columns[None, :, 1]
    got = prepared.mask_bounds(0, *bounds)
    if got is None:
        return
    for word, expected, answer in zip(("any", "all"), chosen.answers(table), got, strict=True):
        answer = np.broadcast_to(answer, expected.shape)
        wrong = np.argwhere(answer != expected)
        if len(wrong):
            at = tuple(int(k) for k in wrong[0])
            asked = Rectangles(rows.astype(np.int64), columns.astype(np.int64))
            place = Place(f"{word} visible").under(rectangle=asked.name(at))
            raise Violation(place, expected[at], answer[at], (len(wrong), expected.size))


@judges("MASK-21", ONE)
def check_intervals(subject: Subject, problem: Problem) -> None:
    """How many intervals hold every key position of every query, in arrays of several forms."""
    mask, prepared = problem.head_masks[0], subject.prepare(problem)
    dense, (q, kv) = mask.dense().astype(np.int64), positions(mask)
    for ids in (q, q[None, :], q[:1]):
        got = prepared.mask_intervals(0, ids)
        if got is None:
            return
        lo, hi = (bound.reshape(len(bound), -1) for bound in got)
        place = Place("intervals that hold the key, [query, key]")
        expect_array(place, dense[: ids.size], times_covered(lo, hi, kv))
