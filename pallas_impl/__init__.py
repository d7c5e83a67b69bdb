"""Splash attention for TPU: the mask is compiled into the loop structure of the kernels."""

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

__all__ = [
    "AndMask",
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
    "MultiHeadMask",
    "NumpyMask",
    "OrMask",
    "as_mask",
    "compile_dynamic_mask",
    "compile_flat",
    "compile_mask",
]
