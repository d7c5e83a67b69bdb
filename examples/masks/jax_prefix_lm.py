"""The prefix-LM mask for the splash attention of JAX, computed in the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask


class PrefixLMMask(splash_attention_mask._ComputableMask):
    """Visible if the key lies in the prefix or is not later than the query.

    Args:
      shape: (q_len, kv_len).
      prefix: tokens of the prefix.

    Raises:
      ValueError: ``prefix`` is negative.
    """

    def __init__(self, shape: tuple[int, int], prefix: int) -> None:
        if prefix < 0:
            raise ValueError(f"prefix: must not be negative, got {prefix}")
        self.prefix = prefix
        super().__init__(shape, lambda q_ids, kv_ids: (kv_ids < prefix) | (kv_ids <= q_ids))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrefixLMMask):
            return NotImplemented
        return (
            self.shape == other.shape
            and self.prefix == other.prefix
            and np.array_equal(self.q_sequence, other.q_sequence)
        )

    def __hash__(self) -> int:
        return hash((type(self), self.shape, self.prefix, self.q_sequence.tobytes()))


def declared(q_ids: Any, kv_ids: Any, prefix: int) -> Any:
    """What the mask should mean."""
    return np.maximum(q_ids + 1, prefix) > kv_ids
