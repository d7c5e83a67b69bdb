"""Runs a script as a reader of a bug report would: in a process of its own, without the suite."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from conformance.contract.remote.process import executable

#: Seconds that a script may take.
PATIENCE = 300


def run(text: str, python: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a script.

    Args:
      text: the script.
      python: interpreter or virtual environment; that of the suite if None.

    Raises:
      subprocess.TimeoutExpired: it did not end.
    """
    # What adapters have set for this process is not there for others.
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    with tempfile.TemporaryDirectory(prefix="splash-conformance-") as folder:
        path = Path(folder) / "report.py"
        path.write_text(text, encoding="utf-8")
        return subprocess.run(
            [sys.executable if python is None else executable(python), str(path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


def outcome_of(text: str, python: str | None = None) -> str:
    """What comes out when a script is run, in one line."""
    try:
        done = run(text, python)
    except subprocess.TimeoutExpired:
        return f"it did not end within {PATIENCE} s"
    if done.returncode == 0:
        return "it ends without an error, so it does not show the failure"
    lines = [line.strip() for line in done.stderr.split("\n") if line.strip()]
    places = [n for n, line in enumerate(lines) if _names_error(line)]
    if not places:
        return f"exit status {done.returncode}"
    said = lines[places[-1]]
    more = lines[places[-1] + 1 : places[-1] + 3] if said.endswith(":") else []
    return "; ".join([said, *more])


def _names_error(line: str) -> bool:
    """Whether a line of a traceback says what was raised."""
    name = line.partition(":")[0]
    return name.replace(".", "_").isidentifier() and name.endswith(
        ("Error", "Exception", "Interrupt")
    )
