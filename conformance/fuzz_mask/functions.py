"""What a class says besides its entries: a mask function, positions, bounds of rectangles, intervals."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np

from conformance.contract.fence import Crash
from conformance.findings.violation import Violation
from conformance.fuzz_mask.case import Advice, Case, Judges, NotAsked, expect_same
from conformance.fuzz_mask.contract import READABLE
from conformance.problems.mask_queries import Asking, Rectangles, askings, tiles, times_covered
from reference.masks import Bool

JUDGES = Judges()

#: Rectangles are asked about where the positions of an axis span no more than this.
SPAN = 160

AGREES = (*READABLE, "check_booleans", "check_positions", "check_function_agrees")


@JUDGES.judge("COMPUTE-3", "check_shape")
def check_positions(case: Case) -> None:
    """A mask function comes with a position for every row, as int32."""
    _ = case.function
    for name, length in zip(("q_sequence", "kv_sequence"), case.shape, strict=True):
        given = case.attribute(name)
        if given is None and name == "kv_sequence":
            continue
        if given is None:
            raise Violation(name, "positions of the rows, beside the mask function", "none")
        found = np.asarray(given)
        if found.shape != (length,) or found.dtype != np.int32:
            wanted = f"int32 array of shape ({length},)"
            raise Violation(name, wanted, f"{found.dtype} array of shape {found.shape}")


def asked(case: Case, asking: Asking, function: Any, where: str) -> Bool:
    """What a mask function gives for pairs of rows and columns.

    Raises:
      Violation: no booleans, or a shape that does not broadcast to the pairs.
    """
    q, kv = case.positions
    ids = q[asking.rows].astype(np.int32), kv[asking.columns].astype(np.int32)
    found = np.asarray(case.call(where, lambda: function(*ids)))
    if found.dtype != np.bool_:
        raise Violation(f"type of {where}", "bool", found.dtype)
    try:
        return np.asarray(np.broadcast_to(found, asking.shape))
    except ValueError:
        raise Violation(f"shape of {where}", asking.shape, found.shape) from None


@JUDGES.judge("COMPUTE-2", *READABLE, "check_booleans", "check_positions")
def check_function_agrees(case: Case) -> None:
    """The mask function at the positions of rows and columns gives the entries of the mask."""
    column_and_row = tiles(*case.shape)[0]
    found = asked(case, column_and_row, case.function, "mask_function(q_ids, kv_ids)")
    expect_same("mask_function at the positions of the mask", case.whole, found)


@JUDGES.judge("MASK-18", *AGREES)
def check_function_is_asked_pair_by_pair(case: Case) -> None:
    """Pairs in arrays of every form, in part and out of order."""
    for asking in askings(*case.shape, case.rng):
        where = f"mask_function, asked with {asking.name}"
        found = asked(case, asking, case.function, where)
        expect_same(where, asking.of(case.whole), found)


@JUDGES.judge("MASK-19", *AGREES, "check_function_is_asked_pair_by_pair")
def check_function_inside_a_kernel(case: Case) -> None:
    """Tiles inside a kernel in interpret mode, and instructions of a TPU for it."""
    function = case.function
    try:
        from conformance.adapters.shared.mask_function import can_lower, in_kernel, lower_for_tpu
    except ImportError:
        raise NotAsked from None  # without JAX there are no kernels

    for asking in tiles(*case.shape):
        where = f"mask_function inside a kernel, asked with {asking.name}"
        found = asked(case, asking, partial(in_kernel, function), where)
        expect_same(where, asking.of(case.whole), found)
    if can_lower():
        case.call("lowering mask_function for a TPU", partial(lower_for_tpu, function))


@JUDGES.judge("COMPUTE-3", *AGREES)
def check_rows_that_are_moved(case: Case) -> None:
    """With other positions in ``q_sequence`` the rows are those of these positions."""
    q_len, kv_len = case.shape
    for q in (case.positions[0][::-1], case.rng.permutation(case.positions[0])):
        moved = with_positions(case, q)
        if moved is None:
            raise NotAsked
        where = f"mask[0:{q_len}, 0:{kv_len}] after q_sequence = {q.tolist()}"
        found = case.call(where, lambda moved=moved: moved[0:q_len, 0:kv_len])  # type: ignore[misc]
        ids = moved.q_sequence[:, None], case.positions[1][None, :]
        expected = case.call(where, lambda f=moved.mask_function, ids=ids: np.asarray(f(*ids)))  # type: ignore[misc]
        try:
            expect_same(where, np.broadcast_to(expected, case.shape), found)
        except Violation as wrong:
            if moves_rows(case.mask):
                raise
            raise Advice(wrong.where, wrong.expected, wrong.actual) from wrong


def moves_rows(mask: Any) -> bool:
    """Whether rows of a mask are moved by setting ``q_sequence``, as in the libraries of jax and tokamax.

    Of other classes nobody need do so: what goes wrong then is worth a word, but no fault.
    """
    return any(base.__module__.endswith("splash_attention_mask") for base in type(mask).__mro__)


def with_positions(case: Case, positions: Any) -> Any:
    """A copy of a computable mask with other positions of its rows; None where they cannot be set.

    Raises:
      NotAsked: the class has no mask function.
    """
    _ = case.function
    try:
        moved = copy.copy(case.mask)
        moved.q_sequence = np.asarray(positions, dtype=np.int32)
    except Exception:
        return None
    if moved is case.mask or not np.array_equal(moved.q_sequence, positions):
        return None
    return moved


def _span(positions: Any) -> Any:
    """All positions from the first to the last; None if these are too many."""
    first, last = int(positions.min()), int(positions.max())
    return np.arange(first, last + 1, dtype=np.int32) if last - first < SPAN else None


@JUDGES.judge("MASK-20", *AGREES)
def check_rectangles(case: Case) -> None:
    """``block_bounds`` for rectangles between the positions of the mask."""
    bounds, function = case.attribute("block_bounds"), case.function
    q, kv = (_span(positions) for positions in case.positions)
    if bounds is None or q is None or kv is None:
        raise NotAsked
    table = np.asarray(case.call("mask_function", lambda: function(q[:, None], kv[None, :])))
    table = np.broadcast_to(table, (len(q), len(kv)))
    chosen = Rectangles.of(len(q), len(kv), case.rng)
    rows, columns = q[chosen.q], kv[chosen.kv]
    corners = rows[:, 0, None], rows[:, 1, None], columns[None, :, 0], columns[None, :, 1]
    found = case.call("block_bounds", lambda: bounds(*corners))
    if found is None:
        raise NotAsked
    named = Rectangles(rows.astype(np.int64), columns.astype(np.int64))
    if not isinstance(found, tuple) or len(found) != 2:
        raise Violation("block_bounds", "a pair of arrays (any, all), or None", repr(found)[:80])
    for word, expected, answer in zip(("any", "all"), chosen.answers(table), found, strict=True):
        answer = np.broadcast_to(_booleans(answer, "block_bounds"), expected.shape)
        wrong = np.argwhere(answer != expected)
        if len(wrong):
            at = tuple(int(k) for k in wrong[0])
            where = f"block_bounds, whether {word} pair of {named.name(at)} is visible"
            raise Violation(where, expected[at], answer[at], (len(wrong), expected.size))


def _booleans(value: Any, where: str) -> Any:
    array = np.asarray(value)
    if array.dtype != np.bool_:
        raise Violation(f"type of {where}", "bool", array.dtype)
    return array


@JUDGES.judge("MASK-21", *AGREES)
def check_intervals(case: Case) -> None:
    """``kv_intervals`` of the positions of the rows, as a row and as a table of blocks."""
    intervals, _ = case.attribute("kv_intervals"), case.function
    if intervals is None:
        raise NotAsked
    q, kv = case.positions
    for ids in (q, q[None, :], np.zeros(1, dtype=np.int32) + q[:1]):
        found = case.call("kv_intervals", lambda ids=ids: intervals(ids))  # type: ignore[misc]
        if found is None:
            raise NotAsked
        if not hasattr(found, "lo") or not hasattr(found, "hi"):
            raise Violation("kv_intervals", "Intervals(lo, hi), or None", repr(found)[:80])
        lo, hi = np.asarray(found.lo), np.asarray(found.hi)
        if lo.shape[1:] != ids.shape or hi.shape != lo.shape:
            wanted = f"two arrays of shape (intervals, {', '.join(map(str, ids.shape))})"
            raise Violation("kv_intervals", wanted, f"{lo.shape} and {hi.shape}")
        flat = times_covered(lo.reshape(len(lo), -1), hi.reshape(len(hi), -1), kv)
        expected = case.whole[: ids.size]
        wrong = np.argwhere(flat != expected)
        if len(wrong):
            row, column = (int(k) for k in wrong[0])
            where = f"intervals of position {q[row]} that hold key position {kv[column]}"
            visible = f"{int(expected[row, column])}"
            raise Violation(where, visible, flat[row, column], (len(wrong), flat.size))


def explain(crash: Crash) -> str:
    """What an error inside a kernel means for a mask function; "" if nothing is known."""
    text = str(crash.error)
    if "captures constants" in text:
        return (
            "a kernel may not capture arrays: write the function with numbers and operators, or drop mask_function, "
            "so that blocks are stored"
        )
    if "traced array" in text or "Tracer" in type(crash.error).__name__:
        return "positions have no values inside a kernel: use operators and jax.numpy instead of NumPy and conditions"
    return ""
