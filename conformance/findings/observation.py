"""What an implementation did, in one place of a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from conformance.findings.expectation import Presence
from conformance.findings.values import Number, Plain, as_tuples, number, plain


@dataclass(frozen=True)
class AsIf:
    """Keys that explain a wrong row of the output: visible ones that it lacked, or hidden ones that it had."""

    row: Literal["lacked", "had the hidden"]
    unit: Literal["kv block", "key"]
    number: int


@dataclass(frozen=True)
class Value:
    """A wrong value that is finite, or is not a number at all.

    Attributes:
      value: what was found.
      off: distance from the expected number, where there is a budget.
      times: that distance in budgets, or a figure of quality in its best possible value.
      as_if: what would explain it.
    """

    value: Plain
    off: Number | None = None
    times: Number | None = None
    as_if: AsIf | None = None
    kind: Literal["value"] = field(default="value", init=False)


@dataclass(frozen=True)
class NotFinite:
    """NaN or an infinity."""

    value: Literal["nan", "inf", "-inf"]
    kind: Literal["not finite"] = field(default="not finite", init=False)


@dataclass(frozen=True)
class Unwritten:
    """Nothing writes this block: it keeps whatever memory held."""

    kind: Literal["unwritten"] = field(default="unwritten", init=False)


@dataclass(frozen=True)
class Miswritten:
    """A block that is written in a wrong way."""

    fault: Literal["not reset", "written early", "visited again"]
    kind: Literal["miswritten"] = field(default="miswritten", init=False)


@dataclass(frozen=True)
class Form:
    """An object of a wrong type; shape and dtype if it is an array."""

    type: str
    text: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    kind: Literal["form"] = field(default="form", init=False)


@dataclass(frozen=True)
class Raised:
    """An exception, or the end of the process.

    Attributes:
      type: its class.
      message: its first lines, without line breaks.
      function: where it was raised.
      ended: how the process ended, e.g. ``SIGSEGV``; "" if it did not.
    """

    type: str
    message: str
    function: str = ""
    ended: str = ""
    kind: Literal["raised"] = field(default="raised", init=False)

    @property
    def cause(self) -> str:
        """What errors of one cause have in common."""
        name = self.ended or self.type
        return f"{name} in {self.function}" if self.function else name


@dataclass(frozen=True)
class Accepted:
    """Bad input was not refused; the type of what was returned."""

    returned: str
    kind: Literal["accepted"] = field(default="accepted", init=False)


Observation = (
    Value | NotFinite | Unwritten | Miswritten | Presence | Form | Raised | Accepted
)  # fmt: skip

BY_KIND: dict[str, type[Observation]] = {cls.kind: cls for cls in get_args(Observation)}


def observe(value: Any) -> Value | NotFinite:
    """A value that was found."""
    if isinstance(value, float | np.floating) and isinstance(word := number(value), str):
        return NotFinite(word)
    return Value(plain(value))


def observation_from_json(data: Mapping[str, Any]) -> Observation:
    """Inverse of `as_json`.

    Raises:
      KeyError, TypeError: unknown kind, missing or unknown fields.
    """
    fields = {name: as_tuples(value) for name, value in data.items()}
    if fields.get("as_if") is not None:
        fields["as_if"] = AsIf(**fields["as_if"])
    return BY_KIND[fields.pop("kind")](**fields)
