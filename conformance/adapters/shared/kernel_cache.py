"""Compiled kernels are kept on disk: the processes of a run share them, and the next run finds them there.

JAX finds a program by its code, its compiler and its options; what changes is compiled again. The folder is
``splash-conformance`` in ``$XDG_CACHE_HOME`` or ``~/.cache``, one for each kind of processor. It may be removed
at any time. ``JAX_COMPILATION_CACHE_DIR`` names another; ``SPLASH_CONFORMANCE_CACHE=off`` keeps nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from pathlib import Path

import jax

from conformance.contract.settings import kernel_cache

#: Older releases do not keep programs for the CPU reliably.
SINCE = (0, 7)
#: Bytes; the oldest files go first.
LIMIT = 512 * 2**20


def keep() -> None:
    """Asks JAX to keep what it compiles, unless somebody chose otherwise."""
    cache = kernel_cache()
    if cache is None or jax.config.jax_compilation_cache_dir is not None:
        return
    if jax.__version_info__[:2] < SINCE:
        return
    folder = cache / _machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a home that cannot be written
    if not os.access(folder, os.W_OK):
        return
    prune(folder, LIMIT)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # All of them: there are many small ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def prune(folder: Path, limit: int) -> None:
    """Removes the files that were written first, until the rest has at most so many bytes."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):  # another process removes it, too
            status = entry.stat()
            files.append((status.st_mtime, status.st_size, entry.path))
    excess = sum(size for _, size, _ in files) - limit
    for _, size, path in sorted(files):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            os.remove(path)
        excess -= size


def _machine() -> str:
    """A name of this kind of processor: code for another one may not run here."""
    text = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
        text += "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
