"""What a clause asks for, in one place of a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from conformance.findings.values import Number, Plain, as_tuples


@dataclass(frozen=True)
class Equal:
    """This value."""

    value: Plain
    kind: Literal["equal"] = field(default="equal", init=False)


@dataclass(frozen=True)
class Within:
    """A number that is off by no more than its error budget."""

    value: Number
    budget: Number
    kind: Literal["within"] = field(default="within", init=False)


@dataclass(frozen=True)
class Finite:
    """Any number but NaN and the infinities."""

    kind: Literal["finite"] = field(default="finite", init=False)


@dataclass(frozen=True)
class Unchanged:
    """What another call of the same implementation returned, to the last bit."""

    value: Number
    kind: Literal["unchanged"] = field(default="unchanged", init=False)


@dataclass(frozen=True)
class InRange:
    """A number from low to high, both included; None where there is no limit."""

    low: Number | None
    high: Number | None
    kind: Literal["in range"] = field(default="in range", init=False)


@dataclass(frozen=True)
class OneOf:
    """One of some values, or of a set that has a name."""

    values: tuple[Plain, ...] = ()
    of: str = ""
    kind: Literal["one of"] = field(default="one of", init=False)


@dataclass(frozen=True)
class Presence:
    """That something is there, or is not. Also an observation."""

    present: bool
    kind: Literal["presence"] = field(default="presence", init=False)


@dataclass(frozen=True)
class Written:
    """A block that is written, and in which way."""

    how: Literal["at all", "after a reset", "after its last step", "in one visit"] = "at all"
    kind: Literal["written"] = field(default="written", init=False)


@dataclass(frozen=True)
class OfForm:
    """An object of one of these types."""

    types: tuple[str, ...]
    kind: Literal["of form"] = field(default="of form", init=False)


@dataclass(frozen=True)
class Refusal:
    """An error whose message contains one of these names of the argument."""

    names: tuple[str, ...]
    kind: Literal["refusal"] = field(default="refusal", init=False)


@dataclass(frozen=True)
class NoError:
    """A valid problem must not raise."""

    kind: Literal["no error"] = field(default="no error", init=False)


Expectation = (
    Equal | Within | Finite | Unchanged | InRange | OneOf | Presence | Written | OfForm | Refusal | NoError
)  # fmt: skip

BY_KIND: dict[str, type[Expectation]] = {cls.kind: cls for cls in get_args(Expectation)}


def expectation_from_json(data: Mapping[str, Any]) -> Expectation:
    """Inverse of `as_json`.

    Raises:
      KeyError, TypeError: unknown kind, missing or unknown fields.
    """
    fields = {name: as_tuples(value) for name, value in data.items()}
    return BY_KIND[fields.pop("kind")](**fields)
