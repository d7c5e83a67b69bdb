"""A past that was compressed into fewer keys, and queries that are padded to a whole block.

The keys are ``compressed`` summaries of the past, then the tokens of the present. The first ``queries`` rows are the
present's queries, the rest is padding and sees nothing: whole empty rows, and empty blocks of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pallas_impl import Mask


class CompressedPrefixMask(Mask):
    """Visible if the key is a summary of the past, or a token of the present that is not later than the query.

    A mask without a function of positions: its partial blocks are stored, each once.

    Args:
      shape: (q_len, kv_len).
      compressed: keys that stand for the past.
      queries: rows that are no padding.

    Raises:
      ValueError: ``compressed`` or ``queries`` lies outside of the shape.
    """

    def __init__(self, shape: tuple[int, int], compressed: int, queries: int) -> None:
        if not 0 <= compressed <= shape[1]:
            raise ValueError(f"compressed: must be from 0 to {shape[1]}, got {compressed}")
        if not 0 <= queries <= shape[0]:
            raise ValueError(f"queries: must be from 0 to {shape[0]}, got {queries}")
        self._shape = shape
        self.compressed = compressed
        self.queries = queries

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index
        q_ids = np.arange(self.shape[0])[rows, None]
        kv_ids = np.arange(self.shape[1])[None, columns]
        return (q_ids < self.queries) & (kv_ids <= q_ids + self.compressed)

    def parameters(self) -> object:
        return (self.compressed, self.queries)


def declared(q_ids: Any, kv_ids: Any, compressed: int, queries: int) -> Any:
    """What the mask should mean."""
    past, not_later = kv_ids < compressed, kv_ids - compressed <= q_ids
    return (past | not_later) & (q_ids < queries)
