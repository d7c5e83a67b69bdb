"""Observes Pallas kernels, under the import path that adapters use; see `conformance.adapters.tracing`."""

from conformance.adapters import tracing
from conformance.adapters.tracing import *  # noqa: F403

__all__ = list(tracing.__all__)
