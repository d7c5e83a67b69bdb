"""Where a result is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from conformance.findings.values import Plain, as_tuples, plain
from reference.mask_info import Direction

#: What about a quantity is wrong; "" is its values. ``call``: the quantity is a method. ``argument``: the quantity is
#: an argument that should have been refused, and `Place.given` says what was passed.
Aspect = Literal[
    "", "call", "argument", "shape", "dtype", "rank", "length", "direction", "width", "height", "copies",
    "times named", "slope",
]  # fmt: skip


@dataclass(frozen=True)
class ShardIndex:
    """One of several devices; None along an axis that is not split."""

    head: int | None = None
    q: int | None = None
    kv: int | None = None


@dataclass(frozen=True)
class Place:
    """Where a result is wrong.

    Attributes:
      quantity: an array (``output``, ``mask_next``), something counted (``active blocks``), a method or an argument.
      aspect: what about it is wrong.
      direction: of the kernel or the compiled arrays, if the quantity belongs to one.
      shard: the device, if there are several.
      index: the element, block or step; () for the whole.
      axes: what the numbers of `index` count, e.g. ``("head", "row", "")``.
      block: number of the block that holds the row or key of `index`.
      given: how the call or its input differed from an ordinary one.
    """

    quantity: str
    aspect: Aspect = ""
    direction: Direction | None = None
    shard: ShardIndex | None = None
    index: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    block: int | None = None
    given: Mapping[str, Plain] = field(default_factory=dict)

    def named(self, quantity: str) -> Place:
        """Another quantity of the same direction and device."""
        return replace(self, quantity=quantity)

    def of(self, aspect: Aspect) -> Place:
        """An aspect of the same quantity."""
        return replace(self, aspect=aspect)

    def at(self, *index: Any, axes: tuple[str, ...] = (), block: int | None = None) -> Place:
        """An element, block or step of the same quantity."""
        return replace(self, index=tuple(map(int, index)), axes=axes, block=block)

    def inside(self, *index: Any) -> Place:
        """An element of what an index names already."""
        axes = (*self.axes, *("",) * len(index)) if self.axes else ()
        return self.at(*self.index, *index, axes=axes)

    def under(self, **given: Any) -> Place:
        """The same place in a call, or with an input, that is not the ordinary one."""
        return replace(
            self, given=dict(self.given) | {name: plain(value) for name, value in given.items()}
        )

    @property
    def subject(self) -> tuple[object, ...]:
        """What the place is about, whatever the element, the device and the values that were given."""
        return self.quantity, self.aspect, self.direction, sorted(self.given)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Place:
        """Inverse of `as_json`.

        Raises:
          TypeError: missing or unknown fields.
        """
        fields: dict[str, Any] = {name: as_tuples(value) for name, value in data.items()}
        if fields.get("shard") is not None:
            fields["shard"] = ShardIndex(**fields["shard"])
        if "given" in fields:
            fields["given"] = {name: as_tuples(value) for name, value in fields["given"].items()}
        return Place(**fields)
