"""Splash attention for TPU: the mask is compiled into the loop structure of the kernels."""

from pallas_impl.api import SplashAttentionKernel, make_splash_mha, make_splash_mqa
from pallas_impl.attention import Residuals
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.dynamic_mask import compile_dynamic_mask
from pallas_impl.mask_info import FlatMaskInfo, MaskInfo, compile_flat, compile_mask
from pallas_impl.masks import (
    AndMask,
    CausalMask,
    ChunkedCausalMask,
    ComputableMask,
    DenseMask,
    FullMask,
    Intervals,
    LocalMask,
    Mask,
    MaskFunction,
    MultiHeadMask,
    NumpyMask,
    OrMask,
    as_mask,
)
from pallas_impl.memory_budget import MemoryBudgetError
from pallas_impl.ring import RingAttentionKernel, make_ring_attention, zigzag_order
from pallas_impl.segment_ids import SegmentIds

__all__ = [
    "AndMask",
    "BlockSizes",
    "CausalMask",
    "ChunkedCausalMask",
    "ComputableMask",
    "DenseMask",
    "FlatMaskInfo",
    "FullMask",
    "Intervals",
    "LocalMask",
    "Mask",
    "MaskFunction",
    "MaskInfo",
    "MemoryBudgetError",
    "MultiHeadMask",
    "NumpyMask",
    "OrMask",
    "Residuals",
    "RingAttentionKernel",
    "SegmentIds",
    "SplashAttentionKernel",
    "as_mask",
    "compile_dynamic_mask",
    "compile_flat",
    "compile_mask",
    "make_ring_attention",
    "make_splash_mha",
    "make_splash_mqa",
    "zigzag_order",
]
