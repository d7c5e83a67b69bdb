"""The result of fuzzing a class, as plain data; ``fuzz_mask.schema.json`` beside this file is generated from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from conformance.findings.json_schema import ClauseId, Count, Form, Positive, Seconds, document
from conformance.runs.report import environment

#: Version of the form of `FuzzRun.to_json`. Raise it with every change that a reader of the last one would not
#: understand.
SCHEMA = 1
SCHEMA_FILE = Path(__file__).with_name("fuzz_mask.schema.json")

StageName = Literal["class", "compiled", "kernels", "attention"]
NOT_ASKED_FOR = "not asked for"

Severity = Literal["required", "advice"]
Status = Literal["conforms", "violates", "not tried", "n/a"]


@dataclass(frozen=True)
class Fault:
    """Something to change in the class, with the smallest masks that show it.

    Attributes:
      severity: ``required`` for wrong results and crashes, ``advice`` if only time or convenience is lost.
      clause: id of the clause ("" where the specification has none).
      check: name of the check.
      kind: ``value`` or ``crash``.
      calls: Python that makes the masks, one line each.
      lines: the problem and pictures of masks, as text.
      where, expected, actual: the difference.
      detail: number of differing places or the end of the traceback, and a hint.
      again: the command that judges only these masks ("" if there is none).
    """

    severity: Severity
    clause: ClauseId | Literal[""]
    check: str
    kind: Literal["value", "crash"]
    calls: tuple[str, ...]
    lines: tuple[str, ...]
    where: str
    expected: str
    actual: str
    detail: str = ""
    again: str = ""


@dataclass
class Stage:
    """One part of the judgement.

    Attributes:
      title: for the table.
      status: the verdict.
      reason: why it was not tried.
      cases: masks, pairs or problems that were tried.
      clauses: verdict of every clause that was judged.
      seconds: wall time.
    """

    title: str
    status: Status = "not tried"
    reason: str = ""
    cases: Count = 0
    clauses: dict[ClauseId, Status] = field(default_factory=dict)
    seconds: Seconds = 0.0

    def counts(self) -> Counter[str]:
        """Clauses by verdict."""
        return Counter(self.clauses.values())


@dataclass
class FuzzRun:
    """The verdict on a class.

    Attributes:
      target: the class, as on the command line.
      implementation, version: what compiled its masks.
      profile, seed: how much was tried.
      command: repeats the run.
      oracle: the predicate of its author ("" if none was given).
      stages: by name, in order.
      faults: in order of the stages.
      elsewhere: failures that the class did not cause, one line each.
      notes: limits of this run, one line each.
      made, refused: number of masks, and of calls that the constructor refused.
      reasons: the most frequent messages of refusals, with their numbers.
      errors: failures of the judgement itself.
      complete: False after an interruption.
      seconds: wall time.
    """

    target: str
    implementation: str
    version: str
    profile: str
    seed: int
    command: str
    oracle: str = ""
    stages: dict[StageName, Stage] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    made: Count = 0
    refused: Count = 0
    reasons: dict[str, Positive] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    complete: bool = True
    seconds: Seconds = 0.0

    def of(self, severity: Severity) -> list[Fault]:
        """The faults of a severity."""
        return [fault for fault in self.faults if fault.severity == severity]

    @property
    def exit_code(self) -> Literal[0, 1, 2]:
        """0 conforms, 1 a required problem, 2 not judged completely."""
        if self.errors or not self.complete:
            return 2
        return 1 if self.of("required") else 0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        data["seconds"] = round(self.seconds, 3)
        for stage in data["stages"].values():
            stage["seconds"] = round(stage["seconds"], 3)
        return {
            "schema": SCHEMA,
            "kind": "fuzz-mask",
            **data,
            "environment": environment(),
            "exit_code": self.exit_code,
        }


def schema() -> dict[str, Any]:
    """The schema of `FuzzRun.to_json`."""
    further = {"schema": int, "kind": Literal["fuzz-mask"], "environment": dict[str, str]}
    form = Form(properties=("exit_code",), further=further)
    return document(FuzzRun, "fuzz-mask", SCHEMA, {FuzzRun: form})
