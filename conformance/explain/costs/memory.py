"""The scalar, vector and main memory that a kernel needs, and the limits of every TPU generation.

Scalar memory holds one- and two-dimensional arrays as the TPU compiler pads them; vector memory is estimated from
the buffers of the forward kernels, whose shapes are those of their block specifications.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from conformance.explain.costs.layouts import ScalarArray, Schedule
from conformance.explain.costs.sizes import LANES, SUBLANES

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

#: Bytes of scalar memory that a kernel takes in addition to its arrays.
SMEM_BESIDES = 3 * KIB
#: The size of a one-dimensional array in scalar memory is a multiple of this many bytes.
SMEM_GRANULE = 512
#: Allowance for how far the estimate of vector memory may exceed what the compiler uses, as a ratio.
VMEM_DOUBT = 1.5

SIZES = {
    "bool": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
}
SIZES |= {"int16": 2, "int32": 4}
#: Types of q, k and v.
DTYPES = ("bfloat16", "float32", "float16", "float8_e4m3fn", "float8_e5m2")

Verdict = Literal["fits", "may not fit", "does not fit"]


class Chip(NamedTuple):
    """A generation of TPU.

    Attributes:
      name: as in topologies.
      smem: bytes of scalar memory of a core.
      vmem: bytes of vector memory of a core.
      vmem_default: bytes of vector memory that a kernel may use unless it raises the limit.
      hbm: bytes of main memory of a chip.
    """

    name: str
    smem: int
    vmem: int
    vmem_default: int
    hbm: int


#: Limits as the TPU compiler states them when they are exceeded; main memory from Google Cloud's TPU pages.
CHIPS = (
    Chip("v4", MIB, 16 * MIB, 16 * MIB, 32 * GIB),
    Chip("v5e", MIB, 128 * MIB, 16 * MIB, 16 * GIB),
    Chip("v5p", MIB, 64 * MIB, 16 * MIB, 95 * GIB),
    Chip("v6e", MIB, 128 * MIB, 32 * MIB, 32 * GIB),
    Chip("v7x", MIB, 64 * MIB, 32 * MIB, 192 * GIB),
)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def smem_bytes(array: ScalarArray) -> int:
    """Bytes of scalar memory that an array takes, as the TPU compiler pads it.

    One dimension: whole granules. Two and more: columns to whole 128, rows to whole 8, or to the next power of two if
    there are fewer, but never below a 32-bit word of packed values.
    """
    size = SIZES[array.dtype]
    if len(array.shape) == 1:
        return _up(array.shape[0] * size, SMEM_GRANULE)
    *planes, rows, columns = array.shape
    few = max(4 // size, 1 << (rows - 1).bit_length())
    return math.prod(planes) * _up(rows, min(SUBLANES, few)) * _up(columns, LANES) * size


def smem_total(schedule: Schedule) -> int:
    """Bytes of scalar memory that a kernel takes in total."""
    return sum(map(smem_bytes, schedule.arrays)) + SMEM_BESIDES


class Buffer(NamedTuple):
    """A buffer in vector memory; ``copies`` is 2 for double buffering."""

    name: str
    rows: int
    columns: int
    dtype: str
    copies: int

    @property
    def nbytes(self) -> int:
        """Bytes with rows and columns padded to whole tiles."""
        size = SIZES[self.dtype]
        rows = self.rows if self.rows == 1 else _up(self.rows, SUBLANES * max(1, 4 // size))
        return rows * _up(self.columns, LANES) * size * self.copies


@dataclass(frozen=True)
class Shape:
    """What vector memory depends on, apart from the layout.

    Attributes:
      block_q, block_kv: tokens per block.
      head_dim: of q, k and v.
      dtype: of q, k and v.
      segments: whether there are segment ids.
    """

    block_q: int
    block_kv: int
    head_dim: int
    dtype: str
    segments: bool


def vmem_buffers(schedule: Schedule, shape: Shape) -> list[Buffer]:
    """Buffers of the forward kernel of a layout, and the float32 tiles of logits that the compiler keeps."""
    block_q, block_kv = shape.block_q, shape.block_kv
    ours = schedule.layout == "runs"
    slots = schedule.slots
    buffers = [
        Buffer("q", block_q, shape.head_dim, shape.dtype, 2),
        Buffer("k", block_kv, shape.head_dim, shape.dtype, 2 * slots),
        Buffer("v", block_kv, shape.head_dim, shape.dtype, 2 * slots),
        Buffer("o", block_q, shape.head_dim, shape.dtype, 2),
        Buffer("m", block_q, LANES, "float32", 1),
        Buffer("l", block_q, LANES, "float32", 1),
        Buffer("accumulator", block_q, shape.head_dim, "float32", 1),
    ]
    if schedule.stored:
        # jax hands booleans to a kernel as int32.
        dtype = "int32" if schedule.layout == "grid" else "int8"
        buffers.append(Buffer("mask", block_q, block_kv, dtype, 2 * slots))
    elif schedule.computed and not ours:
        buffers.append(Buffer("q positions", block_q, LANES, "int32", 2))
    if shape.segments:
        buffers.append(Buffer("q segment ids", block_q, LANES, "int32", 2))
        buffers.append(Buffer("kv segment ids", SUBLANES, block_kv, "int32", 2 * slots))
    tiles = 2 if ours or (schedule.stored and schedule.layout == "flat") else 1
    buffers.append(Buffer("tiles of logits", block_q, block_kv * slots, "float32", tiles))
    return buffers


def vmem_bytes(schedule: Schedule, shape: Shape) -> int:
    """Estimated bytes of vector memory of the forward kernel; errs on the high side."""
    return sum(buffer.nbytes for buffer in vmem_buffers(schedule, shape))


def vmem_verdict(schedule: Schedule, shape: Shape, chip: Chip) -> Verdict:
    """Whether the forward kernel of a layout fits; only `pallas_impl` raises the limit to what it needs."""
    limit = chip.vmem if schedule.layout == "runs" else chip.vmem_default
    needed = vmem_bytes(schedule, shape)
    if needed <= limit:
        return "fits"
    return "may not fit" if needed / VMEM_DOUBT <= limit else "does not fit"
