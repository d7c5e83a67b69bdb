"""The adapter protocol, under the import path that adapters use; see `conformance.contract.protocol`."""

from conformance.contract.load import load
from conformance.contract.protocol import (
    DEFAULT_ARITHMETIC,
    FEATURES,
    PROFILES,
    Adapter,
    AdapterError,
    Arithmetic,
    Description,
    Edit,
    Forward,
    Gradients,
    MaskObject,
    Prepared,
)
from conformance.problems.inputs import Inputs

__all__ = [
    "DEFAULT_ARITHMETIC",
    "FEATURES",
    "PROFILES",
    "Adapter",
    "AdapterError",
    "Arithmetic",
    "Description",
    "Edit",
    "Forward",
    "Gradients",
    "Inputs",
    "MaskObject",
    "Prepared",
    "load",
]
