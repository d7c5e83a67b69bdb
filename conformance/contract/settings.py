"""The settings of the suite: environment variables, so that every process that it starts inherits them.

Options of the command line set them, or users do. ``request_…`` sets one, in this process and in those that it starts
from then on; ``requested_…`` reads it.

| variable | holds | default |
|---|---|---|
| ``SPLASH_CONFORMANCE_DEVICE`` | where kernels of JAX run: one of `DEVICES` | ``auto`` |
| ``SPLASH_CONFORMANCE_PACKAGE_…`` | the fork that is judged in place of a library | the library |
| ``SPLASH_CONFORMANCE_DATABASE`` | a folder of failing examples that runs share | none is kept |
| ``SPLASH_CONFORMANCE_CACHE`` | ``off``: compiled kernels are not kept on disk | they are kept |
| ``SPLASH_CONFORMANCE_FOLDER`` | the temporary folder of a run; the suite sets it | that of the system |
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DEVICE = "SPLASH_CONFORMANCE_DEVICE"
PACKAGE = "SPLASH_CONFORMANCE_PACKAGE_{}"
DATABASE = "SPLASH_CONFORMANCE_DATABASE"
CACHE = "SPLASH_CONFORMANCE_CACHE"
FOLDER = "SPLASH_CONFORMANCE_FOLDER"

#: Of Hypothesis: the folder for what it would otherwise leave in the current one.
HYPOTHESIS_FOLDER = "HYPOTHESIS_STORAGE_DIRECTORY"

#: ``tpu`` runs the compiled kernels of a TPU host, ``cpu`` runs them in interpret mode, ``auto`` takes a TPU if the
#: host has one. The TPU path has not been run.
DEVICES = ("auto", "cpu", "tpu")

#: For processes of checks. One runs on every processor, and compiles kernels most of the time. Threads of a matrix
#: library that wait for work would take a tenth of it, and giving memory back to the system, to ask for it again, a
#: twentieth.
ONE_PROCESS_A_PROCESSOR: dict[str, str] = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": str(2**30),  # of glibc; others take no notice
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}


def requested_device() -> str:
    """One of `DEVICES`.

    Raises:
      ValueError: the environment variable holds something else.
    """
    device = os.environ.get(DEVICE, "auto")
    if device not in DEVICES:
        raise ValueError(f"{DEVICE} must be one of {', '.join(DEVICES)}, got {device!r}")
    return device


def request_device(device: str) -> None:
    """Sets the device; before any adapter is loaded.

    Raises:
      ValueError: it is none of `DEVICES`.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    os.environ[DEVICE] = device


def requested_package(library: str) -> str | None:
    """The fork that is judged in place of a library; None for the library itself."""
    return os.environ.get(PACKAGE.format(library.upper()))


def request_package(library: str, package: str | None) -> None:
    """Sets the fork of a library, or takes it back."""
    variable = PACKAGE.format(library.upper())
    if package is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = package


def requested_database() -> Path | None:
    """The folder of failing examples; None without a database."""
    folder = os.environ.get(DATABASE)
    return Path(folder) if folder else None


def request_database(folder: Path | None) -> None:
    """Sets the folder of failing examples and makes it; None leaves the setting as it is.

    Raises:
      ValueError: it is a file, or cannot be made.
    """
    chosen = folder or requested_database()
    if chosen is None:
        return
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--database {chosen}: cannot be used: {error.strerror}") from None
    os.environ[DATABASE] = str(chosen.resolve())


def kernel_cache() -> Path | None:
    """The folder for compiled kernels, ``splash-conformance`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    None if the user wants none or has no home.
    """
    if os.environ.get(CACHE, "") == "off":
        return None
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(caches) if caches else Path.home() / ".cache") / "splash-conformance"
    except RuntimeError:  # no home
        return None


def temporary_folder() -> str | None:
    """The folder of the run, which removes it at its end; None outside of a run."""
    return os.environ.get(FOLDER)


def pretend_devices(count: int) -> None:
    """Makes JAX see the host's processors as so many devices, unless a user chose a number; before JAX starts."""
    flag = "--xla_force_host_platform_device_count"
    flags = os.environ.get("XLA_FLAGS", "")
    if flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={count}".strip()


@contextmanager
def inherited(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for processes that start inside; what is set already stays as it is.

    Args:
      variables: values by name.
    """
    own = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in own})
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)
