"""Which package an adapter of a library judges: the library itself, or a fork of it with the same modules.

``splash-conformance run jax=my_framework.kernels.splash_attention`` runs the adapter ``jax`` on the modules of that
package.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any

from conformance.contract import settings

#: The package of every library that has an adapter here.
PACKAGES = {
    "jax": "jax.experimental.pallas.ops.tpu.splash_attention",
    "tokamax": "tokamax._src.ops.experimental.tpu.splash_attention",
}

#: The module that a fork cannot do without.
KERNELS = "splash_attention_kernel"

#: What the adapters of this process were loaded with, by library.
_loaded: dict[str, str] = {}


def judged_package(library: str) -> str:
    """The package that is judged for a library of `PACKAGES`: a fork, or its own."""
    return settings.requested_package(library) or PACKAGES[library]


def is_fork(library: str) -> bool:
    """Whether another package is judged in place of a library."""
    return judged_package(library) != PACKAGES[library]


def judge_package(library: str, package: str | None) -> None:
    """Chooses the package that is judged for a library, also in other processes; before its adapter is loaded.

    Args:
      library: a key of `PACKAGES`.
      package: a fork; the library itself if None.

    Raises:
      ValueError: the library has no adapter here, or its adapter runs on another package already.
    """
    if library not in PACKAGES:
        raise ValueError(f"only {', '.join(PACKAGES)} can be given a package, got {library!r}")
    before = _loaded.get(library)
    if before is not None and before != (package or PACKAGES[library]):
        raise ValueError(
            f"the adapter {library!r} runs on {before} in this process already: use --isolate"
        )
    settings.request_package(library, package)


def import_module(library: str, name: str) -> Any:
    """A module of the package that is judged; a fork without it works with that of the library.

    Raises:
      ImportError: the package has no kernels, or the module cannot be imported.
    """
    package = _loaded[library] = judged_package(library)
    module = f"{package}.{name}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module or name == KERNELS:
            raise
        return importlib.import_module(f"{PACKAGES[library]}.{name}")


def name_and_version(library: str, version: str) -> tuple[str, str]:
    """How what is judged calls itself: a fork by its package, with the version of its distribution if it has one.

    Args:
      library: a key of `PACKAGES`.
      version: of the library itself.
    """
    if not is_fork(library):
        return library, version
    package = judged_package(library)
    try:
        own = metadata.version(package.split(".", 1)[0])
    except metadata.PackageNotFoundError:
        own = "unknown"
    return package, own
