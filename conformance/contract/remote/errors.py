"""How a call of an implementation in another process can fail."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any


class Elsewhere(Exception):
    """A failure of an implementation that runs in another process.

    Attributes:
      signature: the same for failures with the same cause.
      trace: the end of the traceback, or of what the process wrote, for reports.
      refusal: the implementation refused the call, see `is_refusal`.
    """

    def __init__(self, message: str, signature: str, trace: str, refusal: bool = False) -> None:
        super().__init__(message)
        self.signature = signature
        self.trace = trace
        self.refusal = refusal


def raised(error: dict[str, Any]) -> Elsewhere:
    """Makes an exception whose class has the name of the class that the implementation raised.

    Args:
      error: ``type``, ``message``, ``function`` (where it was raised), ``trace`` and ``refusal``.
    """
    name, function = str(error["type"]), str(error["function"])
    made: Elsewhere = type(name, (Elsewhere,), {})(
        str(error["message"]),
        f"{name} in {function}" if function else name,
        str(error["trace"]),
        bool(error["refusal"]),
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
