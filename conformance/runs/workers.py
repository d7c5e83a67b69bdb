"""The environment of the processes that run checks: what they inherit when they start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: One process runs on every processor, and compiles kernels most of the time. Threads of a matrix library that wait
#: for work would take a tenth of it, and giving memory back to the system, to ask for it again, a twentieth.
SETTINGS: dict[str, str] = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": str(2**30),  # of glibc; others take no notice
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}


@contextmanager
def inherited(settings: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for processes that start inside; one that is set already is left as it is.

    Args:
      settings: values by name.
    """
    own = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in own})
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)
