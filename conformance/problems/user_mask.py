"""Masks of other classes as expressions of a problem: objects that have a ``shape`` and can be sliced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from reference.masks import Bool, Expr, Int


@dataclass(frozen=True, eq=False)
class UserMask(Expr):
    """Visible where the mask object, read as a whole, is True.

    Two of them are equal if they were made by the same call; what the objects say about equality is not asked.
    They have a JSON form that this process alone can read.

    Attributes:
      instance: the mask object, of ``shape`` (q_len, kv_len).
      text: the call that makes it.
      family: number of the class that it was made by, so that equal texts are not confused.
      others: masks of the same class that were made by other calls.
      again: makes another object by the same call; None where that is not possible.
    """

    instance: Any
    text: str
    family: int = 0
    others: tuple[UserMask, ...] = field(default=(), repr=False)
    again: Callable[[], Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _ALIVE[id(self)] = self

    @property
    def key(self) -> tuple[int, str]:
        """What equality goes by."""
        return self.family, self.text

    @property
    def shape(self) -> tuple[int, int]:
        """(q_len, kv_len)."""
        q_len, kv_len = self.instance.shape
        return int(q_len), int(kv_len)

    @property
    def computable(self) -> bool:  # type: ignore[override]
        """Whether it has a mask function and the positions of its rows."""
        return all(hasattr(self.instance, name) for name in ("mask_function", "q_sequence"))

    @cached_property
    def whole(self) -> Bool:
        """All entries as the object gives them, bool ``[q_len, kv_len]``."""
        q_len, kv_len = self.shape
        whole = np.array(self.instance[slice(0, q_len), slice(0, kv_len)], dtype=np.bool_)
        whole.flags.writeable = False
        return whole

    def check_shape(self, q_len: int, kv_len: int) -> None:
        if self.shape != (q_len, kv_len):
            raise ValueError(f"{self.text} has shape {self.shape}, expected {(q_len, kv_len)}")

    def visible(self, q_ids: Int, kv_ids: Int) -> Bool:
        return np.asarray(self.whole[q_ids, kv_ids])

    def q_positions(self, q_len: int) -> NDArray[np.int32]:
        if not self.computable:
            return super().q_positions(q_len)
        return np.asarray(self.instance.q_sequence)

    def kv_positions(self) -> NDArray[np.int32]:
        """The position of every key: its number, unless the object says otherwise."""
        given = getattr(self.instance, "kv_sequence", None) if self.computable else None
        return np.arange(self.shape[1], dtype=np.int32) if given is None else np.asarray(given)

    def to_json(self) -> dict[str, object]:
        """Its call, for reports and as a key."""
        return {"kind": "user", "family": self.family, "call": self.text}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserMask) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.text


_ALIVE: WeakValueDictionary[int, UserMask] = WeakValueDictionary()


def user_mask_of(family: int, call: str) -> UserMask:
    """The mask of a JSON form.

    Raises:
      ValueError: it was made by another process, or is gone.
    """
    for mask in list(_ALIVE.values()):
        if mask.key == (family, call):
            return mask
    raise ValueError(f"mask {call} lives only in the run that made it")
