"""Attention on several devices: the part of each device, and how the results combine (SHARD clauses)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.attention import Float, SegmentIds, attend
from reference.gradients import Gradients, gradients
from reference.mask_info import Shards
from reference.masks import Bool
from reference.sharding import Shard, every_shard
from spec import defines


@defines("SHARD-7")
def head_slice(heads: int, shards: Shards, shard: Shard) -> slice:
    """The heads of a device, among the query heads or the key/value heads.

    Args:
      heads: of all devices. If they are fewer than the head shards, every device has all of them.
      shards: how many devices there are.
      shard: which of them.
    """
    share = heads // shards.head
    return slice(shard.head * share, (shard.head + 1) * share) if share else slice(None)


@defines("SHARD-7")
def query_share(array: NDArray[Any], shards: Shards, shard: Shard) -> NDArray[Any]:
    """A device's part of an array ``[heads, q_len, …]``: its heads and its rows."""
    rows = np.split(array, shards.q, axis=1)[shard.q]
    return np.asarray(rows[head_slice(len(array), shards, shard)])


@defines("SHARD-7", "SHARD-8")
def joined(parts: Mapping[Shard, Float], shards: Shards) -> Float:
    """Joins the parts of all devices to one array ``[heads, q_len, …]``."""
    rows = [
        np.concatenate([parts[Shard(head, q)] for head in range(shards.head)])
        for q in range(shards.q)
    ]
    return np.concatenate(rows, axis=1)


@defines("SHARD-7")
def query_ids(
    segment_ids: tuple[NDArray[Any], NDArray[Any]] | None, shards: Shards, shard: Shard
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Segment ids of a device: those of its queries, and those of all keys."""
    if segment_ids is None:
        return None
    return np.split(segment_ids[0], shards.q)[shard.q], segment_ids[1]


@defines("SHARD-7", "SHARD-9", "DYNAMIC-5", "DYNAMIC-7")
def attend_on_devices(
    q: Float,
    k: Float,
    v: Float,
    mask: Bool,
    shards: Shards,
    *,
    segment_ids: SegmentIds | None = None,
    sinks: Float | None = None,
) -> Float:
    """Output ``[H, q_len, head_dim_v]``, every device computing its own part.

    Args:
      q, k, v, segment_ids, sinks: as for `reference.attention.attend`.
      mask: bool ``[H, q_len, kv_len]``.
      shards: devices along heads and queries; the heads of k and v are shared alike.

    Raises:
      ValueError: shapes that do not belong together.
    """
    parts = {}
    for shard in every_shard(shards):
        heads = head_slice(len(k), shards, shard)
        parts[shard] = attend(
            query_share(q, shards, shard),
            k[heads],
            v[heads],
            query_share(mask, shards, shard),
            segment_ids=query_ids(segment_ids, shards, shard),
            sinks=None if sinks is None else sinks[head_slice(len(q), shards, shard)],
        ).output
    return joined(parts, shards)


@defines("SHARD-8", "DYNAMIC-6")
def gradients_on_devices(
    q: Float, k: Float, v: Float, mask: Bool, d_out: Float, shards: Shards
) -> Gradients:
    """Gradients of ``sum(output * d_out)``: dk and dv are summed over the devices that share them.

    Args:
      q, k, v: as for `reference.attention.attend`.
      mask: bool ``[H, q_len, kv_len]``.
      d_out: ``[H, q_len, head_dim_v]``.
      shards: devices along heads and queries.

    Raises:
      ValueError: shapes that do not belong together.
    """
    dq = {}
    dk, dv = np.zeros(k.shape), np.zeros(v.shape)
    for shard in every_shard(shards):
        heads = head_slice(len(k), shards, shard)
        part = gradients(
            query_share(q, shards, shard),
            k[heads],
            v[heads],
            query_share(mask, shards, shard),
            query_share(d_out, shards, shard),
        )
        dq[shard] = part.dq
        dk[heads] += part.dk
        dv[heads] += part.dv
    return Gradients(joined(dq, shards), dk, dv, None)
