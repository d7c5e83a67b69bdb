"""What the adapters of the Pallas splash attention libraries share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from glob import glob
from typing import Any

import jax
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from numpy.typing import NDArray

from conformance.adapters.shared import compiled
from conformance.adapters.shared.user_masks import as_library_mask
from conformance.contract.settings import pretend_devices, requested_device
from conformance.problems.problem import Problem
from conformance.problems.regimes import expanded
from conformance.problems.user_mask import UserMask
from reference.error_budget import FLOAT32, MXU_PASSES, ArithmeticProfile
from reference.mask_info import IntArray
from reference.masks import And, Bool, Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask, Or
from reference.sharding import Shard

#: Devices of a host without accelerators, for rings.
HOST_DEVICES = 8


def _on_tpu() -> bool:
    """Decides, before JAX looks for devices, whether kernels run compiled on a TPU.

    The TPU path has not been run: it is the same calls without interpret mode, and another arithmetic.
    """
    accelerators = glob("/dev/accel*") + glob("/dev/vfio/[0-9]*")
    device = requested_device()
    if device == "tpu" or (device == "auto" and accelerators and jax.config.jax_platforms != "cpu"):
        return True
    if device == "cpu" or not jax.config.jax_platforms:
        # An installed libtpu looks for a TPU that is not there, and complains at length.
        jax.config.update("jax_platforms", "cpu")
    pretend_devices(HOST_DEVICES)
    return False


ON_TPU = _on_tpu()
compiled.keep()

#: Passes of the matrix unit over float32 operands, by the setting ``jax_default_matmul_precision``.
PASSES = {
    None: 1, "default": 1, "fastest": 1, "bfloat16": 1, "high": 3, "bfloat16_3x": 3,
    "tensorfloat32": 3, "highest": 6, "float32": 6,
}  # fmt: skip


def float32_profile() -> ArithmeticProfile:
    """How products of float32 arrays are computed here."""
    if not ON_TPU:
        return FLOAT32
    return MXU_PASSES[PASSES[jax.config.jax_default_matmul_precision]]


def interpret(uninitialised: bool = False) -> Any:
    """What a kernel's option ``interpret`` must be here.

    Args:
      uninitialised: memory starts as NaN, and reads outside of an array raise, as far as the installed release can.
    """
    if uninitialised:
        raising: dict[str, Any] = {"out_of_bounds_reads": "raise"} if RAISES else {}
        return pltpu.InterpretParams(uninitialized_memory="nan", **raising)
    return not ON_TPU


def read_only(array: Bool) -> Bool:
    """An array as JAX hands them out: a mask class that writes into what it was given raises."""
    view = array.view()
    view.flags.writeable = False
    return view


def library_mask(lib: Any, expr: Expr, q_len: int, kv_len: int) -> Any:
    """The library's own mask object for an expression.

    Args:
      lib: the module with the library's mask classes.
      expr: what to express; kinds for which the library has no class become its dense mask.
      q_len, kv_len: tokens.
    """
    shape = (q_len, kv_len)
    if isinstance(expr, UserMask):
        return as_library_mask(lib, expr.instance)
    if isinstance(expr, Full):
        return lib.FullMask(shape)
    if isinstance(expr, Causal):
        return lib.CausalMask(shape, offset=expr.offset)
    if isinstance(expr, Local):
        return lib.LocalMask(shape, (expr.left, expr.right), offset=expr.offset)
    if isinstance(expr, ChunkedCausal) and hasattr(lib, "ChunkedCausalMask"):
        return lib.ChunkedCausalMask(shape, chunk_size=expr.chunk_size)
    if isinstance(expr, Dense):
        return lib.NumpyMask(read_only(expr.array))
    if isinstance(expr, (And, Or)):
        left = library_mask(lib, expr.left, q_len, kv_len)
        right = library_mask(lib, expr.right, q_len, kv_len)
        return left & right if isinstance(expr, And) else left | right
    return lib.NumpyMask(read_only(Mask(expr, q_len, kv_len).dense()))


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of that name, in the installed version."""
    return name in inspect.signature(function).parameters


#: Whether a traced kernel says what its blocks belong to.
OBSERVABLE = jax.__version_info__ >= (0, 4, 31)

#: Whether the installed release simulates the memory of a kernel.
INTERPRETS_MEMORY = hasattr(pltpu, "InterpretParams") and accepts(
    pltpu.InterpretParams, "uninitialized_memory"
)

#: Whether that simulation can refuse reads outside of an array.
RAISES = INTERPRETS_MEMORY and accepts(pltpu.InterpretParams, "out_of_bounds_reads")


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


def evaluate_mask_function(
    function: Any, q_sequence: IntArray, kv_len: int, kv_sequence: IntArray | None = None
) -> Bool:
    """Values of a mask function at every pair, as a kernel would ask for them.

    Args:
      function: of positions.
      q_sequence: positions of the rows.
      kv_len: columns.
      kv_sequence: their positions; None for 0, 1, 2, ….

    Returns:
      bool ``[q_len, kv_len]``.
    """
    kv_ids = np.arange(kv_len, dtype=np.int32) if kv_sequence is None else kv_sequence
    return np.asarray(function(q_sequence[:, None], kv_ids[None, :]), dtype=np.bool_)


def segment_ids_of(problem: Problem, shard: Shard) -> tuple[IntArray, IntArray] | None:
    """Segment ids (q, kv) of one device, or None; kernels may skip blocks because of their values."""
    if problem.segments is None:
        return None
    q_ids, kv_ids = (expanded(runs) for runs in problem.segments)
    return share(q_ids, problem.shards.q, shard.q), share(kv_ids, problem.shards.kv, shard.kv)
