"""Shrinking the grid: only the blocks that a row needs, rows padded to the longest one.

A row is what the inner loop of the grid walks: kv blocks of one q block (forward, dq), or q
blocks of one kv block (dkv). Clauses SHRINK-1 to SHRINK-8.
"""

import numpy as np
from numpy.typing import NDArray


def kept_columns(labels: NDArray[np.int8]) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Chooses the columns that stay in each row of each shard.

    Each shard shrinks by itself to its longest row of non-empty columns, at least 1; narrower
    shards are padded to the widest. A shard whose longest row is complete stays as it is.

    Args:
      labels: int8[shards, rows, columns] of 0, 1, 2.

    Returns:
      `(columns, labels)`, [shards, rows, width] each: the column that stands at each place, in
      ascending order, then padding with label 0 (whose column is meaningless).
    """
    shards, rows, n = labels.shape
    active = labels != 0
    widths = np.maximum(active.sum(axis=-1).max(axis=-1), 1)
    whole = widths == n
    every_column = np.broadcast_to(np.arange(n, dtype=np.int32), labels.shape)
    if whole.all():
        return every_column, labels
    active |= whole[:, None, None]
    columns = np.zeros((shards, rows, int(widths.max())), dtype=np.int32)
    kept = np.zeros(columns.shape, dtype=np.int8)
    shard, row, column = np.nonzero(active)
    place = (np.cumsum(active, axis=-1, dtype=np.int32) - 1)[active]
    columns[shard, row, place] = column
    kept[shard, row, place] = labels[active]
    return columns, kept
