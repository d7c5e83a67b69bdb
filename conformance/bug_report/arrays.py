"""Arrays as Python code that makes them, short where they have a pattern."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.problems.regimes import few

Array = NDArray[Any]

#: Longest list that is written out.
LONGEST = 24

#: Functions that a script may need, by name; each is written into it only if it is used.
HELPERS = {
    "few": """\
def few(salt, *shape):  # values -1, 0 and 1 in no visible order
    n = np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(1000003 * salt)
    third = n * n * np.uint64(2654435761) // np.uint64(65536) % np.uint64(3)
    return third.reshape(shape).astype(np.float32) - 1
""",
    "unpacked": """\
def unpacked(text, dtype, *shape):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype).reshape(shape)
""",
}


def helpers(code: str) -> str:
    """The functions of `HELPERS` that some code calls."""
    return "\n\n".join(text for name, text in HELPERS.items() if f"{name}(" in code)


def imports(code: str) -> str:
    """Modules of the standard library that some code needs."""
    return "import base64\nimport zlib\n" if "unpacked(" in code else ""


def value_of(code: str) -> Any:
    """What an expression of a script evaluates to."""
    space: dict[str, Any] = {"np": np}
    exec(imports(code) + helpers(code), space)
    with np.errstate(all="ignore"):
        return eval(code, space)


def number(value: Any) -> str:
    """A number as code, exactly."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        if not np.isfinite(value):
            return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}[str(value)]
        mantissa, exponent = np.frexp(value)
        if abs(exponent) > 40 and float(mantissa * 1024).is_integer():
            return f"{float(mantissa) * 2:g} * 2.0**{int(exponent) - 1}"
        return repr(int(value)) if value == int(value) and abs(value) < 1e6 else repr(value)
    return repr(value)


def _list(values: Array) -> str:
    return "[" + ", ".join(number(v) for v in values) + "]"


def _vectors(values: Array) -> Iterator[str]:
    """Expressions that may make a vector, the nicest first."""
    size = len(values)
    if size <= 4:
        yield f"np.array({_list(values)}, np.{values.dtype})"
    if size > 1:
        step = values[1] - values[0] if values.dtype != np.bool_ else 0
        if np.isfinite(step) and step != 0:
            scaled = "" if step == 1 else f" * {number(step)}"
            shifted = "" if values[0] == 0 else f" + {number(values[0])}"
            yield f"(np.arange({size}){scaled}{shifted}).astype(np.{values.dtype})"
        changes = np.flatnonzero(np.diff(values)) if size > LONGEST else np.zeros(0)
        if len(changes) > 1 and len(set(np.diff(changes))) == 1:
            run, start = int(changes[1] - changes[0]), int(changes[0]) + 1
            step = values[start] - values[0]
            inside = f"(np.arange({size}) + {run - start}) // {run}"
            yield f"({inside} * {number(step)} + {number(values[0])}).astype(np.{values.dtype})"
        for period in (2, 3, 4, 8):
            if size > period and np.array_equal(values[:-period], values[period:]):
                inverse = 1 / step if step else 0
                if inverse == int(inverse):
                    yield f"(np.arange({size}) % {period} / {int(inverse)}).astype(np.{values.dtype})"
                tile = f"np.array({_list(values[:period])}, np.{values.dtype})"
                yield f"np.resize({tile}, {size})"
        starts = np.concatenate([[0], 1 + np.flatnonzero(values[1:] != values[:-1])])
        lengths = np.diff([*starts, size])
        if len(starts) <= LONGEST:
            runs = f"{_list(values[starts])}, {_list(lengths)}"
            yield f"np.repeat({runs}).astype(np.{values.dtype})"
    if size <= LONGEST:
        yield f"np.array({_list(values)}, np.{values.dtype})"


def _candidates(array: Array) -> Iterator[str]:
    shape, dtype = array.shape, f"np.{array.dtype}"
    first = array.ravel()[0]
    if (array == first).all() or np.isnan(array).all():
        if first == 0:
            yield f"np.zeros({shape}, {dtype})"
        elif first == 1:
            yield f"np.ones({shape}, {dtype})"
        yield f"np.full({shape}, {number(first)}, {dtype})"
    if array.dtype == np.float32:
        largest = float(np.abs(array).max())
        for salt in (1, 2, 3, 4):
            made = few(salt, shape).astype(np.float32)
            for scale in {largest, 1.0} - {0.0}:
                if np.array_equal(made * np.float32(scale), array):
                    times = "" if scale == 1 else f" * {number(scale)}"
                    yield f"few({salt}, {', '.join(map(str, shape))}){times}"
    if array.ndim == 1:
        yield from _vectors(array)
    else:
        varying = [
            axis for axis, n in enumerate(shape) if n > 1 and (array != array.take([0], axis)).any()
        ]
        if len(varying) == 1:
            axis = varying[0]
            index = tuple(slice(None) if n == axis else 0 for n in range(array.ndim))
            turn = ", ".join(":" if n == axis else "None" for n in range(array.ndim))
            for code in _vectors(array[index]):
                yield f"np.tile({code}[{turn}], {tuple(1 if n == axis else s for n, s in enumerate(shape))})"
        if array.size <= LONGEST:
            yield f"np.array({array.tolist()}, {dtype})".replace("nan", "np.nan").replace(
                "inf", "np.inf"
            )
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
    yield f'unpacked("{packed}", {dtype}, {", ".join(map(str, shape))})'


def same(one: Array, other: Any) -> bool:
    """Whether two arrays are equal, NaN to NaN, in shape and type too."""
    found = np.asarray(other)
    equal = found.shape == one.shape and found.dtype == one.dtype
    return equal and bool(np.array_equal(found, one, equal_nan=one.dtype.kind == "f"))


def expression(array: Array) -> str:
    """An expression that makes an array, exactly; packed if nothing shorter is known."""
    return next(code for code in _candidates(array) if same(array, value_of(code)))


def statements(name: str, array: Array, unseeing: NDArray[np.bool_] | None = None) -> list[str]:
    """Statements that make an array.

    Args:
      name: of the variable.
      array: float, or integers.
      unseeing: bool ``[heads, rows]``, called ``~seen`` in the script; the array may have other values
        there.
    """
    plain = expression(array)
    if "unpacked(" not in plain:
        return [f"{name} = {plain}"]
    if array.ndim == 3:
        rest = array.copy()
        rest[:, :, 0] = 0
        lane = array[:, :, 0]
        code = expression(lane[0] if (lane == lane[0]).all() else lane)
        if not rest.any() and "unpacked(" not in code:
            return [
                f"{name} = np.zeros({array.shape}, np.{array.dtype})",
                f"{name}[:, :, 0] = {code}",
            ]
    if unseeing is not None and unseeing.any() and not unseeing.all():
        inside = expression(filled(array, unseeing))
        if "unpacked(" not in inside:
            there = array[unseeing]
            for change in ("= 0", "*= 2**20"):
                found = value_of(inside)
                exec(f"found[rows] {change}", {"found": found, "rows": unseeing})
                if np.array_equal(found[unseeing], there):
                    return [f"{name} = {inside}", f"{name}[~seen] {change}"]
    return [f"{name} = {plain}"]


def filled(array: Array, unseeing: NDArray[np.bool_]) -> Array:
    """An array whose rows that see nothing are as a pattern of the other rows would have them."""
    if array.dtype == np.float32:
        for made in (
            np.ones_like(array),
            *(few(salt, array.shape).astype(np.float32) for salt in (1, 2, 3, 4)),
        ):
            if np.array_equal(made[~unseeing], array[~unseeing]):
                return np.asarray(made)
    return array
