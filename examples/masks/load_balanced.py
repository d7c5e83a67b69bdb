"""Causal attention whose queries are dealt out in zig-zag order, so that every device has the same work.

The sequence is cut into 2 · n chunks; device r of n holds the chunks r and 2 · n - 1 - r of the queries. Rows of the
mask are rows of the array, positions are those of the original sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from pallas_impl import CausalMask, zigzag_order


class LoadBalancedCausalMask(CausalMask):
    """Visible if the key is not later than the original position of the query.

    Args:
      shape: (q_len, kv_len).
      devices: that the queries are cut over.

    Raises:
      ValueError: q_len is not a multiple of 2 · devices.
    """

    def __init__(self, shape: tuple[int, int], devices: int) -> None:
        super().__init__(shape, q_sequence=zigzag_order(shape[0], devices))
        self.devices = devices

    def parameters(self) -> object:
        return (self.offset, self.devices)


def fuzz_parameters(shape: tuple[int, int]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments for a mask of some shape: numbers of devices that divide it, of which few numbers do."""
    fitting = [n for n in (1, 2, 3, 4, 8) if shape[0] % (2 * n) == 0]
    devices = st.sampled_from(fitting) if fitting else st.nothing()
    return st.fixed_dictionaries({"shape": st.just(shape), "devices": devices})


def declared(q_ids: Any, kv_ids: Any, shape: tuple[int, int], devices: int) -> Any:
    """What the mask should mean, from the number of the row."""
    chunk = shape[0] // (2 * devices)
    place, within = q_ids // chunk, q_ids % chunk
    device, second = place // 2, place % 2
    original = np.where(second == 0, device, 2 * devices - 1 - device)
    return kv_ids <= original * chunk + within
