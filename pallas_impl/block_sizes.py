"""Block sizes of the three kernels, checked when they are made."""

from __future__ import annotations

import dataclasses
import operator
from typing import SupportsIndex

LANES = 128
"""Lanes of a TPU vector register: every block is a whole number of them."""


def _as_block(name: str, value: SupportsIndex) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        size = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an integer, got {value!r} of type {type(value).__name__}"
        ) from None
    if size <= 0 or size % LANES:
        raise ValueError(f"{name} must be a positive multiple of {LANES}, got {size}")
    return size


@dataclasses.dataclass(frozen=True, slots=True)
class BlockSizes:
    """Tile sizes, in tokens, of the forward, dkv and dq kernels.

    ``block_q`` × ``block_kv`` is the tile whose label decides whether it runs; the kernel
    computes ``block_kv_compute`` keys of it at a time.  Sizes for the backward pass that are
    left out follow the forward ones.  With ``use_fused_bwd_kernel`` one kernel gives dq, dk
    and dv and ``block_q_dq`` / ``block_kv_dq`` must not be given.

    Any integer type is accepted: ``int``, NumPy integers, anything with ``__index__`` (REJECT-16).

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is not a positive multiple of 128 (REJECT-2), a compute block does not
        divide its block (REJECT-19), or the dq sizes contradict ``use_fused_bwd_kernel``.
    """

    block_q: int = 512
    block_kv: int = 512
    block_kv_compute: int | None = None
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_kv_dkv_compute: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None
    use_fused_bwd_kernel: bool | None = None

    def __post_init__(self) -> None:
        def put(name: str, default: int) -> int:
            value = getattr(self, name)
            size = default if value is None else _as_block(name, value)
            object.__setattr__(self, name, size)
            return size

        block_q = put("block_q", 512)
        block_kv = put("block_kv", 512)
        compute = put("block_kv_compute", block_kv)
        put("block_q_dkv", block_q)
        block_kv_dkv = put("block_kv_dkv", block_kv)
        compute_dkv = put("block_kv_dkv_compute", block_kv_dkv)
        for outer, size, inner, part in (
            ("block_kv", block_kv, "block_kv_compute", compute),
            ("block_kv_dkv", block_kv_dkv, "block_kv_dkv_compute", compute_dkv),
        ):
            if size % part:
                raise ValueError(f"{inner} must divide {outer}, got {part} and {size}")
        if self.use_fused_bwd_kernel is not None and not isinstance(
            self.use_fused_bwd_kernel, bool
        ):
            raise TypeError(
                f"use_fused_bwd_kernel must be a bool or None, got {self.use_fused_bwd_kernel!r}"
            )
        if self.use_fused_bwd_kernel:
            for name in ("block_q_dq", "block_kv_dq"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} must be None when use_fused_bwd_kernel is true: "
                        "the fused kernel has no dq pass of its own"
                    )
        else:
            put("block_q_dq", block_q)
            put("block_kv_dq", block_kv)

    @property
    def forward(self) -> tuple[int, int]:
        """(block_q, block_kv) of the forward kernel."""
        return self.block_q, self.block_kv

    @property
    def dkv(self) -> tuple[int, int]:
        """(block_q, block_kv) of the dkv or fused backward kernel."""
        assert self.block_q_dkv is not None
        assert self.block_kv_dkv is not None
        return self.block_q_dkv, self.block_kv_dkv

    @property
    def dq(self) -> tuple[int, int] | None:
        """(block_q, block_kv) of the dq kernel, None when the backward pass is always fused."""
        if self.use_fused_bwd_kernel:
            return None
        assert self.block_q_dq is not None
        assert self.block_kv_dq is not None
        return self.block_q_dq, self.block_kv_dq

    @classmethod
    def get_default(cls) -> BlockSizes:
        """512 × 512 everywhere, fused backward where it fits."""
        return cls()
