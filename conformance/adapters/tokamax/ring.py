"""How kernels of tokamax's ring are made: what its releases and forks of it take."""

from __future__ import annotations

import inspect
from functools import cache, partial
from typing import Any

import numpy as np

from conformance.contract.library import import_module
from reference.masks import Bool

ring_lib = import_module("tokamax", "ring_attention_kernel")
kernel_lib = import_module("tokamax", "splash_attention_kernel")
mask_lib = import_module("tokamax", "splash_attention_mask")

#: Arguments of the kernel's class that are arrays, or hold further ones.
ARRAYS = ("fwd_mask_info", "dkv_mask_info", "kwargs")


def make(mask: Any, dense: Bool, devices: int, arguments: dict[str, Any]) -> Any:
    """The kernel of a ring, with arrays for all devices.

    The library takes masks as arrays; only the full mask has a class there. Some forks take classes only.

    Args:
      mask: an object of the library.
      dense: its values, ``[q_len, kv_len]``.
      devices: in the ring.
      arguments: further ones.

    Raises:
      NotImplementedError: the library takes the mask in neither form.
    """
    making = partial(
        ring_lib.make_ring_attention,
        ring_axis="ring",
        q_seq_shards=devices,
        kv_seq_shards=devices,
        **arguments,
    )
    if isinstance(mask, mask_lib.FullMask):
        return making(mask)
    try:
        return making(mask_lib.NumpyMask(dense))
    except NotImplementedError:
        return making(mask)


def kernel(fwd: Any, dkv: Any, **settings: Any) -> Any:
    """The kernel of the ring, out of its arrays and `settings`."""
    return ring_lib.RingSplashAttentionKernel(fwd, dkv, **settings)


def settings(made: Any) -> dict[str, Any]:
    """What a kernel was made with, apart from its arrays: its axis, and what forks ask for besides."""
    names = inspect.signature(type(made)).parameters
    return dict(made.kwargs) | {name: getattr(made, name) for name in names if name not in ARRAYS}


@cache
def takes_base2() -> bool:
    """Whether a ring may take powers of two: some forks refuse them."""
    config = kernel_lib.SplashConfig(block_q=128, block_kv=128, block_kv_compute=128)
    arguments = {"config": config, "is_mqa": False, "save_residuals": False}
    try:
        make(mask_lib.FullMask((256, 256)), np.ones((256, 256), np.bool_), 2, arguments)
    except NotImplementedError:
        return False
    return True
