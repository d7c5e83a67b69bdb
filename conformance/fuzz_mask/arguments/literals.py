"""Values as Python text that makes them again, short where arrays are long."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Arrays of more elements are written as runs, where that is shorter.
ELEMENTS = 16


def literal(value: Any) -> str:
    """Text that makes a value again where NumPy is called ``np``; its ``repr`` for other objects."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return repr(value.item())
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if type(value) is tuple:
        inner = ", ".join(literal(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if type(value) is list:
        return _sequence(value)
    if type(value) is dict:
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _sequence(items: list[Any]) -> str:
    text = f"[{', '.join(literal(item) for item in items)}]"
    if len(items) > ELEMENTS and all(type(item) in (int, bool) for item in items):
        runs = f"{_runs(np.array(items))}.tolist()"
        return min(text, runs, key=len)
    return text


def _array(array: NDArray[Any]) -> str:
    dtype = "" if array.dtype in (np.dtype(np.int64), np.dtype(np.bool_)) else _dtype(array)
    plain = f"np.array({array.tolist()}{dtype})"
    if array.size <= ELEMENTS or array.dtype.kind not in "biu":
        return plain
    flat = array.ravel()
    shape = "" if array.ndim == 1 else f".reshape({', '.join(map(str, array.shape))})"
    ways = [plain, _runs(flat, dtype) + shape]
    if np.array_equal(flat, np.arange(len(flat)) + flat[0]):
        start = f"{flat[0]}, " if flat[0] else ""
        ways.append(f"np.arange({start}{flat[0] + len(flat)}{dtype})" + shape)
    return min(ways, key=len)


def _dtype(array: NDArray[Any]) -> str:
    return f", dtype=np.{array.dtype.name}"


def _runs(flat: NDArray[Any], dtype: str = "") -> str:
    starts = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]])
    lengths = np.diff(np.r_[starts, len(flat)])
    values = f"np.array({flat[starts].tolist()}{dtype})" if dtype else f"{flat[starts].tolist()}"
    return f"np.repeat({values}, {lengths.tolist()})"
