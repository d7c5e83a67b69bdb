"""Computed masks as the kernels evaluate them: the same answer, with fewer vector operations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from pallas_impl.computable import MaskFunction
from pallas_impl.mask_base import MAX_POSITION
from pallas_impl.masks import LocalMask


def _band(mask_function: Any) -> tuple[int, int] | None:
    """(lower, upper) of a mask that is exactly ``lower <= kv - q <= upper``."""
    mask = mask_function.mask if isinstance(mask_function, MaskFunction) else None
    if type(mask) is not LocalMask:
        return None
    left, right = mask.window_size
    if left is None or right is None or left + right < 0:
        return None
    limit = int(MAX_POSITION)
    lower, upper = mask.offset - left, mask.offset + right
    return max(-limit, min(limit, lower)), max(-limit, min(limit, upper))


def evaluate(mask_function: Any, q_ids: Any, kv_ids: Any) -> Any:
    """``mask_function(q_ids, kv_ids)``.

    A window is one comparison instead of two and their conjunction: as unsigned numbers, what
    lies before the window wraps around to beyond its end.  Positions and bounds are below 2^30,
    so nothing overflows.
    """
    band = _band(mask_function)
    if band is None:
        return mask_function(q_ids, kv_ids)
    lower, upper = band
    before_end = lax.bitcast_convert_type((q_ids + upper) - kv_ids, jnp.uint32)
    return before_end <= jnp.uint32(upper - lower)
