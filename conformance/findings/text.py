"""Places, expectations and observations in words: the one place where findings become text."""

from __future__ import annotations

import itertools

import numpy as np

from conformance.findings import expectation as expect
from conformance.findings import observation as saw
from conformance.findings.place import Place
from conformance.findings.values import Plain


def place_text(place: Place) -> str:
    """A place in one line, e.g. ``output[head 0, row 129 (q block 1), 3] with heads reversed``."""
    given = ", ".join(itertools.starmap(_given_text, place.given.items()))
    if place.aspect == "argument":
        return given
    text = place.quantity
    if place.aspect not in ("", "call"):
        text = f"{place.aspect} of {text}"
    shard = vars(place.shard) if place.shard else {}
    parts = [place.direction or "", *(f"{n} shard {k}" for n, k in shard.items() if k is not None)]
    if any(parts):
        text += f" ({', '.join(filter(None, parts))})"
    if place.index:
        text += f"[{', '.join(_coordinates(place))}]"
    return f"{text} with {given}" if given else text


def _given_text(name: str, value: Plain) -> str:
    """One thing that a call was given; words stand beside the name, numbers behind an equals sign."""
    words = isinstance(value, str) and value not in ("nan", "inf", "-inf")
    return f"{name} {value}" if words else f"{name}={value_text(value)}"


def _coordinates(place: Place) -> list[str]:
    """The numbers of an index, each with what it counts."""
    axes = place.axes or ("",) * len(place.index)
    blocks = {"row": "q block", "key": "kv block"} if place.block is not None else {}
    return [
        f"{axis} {number}".lstrip() + (f" ({blocks[axis]} {place.block})" if axis in blocks else "")
        for axis, number in zip(axes, place.index, strict=True)
    ]


def value_text(value: Plain) -> str:
    """A value: numbers with nine digits, tables as NumPy prints them."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, tuple) and value and all(isinstance(row, tuple) for row in value):
        return np.array2string(np.array(value), separator=" ", max_line_width=100)
    return str(value)


_WRITTEN = {
    "at all": "stored",
    "after a reset": "reset before it accumulates",
    "after its last step": "stored after its last step",
    "in one visit": "visited once",
}
_MISWRITTEN = {
    "not reset": "not reset",
    "written early": "stored before its last step",
    "visited again": "left, and visited again later",
}


def expectation_text(item: expect.Expectation) -> str:
    """What a clause asks for, to stand after "expected"."""
    match item:
        case expect.Equal(value):
            return value_text(value)
        case expect.Within(value, budget):
            return f"{value_text(value)} within {float(budget):.2g}"
        case expect.Finite():
            return "a finite number"
        case expect.Unchanged(value):
            return f"{value_text(value)}, unchanged"
        case expect.InRange(None, high):
            return f"at most {value_text(high)}"
        case expect.InRange(low, None):
            return f"at least {value_text(low)}"
        case expect.InRange(low, high):
            return f"a number from {value_text(low)} to {value_text(high)}"
        case expect.OneOf(values, of):
            return f"one of {of}" if of else " or ".join(map(value_text, values))
        case expect.Presence(present):
            return presence_text(present)
        case expect.Written(how):
            return _WRITTEN[how]
        case expect.OfForm(types):
            return " or ".join(types)
        case expect.Refusal(names):
            return f"an error that names {' or '.join(names)}"
        case expect.NoError():
            return "no error on a valid problem"


def observation_text(item: saw.Observation) -> str:
    """What an implementation did, to stand after "got"."""
    match item:
        case saw.Value(value, off, times, as_if):
            text = value_text(value)
            if off is not None:
                text += f", off by {float(off):.3g}, {float(times or 0):.3g} times the budget"
            elif times is not None:
                text += f" ({float(times):.2f} times the minimum)"
            return (
                f"{text}, as if the row {as_if.row} {as_if.unit} {as_if.number}" if as_if else text
            )
        case saw.NotFinite(value):
            return value
        case saw.Unwritten():
            return "unwritten"
        case saw.Miswritten(fault):
            return _MISWRITTEN[fault]
        case expect.Presence(present):
            return presence_text(present)
        case saw.Form(type_, text, dtype, shape):
            return f"{dtype} array of shape {shape}" if dtype else f"{type_} {text}".rstrip()
        case saw.Raised(type_, message):
            return f"{type_}: {message}" if message else f"a bare {type_}"
        case saw.Accepted(returned):
            return f"no error, but a {returned}"


def presence_text(present: bool) -> str:
    """Whether something is there."""
    return "present" if present else "absent"


def count_text(differing: int, of: int) -> str:
    """How many places differ."""
    return f"{differing} of {of} places differ"
