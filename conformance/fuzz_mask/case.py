"""What is judged, a mask or a pair of masks, and what judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from conformance.contract.forms import form_of
from conformance.findings.expectation import OfForm
from conformance.findings.place import Place
from conformance.findings.violation import Violation
from conformance.fuzz_mask.arguments.source import Arguments, Source
from conformance.fuzz_mask.class_subject import ClassSubject
from conformance.problems.mask_queries import positions
from conformance.problems.problem import BlockSizes, Problem
from conformance.problems.user_mask import UserMask
from reference.masks import Bool, Mask

Kind = Literal["value", "crash", "advice"]


class NotAsked(Exception):
    """The check does not apply to the case."""


class NotToBlame(NotAsked):
    """The check fails for a reason outside the class: later checks of the case are skipped."""


@dataclass(frozen=True, eq=False)
class Case:
    """A mask of the class; exceptions that the class raises become `Crash`.

    Attributes:
      expr: the mask as an expression of problems.
      arguments: of the call that made it.
      source: that made it.
      subject: the fence around its class.
    """

    expr: UserMask
    arguments: Arguments
    source: Source
    subject: ClassSubject

    @property
    def mask(self) -> Any:
        """The mask object."""
        return self.expr.instance

    @property
    def size(self) -> tuple[int, ...]:
        """Sort key: small masks first, then short calls."""
        try:
            q_len, kv_len = self.expr.shape
        except Exception:
            q_len = kv_len = 0
        return q_len * kv_len, q_len, len(self.expr.text)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(q_len, kv_len), checked.

        Raises:
          Violation: the mask has no such shape.
        """
        found = self.subject.call("shape", lambda: self.mask.shape)
        wanted = OfForm(("a tuple (q_len, kv_len) of two positive whole numbers",))
        if not isinstance(found, tuple) or len(found) != 2:
            raise Violation("shape", wanted, repr(found))
        for length in found:
            if not isinstance(length, int | np.integer) or isinstance(length, bool) or length < 1:
                raise Violation("shape", wanted, repr(found))
        return int(found[0]), int(found[1])

    @property
    def problem(self) -> Problem:
        """The mask as a problem of a single block."""
        return Problem(*self.shape, (self.expr,), BlockSizes(*self.shape))

    @cached_property
    def whole(self) -> Bool:
        """All entries.

        Raises:
          Crash: reading raises.
          Violation: the mask gives something else than an array of its shape.
        """
        q_len, kv_len = self.shape
        where = f"mask[0:{q_len}, 0:{kv_len}]"
        found = self.read_all()
        if not hasattr(found, "dtype") or not hasattr(found, "shape"):
            raise Violation(where, OfForm(("an array of booleans",)), form_of(found))
        array = np.asarray(found)
        if array.shape != self.shape:
            raise Violation(Place(where, "shape"), self.shape, array.shape)
        # Read once for all checks: what they compare with must not depend on what was read before.
        return self.subject.call(where, lambda: self.expr.whole)

    def read_all(self, mask: Any = None) -> Any:
        """All entries of the mask, or of another mask of its shape, exactly as it returns them."""
        q_len, kv_len = self.shape
        chosen = self.mask if mask is None else mask
        return self.subject.call(f"mask[0:{q_len}, 0:{kv_len}]", lambda: chosen[0:q_len, 0:kv_len])

    def attribute(self, name: str) -> Any:
        """An attribute of the mask; None if there is none of that name."""
        return self.subject.call(name, lambda: getattr(self.mask, name, None))

    @property
    def function(self) -> Any:
        """The mask function.

        Raises:
          NotAsked: the class has none.
        """
        found = self.attribute("mask_function")
        if found is None:
            raise NotAsked
        return found

    @property
    def positions(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Positions of the rows and of the columns: their numbers, unless the mask has others."""
        return positions(Mask(self.expr, *self.shape))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two masks of one class, made by different calls.

    Attributes:
      first, second: the masks.
      differ: the parameters whose values differ.
    """

    first: Case
    second: Case
    differ: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, ...]:
        """Sort key: small masks first, then short calls."""
        return tuple(a + b for a, b in zip(self.first.size, self.second.size, strict=True))

    @property
    def problem(self) -> Problem:
        """The first mask as a problem that names the second as its neighbour."""
        problem = self.first.problem
        return problem.but(masks=(replace(self.first.expr, others=(self.second.expr,)),))


@dataclass(frozen=True)
class Judge:
    """A check of cases.

    Attributes:
      clause: the id of its clause ("" if the specification has none).
      function: raises `Violation` or `Crash`.
      after: names of the judges that must pass before this one runs.
      name: of the check.
    """

    clause: str
    function: Callable[[Any], None]
    after: tuple[str, ...] = ()
    name: str = ""
