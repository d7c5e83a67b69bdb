"""Documents that are packed into one sequence: a query sees its own document, up to itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pallas_impl import ComputableMask, Intervals


class DocumentMask(ComputableMask):
    """Visible if both positions lie in one document and the key is not later than the query.

    A kernel may not capture an array of ids, so that the function is written with the few places where documents
    end. The mask is computed in the kernel; nothing is stored.

    Args:
      shape: (q_len, kv_len).
      lengths: tokens of every document, in order; together kv_len.

    Raises:
      ValueError: a length is below 1, or their sum is not kv_len.
    """

    def __init__(self, shape: tuple[int, int], lengths: tuple[int, ...]) -> None:
        if min(lengths, default=0) < 1 or sum(lengths) != shape[1]:
            raise ValueError(f"lengths: must be positive with the sum {shape[1]}, got {lengths}")
        super().__init__(shape)
        self.lengths = tuple(lengths)
        self.ends = tuple(int(end) for end in np.cumsum(lengths)[:-1])

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        seen = kv_ids <= q_ids
        for end in self.ends:
            seen = seen & ((q_ids >= end) == (kv_ids >= end))
        return seen

    def kv_intervals(self, q_ids: NDArray[np.int32]) -> Intervals:
        starts = np.array([0, *self.ends])
        first = starts[np.searchsorted(starts, q_ids, side="right") - 1]
        return Intervals(first[None].astype(np.int64), q_ids[None].astype(np.int64))

    def parameters(self) -> object:
        return self.lengths


def same_document(q_ids: Any, kv_ids: Any, lengths: tuple[int, ...]) -> Any:
    """What the mask should mean; queries beyond the keys belong to the last document."""
    of_token = np.repeat(np.arange(len(lengths)), lengths)
    of_query = of_token[np.minimum(q_ids, len(of_token) - 1)]
    return (of_query == of_token[kv_ids]) & (kv_ids <= q_ids)
