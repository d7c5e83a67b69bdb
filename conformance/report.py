"""What a run found out, and its canonical form: JSON, from which all other reports derive."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from conformance.verdict import Outcome

SCHEMA = 1


@dataclass
class Run:
    """Everything that a run found out.

    Attributes:
      implementation, version: what was judged.
      profile, seed: how.
      command: what repeats the run.
      outcomes: one a check.
      errors: failures of the harness or the adapter, one line each.
      complete: False after an interruption.
      seconds: wall time.
      replays: replay file by (check, number of the finding).
      reasons: what is known about a deviation, by its id.
      where: where the implementation ran, as on the command line.
      foreign: the versions of the interpreter that it ran in, if that was another.
    """

    implementation: str
    version: str
    profile: str
    seed: int
    command: str
    outcomes: list[Outcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    complete: bool = True
    seconds: float = 0.0
    replays: dict[tuple[str, int], str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    where: str = ""
    foreign: dict[str, str] = field(default_factory=dict)

    def clause_status(self) -> dict[str, str]:
        """Verdict of every clause: the worst of its checks."""
        order = ("violates", "error", "known deviation", "conforms", "n/a")
        found: dict[str, str] = {}
        for outcome in self.outcomes:
            before = found.get(outcome.clause)
            if before is None or order.index(outcome.status) < order.index(before):
                found[outcome.clause] = outcome.status
        return found

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 violation, 2 harness or adapter error, 3 stale expectation."""
        if self.errors or not self.complete or any(o.status == "error" for o in self.outcomes):
            return 2
        if any(o.status == "violates" for o in self.outcomes):
            return 1
        return 3 if any(o.stale for o in self.outcomes) else 0

    def to_json(self) -> dict[str, Any]:
        """The canonical report, plain data."""
        return {
            "schema": SCHEMA,
            "implementation": self.implementation,
            "version": self.version,
            "profile": self.profile,
            "seed": self.seed,
            "command": self.command,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "environment": environment(),
            **({"foreign_environment": self.foreign} if self.foreign else {}),
            "exit_code": self.exit_code,
            "clauses": self.clause_status(),
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
            "errors": self.errors,
            "replays": {f"{check}#{n}": path for (check, n), path in self.replays.items()},
        }


def environment() -> dict[str, str]:
    """Python, platform and the versions that results depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("splash-conformance", "numpy", "hypothesis", "jax", "jaxlib", "libtpu", "tokamax"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def write_json(run: Run, path: Path) -> None:
    """Writes the canonical report."""
    path.write_text(json.dumps(run.to_json(), indent=1) + "\n", encoding="utf-8")
