"""The journal of a run: every outcome as soon as it is there, so that an interrupted run can be continued."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.findings.finding import Outcome

FORMAT = 1


class JournalError(ValueError):
    """A journal cannot be continued; the message names file and reason."""


class Journal:
    """Appends outcomes to a file, one JSON line each, after a line that says what is run.

    The file is there as long as the run is not finished.

    Args:
      path: its folder is created if missing.
      header: what is run; plain data.
      resume: continue the file instead of writing it anew.

    Attributes:
      outcomes: those that the file held already.

    Raises:
      JournalError: the file is no journal, or of a run of something else.
      OSError: the file cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], resume: bool) -> None:
        self.path = path
        self.outcomes: list[Outcome] = []
        if resume:
            found, self.outcomes = read(path)
            differs = [name for name in header if found.get(name) != header[name]]
            if differs:
                name = differs[0]
                raise JournalError(
                    f"{path}: is of a run with {name}={found.get(name)!r}, not {header[name]!r}"
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written anew also to continue it: the last line may be torn.
        lines = [{"format": FORMAT, **header}, *(outcome.to_json() for outcome in self.outcomes)]
        self._file = path.open("w", encoding="utf-8")
        for line in lines:
            self._write(line)

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def add(self, outcome: Outcome) -> None:
        """Writes an outcome."""
        self._write(outcome.to_json())

    def close(self, finished: bool) -> None:
        """Closes the file; that of a finished run has served its purpose, and goes with an empty folder."""
        self._file.close()
        if finished:
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()


def read(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """What a journal was about, and its outcomes; a torn last line is left out.

    Raises:
      JournalError: it cannot be read, or is no journal.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JournalError(f"{path}: cannot be read: {error}") from None
    *lines, _ = text.split("\n")
    try:
        header, *outcomes = (json.loads(line) for line in lines)
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r}")
        del header["format"]
        return header, [Outcome.from_json(outcome) for outcome in outcomes]
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(f"{path}: is not a journal of format {FORMAT} ({error})") from None
