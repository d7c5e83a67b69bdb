"""A prefix that everybody sees, and text behind it that is causal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pallas_impl import ComputableMask


class PrefixLMMask(ComputableMask):
    """Visible if the key lies in the prefix or is not later than the query.

    Args:
      shape: (q_len, kv_len).
      prefix: tokens of the prefix.
      q_sequence: positions of the queries; None for 0, 1, 2, ….

    Raises:
      ValueError: ``prefix`` is negative.
    """

    def __init__(
        self, shape: tuple[int, int], prefix: int, *, q_sequence: ArrayLike | None = None
    ) -> None:
        if prefix < 0:
            raise ValueError(f"prefix: must not be negative, got {prefix}")
        super().__init__(shape, q_sequence=q_sequence)
        self.prefix = prefix

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return (kv_ids < self.prefix) | (kv_ids <= q_ids)

    def block_bounds(
        self,
        q_lo: NDArray[np.int32],
        q_hi: NDArray[np.int32],
        kv_lo: NDArray[np.int32],
        kv_hi: NDArray[np.int32],
    ) -> Any:
        # A query sees all keys up to a last one, which grows with the query.
        some = (kv_lo < self.prefix) | (kv_lo <= q_hi)
        every = (kv_hi < self.prefix) | (kv_hi <= q_lo)
        return some, every

    def parameters(self) -> object:
        return self.prefix


def declared(q_ids: Any, kv_ids: Any, prefix: int) -> Any:
    """What the mask should mean."""
    return np.maximum(q_ids + 1, prefix) > kv_ids
