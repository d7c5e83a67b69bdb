"""The JSON form of a comparison; ``comparison.schema.json`` beside this file is generated from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from conformance.findings.finding import Finding, Status
from conformance.findings.json_schema import ClauseId, Count, Keywords, document
from conformance.runs.report_form import FORMS

#: Version of the form. Raise it with every change that a reader of the last one would not understand.
SCHEMA = 1
SCHEMA_FILE = Path(__file__).with_name("comparison.schema.json")

#: What an implementation does with a problem on which another fails.
Trial = Literal["fails", "holds", "n/a", "not tried"]
ColumnNumber = Annotated[str, Keywords(pattern=r"^\d+$")]


class ColumnForm(TypedDict):
    """One implementation.

    Attributes:
      label: differs from those of all other columns.
      source: argument of the command line.
      implementation, version: as in its report.
      where: options that say where it ran.
      profile, seed: how much was tried.
      complete: false after an interruption.
      features: what it declares.
      environment: versions that results depend on.
      errors: failures of the harness or the adapter.
    """

    label: str
    source: str
    implementation: str
    version: str
    where: str
    profile: str
    seed: int
    complete: bool
    features: list[str]
    environment: dict[str, str]
    errors: list[str]


class LateForm(TypedDict):
    """A verdict that rests on a problem of another column."""

    clause: ClauseId
    column: Count


class DifferenceForm(TypedDict):
    """One cause of differing verdicts.

    Attributes:
      clauses: whose verdicts differ by it.
      column: in which it was found.
      trials: what every column does with the problem.
      replay: replay file.
      commands: what runs the problem again, by column.
      finding: the smallest problem that shows it.
    """

    clauses: Annotated[list[ClauseId], Keywords(minItems=1)]
    column: Count
    trials: list[Trial]
    replay: str
    commands: dict[ColumnNumber, str]
    finding: Finding


class ComparisonForm(TypedDict):
    """Comparison of several implementations.

    Attributes:
      schema: version of this form.
      command: what repeats the comparison.
      complete: false if a run was interrupted or is missing.
      columns: the implementations.
      clauses: verdicts by clause, one for every column.
      late: verdicts that rest on a problem of another column.
      features: features that not all declare, with who does.
      differences: why verdicts differ.
    """

    schema: int
    command: str
    complete: bool
    columns: Annotated[list[ColumnForm], Keywords(minItems=2)]
    clauses: dict[ClauseId, list[Status | Literal["not run"]]]
    late: list[LateForm]
    features: dict[str, list[bool]]
    differences: list[DifferenceForm]


def schema() -> dict[str, Any]:
    """The schema of a comparison."""
    return document(ComparisonForm, "comparison", SCHEMA, FORMS)
