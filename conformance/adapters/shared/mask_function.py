"""Mask functions as compilers and kernels ask them: on NumPy arrays, and inside a Pallas kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from numpy.typing import NDArray

from reference.masks import Bool

MaskFunction = Callable[[Any, Any], Any]
Ids = NDArray[np.int32]

#: A generation of TPUs whose instructions a function is lowered to where no TPU is.
DEVICE_KIND = "TPU v5 lite"
TILE = (128, 128)


def in_kernel(function: MaskFunction, q_ids: Ids, kv_ids: Ids) -> Bool:
    """What a mask function gives inside a kernel in interpret mode.

    Args:
      function: evaluated on traced int32 arrays.
      q_ids, kv_ids: int32, two-dimensional, that broadcast.

    Returns:
      bool of the broadcast shape.

    Raises:
      TypeError: the function does not give booleans.
      Exception: whatever the function or JAX raises on it.
    """
    shape = np.broadcast_shapes(q_ids.shape, kv_ids.shape)
    kernel = _storing(function, shape)
    seen = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(shape, jnp.int32), interpret=True)
    return np.asarray(np.asarray(seen(q_ids, kv_ids)) != 0)


def _storing(function: MaskFunction, shape: tuple[int, ...]) -> Any:
    """A kernel that stores the values of a function as int32."""

    def kernel(q_ref: Any, kv_ref: Any, seen_ref: Any) -> None:
        seen = function(q_ref[...], kv_ref[...])
        if np.dtype(seen.dtype) != np.bool_:
            raise TypeError(f"a mask function must give booleans, got {seen.dtype}")
        seen_ref[...] = jnp.broadcast_to(seen, shape).astype(jnp.int32)

    return kernel


def lower_for_tpu(function: MaskFunction) -> None:
    """Lowers a kernel that evaluates a mask function to instructions of a TPU; no TPU is needed.

    Raises:
      Exception: whatever the function or JAX raises, for example about an operation that kernels do not have.
    """
    kernel = _storing(function, TILE)
    ids = jax.ShapeDtypeStruct(TILE, jnp.int32)

    def program(q_ids: Any, kv_ids: Any) -> Any:
        return pl.pallas_call(kernel, out_shape=ids)(q_ids, kv_ids)

    chip = jax.sharding.AbstractDevice(device_kind=DEVICE_KIND, num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=chip)
    with jax.sharding.use_abstract_mesh(mesh):
        jax.jit(program).trace(ids, ids).lower(lowering_platforms=("tpu",))


@cache
def can_lower() -> bool:
    """Whether the installed release lowers a function that every release can lower."""
    try:
        lower_for_tpu(lambda q_ids, kv_ids: q_ids >= kv_ids)
    except Exception:
        return False
    return True
