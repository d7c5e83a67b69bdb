"""The JSON form of a report; ``report.schema.json`` beside this file is generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from conformance.findings.finding import Finding, Outcome, Status
from conformance.findings.json_schema import (
    ClauseId,
    Form,
    Keywords,
    Positive,
    Schema,
    Seconds,
    document,
)
from conformance.problems.problem import Problem
from conformance.runs.selection import Part, Selection

#: Version of the form. Raise it with every change that a reader of the last one would not understand.
SCHEMA = 3
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")

type Versions = dict[str, str]
#: The innermost part of `conformance.findings.coverage.Coverage`.
Features = Annotated[dict[str, Positive], Keywords(required=["any"])]
ReplayKey = Annotated[str, Keywords(pattern=r"^\w+#\d+$")]
UtcTime = Annotated[str, Keywords(pattern=r"^$|^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")]


class ReportForm(TypedDict):
    """Report of a splash-conformance run.

    Attributes:
      schema: version of this form.
      implementation: as on the command line.
      version: as the implementation declares it.
      features: what the implementation declares.
      profile: how much was tried.
      seed: of the search.
      selected: clauses that were asked for; all if empty.
      selection: the checks of these clauses.
      shard: which part of the checks was run, from 1/1.
      command: what repeats the run.
      where: options that say where the implementation ran, e.g. --python=….
      started: when, in UTC.
      complete: false after an interruption.
      seconds: wall time.
      environment: versions that results depend on.
      foreign_environment: those of the interpreter that the implementation ran in, if it was another.
      exit_code: 0 conforms, 1 violation, 2 not judged completely, 3 stale expectation.
      clauses: verdict of every clause: the worst of its checks.
      outcomes: one a check.
      ratio_edges: upper ends of the bins of error / budget.
      coverage: problems tried, by kind of mask, labels that occur, type of the arrays, and feature. A problem counts
        once under ``any``, and once under every feature that it has.
      deviations: reason of every known deviation of this version, by id.
      errors: failures of the harness or the adapter.
      replays: replay files, by ``check#number of the finding``.
    """

    schema: int
    implementation: str
    version: str
    features: Annotated[list[str], Keywords(uniqueItems=True)]
    profile: str
    seed: int
    selected: list[ClauseId]
    selection: Selection
    shard: Part
    command: str
    where: str
    started: UtcTime
    complete: bool
    seconds: Seconds
    environment: Versions
    foreign_environment: NotRequired[Versions]
    exit_code: Literal[0, 1, 2, 3]
    clauses: dict[ClauseId, Status]
    outcomes: list[Outcome]
    ratio_edges: list[float]
    coverage: dict[str, dict[str, dict[str, Features]]]
    deviations: dict[str, str]
    errors: list[str]
    replays: dict[ReplayKey, str]


#: A problem has a format of its own, which says which version it is.
_PROBLEM: Schema = {
    "type": "object",
    "description": "A problem, in the format of replay files.",
    "required": ["format", "q_len", "kv_len", "masks", "blocks"],
}

#: What the JSON forms of classes in a report, or in a comparison, do not share with their attributes.
FORMS: Mapping[type, Form | Schema] = {
    Problem: _PROBLEM,
    Finding: Form(properties=("where", "expected", "actual", "signature")),
    Outcome: Form(left_out=("coverage",)),
}


def schema() -> dict[str, Any]:
    """The schema of a report."""
    return document(ReportForm, "report", SCHEMA, FORMS)
