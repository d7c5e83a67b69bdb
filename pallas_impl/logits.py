"""Pieces that every kernel needs: matmuls, soft cap, hidden logits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pallas_impl.config import LOG2E, MASK_VALUE

NN = (((1,), (0,)), ((), ()))
"""a @ b"""
NT = (((1,), (1,)), ((), ()))
"""a @ b.T"""
TN = (((0,), (0,)), ((), ()))
"""a.T @ b"""


def dot(a: jax.Array, b: jax.Array, dims: Any) -> jax.Array:
    """Matrix product accumulated in float32; full precision for float32 operands."""
    precision = lax.Precision.HIGHEST if a.dtype == jnp.float32 else lax.Precision.DEFAULT
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=jnp.float32)


def scale_logits(raw: jax.Array, soft_cap: float | None) -> jax.Array:
    """Logits in base-2 units: cap · tanh(raw / cap) · log2(e), or raw · log2(e) (FWD-1, FWD-8)."""
    if soft_cap is None:
        return raw * LOG2E
    return jnp.tanh(raw * (1.0 / soft_cap)) * (soft_cap * LOG2E)


def hide(logits: jax.Array, visible: jax.Array | None) -> jax.Array:
    """Replaces hidden logits by the mask value, whose weight is 0 (FWD-2, FWD-24)."""
    return logits if visible is None else jnp.where(visible, logits, MASK_VALUE)


def widen(column: jax.Array, width: int) -> jax.Array:
    """[n, 128] with equal lanes -> [n, width]."""
    lanes = column.shape[1]
    if width % lanes:
        return jnp.tile(column, (1, -(-width // lanes)))[:, :width]
    return column if width == lanes else jnp.tile(column, (1, width // lanes))
