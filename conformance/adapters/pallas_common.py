"""What the adapters of the Pallas splash attention libraries share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from glob import glob
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from reference.mask_info import IntArray
from reference.masks import And, Bool, Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask, Or

if not jax.config.jax_platforms and not glob("/dev/accel*") + glob("/dev/vfio/[0-9]*"):
    # An installed libtpu looks for a TPU that is not there, and complains at length.
    jax.config.update("jax_platforms", "cpu")


def library_mask(lib: Any, expr: Expr, q_len: int, kv_len: int) -> Any:
    """The library's own mask object for an expression.

    Args:
      lib: the module with the library's mask classes.
      expr: what to express; kinds for which the library has no class become its dense mask.
      q_len, kv_len: tokens.
    """
    shape = (q_len, kv_len)
    match expr:
        case Full():
            return lib.FullMask(shape)
        case Causal():
            return lib.CausalMask(shape, offset=expr.offset)
        case Local():
            return lib.LocalMask(shape, (expr.left, expr.right), offset=expr.offset)
        case ChunkedCausal() if hasattr(lib, "ChunkedCausalMask"):
            return lib.ChunkedCausalMask(shape, chunk_size=expr.chunk_size)
        case Dense():
            return lib.NumpyMask(expr.array)
        case And() | Or():
            left = library_mask(lib, expr.left, q_len, kv_len)
            right = library_mask(lib, expr.right, q_len, kv_len)
            return left & right if isinstance(expr, And) else left | right
    return lib.NumpyMask(Mask(expr, q_len, kv_len).dense())


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name, in the installed version."""
    return name in inspect.signature(function).parameters


def plain(array: Any) -> NDArray[Any] | None:
    """A NumPy copy of an array that may be absent."""
    return None if array is None else np.array(array)


def share(array: Any, parts: int, which: int, axis: int = 0) -> Any:
    """One device's equal part of an array along an axis, as ``shard_map`` cuts it.

    Args:
      array: a NumPy or JAX array, or a traced value.
      parts: number of devices along the axis.
      which: the device.
      axis: which axis is cut.

    Raises:
      ValueError: the axis does not divide.
    """
    size, rest = divmod(array.shape[axis], parts)
    if rest:
        raise ValueError(f"{parts} shards must divide axis {axis} of shape {array.shape}")
    index = (*[slice(None)] * axis, slice(which * size, (which + 1) * size))
    return array[index] if isinstance(array, jax.core.Tracer) else np.asarray(array)[index]


def evaluate_mask_function(function: Any, q_sequence: IntArray, kv_len: int) -> Bool:
    """Values of a mask function at every pair, as a kernel would ask for them.

    Returns:
      bool ``[q_len, kv_len]``.
    """
    kv_ids = np.arange(kv_len, dtype=np.int32)
    return np.asarray(function(q_sequence[:, None], kv_ids[None, :]), dtype=np.bool_)
