"""Where kernels run, and what the installed release of JAX can do there; decided before JAX looks for devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from glob import glob
from typing import Any

import jax
from jax.experimental.pallas import tpu as pltpu

from conformance.adapters.shared import kernel_cache
from conformance.contract.settings import pretend_devices, requested_device
from reference.error_budget import FLOAT32, MXU_PASSES, ArithmeticProfile

#: Devices of a host without accelerators, for rings.
HOST_DEVICES = 8


def _choose_device() -> bool:
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


ON_TPU = _choose_device()
kernel_cache.keep()

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


def interpret(uninitialised: bool = False) -> Any:
    """What a kernel's option ``interpret`` must be here.

    Args:
      uninitialised: memory starts as NaN, and reads outside of an array raise, as far as the installed release can.
    """
    if uninitialised:
        raising: dict[str, Any] = {"out_of_bounds_reads": "raise"} if RAISES else {}
        return pltpu.InterpretParams(uninitialized_memory="nan", **raising)
    return not ON_TPU
