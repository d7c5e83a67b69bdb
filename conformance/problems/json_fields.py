"""Fields of JSON objects, read with errors that name the field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

JsonObject = dict[str, Any]
#: Takes a value and the name of its field; raises ValueError if the value does not fit.
Reader = Callable[[Any, str], Any]


def whole(value: Any, name: str) -> int:
    """A whole number (true and false are none)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, got {value!r:.60}")
    return value


def positive(value: Any, name: str) -> int:
    """A whole number of at least 1."""
    if whole(value, name) < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def number(value: Any, name: str) -> float:
    """Any number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, got {value!r:.60}")
    return float(value)


def boolean(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r:.60}")
    return value


def string(value: Any, name: str) -> str:
    """Text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r:.60}")
    return value


def optional(reader: Reader) -> Reader:
    """The same reader, but null is allowed."""
    return lambda value, name: None if value is None else reader(value, name)


def tuple_of(reader: Reader) -> Reader:
    """A list as a tuple, every item read by ``reader``."""

    def read(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{name} must be a list, got {value!r:.60}")
        return tuple(reader(item, f"{name}[{n}]") for n, item in enumerate(value))

    return read


def pair_of(reader: Reader) -> Reader:
    """A list of two."""

    def read(value: Any, name: str) -> tuple[Any, ...]:
        items: tuple[Any, ...] = tuple_of(reader)(value, name)
        if len(items) != 2:
            raise ValueError(f"{name} must be a list of two, got {len(items)}")
        return items

    return read


def read_object(
    value: Any,
    name: str,
    readers: dict[str, Reader],
    required: Iterable[str] = (),
    prefix: str = "",
) -> JsonObject:
    """The fields of an object, each read by its reader.

    Args:
      value: what should be an object.
      name: what it is called in errors.
      readers: by the name of the field.
      required: fields that must be present.
      prefix: what stands before the names of its fields in errors.

    Raises:
      ValueError: not an object, unknown or missing fields, a value that does not fit.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, got {value!r:.60}")
    unknown = set(value) - readers.keys()
    if unknown:
        raise ValueError(
            f"{name} has unknown fields {sorted(map(str, unknown))}, know {sorted(readers)}"
        )
    missing = set(required) - value.keys()
    if missing:
        raise ValueError(f"{name} lacks the fields {sorted(missing)}")
    return {field: readers[field](item, prefix + field) for field, item in value.items()}
