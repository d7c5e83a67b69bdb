"""What an implementation may take."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What an implementation may take.

    Attributes:
      timeout: seconds a call; the first call of a method in a process may compile and has three times as long.
      memory: bytes of resident memory.
    """

    timeout: float = 120.0
    memory: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2

    def of_call(self, first: bool) -> float:
        """Seconds for a call."""
        return 3 * self.timeout if first else self.timeout

    def of_start(self) -> float:
        """Seconds to start the interpreter and to import the implementation."""
        return max(60.0, 3 * self.timeout)
