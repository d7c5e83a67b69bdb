"""How much SMEM and VMEM a kernel needs, predicted before it is compiled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

SMEM_BYTES = 1 << 20
"""Scalar memory of one TensorCore (v5e, v6e)."""
SMEM_RESERVED = 3072
"""What the compiler and the pipeline's own scalars take beside the operands."""
SMEM_GRANULE = 512
"""A 1-D int32 operand occupies a whole number of these bytes."""
VMEM_DEFAULT_BYTES = 16 << 20
"""What a kernel may use unless it asks for more."""
VMEM_BYTES = 255 << 19
"""What a kernel may use in all: v5e and v6e have 128 MiB, of which v6e keeps some."""
VMEM_FUSED_BYTES = 48 << 20
"""What the fused backward kernel may need to be chosen by default: safe on 64 MiB cores."""
VMEM_SLACK = 2.0
"""What to ask for beyond the buffers counted here (spills, operands of float32 products in pieces),
as far as there is: with bfloat16 kernels need up to 1.3 times the count, with float32 up to 1.5."""


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


def fits_fused(q_shape: tuple[int, ...], group: int) -> bool:
    """Whether dq of all query heads of a kv head may stay in VMEM, as the fused kernel needs."""
    copies = 1 if q_shape[0] == group else 2
    dq = VmemItem("dq", (group, *q_shape[1:]), np.dtype(np.float32), copies)
    return dq.nbytes <= VMEM_FUSED_BYTES


def check_budget(kernel: str, prefetch: Mapping[str, Any], vmem: list[VmemItem]) -> int | None:
    """Checks the operands of a kernel; returns the VMEM limit to ask for, None for the default.

    Raises:
      MemoryBudgetError: naming the largest array, its bytes, the limit and what to change.
    """
    scalars = {name: smem_bytes(array) for name, array in prefetch.items()}
    used = sum(scalars.values()) + SMEM_RESERVED
    if used > SMEM_BYTES:
        worst = max(scalars, key=lambda n: scalars[n])
        raise MemoryBudgetError(
            f"{kernel}: scalar memory would hold {used:,} bytes of at most {SMEM_BYTES:,}; the "
            f"largest array is {worst} with {scalars[worst]:,} bytes (all: {_listing(scalars)}). "
            "Use larger blocks, shard the sequence or the heads over more devices, or a mask "
            "whose block rows are single runs, which is stored by rows."
        )
    buffers: dict[str, int] = {}
    for item in vmem:
        buffers[item.name] = buffers.get(item.name, 0) + item.nbytes
    needed = sum(buffers.values())
    if needed > VMEM_BYTES:
        worst = max(buffers, key=lambda n: buffers[n])
        raise MemoryBudgetError(
            f"{kernel}: vector memory would hold {needed:,} bytes of at most {VMEM_BYTES:,}; the "
            f"largest array is {worst} with {buffers[worst]:,} bytes (all: {_listing(buffers)}). "
            "Use smaller blocks, or use_fused_bwd_kernel=False if it is dq."
        )
    wanted = int(needed * VMEM_SLACK)
    return None if wanted <= VMEM_DEFAULT_BYTES else min(wanted, VMEM_BYTES)
