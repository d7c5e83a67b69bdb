"""Where an implementation runs, and what it may take: the options that all commands share."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass
from typing import Any

from conformance.contract.load import load
from conformance.contract.protocol import Adapter
from conformance.contract.remote.host import ForeignAdapter
from conformance.contract.remote.limits import Limits

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Where:
    """Where an implementation runs.

    Attributes:
      python: interpreter or virtual environment; None for that of the suite.
      isolate: in a process of its own, also in the interpreter of the suite.
      timeout, memory: as in `Limits`; None for its defaults.
    """

    python: str | None = None
    isolate: bool = False
    timeout: float | None = None
    memory: int | None = None

    @property
    def apart(self) -> bool:
        """Whether the implementation has a process of its own: limits hold there only."""
        limited = self.timeout is not None or self.memory is not None
        return self.isolate or limited or self.python is not None

    def arguments(self, prefix: str = "--") -> list[str]:
        """The options that say so on a command line."""
        values = (("python", self.python), ("timeout", self.timeout), ("memory", self.memory))
        given = [f"{prefix}{name}={value}" for name, value in values if value is not None]
        return given + ([f"{prefix}isolate"] if self.isolate else [])

    def __str__(self) -> str:
        return " ".join(shlex.quote(argument) for argument in self.arguments())

    def open(self, impl: str) -> Adapter:
        """Loads an adapter there.

        Raises:
          AdapterError: there is no such interpreter, or the adapter cannot be loaded.
        """
        if not self.apart:
            return load(impl)
        default = Limits()
        limits = Limits(self.timeout or default.timeout, self.memory or default.memory)
        return ForeignAdapter(impl, self.python, limits)

    @staticmethod
    def of(options: Any, prefix: str = "") -> Where:
        """From parsed options that `add_options` declared."""
        names = ("python", "isolate", "timeout", "memory")
        return Where(**{name: getattr(options, prefix + name) for name in names})


def add_options(add: Any, prefix: str = "--") -> None:
    """Declares the options.

    Args:
      add: ``add_argument`` of an `argparse` parser, or ``addoption`` of a group of pytest options.
      prefix: of their names.
    """
    add(
        f"{prefix}python",
        metavar="PATH",
        help="run IMPL in this interpreter or virtual environment (Python 3.9 and NumPy 1.22, or later)",
    )
    add(
        f"{prefix}isolate",
        action="store_true",
        help="run IMPL in a process of its own, so that it may crash or hang",
    )
    add(
        f"{prefix}timeout",
        type=seconds,
        metavar="S",
        help=f"seconds a call may take, three times as many for the first (default {Limits().timeout:g}; "
        "implies isolation)",
    )
    add(
        f"{prefix}memory",
        type=size,
        metavar="SIZE",
        help="resident memory that IMPL may take, e.g. 8G (default: half of the machine's; implies isolation)",
    )


def seconds(text: str) -> float:
    """A positive number of seconds.

    Raises:
      argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text!r}")
    return value


def size(text: str) -> int:
    """Bytes, with a unit K, M, G or T of powers of 1024.

    Raises:
      argparse.ArgumentTypeError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    value = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a size as 512M or 8G, got {text!r}")
    return value
