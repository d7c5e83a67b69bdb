"""Drops compiled programs before a process runs out of memory maps.

A program that JAX has compiled takes about ten memory maps, and Linux allows a process 65530 of them by default. A
long search would crash in the middle of a kernel, as if the kernel were to blame.

Runs on Python 3.9, like everything that a worker imports.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from pathlib import Path

#: Count the maps once in this many calls: counting takes milliseconds.
EVERY = 50

_MAPS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")


class Room:
    """Watches the memory maps of this process.

    Attributes:
      limit: drop programs above this number of maps; None where the system does not limit them.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.limit: int | None = None
        with contextlib.suppress(OSError, ValueError):  # elsewhere than on Linux
            self.limit = int(_LIMIT.read_text(encoding="ascii")) // 2

    def make(self, every: int = EVERY) -> bool:
        """Drops all compiled programs if there are many maps; JAX recompiles what is needed again.

        Args:
          every: only look once in this many calls.

        Returns:
          Whether programs were dropped.
        """
        self.calls += 1
        if self.limit is None or self.calls % every or count() <= self.limit:
            return False
        jax = sys.modules.get("jax")
        if jax is None:
            return False
        jax.clear_caches()
        gc.collect()
        return True


def count() -> int:
    """The number of memory maps of this process."""
    with _MAPS.open("rb") as file:
        return sum(1 for _ in file)


ROOM = Room()
