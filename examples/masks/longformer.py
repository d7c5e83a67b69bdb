"""Longformer: a window around every query, and a few tokens that see everything and are seen by all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pallas_impl import ComputableMask


class LongformerMask(ComputableMask):
    """Visible within ``window`` positions, and wherever the query or the key is a global token.

    Args:
      shape: (q_len, kv_len).
      window: positions to either side.
      global_tokens: positions; any order, repetitions do not matter.

    Raises:
      ValueError: ``window`` or a token is negative.
    """

    def __init__(
        self, shape: tuple[int, int], window: int, global_tokens: Sequence[int] = ()
    ) -> None:
        if window < 0 or min(global_tokens, default=0) < 0:
            raise ValueError("window, global_tokens: must not be negative")
        super().__init__(shape)
        self.window = window
        self.global_tokens = tuple(sorted({int(token) for token in global_tokens}))

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        seen = (kv_ids <= q_ids + self.window) & (kv_ids >= q_ids - self.window)
        for token in self.global_tokens:
            seen = seen | (q_ids == token) | (kv_ids == token)
        return seen

    def parameters(self) -> object:
        return (self.window, self.global_tokens)


def declared(q_ids: Any, kv_ids: Any, window: int, global_tokens: Sequence[int]) -> Any:
    """What the mask should mean."""
    chosen = np.array(list(global_tokens), dtype=np.int64)
    near = np.abs(q_ids - kv_ids) <= window
    return near | np.isin(q_ids, chosen) | np.isin(kv_ids, chosen)
