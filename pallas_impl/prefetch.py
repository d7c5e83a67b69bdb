"""The prefetch rule: each grid position names the next block that will be needed.

Clauses DATA-1 to DATA-5, MASKNEXT-1 to MASKNEXT-4, DOWNCAST-1 to DOWNCAST-4.
"""

import numpy as np
from numpy.typing import NDArray

from pallas_impl.mask_base import BoolArray

IntArray = NDArray[np.int8 | np.int16 | np.int32]


def next_index(active: BoolArray) -> NDArray[np.int32]:
    """The first active position at or after each position of the last axis.

    Args:
      active: bool[..., n].

    Returns:
      int32[..., n]; n where no active position follows.
    """
    n = active.shape[-1]
    at = np.where(active, np.arange(n, dtype=np.int32), np.int32(n))
    return np.minimum.accumulate(at[..., ::-1], axis=-1)[..., ::-1]


def next_values(active: BoolArray, values: NDArray[np.int32]) -> NDArray[np.int32]:
    """The value at the first active position at or after each position, in grid order.

    Past the last active position the search wraps around to the first one, so that the block
    fetched there is the one that the next sweep over the grid begins with.

    Args:
      active: bool[..., n], n the positions of one shard in grid order.
      values: int[..., n].

    Returns:
      int[..., n]; all 0 in a shard without an active position.
    """
    n = active.shape[-1]
    at = next_index(active)
    first = at[..., :1]
    at = np.where(at == n, first, at)
    found = np.take_along_axis(values, np.minimum(at, n - 1), axis=-1)
    return np.where(first == n, np.int32(0), found)


def downcast(array: NDArray[np.int32]) -> IntArray:
    """Stores non-negative integers in the smallest of int8, int16, int32 that holds the largest.

    The arrays live in scalar memory, of which a TPU has about a megabyte.
    """
    largest = int(array.max(initial=0))
    return array.astype(smallest_int(largest))


def smallest_int(largest: int) -> type[np.int8 | np.int16 | np.int32]:
    """The smallest of int8, int16, int32 that holds `largest`."""
    if largest <= np.iinfo(np.int8).max:
        return np.int8
    return np.int16 if largest <= np.iinfo(np.int16).max else np.int32
