"""What a check found, as plain data: the record behind every report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from conformance.findings.budget_use import Histogram
from conformance.findings.coverage import Coverage
from conformance.findings.expectation import Expectation, expectation_from_json
from conformance.findings.json_schema import ClauseId, Count, Seconds
from conformance.findings.observation import Observation, Raised, observation_from_json
from conformance.findings.pictures import BlockMap, Region
from conformance.findings.place import Place
from conformance.findings.values import as_json
from conformance.findings.worded import Worded
from conformance.problems.problem import Problem

Status = Literal["conforms", "violates", "known deviation", "n/a", "error"]
Kind = Literal["value", "crash", "quality"]


@dataclass(frozen=True)
class Finding(Worded):
    """One way in which an implementation departs from a clause, on its smallest problem.

    Attributes:
      clause: id of the clause.
      check: name of the check.
      kind: ``value`` (wrong result), ``crash`` (it raised), ``quality`` (a figure, never a failure).
      problem: what was tried.
      place: where the difference is.
      expectation, observation: what the clause asks for and what was found.
      detail: traceback or figures.
      vector: name of the fixed problem ("" if found by search).
      deviation: id of the known deviation that covers it ("" if none).
      ratio: of a quality figure, to the best possible.
      blocks: picture of the blocks of the problem.
      region: where results differ; None if that is one place, or a crash.
    """

    clause: ClauseId
    check: str
    kind: Kind
    problem: Problem
    place: Place
    expectation: Expectation
    observation: Observation
    detail: str = ""
    vector: str = ""
    deviation: str = ""
    ratio: float = 1.0
    blocks: BlockMap | None = None
    region: Region | None = None

    @property
    def signature(self) -> str:
        """What crashes of one cause have in common; "" if this is none."""
        crashed = self.kind == "crash" and isinstance(self.observation, Raised)
        return self.observation.cause if crashed else ""  # type: ignore[union-attr]

    def to_json(self) -> dict[str, Any]:
        """Plain data, and what people read of it as text."""
        records = {name: as_json(getattr(self, name)) for name in _RECORDS}
        texts = {name: getattr(self, name) for name in _TEXTS}
        return {**vars(self), "problem": self.problem.to_json(), **records, **texts}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        """Inverse of `to_json`; the texts are not read.

        Raises:
          KeyError, TypeError: missing or unknown fields.
          ValueError: the problem is invalid.
        """
        fields = {name: value for name, value in data.items() if name not in _TEXTS}
        fields["problem"] = Problem.from_json(fields["problem"])
        fields["place"] = Place.from_json(fields["place"])
        fields["expectation"] = expectation_from_json(fields["expectation"])
        fields["observation"] = observation_from_json(fields["observation"])
        return Finding(**fields)

    @property
    def size(self) -> tuple[int, ...]:
        """Sort key: few blocks, few heads, few shards, short description first."""
        problem, shards = self.problem, self.problem.shards
        q, kv = problem.grid()
        return (
            q * kv,
            problem.heads,
            shards.head * shards.q * shards.kv,
            problem.q_len * problem.kv_len,
            len(problem.dumps()),
        )

    def grid(self) -> str:
        """Size of the problem for reports, e.g. ``2×3 blocks of 128×128``."""
        q, kv = self.problem.grid()
        return f"{q}×{kv} blocks of {self.problem.blocks.q}×{self.problem.blocks.kv}"


_RECORDS = ("place", "expectation", "observation")
#: What `Finding.to_json` says in words beside the data.
_TEXTS = ("where", "expected", "actual", "signature")


@dataclass
class Outcome:
    """The result of one check.

    Attributes:
      clause, check, chapter: what was checked.
      status: the verdict.
      reason: why it is n/a, or the harness error.
      examples: problems tried.
      seconds: wall time.
      findings: violations, known deviations and quality figures, smallest problem each.
      stale: ids of known deviations that no longer fail.
      ratios: of numerical results, error / budget by quantity.
      coverage: which problems were tried.
      refused: what the implementation said that it does not offer, and of how many problems.
    """

    clause: ClauseId
    check: str
    chapter: str
    status: Status
    reason: str = ""
    examples: Count = 0
    seconds: Seconds = 0.0
    findings: list[Finding] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    ratios: dict[str, Histogram] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=dict)
    refused: dict[str, Count] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "findings": [finding.to_json() for finding in self.findings]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        """Inverse of `to_json`."""
        fields = dict(data)
        fields["findings"] = [Finding.from_json(finding) for finding in fields["findings"]]
        return Outcome(**fields)

    def of_kind(self, *kinds: Kind) -> list[Finding]:
        """Findings of some kinds that no known deviation covers."""
        return [f for f in self.findings if f.kind in kinds and not f.deviation]
