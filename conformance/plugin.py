"""The pytest plugin, as ``-p conformance.plugin`` names it; see `conformance.runs.plugin`."""

from conformance.runs.plugin import (
    pytest_addoption,
    pytest_collect_file,
    pytest_collection_modifyitems,
    pytest_sessionstart,
)

__all__ = [
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_modifyitems",
    "pytest_sessionstart",
]
