"""Draws masks of a class, and pairs of them."""

from __future__ import annotations

import re
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from conformance.fuzz_mask.arguments.names import axis_of, sizes_of_pair
from conformance.fuzz_mask.arguments.settings import Setting
from conformance.fuzz_mask.arguments.source import Arguments, Source
from conformance.fuzz_mask.case import Case, Pair
from conformance.fuzz_mask.class_subject import ClassSubject


@st.composite
def cases(
    draw: st.DrawFn, source: Source, subject: ClassSubject, settings: st.SearchStrategy[Setting]
) -> Case:
    """Masks for some settings."""
    arguments, mask = draw(source.masks(draw(settings)))
    return Case(mask, arguments, source, subject)


@st.composite
def pairs(
    draw: st.DrawFn, source: Source, subject: ClassSubject, settings: st.SearchStrategy[Setting]
) -> Pair:
    """Two masks that differ in one parameter, in their shapes, or in all parameters."""
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
            both = ((mask, first), (other, candidate))
            cases = [Case(*one, source, subject) for one in both]
            small, large = sorted(cases, key=lambda case: case.size)
            return Pair(small, large, _differing(source, first, candidate))
    hypothesis.reject()


def _with_one_of(source: Source, first: Arguments, second: Arguments, name: str) -> Arguments:
    """The first arguments, with one taken from the second."""
    values = {k: v for k, v in first.values.items() if k != name}
    if name in second.values:
        values[name] = second.values[name]
    return source.ordered(values)


def _turned(source: Source, first: Arguments) -> Arguments:
    """The first arguments with queries and keys exchanged, as far as their names say which is which."""
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
    """The name of the parameter about keys that matches one about queries."""
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
