"""The memories of a traced kernel, and what each grid step does to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.adapters.tracing.primitives import (
    LIMIT,
    Array,
    Shape,
    Value,
    join_sources,
    take_box,
)
from reference.masks import Bool

#: First index and number of entries along every axis.
Box = tuple[tuple[int, int], ...]


@dataclass
class Active:
    """Which steps are executing.

    Attributes:
      must: bool ``[steps]``, the step executes this code.
      may: bool ``[steps]``, it does so or it depends on data that the trace does not have.
    """

    must: Bool
    may: Bool

    def where(self, chosen: Bool) -> Active:
        """The steps among these that take a branch."""
        return Active(self.must & chosen, self.may & chosen)

    def unsure(self) -> Active:
        """These steps in code that may or may not be executed."""
        return Active(np.zeros_like(self.must), self.may)


@dataclass
class Accesses:
    """What the steps of a kernel do to one memory. Every array is bool ``[steps]``.

    Attributes:
      reads, writes: the step certainly reads or writes some of it.
      may_read, may_write: it does so, or may do so, depending on data.
      accumulates: it may write something computed from what the memory held.
      resets: it certainly replaces all of it by something that does not depend on what it held,
        before the same step stored anything that does.
      late_resets: the same, but afterwards: it prepares the next step.
      out_of_range: it uses an index beyond the memory.
      sources: memories that anything written was computed from.
    """

    reads: Bool
    writes: Bool
    may_read: Bool
    may_write: Bool
    accumulates: Bool
    resets: Bool
    late_resets: Bool
    out_of_range: Bool
    sources: set[str] = field(default_factory=set)


class Ref:
    """A memory that the kernel can access: scalars, a block of an operand or output, or scratch.

    Attributes:
      name: unique in the kernel.
      shape: entries.
      known: contents ``[steps or 1, *shape]`` if the trace has them and nothing was written.
      written_known: whether a memory with known contents was written to.
      content: what the present contents were computed from, and at which steps.
      consumed: steps that stored something computed from a memory, by its name; shared by all
        memories of a kernel.
    """

    def __init__(
        self,
        name: str,
        shape: Shape,
        steps: int,
        consumed: dict[str, Bool],
        known: Array | None = None,
    ) -> None:
        self.name, self.shape, self.known, self.consumed = name, shape, known, consumed
        self.written_known = False
        self.content: dict[str, Bool] = {}
        none = np.zeros(steps, dtype=np.bool_)
        self._read, self._may_read = none.copy(), none.copy()
        self._write, self._may_write = none.copy(), none.copy()
        self._accumulates, self._out_of_range = none.copy(), none.copy()
        self._fresh: dict[tuple[Box, bool], Bool] = {}
        self._replaced: dict[Box, Bool] = {}
        self._sources: set[str] = set()

    def load(self, place: Place, active: Active, *, used: bool = True) -> Value:
        """Contents at a place. ``used`` is False if the program ignores the result."""
        self._out_of_range |= place.out_of_range(active)
        if used:
            self._read |= active.must
            self._may_read |= active.may
        sources = join_sources([Value((), None, self.content)])
        before = ~self._replaced_at(place.box)
        if before.any():
            sources[self.name] = before | sources.get(self.name, np.zeros(1, dtype=np.bool_))
        return Value(place.out_shape, place.take(self.known), sources)

    def _replaced_at(self, box: Box | None) -> Bool:
        """Steps that wrote all of a box before: what it holds is not what the step found in it."""
        result = np.zeros(1, dtype=np.bool_)
        if box is None:
            return result
        for other, steps in self._replaced.items():
            if all(
                first <= start and start + size <= first + length
                for (start, size), (first, length) in zip(box, other, strict=True)
            ):
                result = result | steps
        return result

    def store(self, value: Value, place: Place, active: Active, *, adds: bool = False) -> None:
        """Writes a value; ``adds`` if it is added to the contents."""
        self.written_known |= self.known is not None
        self._out_of_range |= place.out_of_range(active)
        self._sources |= value.sources.keys()
        own = value.sources.get(self.name, np.zeros(1, dtype=np.bool_))
        if adds:
            own = own | ~self._replaced_at(place.box)
        none = np.zeros_like(active.may)
        before = self.consumed.get(self.name, none)
        for name, steps in {**value.sources, self.name: own}.items():
            self.consumed[name] = self.consumed.get(name, none) | (active.may & steps)
        if adds:
            self._read |= active.must
            self._may_read |= active.may
        self._write |= active.must
        self._may_write |= active.may
        self._accumulates |= active.may & own
        if place.box is not None:
            for late in (False, True):
                key, fresh = (place.box, late), active.must & ~own & (before == late)
                self._fresh[key] = self._fresh.get(key, np.zeros_like(fresh)) | fresh
            if not adds:
                self._replaced[place.box] = self._replaced.get(place.box, none) | active.must
        replaced = active.must if place.box == self.whole and not adds else np.zeros(1, np.bool_)
        kept = {name: steps & ~replaced for name, steps in self.content.items()}
        now = {name: steps & active.may for name, steps in value.sources.items()}
        self.content = join_sources([Value((), None, kept), Value((), None, now)])

    @property
    def whole(self) -> Box:
        """The box of all entries."""
        return tuple((0, size) for size in self.shape)

    def _covered(self, *, late: bool) -> Bool:
        """Steps at which fresh values cover every entry; with ``late`` also those stored late."""
        boxes = [(box, f) for (box, after), f in self._fresh.items() if late or not after]
        result = np.zeros(len(self._read), dtype=np.bool_)
        for box, fresh in boxes:
            if box == self.whole:
                result |= fresh
        partial = [(box, fresh) for box, fresh in boxes if box != self.whole and fresh.any()]
        if partial:
            patterns, which = np.unique(
                np.stack([fresh for _, fresh in partial]), axis=1, return_inverse=True
            )
            for number, pattern in enumerate(patterns.T):
                if self._cover_all(
                    [box for (box, _), on in zip(partial, pattern, strict=True) if on]
                ):
                    result |= which.ravel() == number
        return result

    def _cover_all(self, boxes: Sequence[Box]) -> bool:
        written = np.zeros(self.shape, dtype=np.bool_)
        for box in boxes:
            written[tuple(slice(start, start + size) for start, size in box)] = True
        return bool(written.all())

    def accesses(self) -> Accesses:
        """Everything that was recorded."""
        early = self._covered(late=False)
        return Accesses(
            reads=self._read,
            writes=self._write,
            may_read=self._may_read,
            may_write=self._may_write,
            accumulates=self._accumulates,
            resets=early,
            late_resets=self._covered(late=True) & ~early,
            out_of_range=self._out_of_range,
            sources=self._sources,
        )


@dataclass
class Place:
    """Where in a memory an access goes.

    Attributes:
      shape: of the memory.
      out_shape: of what is read or written.
      starts: first index along every axis, ``[steps or 1]``; None if unknown.
      sizes: ``(entries, stride)`` along every axis, None where one entry is taken and the axis
        dropped; None as a whole for accesses of another form.
    """

    shape: Shape
    out_shape: Shape
    starts: list[Array | None]
    sizes: list[tuple[int, int] | None] | None

    @property
    def box(self) -> Box | None:
        """The place if it is one box, the same at every step; else None."""
        if self.sizes is None:
            return None
        result = []
        for start, size in zip(self.starts, self.sizes, strict=True):
            if start is None or start.shape[0] != 1 or (size is not None and size[1] != 1):
                return None
            result.append((int(start[0]), 1 if size is None else size[0]))
        return tuple(result)

    def take(self, known: Array | None) -> Array | None:
        """Entries of known contents; None if the contents or the place are unknown."""
        if known is None or self.sizes is None:
            return None
        starts = [start for start in self.starts if start is not None]
        steps = max([known.shape[0], *(start.shape[0] for start in starts)])
        if len(starts) < len(self.starts) or steps * int(np.prod(self.out_shape)) > LIMIT:
            return None
        return take_box(known, self.shape, starts, self.sizes)

    def out_of_range(self, active: Active) -> Bool:
        """Steps at which the access certainly goes beyond the memory, bool ``[steps]``."""
        beyond = np.zeros(1, dtype=np.bool_)
        for axis, (start, size) in enumerate(zip(self.starts, self.sizes or [], strict=False)):
            if start is not None:
                last = start if size is None else start + (size[0] - 1) * size[1]
                beyond = beyond | (start < 0) | (last >= self.shape[axis])
        return active.must & beyond


def place_of(shape: Shape, transforms: Sequence[Any], out_shape: Shape) -> Place:
    """Where an access with the given index transforms goes.

    Args:
      shape: of the memory.
      transforms: index transforms with a `Value` in place of every traced index.
      out_shape: of what is read or written.
    """
    if not transforms:
        sizes: list[tuple[int, int] | None] = [(size, 1) for size in shape]
        return Place(shape, out_shape, [np.zeros(1, np.int64) for _ in shape], sizes)
    indices = getattr(transforms[0], "indices", None)
    if len(transforms) > 1 or indices is None or len(indices) != len(shape):
        return Place(shape, out_shape, [None for _ in shape], None)
    starts: list[Array | None] = []
    sizes = []
    for index in indices:
        start = getattr(index, "start", index)
        if isinstance(start, Value):
            if start.shape != ():  # an array of indices along this axis
                return Place(shape, out_shape, [None for _ in shape], None)
            starts.append(start.data)
        else:
            starts.append(np.asarray(start).reshape(1))
        size, stride = getattr(index, "size", None), getattr(index, "stride", 1)
        if start is index:
            sizes.append(None)
        elif isinstance(size, (int, np.integer)):
            sizes.append((int(size), int(stride)))
        else:  # a size that is known only at run time
            return Place(shape, out_shape, [None for _ in shape], None)
    return Place(shape, out_shape, starts, sizes)
