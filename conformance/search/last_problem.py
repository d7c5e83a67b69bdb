"""What a process is about to try, on disk, so that whoever outlives it knows what ended it."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.checks.registry import CHECKS
from conformance.findings.expectation import NoError
from conformance.findings.finding import Finding, Outcome
from conformance.findings.observation import Raised
from conformance.findings.place import Place
from conformance.problems.problem import Problem

ADVICE = "with --isolate the search survives that, and goes on to the smallest problem"


class Trail:
    """One file a check in a folder, with the problem that was tried last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, check: str) -> Path:
        return self.folder / f"{check}.json"

    def note(self, check: str, problem: Problem, vector: str) -> None:
        """Says that a problem is tried now."""
        text = json.dumps({"problem": problem.to_json(), "vector": vector})
        self._file(check).write_text(text, encoding="utf-8")

    def outcome(self, check: str) -> Outcome | None:
        """The verdict about a check whose process ended; None if it had not tried anything yet."""
        try:
            data = json.loads(self._file(check).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        clause = CHECKS[check].clause
        finding = Finding(
            clause.id,
            check,
            "crash",
            Problem.from_json(data["problem"]),
            Place("the process of the suite"),
            NoError(),
            Raised(
                "SystemExit",
                f"the implementation ended the process; {ADVICE}",
                ended="the process ended",
            ),
            vector=data["vector"],
        )
        return Outcome(clause.id, check, clause.chapter, "violates", examples=1, findings=[finding])
