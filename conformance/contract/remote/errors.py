"""How a call of an implementation in another process can fail."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any


class Elsewhere(Exception):
    """A failure of an implementation that runs in another process.

    Attributes:
      function: where it was raised, or where the process ended.
      ended: how the process ended; "" if it did not.
      trace: the end of the traceback, or of what the process wrote, for reports.
      refusal: the implementation refused the call, see `is_refusal`.
    """

    def __init__(
        self, message: str, function: str, trace: str, *, ended: str = "", refusal: bool = False
    ) -> None:
        super().__init__(message)
        self.function = function
        self.ended = ended
        self.trace = trace
        self.refusal = refusal


def raised(error: dict[str, Any]) -> Elsewhere:
    """Makes an exception whose class has the name of the class that the implementation raised.

    Args:
      error: ``type``, ``message``, ``function`` (where it was raised), ``trace`` and ``refusal``.
    """
    made: Elsewhere = type(str(error["type"]), (Elsewhere,), {})(
        str(error["message"]),
        str(error["function"]),
        str(error["trace"]),
        refusal=bool(error["refusal"]),
    )
    return made


def is_refusal(error: BaseException) -> bool:
    """Whether an implementation refuses a call: it does not support what was asked for, and says so.

    It raises NotImplementedError with a message, in its own code. From inside JAX or NumPy the same error means that
    the implementation used something that does not exist there.
    """
    if isinstance(error, Elsewhere):
        return error.refusal
    frames = traceback.extract_tb(error.__traceback__)
    if type(error).__name__ != "NotImplementedError" or not str(error).strip() or not frames:
        return False
    path = Path(frames[-1].filename).as_posix()
    inside = "/jax/_src/" in path or "/numpy/" in path
    return not inside and (frames[-1].line or "").startswith("raise ")


class Fatal(Elsewhere):
    """The process of the implementation has ended, or had to be ended."""


class Died(Fatal):
    """The process ended by itself: a signal, ``abort``, ``os._exit``."""


class TimedOut(Fatal):
    """The process did not answer in time."""


class OutOfMemory(Fatal):
    """The process used more memory than its limit."""


class NotTried(Exception):
    """A call was not made, because earlier calls kept ending the process; it gets no verdict."""


class Refused(NotTried):
    """The implementation refused a call, which gets no verdict.

    Args:
      error: what it raised; the message is its text, on one line.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(" ".join(str(error).split()))
