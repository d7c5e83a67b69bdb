"""The document mask for the splash attention of JAX, by ids, stored block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask
from numpy.typing import NDArray


class DocumentMask(splash_attention_mask.Mask):
    """Visible if both tokens have one id and the key is not later than the query.

    Args:
      ids: int[n], the document of every token; copied.
    """

    def __init__(self, ids: NDArray[np.int32]) -> None:
        self._ids = np.array(ids, dtype=np.int32)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self._ids), len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index
        tokens = np.arange(len(self._ids))
        same = self._ids[rows, None] == self._ids[None, columns]
        return same & (tokens[None, columns] <= tokens[rows, None])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DocumentMask):
            return NotImplemented
        return np.array_equal(self._ids, other._ids)

    def __hash__(self) -> int:
        return hash((type(self), self._ids.tobytes()))


def same_document(q_ids: Any, kv_ids: Any, ids: NDArray[np.int32]) -> Any:
    """What the mask should mean."""
    return (ids[q_ids] == ids[kv_ids]) & (kv_ids <= q_ids)
