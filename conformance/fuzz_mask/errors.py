"""Text of errors in the user's files: only the frames of these files, none of the suite."""

from __future__ import annotations

import traceback

from conformance.packages import ROOT


def own_trace(error: BaseException, file: str) -> str:
    """The traceback of an error from the first frame inside a file on, all of it if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((n for n, frame in enumerate(frames) if frame.filename == file), 0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[first:])]
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def own_frames(error: BaseException, file: str, most: int, also_others: bool = True) -> str:
    """The last frames of an error inside a file of the user, or else inside of what it called; none of this suite."""
    suite = str(ROOT / "conformance")
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not frame.filename.startswith(suite)]
    own = [frame for frame in foreign if frame.filename == file]
    chosen = own or (foreign if also_others else [])
    return "".join(traceback.format_list(chosen[-most:])).rstrip()


def short(error: BaseException) -> str:
    """Type and first line of an error."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:240]}" if text else f"a bare {type(error).__name__}"
