"""What an implementation in another process can do instead of answering."""

from __future__ import annotations

from typing import Any


class Elsewhere(Exception):
    """A failure of an implementation that runs in another process.

    Attributes:
      signature: equal for failures with one cause.
      trace: the end of the traceback, or of what the process wrote, for reports.
    """

    def __init__(self, message: str, signature: str, trace: str) -> None:
        super().__init__(message)
        self.signature = signature
        self.trace = trace


def raised(error: dict[str, Any]) -> Elsewhere:
    """An exception of the implementation, of a class that has the name of the one it raised.

    Args:
      error: ``type``, ``message``, ``function`` (where it was raised) and ``trace``.
    """
    name, function = str(error["type"]), str(error["function"])
    made: Elsewhere = type(name, (Elsewhere,), {})(
        str(error["message"]), f"{name} in {function}" if function else name, str(error["trace"])
    )
    return made


class Fatal(Elsewhere):
    """The process of the implementation has ended, or had to be ended."""


class Died(Fatal):
    """It ended itself: a signal, ``abort``, ``os._exit``."""


class TimedOut(Fatal):
    """It gave no answer in time."""


class OutOfMemory(Fatal):
    """It took more memory than it may."""


class NotTried(Exception):
    """A call was not made, because earlier ones kept ending the process: no verdict about it."""
