"""A sliding window with holes: every d-th key of the last w · d tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from pallas_impl import ComputableMask


class DilatedWindowMask(ComputableMask):
    """Visible if the key is 0, d, 2·d, … or (w - 1)·d tokens before the query.

    Args:
      shape: (q_len, kv_len).
      window: keys that a query sees at most, w.
      dilation: tokens from one to the next, d.

    Raises:
      ValueError: ``window`` or ``dilation`` is below 1.
    """

    def __init__(self, shape: tuple[int, int], window: int, dilation: int) -> None:
        for name, value in (("window", window), ("dilation", dilation)):
            if value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        super().__init__(shape)
        self.window = window
        self.dilation = dilation

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        back = q_ids - kv_ids
        return (back >= 0) & (back < self.window * self.dilation) & (back % self.dilation == 0)

    def parameters(self) -> object:
        return (self.window, self.dilation)


def declared(q_ids: Any, kv_ids: Any, window: int, dilation: int) -> Any:
    """What the mask should mean."""
    steps = np.arange(window) * dilation
    return ((q_ids - kv_ids)[..., None] == steps).any(axis=-1)
