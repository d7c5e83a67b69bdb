"""Is an object of the class a mask: shape, values, slices, positions, what it is declared to mean."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from conformance.contract.fence import Crash
from conformance.findings.violation import Violation
from conformance.fuzz_mask.case import Advice, Case, Judge, Judges, expect_same
from conformance.fuzz_mask.load import short
from conformance.fuzz_mask.names import sizes_of_pair

JUDGES = Judges()

#: All slices of axes of so many tokens are read; of longer ones halves, ends, odd ones and blocks.
ALL_SLICES_OF = 5

#: Parameters that can only mean the length of an axis.
AXES = {"q_len": 0, "q_seq_len": 0, "kv_len": 1, "kv_seq_len": 1}

READABLE = ("check_shape", "check_whole")


@JUDGES.judge("CONV-1")
def check_shape(case: Case) -> None:
    """The shape is a pair, the one that was asked for."""
    shape = case.shape
    for name, asked in case.arguments.values.items():
        found: Any = AXES.get(name)
        if found is not None:
            found = shape[found]
        elif sizes_of_pair(name) and isinstance(asked, tuple | list):
            found, asked = shape, tuple(asked)
        if found is not None and found != asked:
            raise Violation(f"shape {shape} of a mask that was made with {name}", asked, found)


@JUDGES.judge("MASK-12", "check_shape")
def check_whole(case: Case) -> None:
    """The whole can be read, and has the shape of the mask."""
    _ = case.whole


@JUDGES.judge("MASK-16", *READABLE)
def check_booleans(case: Case) -> None:
    """The type of the whole and of a part."""
    q_len, kv_len = case.shape
    for rows in (slice(0, q_len), slice(q_len - 1, q_len)):
        found = case.read(rows, slice(0, kv_len))
        where = f"type of mask[{rows.start}:{rows.stop}, 0:{kv_len}]"
        if np.dtype(found.dtype) != np.bool_:
            raise Violation(where, "bool", found.dtype)


@JUDGES.judge("MASK-16", *READABLE, "check_booleans")
def check_arrays_of_numpy(case: Case) -> None:
    """Slices are arrays of NumPy: compilers read them one by one, block after block."""
    q_len, kv_len = case.shape
    found = case.read(slice(0, q_len), slice(0, kv_len))
    if not isinstance(found, np.ndarray):
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        where = f"mask[0:{q_len}, 0:{kv_len}]"
        raise Advice(where, "a NumPy array", f"{kind}, which takes long to read block by block")


@JUDGES.judge("MASK-17", *READABLE)
def check_reading_again(case: Case) -> None:
    """The whole again, after parts of it."""
    q_len, kv_len = case.shape
    first = case.whole
    for times in (2, 3):
        case.read(slice(q_len // 2, q_len), slice(0, 1))
        again = case.read(slice(0, q_len), slice(0, kv_len))
        expect_same(f"mask[0:{q_len}, 0:{kv_len}], read {times} times", first, again)


def slices(length: int, rng: np.random.Generator) -> Iterator[slice]:
    """Slices of an axis that are not empty, the whole last."""
    if length <= ALL_SLICES_OF:
        yield from (slice(a, b) for a in range(length) for b in range(a + 1, length))
        yield from (slice(a, length) for a in range(length - 1, -1, -1))
        return
    half = length // 2
    ends = [(0, 1), (0, half), (half, length), (half - 1, half + 1), (length - 1, length)]
    ends += [tuple(sorted(pair)) for pair in rng.integers(0, length + 1, (3, 2)).tolist()]
    yield from (slice(a, b) for a, b in ends if a < b)
    yield slice(0, length)


@JUDGES.judge("MASK-12", *READABLE, "check_booleans", "check_reading_again")
def check_slices(case: Case) -> None:
    """Every part equals the same part of the whole."""
    q_len, kv_len = case.shape
    columns = list(slices(kv_len, case.rng))
    for rows in slices(q_len, case.rng):
        for part in columns:
            where = f"mask[{rows.start}:{rows.stop}, {part.start}:{part.stop}]"
            expected, found = case.whole[rows, part], case.read(rows, part)
            if 1 in expected.shape and np.shape(found) != expected.shape:
                continue  # an axis that is lost is the subject of check_single_slices
            expect_same(where, expected, found)


@JUDGES.judge("MASK-13", *READABLE, "check_booleans")
def check_single_slices(case: Case) -> None:
    """A slice of one row or one column keeps its axis."""
    q_len, kv_len = case.shape
    one_row, one_column = slice(q_len - 1, q_len), slice(kv_len - 1, kv_len)
    for rows, columns in (
        (one_row, one_column),
        (one_row, slice(0, kv_len)),
        (slice(0, q_len), one_column),
    ):
        found = np.shape(case.read(rows, columns))
        where = f"mask[{rows.start}:{rows.stop}, {columns.start}:{columns.stop}]"
        expected = case.whole[rows, columns].shape
        if found != expected:
            raise Violation(f"shape of {where}", expected, found)


def advised(case: Case, rows: slice, columns: slice, where: str, what: str) -> None:
    """Raises `Advice` unless a slice that compilers do not ask for equals that of the whole."""
    try:
        found = case.read(rows, columns)
        expect_same(where, case.whole[rows, columns], found)
    except Crash as crash:
        raise Advice(where, what, short(crash.error)) from crash
    except Violation as wrong:
        raise Advice(wrong.where, wrong.expected, wrong.actual) from wrong


@JUDGES.judge("MASK-12", *READABLE, "check_slices")
def check_open_slices(case: Case) -> None:
    """Slices without bounds, as in ``mask[:, :]``: people write them, compilers do not."""
    q_half, kv_half = (length // 2 for length in case.shape)
    whole = slice(None)
    for rows, columns in ((whole, whole), (slice(q_half, None), slice(None, kv_half + 1))):
        where = f"mask[{_open(rows)}, {_open(columns)}]"
        advised(case, rows, columns, where, "the same part of the whole")


def _open(part: slice) -> str:
    return f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}"


@JUDGES.judge("MASK-13", *READABLE, "check_slices")
def check_empty_slices(case: Case) -> None:
    """Slices of length 0, which compilers do not ask for."""
    q_len, kv_len = case.shape
    for rows, columns in (
        (slice(0, 0), slice(0, kv_len)),
        (slice(0, q_len), slice(kv_len // 2, kv_len // 2)),
    ):
        where = f"mask[{rows.start}:{rows.stop}, {columns.start}:{columns.stop}]"
        advised(case, rows, columns, where, "an empty array")


def oracle_judge(oracle: Any, name: str) -> Judge:
    """The judge that compares a mask with a predicate of its author.

    Args:
      oracle: ``(q_ids, kv_ids, **parameters) -> bool``; it is given the parameters that it names.
      name: how the report calls it.
    """

    def check_declared_meaning(case: Case) -> None:
        """The mask equals the predicate that its author declares."""
        parameters = case.source.complete(case.arguments)
        wanted = _accepted(oracle, parameters)
        q_ids, kv_ids = (np.arange(length, dtype=np.int32) for length in case.shape)
        # Positions that the caller chose are what the predicate is about, unless it wants them itself.
        if parameters.get("q_sequence") is not None and "q_sequence" not in wanted:
            q_ids = case.positions[0]
        if parameters.get("kv_sequence") is not None and "kv_sequence" not in wanted:
            kv_ids = case.positions[1]
        call = partial(oracle, q_ids[:, None], kv_ids[None, :], **wanted)
        try:
            found = np.asarray(call())
            declared = np.broadcast_to(found, case.shape)
        except (KeyboardInterrupt, MemoryError):
            raise
        except Exception as error:
            raise OracleError(error, case.expr.text) from error
        if declared.dtype != np.bool_:
            raise OracleError(TypeError(f"it returned {declared.dtype}, not bool"), case.expr.text)
        expect_same(f"mask against {name}", np.array(declared), case.whole)

    return Judge("", check_declared_meaning, (*READABLE, "check_booleans"))


class OracleError(Exception):
    """The predicate of the author fails.

    Attributes:
      error: what it raised.
      call: the mask that it was asked about.
    """

    def __init__(self, error: Exception, call: str) -> None:
        self.error = error
        self.call = call
        super().__init__(f"{type(error).__name__}: {error}")


def _accepted(oracle: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a predicate names, all of them if it has ``**``."""
    own = inspect.signature(oracle).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in own):
        return parameters
    names = {p.name for p in own}
    return {name: value for name, value in parameters.items() if name in names}
