"""How much SMEM and VMEM a kernel needs, predicted before it is compiled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

MIB = 1 << 20


class Core(NamedTuple):
    """The memories of one TensorCore.

    Attributes:
      smem: bytes of scalar memory.
      vmem: bytes of vector memory that a kernel may use in all, as the compiler states them when
        they are exceeded.
    """

    smem: int
    vmem: int


CORES = {
    "TPU v4": Core(MIB, 16 * MIB),
    "TPU v5 lite": Core(MIB, 128 * MIB),
    "TPU v5": Core(MIB, 64 * MIB - (MIB >> 4)),
    "TPU v6 lite": Core(MIB, 128 * MIB - (MIB >> 4)),
    "TPU7x": Core(MIB, 64 * MIB - (MIB >> 4)),
}
"""Cores by what jax calls the kind of device."""
OTHER_NAMES = {"TPU v5e": "TPU v5 lite", "TPU v5p": "TPU v5", "TPU v6e": "TPU v6 lite"}
ROOMIEST = CORES["TPU v5 lite"]
"""Assumed when nothing tells which TPU a kernel is for."""
SMEM_RESERVED = 3072
"""What the compiler and the pipeline's own scalars take beside the operands."""
SMEM_GRANULE = 512
"""A 1-D int32 operand occupies a whole number of these bytes."""
VMEM_DEFAULT_BYTES = 16 * MIB
"""What a kernel may use unless it asks for more."""
FUSED_SHARE = 3 / 8
"""Of vector memory, what dq may take for the fused backward kernel to be chosen by default."""
VMEM_SLACK = 2.0
"""What to ask for beyond the buffers counted here (spills, operands of float32 products in pieces),
as far as there is.  What the compiler uses is 0.9 to 1.25 times the count; asking costs nothing."""


class MemoryBudgetError(ValueError):
    """A kernel cannot fit in the memory of a TPU core."""


class VmemItem(NamedTuple):
    """A buffer in vector memory, ``copies`` times.

    The pipeline keeps two of a block, and one of an output that never changes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    copies: int

    @property
    def nbytes(self) -> int:
        """Bytes with the last two dimensions padded to whole 8 × 128 (32-bit) tiles."""
        *rest, rows, lanes = self.shape
        packing = max(1, 4 // self.dtype.itemsize)
        rows = rows if rows == 1 else -(-rows // (8 * packing)) * 8 * packing
        lanes = -(-lanes // 128) * 128
        return int(math.prod(rest) * rows * lanes * self.dtype.itemsize * self.copies)


def smem_bytes(array: Any) -> int:
    """Bytes that a 1-D scalar-prefetch operand occupies."""
    raw = int(math.prod(array.shape) * np.dtype(array.dtype).itemsize)
    return -(-raw // SMEM_GRANULE) * SMEM_GRANULE


def _listing(sizes: Mapping[str, int]) -> str:
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {size:,}" for name, size in ordered)


def this_core() -> Core:
    """The core that is compiled for: of the mesh in use, else of the devices at hand."""
    described = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    kind = jax.devices()[0].device_kind if described is None else described.device_kind
    return CORES.get(OTHER_NAMES.get(kind, kind), ROOMIEST)


def fits_fused(q_shape: tuple[int, ...], group: int) -> bool:
    """Whether dq of all query heads of a kv head may stay in VMEM, as the fused kernel needs.

    Args:
      q_shape: (heads, q_len, head_dim).
      group: query heads of a kv head.
    """
    copies = 1 if q_shape[0] == group else 2
    dq = VmemItem("dq", (group, *q_shape[1:]), np.dtype(np.float32), copies)
    return dq.nbytes <= FUSED_SHARE * this_core().vmem


def check_budget(kernel: str, prefetch: Mapping[str, Any], vmem: list[VmemItem]) -> int | None:
    """Checks the operands of a kernel; returns the VMEM limit to ask for, None for the default.

    Args:
      kernel: its name, for the message.
      prefetch: arrays that lie in scalar memory, by name; shapes and dtypes count.
      vmem: what lies in vector memory.

    Raises:
      MemoryBudgetError: naming the largest array, its bytes, the limit and what to change.
    """
    core = this_core()
    scalars = {name: smem_bytes(array) for name, array in prefetch.items()}
    used = sum(scalars.values()) + SMEM_RESERVED
    if used > core.smem:
        worst = max(scalars, key=lambda n: scalars[n])
        raise MemoryBudgetError(
            f"{kernel}: scalar memory would hold {used:,} bytes of at most {core.smem:,}; the "
            f"largest array is {worst} with {scalars[worst]:,} bytes (all: {_listing(scalars)}). "
            "Use larger blocks, shard the sequence or the heads over more devices, or a mask "
            "whose block rows are single runs, which is stored by rows."
        )
    buffers: dict[str, int] = {}
    for item in vmem:
        buffers[item.name] = buffers.get(item.name, 0) + item.nbytes
    needed = sum(buffers.values())
    if needed > core.vmem:
        worst = max(buffers, key=lambda n: buffers[n])
        raise MemoryBudgetError(
            f"{kernel}: vector memory would hold {needed:,} bytes of at most {core.vmem:,}; the "
            f"largest array is {worst} with {buffers[worst]:,} bytes (all: {_listing(buffers)}). "
            "Use smaller blocks, or use_fused_bwd_kernel=False if it is dq."
        )
    wanted = int(needed * VMEM_SLACK)
    return None if wanted <= VMEM_DEFAULT_BYTES else min(wanted, core.vmem)
