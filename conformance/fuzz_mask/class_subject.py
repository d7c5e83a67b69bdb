"""The class itself as the implementation: its mask objects, and what they say about positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from conformance.contract.fence import Crash, Fence, Subject
from conformance.contract.protocol import Description
from conformance.contract.remote.errors import Refused
from conformance.findings.expectation import OfForm
from conformance.findings.violation import Violation
from conformance.problems.problem import Problem
from conformance.problems.user_mask import UserMask
from reference.masks import Bool

T = TypeVar("T")
Ids = NDArray[np.int32]

FEATURES = {"masks", "mask_function", "mask_bounds", "mask_intervals"}


def not_offered(what: str) -> NoReturn:
    """Raises `Refused`: the mask lacks something optional."""
    raise Refused(NotImplementedError(what))


class PreparedClass:
    """One mask object, with the methods of `Prepared` that are about masks.

    Args:
      subject: turns what the class raises into `Crash`.
      mask: the object.
    """

    def __init__(self, subject: ClassSubject, mask: Any) -> None:
        self.subject = subject
        self.own = mask
        self.lowered = False

    def mask(self, head: int) -> Any:
        """The object."""
        del head
        return self.own

    def attribute(self, name: str) -> Any:
        """A method of the object.

        Raises:
          Refused: it has none of that name.
        """
        found = self.subject.call(name, lambda: getattr(self.own, name, None))
        return not_offered(name) if found is None else found

    def mask_at(self, head: int, q_ids: Ids, kv_ids: Ids, *, kernel: bool = False) -> Bool:
        """See `Prepared.mask_at`; where a kernel is asked for, the function is lowered for a TPU too."""
        del head
        function = self.attribute("mask_function")
        if not kernel:
            where = "mask_function(q_ids, kv_ids)"
            return self.subject.call(where, lambda: np.asarray(function(q_ids, kv_ids)))
        # Imports JAX, which a mask without a mask function does not need.
        from conformance.adapters.shared.mask_function import can_lower, in_kernel, lower_for_tpu

        where = "mask_function inside a kernel"
        found = self.subject.call(where, partial(in_kernel, function, q_ids, kv_ids))
        if not self.lowered and can_lower():
            self.subject.call("lowering mask_function for a TPU", partial(lower_for_tpu, function))
        self.lowered = True
        return found

    def mask_bounds(self, head: int, q_lo: Ids, q_hi: Ids, kv_lo: Ids, kv_hi: Ids) -> Any:
        """See `Prepared.mask_bounds`."""
        del head
        bounds = self.attribute("block_bounds")
        found = self.subject.call("block_bounds", lambda: bounds(q_lo, q_hi, kv_lo, kv_hi))
        if found is None:
            not_offered("block_bounds")
        if not isinstance(found, tuple) or len(found) != 2:
            wanted = OfForm(("a pair of arrays (any, all)", "None"))
            raise Violation("block_bounds", wanted, repr(found)[:80])
        return tuple(map(np.asarray, found))

    def mask_intervals(self, head: int, q_ids: Ids) -> Any:
        """See `Prepared.mask_intervals`."""
        del head
        intervals = self.attribute("kv_intervals")
        found = self.subject.call("kv_intervals", lambda: intervals(q_ids))
        if found is None:
            not_offered("kv_intervals")
        if not hasattr(found, "lo") or not hasattr(found, "hi"):
            raise Violation("kv_intervals", OfForm(("Intervals(lo, hi)", "None")), repr(found)[:80])
        lo, hi = np.asarray(found.lo), np.asarray(found.hi)
        if lo.shape[1:] != q_ids.shape or hi.shape != lo.shape:
            wanted = OfForm(
                (f"two arrays of shape (intervals, {', '.join(map(str, q_ids.shape))})",)
            )
            raise Violation("kv_intervals", wanted, f"{lo.shape} and {hi.shape}")
        return lo, hi


class ClassSubject(Subject):
    """A class of a user under test.

    The objects come with the problems, in `UserMask`, and nothing is kept of them: two objects of one call may differ.
    """

    def __init__(self, name: str) -> None:
        inside = {"mask_function:kernel"} if find_spec("jax") else set()
        super().__init__(self, Description(name, "", frozenset(FEATURES | inside)))

    def describe(self) -> Description:
        """The description of the class; everything but slices is optional for a mask."""
        return self.description

    def call(self, phase: str, function: Callable[[], T]) -> T:
        """Runs a piece of the class: every error of its own is a `Crash`."""
        try:
            return function()
        except (KeyboardInterrupt, MemoryError, Crash, Violation, Refused):
            raise
        except Exception as error:
            raise Crash(error, phase) from error

    def prepare(self, problem: Problem) -> Any:
        """The mask object of a problem."""
        return Fence(self, PreparedClass(self, _of(problem).instance))

    def fresh(self, problem: Problem) -> Any:
        """Another object from the same call; the object itself if it cannot be made again."""
        mask = _of(problem)
        made = (
            mask.instance if mask.again is None else self.call("making the mask again", mask.again)
        )
        return Fence(self, PreparedClass(self, made))


def _of(problem: Problem) -> UserMask:
    (expr,) = problem.masks
    assert isinstance(expr, UserMask)
    return expr
