"""Segment ids: which tokens may see each other, by equality of their ids (FWD-6, FWD-7)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class SegmentIds(NamedTuple):
    """A token attends only to tokens with the same id, in addition to the mask.

    Attributes:
      q: int[q_len], the id of each query.
      kv: int[kv_len], the id of each key.
    """

    q: jax.Array | np.ndarray
    kv: jax.Array | np.ndarray


def check_segment_ids(segment_ids: Any, q_len: int, kv_len: int) -> SegmentIds:
    """Returns the ids as int32 arrays of shapes [q_len] and [kv_len].

    Raises:
      ValueError: a shape is not the sequence's (REJECT-13).
      TypeError: ids are not integers.
    """
    given: tuple[Any, ...] = ()
    if isinstance(segment_ids, tuple | list):
        given = tuple(segment_ids)
    elif hasattr(segment_ids, "q") and hasattr(segment_ids, "kv"):  # those of another library
        given = (segment_ids.q, segment_ids.kv)
    if len(given) != 2:
        raise TypeError(f"segment_ids must be SegmentIds(q, kv), got {type(segment_ids).__name__}")
    checked = []
    for name, ids, length in (
        ("segment_ids.q", given[0], q_len),
        ("segment_ids.kv", given[1], kv_len),
    ):
        if not hasattr(ids, "shape") or not hasattr(ids, "dtype"):
            raise TypeError(
                f"{name} must be an array of integers, got {ids!r:.60}; without segments leave "
                "segment_ids out"
            )
        if ids.shape != (length,):
            raise ValueError(
                f"{name} must have shape ({length},), one id for each token, got {ids.shape}"
            )
        if not jnp.issubdtype(ids.dtype, jnp.integer):
            raise TypeError(f"{name} must hold integers, got {ids.dtype}")
        checked.append(jnp.asarray(ids, jnp.int32))
    return SegmentIds(*checked)
