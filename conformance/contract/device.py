"""Where kernels run: the one setting that all adapters of JAX kernels read.

``splash-conformance run IMPL --device tpu`` runs the compiled kernels of a TPU host, ``cpu`` runs
them in interpret mode, ``auto`` takes a TPU if the host has one. The TPU path has not been run.
The setting is an environment variable, so that worker processes inherit it.
"""

from __future__ import annotations

import os

VARIABLE = "SPLASH_CONFORMANCE_DEVICE"
DEVICES = ("auto", "cpu", "tpu")


def wanted() -> str:
    """The device that was asked for, one of `DEVICES`.

    Raises:
      ValueError: the environment variable holds something else.
    """
    device = os.environ.get(VARIABLE, "auto")
    if device not in DEVICES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(DEVICES)}, got {device!r}")
    return device


def want(device: str) -> None:
    """Asks for a device, in this process and in those that it starts; before any adapter is loaded."""
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    os.environ[VARIABLE] = device
