"""Which package an adapter of a library judges: the library itself, or a fork of it with the same modules.

``splash-conformance run jax=my_framework.kernels.splash_attention`` runs the adapter ``jax`` on the modules of that
package. The setting is an environment variable, so that worker processes inherit it.
"""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from typing import Any

#: The package of every library that has an adapter here.
PACKAGES = {
    "jax": "jax.experimental.pallas.ops.tpu.splash_attention",
    "tokamax": "tokamax._src.ops.experimental.tpu.splash_attention",
}

#: The module that a fork cannot do without.
KERNELS = "splash_attention_kernel"


def _variable(library: str) -> str:
    return f"SPLASH_CONFORMANCE_PACKAGE_{library.upper()}"


def package(library: str) -> str:
    """The package that is judged in place of a library of `PACKAGES`, or its own."""
    return os.environ.get(_variable(library), PACKAGES[library])


def is_fork(library: str) -> bool:
    """Whether another package is judged in place of a library."""
    return package(library) != PACKAGES[library]


#: What the adapters of this process were loaded with.
_loaded: dict[str, str] = {}


def want(library: str, chosen: str | None) -> None:
    """Asks for a package, in this process and in those that it starts; before the adapter is loaded.

    Args:
      library: a key of `PACKAGES`.
      chosen: the package; the library itself if None.

    Raises:
      ValueError: the library has no adapter here, or its adapter runs on another package already.
    """
    if library not in PACKAGES:
        raise ValueError(f"only {', '.join(PACKAGES)} can be given a package, got {library!r}")
    before = _loaded.get(library)
    if before is not None and before != (chosen or PACKAGES[library]):
        raise ValueError(
            f"the adapter {library!r} runs on {before} in this process already: use --isolate"
        )
    if chosen is None:
        os.environ.pop(_variable(library), None)
    else:
        os.environ[_variable(library)] = chosen


def module(library: str, name: str) -> Any:
    """A module of the package that is judged; a fork without it works with that of the library.

    Raises:
      ImportError: the package has no kernels, or the module cannot be imported.
    """
    chosen = _loaded[library] = package(library)
    wanted = f"{chosen}.{name}"
    try:
        return importlib.import_module(wanted)
    except ModuleNotFoundError as error:
        if error.name != wanted or name == KERNELS:
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
    chosen = package(library)
    try:
        own = metadata.version(chosen.split(".", 1)[0])
    except metadata.PackageNotFoundError:
        own = "unknown"
    return chosen, own
