"""Values as plain data: what places, expectations and observations hold, and what JSON can."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal

import numpy as np

#: A number of a report. JSON has no NaN and no infinities, so these are words; `float` turns either form back.
type Number = float | Literal["nan", "inf", "-inf"]
#: A value of a report; an array is nested tuples.
type Plain = bool | int | float | str | tuple[Plain, ...] | None

#: Larger arrays are described by their type and shape instead of their elements.
MOST_ELEMENTS = 64


def number(value: Any) -> Number:
    """A number of any type as plain data."""
    found = float(value)
    if math.isnan(found):
        return "nan"
    return found if math.isfinite(found) else ("inf" if found > 0 else "-inf")


def plain(value: Any) -> Plain:
    """Any value as plain data: arrays as nested tuples, objects as their text."""
    if isinstance(value, np.ndarray):
        if value.size > MOST_ELEMENTS:
            return f"{value.dtype} array of shape {value.shape}"
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, tuple | list):
        return tuple(plain(item) for item in value)
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, bool | int | str | None) else str(value)


def as_json(record: Any) -> Any:
    """A record, or a part of one, as JSON has it: dictionaries and lists."""
    if is_dataclass(record) and not isinstance(record, type):
        return {field.name: as_json(getattr(record, field.name)) for field in fields(record)}
    if isinstance(record, Mapping):
        return {name: as_json(value) for name, value in record.items()}
    return [as_json(item) for item in record] if isinstance(record, tuple | list) else record


def as_tuples(value: Any) -> Any:
    """JSON's lists as the tuples that they were made from."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
