"""The arrays that the libraries make of masks: parts of devices, edits, and the forms of the reference."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from conformance.problems.arrays import expanded
from conformance.problems.problem import Problem
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo, IntArray
from reference.masks import Bool
from reference.sharding import Shard

#: A kernel is handed at least this many mask blocks.
STACK = 4


def plain(array: Any) -> NDArray[Any] | None:
    """A NumPy copy of an array that may be absent."""
    return None if array is None else np.array(array)


def share(array: Any, parts: int, which: int, axis: int = 0) -> Any:
    """One device's equal part of an array along an axis, as ``shard_map`` cuts it.

    Args:
      array: a NumPy or JAX array, or a traced value; None stays None.
      parts: number of devices along the axis.
      which: the device.
      axis: which axis is cut.

    Raises:
      ValueError: the axis does not divide.
    """
    if array is None:
        return None
    size, rest = divmod(array.shape[axis], parts)
    if rest:
        raise ValueError(f"{parts} shards must divide axis {axis} of shape {array.shape}")
    index = (*[slice(None)] * axis, slice(which * size, (which + 1) * size))
    return array[index] if isinstance(array, jax.core.Tracer) else np.asarray(array)[index]


def segment_ids_of(problem: Problem, shard: Shard) -> tuple[IntArray, IntArray] | None:
    """Segment ids (q, kv) of one device, or None; kernels may skip blocks because of their values."""
    if problem.segments is None:
        return None
    q_ids, kv_ids = (expanded(runs) for runs in problem.segments)
    return share(q_ids, problem.shards.q, shard.q), share(kv_ids, problem.shards.kv, shard.kv)


def evaluate_mask_function(
    function: Any, q_sequence: IntArray | None, kv_len: int, kv_sequence: IntArray | None = None
) -> Bool | None:
    """Values of a mask function at every pair, as a kernel would ask for them.

    Args:
      function: of positions; None if there is none.
      q_sequence: positions of the rows; None if there are none.
      kv_len: columns.
      kv_sequence: their positions; None for 0, 1, 2, ….

    Returns:
      bool ``[q_len, kv_len]``; None without a function or positions.
    """
    if function is None or q_sequence is None:
        return None
    kv_ids = np.arange(kv_len, dtype=np.int32) if kv_sequence is None else kv_sequence
    q_ids = np.asarray(q_sequence)
    return np.asarray(function(q_ids[:, None], kv_ids[None, :]), dtype=np.bool_)


def mask_compiler(info_lib: Any, direction: Direction, dynamic: bool = False) -> Any:
    """The function of jax or tokamax that compiles masks for a direction.

    Args:
      info_lib: the module ``splash_attention_mask_info``.
      direction: of the kernel.
      dynamic: for masks whose values are known only at run time.
    """
    name = "process_dynamic_mask" if dynamic else "process_mask"
    return getattr(info_lib, f"{name}_dkv" if direction == "dkv" else name)


def grid_info(direction: Direction, info: Any, computed: Bool | None = None) -> GridMaskInfo:
    """The arrays of a library with the two-dimensional layout, in the form of the reference."""
    return GridMaskInfo(
        direction=direction,
        block_mask=np.array(info.block_mask),
        data_next=np.array(info.data_next),
        mask_next=plain(info.mask_next),
        partial_mask_blocks=plain(info.partial_mask_blocks),
        q_sequence=plain(info.q_sequence),
        computed_mask=computed,
    )


def with_arrays_of(info: Any, edited: GridMaskInfo | FlatMaskInfo) -> Any:
    """A library's ``MaskInfo`` with the arrays of an edited one; fields that the reference does not have stay."""
    return info._replace(
        **{name: getattr(edited, name) for name in info._fields if hasattr(edited, name)}
    )


def as_operands(info: Any, pads: bool) -> Any:
    """A library's ``MaskInfo`` as NumPy arrays, its stack of blocks filled up if it may be; None stays None."""
    if info is None:
        return None
    info = jax.tree.map(np.asarray, info)
    if pads:
        info = info._replace(partial_mask_blocks=padded_stack(info.partial_mask_blocks))
    return info


def padded_stack(stack: Any) -> Any:
    """A stack of mask blocks with visible blocks that no entry names at its end, up to a power of two.

    Fewer different shapes are compiled this way; what the kernel is told to read does not change. There are at least
    `STACK` blocks.
    """
    if stack is None:
        return None
    missing = max(STACK, 1 << (len(stack) - 1).bit_length()) - len(stack)
    return np.concatenate([stack, np.full((missing, *stack.shape[1:]), 1, stack.dtype)])
