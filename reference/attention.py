"""Dense attention in float64: what every kernel must compute (FWD and RES clauses)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.masks import Bool
from spec import defines

Float = NDArray[np.floating[Any]]
Ids = NDArray[np.integer[Any]]
SegmentIds = tuple[Ids, Ids]


@dataclass(frozen=True)
class AttentionResult:
    """Forward quantities of one problem; H query heads, q_len rows, kv_len keys.

    Attributes:
      output: ``[H, q_len, head_dim_v]``.
      logsumexp: natural logarithm of the softmax denominator, ``[H, q_len]``; -inf for a row with
        neither a visible key nor a sink.
      max_logits: largest visible capped logit, ``[H, q_len]``; -inf for a row that sees no key.
      probabilities: ``[H, q_len, kv_len]``; a row sums to 1 less the share of its sink.
      sink_probabilities: share of the sink, ``[H, q_len]``; 0 without sinks.
      logits: after the soft cap, before the mask, ``[H, q_len, kv_len]``.
      raw_logits: before the soft cap.
      visible: bool ``[H, q_len, kv_len]``, mask AND segment ids.
    """

    output: Float
    logsumexp: Float
    max_logits: Float
    probabilities: Float
    sink_probabilities: Float
    logits: Float
    raw_logits: Float
    visible: Bool


@defines("FWD-3", "FWD-4", "FWD-15", "REJECT-12")
def kv_head_of(heads: int, kv_heads: int) -> NDArray[np.int64]:
    """The key/value head that every query head reads: ``h // (heads / kv_heads)``.

    Raises:
      ValueError: ``kv_heads`` does not divide ``heads``.
    """
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"kv_heads={kv_heads} must divide the number of query heads ({heads})")
    return np.arange(heads) // (heads // kv_heads)


@defines(
    "FWD-2", "FWD-5", "FWD-6", "FWD-7", "BWD-9", "BWD-10", "REJECT-9", "REJECT-11", "REJECT-13",
)  # fmt: skip
def visible_pairs(mask: Bool, segment_ids: SegmentIds | None, shape: tuple[int, int, int]) -> Bool:
    """The visible pairs: the mask AND equality of the segment ids.

    Args:
      mask: bool ``[H or 1, q_len, kv_len]``.
      segment_ids: (query ids ``[q_len]``, key ids ``[kv_len]``); compared for equality only.
      shape: (H, q_len, kv_len).

    Raises:
      ValueError: a shape that does not fit, or a mask that is not boolean.
    """
    mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise ValueError(f"mask must be boolean, got dtype {mask.dtype}")
    if mask.shape not in (shape, (1, *shape[1:])):
        raise ValueError(f"mask must have shape {shape} or {(1, *shape[1:])}, got {mask.shape}")
    visible: Bool = np.broadcast_to(mask, shape)
    if segment_ids is None:
        return visible
    q_ids, kv_ids = (np.asarray(ids) for ids in segment_ids)
    for name, ids, length in (("q", q_ids, shape[1]), ("kv", kv_ids, shape[2])):
        if ids.shape != (length,):
            raise ValueError(f"segment_ids of {name} must have shape ({length},), got {ids.shape}")
    return np.asarray(visible & (q_ids[:, None] == kv_ids[None, :]))


@defines("FWD-8", "REJECT-18")
def soft_capped(logits: Float, soft_cap: float | None) -> Float:
    """``cap * tanh(logits / cap)``; the logits themselves if ``soft_cap`` is None.

    Raises:
      ValueError: ``soft_cap`` is not a positive finite number.
    """
    if soft_cap is None:
        return logits
    if not (np.isfinite(soft_cap) and soft_cap > 0):
        raise ValueError(f"soft_cap must be positive and finite, got {soft_cap}")
    return np.asarray(soft_cap * np.tanh(logits / soft_cap))


@defines("REJECT-10", "REJECT-14", "REJECT-15")
def check_inputs(q: Float, k: Float, v: Float, sinks: Float | None) -> None:
    """Raises ValueError, naming the argument, unless the shapes fit together."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != 3:
            raise ValueError(f"{name} must have rank 3 (heads, length, dim), got {array.shape}")
    if k.shape[:2] != v.shape[:2]:
        raise ValueError(f"k and v must agree in heads and length, got {k.shape} and {v.shape}")
    if q.shape[2] != k.shape[2]:
        raise ValueError(f"q and k must agree in head_dim, got {q.shape[2]} and {k.shape[2]}")
    kv_head_of(q.shape[0], k.shape[0])
    if sinks is not None and sinks.shape != (q.shape[0],):
        raise ValueError(f"sinks must have shape ({q.shape[0]},), got {sinks.shape}")


@defines("FWD-14", "FWD-22", "BWD-21")
def without_unseen_keys(array: Float, visible: Bool) -> Float:
    """Keys or values ``[Hkv, kv_len, dim]``, zero where no query sees them."""
    kv_heads = len(array)
    seen = visible.reshape(kv_heads, -1, visible.shape[2]).any(axis=1)
    return np.where(seen[:, :, None], array, 0.0)


@defines(
    "FWD-1", "FWD-9", "FWD-10", "FWD-11", "FWD-12", "FWD-16", "FWD-17", "FWD-18", "FWD-20",
    "FWD-23", "FWD-24", "FWD-25", "RES-1", "RES-2", "RES-3", "RES-6", "RES-8", "RES-9",
)  # fmt: skip
def attend(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: Bool,
    *,
    segment_ids: SegmentIds | None = None,
    soft_cap: float | None = None,
    sinks: ArrayLike | None = None,
) -> AttentionResult:
    """Attention of every query over the keys that it sees. Logits are not scaled.

    Args:
      q: ``[H, q_len, head_dim]``.
      k: ``[Hkv, kv_len, head_dim]``; Hkv divides H.
      v: ``[Hkv, kv_len, head_dim_v]``.
      mask: bool ``[H, q_len, kv_len]``, or ``[1, q_len, kv_len]`` for one mask of all heads.
      segment_ids: integer (``[q_len]``, ``[kv_len]``), or None.
      soft_cap: positive, applied before the mask; None for no cap.
      sinks: one logit a query head, ``[H]``; -inf is the same as no sink.

    Raises:
      ValueError: shapes that do not belong together, a mask that is not boolean, a soft cap that
        is not positive and finite.
    """
    q, k, v = (np.asarray(array, dtype=np.float64) for array in (q, k, v))
    sink = None if sinks is None else np.asarray(sinks, dtype=np.float64)
    check_inputs(q, k, v, sink)
    heads, q_len, _ = q.shape
    visible = visible_pairs(mask, segment_ids, (heads, q_len, k.shape[1]))
    k, v = without_unseen_keys(k, visible), without_unseen_keys(v, visible)
    source = kv_head_of(heads, len(k))

    raw = q @ k[source].swapaxes(1, 2)
    logits = soft_capped(raw, soft_cap)
    shown = np.where(visible, logits, -np.inf)
    max_logits = shown.max(axis=2)
    sink_logit = np.full((heads, q_len), -np.inf)
    if sink is not None:
        sink_logit[:] = sink[:, None]
    # Subtracting any finite number leaves the ratio unchanged; the largest avoids overflow.
    shift = np.maximum(max_logits, sink_logit)
    shift = np.where(shift == -np.inf, 0.0, shift)
    weights = np.exp(shown - shift[:, :, None])
    sink_weight = np.exp(sink_logit - shift)
    total = weights.sum(axis=2) + sink_weight
    divisor = np.where(total > 0, total, 1.0)  # nothing visible and no sink: everything is 0
    probabilities = weights / divisor[:, :, None]
    with np.errstate(divide="ignore"):
        logsumexp = shift + np.log(total)
    return AttentionResult(
        output=probabilities @ v[source],
        logsumexp=logsumexp,
        max_logits=max_logits,
        probabilities=probabilities,
        sink_probabilities=sink_weight / divisor,
        logits=logits,
        raw_logits=raw,
        visible=visible,
    )
