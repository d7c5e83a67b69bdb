"""The arrays of one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Inputs:
    """Arrays of one call, as NumPy arrays whose values are exact in ``problem.dtype``.

    Attributes:
      q: float32 ``[heads, q_len, head_dim]``.
      k: float32 ``[kv_heads, kv_len, head_dim]``.
      v: float32 ``[kv_heads, kv_len, head_dim_v]``.
      segment_ids: int32 ``[q_len]`` and int32 ``[kv_len]``; None without segments.
      sinks: float32 ``[heads]``; None without sinks.
    """

    q: NDArray[np.float32]
    k: NDArray[np.float32]
    v: NDArray[np.float32]
    segment_ids: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None
    sinks: NDArray[np.float32] | None = None
