"""Equality and hash: a mask is the key under which libraries keep what they compiled."""

from __future__ import annotations

import re
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from conformance.contract.fence import Crash
from conformance.findings.violation import Violation
from conformance.fuzz_mask.case import Advice, Case, Judges, NotAsked, Pair, expect_same
from conformance.fuzz_mask.contract import READABLE
from conformance.fuzz_mask.functions import moves_rows, with_positions
from conformance.fuzz_mask.names import axis_of, sizes_of_pair
from conformance.fuzz_mask.settings import Setting
from conformance.fuzz_mask.source import Arguments, Source

JUDGES = Judges()
PAIR_JUDGES = Judges()

CACHES = "libraries keep compiled masks by their hash"


@JUDGES.judge("MASK-14", *READABLE)
def check_equal_masks(case: Case) -> None:
    """Another mask from the same arguments: its entries, and that comparing and hashing work."""
    if case.arguments.ready is not None:
        raise NotAsked
    first, second = case.mask, case.again()
    q_len, kv_len = case.shape
    entries = case.call("another mask", lambda: second[0:q_len, 0:kv_len])
    expect_same("another mask from the same arguments", case.whole, entries)
    equal = case.call("mask == another mask from the same arguments", lambda: bool(first == second))
    hashes = case.call("hash(mask)", lambda: (hash(first), hash(second)))
    if equal and hashes[0] != hashes[1]:
        raise Violation(
            "hashes of two equal masks from the same arguments", "one hash", "two different hashes"
        )


@JUDGES.judge("MASK-14", "check_equal_masks")
def check_equal_masks_are_found_again(case: Case) -> None:
    """A mask from the same arguments is the same key: otherwise every one is compiled anew."""
    if case.arguments.ready is None and not bool(case.mask == case.again()):
        raise Advice(
            "mask == another mask from the same arguments",
            "True: a compiled mask is used again, and heads with one mask share it",
            f"False: {_why(case.mask)}; results are right, but every such mask is compiled and stored anew",
        )


def _why(mask: Any) -> str:
    kind = type(mask)
    if getattr(kind, "__eq__", None) is object.__eq__:
        return f"{kind.__name__} has no __eq__"
    own = getattr(mask, "parameters", None)
    if callable(own) and own() is None:
        return f"{kind.__name__} has no parameters()"
    return f"{kind.__name__}.__eq__ says so"


@JUDGES.judge("MASK-15", "check_equal_masks")
def check_masks_of_other_classes(case: Case) -> None:
    """Comparing with something else is False, not an error."""
    for other in (None, 0, _Other(case.shape)):
        what = f"mask == {'an object of another class' if isinstance(other, _Other) else other}"
        try:
            answer = bool(case.mask == other)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise Advice(what, "False", said) from error
        if answer:
            raise Violation(what, "False", "True")


class _Other:
    """A mask of no library."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape


@JUDGES.judge("MASK-15", "check_equal_masks", "check_function_agrees")
def check_masks_with_moved_rows(case: Case) -> None:
    """A copy with other positions of the rows is another mask, if its entries are others."""
    moved = with_positions(case, case.positions[0][::-1]) if len(case.positions[0]) > 1 else None
    if moved is None:
        raise NotAsked
    q_len, kv_len = case.shape
    entries = case.call("mask with moved rows", lambda: moved[0:q_len, 0:kv_len])
    if np.array_equal(entries, case.whole):
        return
    where = "mask == the same mask after q_sequence = q_sequence[::-1], whose entries differ"
    if case.call(where, lambda: bool(case.mask == moved)):
        said = f"True: {CACHES}, so that one runs in place of the other"
        raise (Violation if moves_rows(case.mask) else Advice)(where, "False", said)


@PAIR_JUDGES.judge("MASK-15")
def check_different_masks(pair: Pair) -> None:
    """Two masks that differ in shape or in an entry are not equal, whichever is asked."""
    first, second = pair.first, pair.second
    if first.expr == second.expr:
        raise NotAsked
    try:
        for case in (first, second):
            _ = case.whole
            if case.arguments.ready is None:
                check_equal_masks(case)
    except (Violation, Crash):
        raise NotAsked from None  # which is about one mask already
    if first.shape == second.shape and np.array_equal(first.whole, second.whole):
        return
    differ = f", which differ in {' and '.join(pair.differ)}" if pair.differ else ""
    for where, a, b in (("first == second", first, second), ("second == first", second, first)):
        if first.call(where, lambda a=a, b=b: bool(a.mask == b.mask)):  # type: ignore[misc]
            raise Violation(
                f"{where}{differ}",
                "False",
                f"True: {CACHES}, so that one runs in place of the other",
            )


@st.composite
def pairs(draw: st.DrawFn, source: Source, settings: st.SearchStrategy[Setting]) -> Pair:
    """Two masks that differ in one parameter, in their shapes, or in everything."""
    setting = draw(settings)
    first, mask = draw(source.masks(setting))
    turned = Setting(setting.kv_len, setting.q_len, setting.block_q, setting.block_kv)
    others = st.one_of(st.just(setting), st.just(turned), settings)
    second = draw(source.arguments(draw(others)))
    candidates = [second]
    if not source.calls and first.ready is None:
        names = [*dict.fromkeys([*first.values, *second.values])]
        ways = [_turned(source, first)]
        ways += [_with_one_of(source, first, second, name) for name in names]
        candidates.insert(draw(st.integers(0, 1)), draw(st.sampled_from(ways)))
    for candidate in candidates:
        other = source.mask_or_none(candidate)
        if other is not None:
            cases = [Case(mask, first, source), Case(other, candidate, source)]
            small, large = sorted(cases, key=lambda case: case.size)
            return Pair(small, large, _differing(source, first, candidate))
    hypothesis.reject()


def _with_one_of(source: Source, first: Arguments, second: Arguments, name: str) -> Arguments:
    """The first arguments, with one of the second."""
    values = {k: v for k, v in first.values.items() if k != name}
    if name in second.values:
        values[name] = second.values[name]
    return source.ordered(values)


def _turned(source: Source, first: Arguments) -> Arguments:
    """The first arguments with queries and keys exchanged, as far as names tell."""
    values = dict(first.values)
    for name, value in first.values.items():
        if sizes_of_pair(name):
            values[name] = value[::-1]
        if axis_of(name) == "q":
            other = next((n for n in first.values if n == _of_keys(name)), None)
            if other is not None:
                values[name], values[other] = first.values[other], value
    return source.ordered(values)


def _of_keys(name: str) -> str:
    """The name that a parameter about queries would have about keys."""
    return re.sub(
        r"(?<![a-z])q(?![a-z])", "kv", name.replace("query", "key").replace("queries", "keys")
    )


def _differing(source: Source, first: Arguments, second: Arguments) -> tuple[str, ...]:
    if first.ready is not None or second.ready is not None:
        return ()
    a, b = source.complete(first), source.complete(second)
    return tuple(name for name in a if not _same(a[name], b[name]))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)
