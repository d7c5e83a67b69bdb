"""What a run found out, and its canonical form: JSON, from which all other reports derive."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from conformance.findings import coverage
from conformance.findings.budget_use import EDGES
from conformance.findings.coverage import Coverage
from conformance.findings.finding import Outcome
from conformance.runs.report_form import SCHEMA
from conformance.runs.selection import Part, Selection
from spec import all_clauses


class ReportError(ValueError):
    """A report cannot be read; the message names file and reason."""


@dataclass
class Run:
    """Everything that a run found out.

    Attributes:
      implementation, version: what was judged.
      profile, seed: how.
      command: what repeats the run.
      features: what the implementation declares.
      started: when, in UTC as ISO 8601.
      clauses: the clauses that were asked for; all if empty.
      selection: the checks that these are.
      shard: which part of them was run.
      outcomes: one a check.
      errors: failures of the harness or the adapter, one line each.
      complete: False after an interruption.
      seconds: wall time.
      replays: replay file by (check, number of the finding).
      reasons: what is known about a deviation, by its id.
      where: where the implementation ran, as on the command line.
      environment: versions that results depend on.
      foreign: the versions of the interpreter that it ran in, if that was another.
      coverage: which problems were tried, besides those that the outcomes count themselves.
    """

    implementation: str
    version: str
    profile: str
    seed: int
    command: str
    features: tuple[str, ...] = ()
    started: str = ""
    clauses: tuple[str, ...] = ()
    selection: Selection = Selection()  # noqa: RUF009  (frozen)
    shard: Part = Part()  # noqa: RUF009  (frozen)
    outcomes: list[Outcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    complete: bool = True
    seconds: float = 0.0
    replays: dict[tuple[str, int], str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    where: str = ""
    environment: dict[str, str] = field(default_factory=lambda: environment())
    foreign: dict[str, str] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=dict)

    def sort(self) -> None:
        """Puts the outcomes in the order of the specification."""

        def place(outcome: Outcome) -> tuple[str, str, int, str]:
            name, number = outcome.clause.rsplit("-", 1)
            return outcome.chapter, name, int(number), outcome.check

        self.outcomes.sort(key=place)

    def clause_status(self) -> dict[str, str]:
        """Verdict of every clause: the worst of its checks."""
        order = ("violates", "error", "known deviation", "conforms", "n/a")
        found: dict[str, str] = {}
        for outcome in self.outcomes:
            before = found.get(outcome.clause)
            if before is None or order.index(outcome.status) < order.index(before):
                found[outcome.clause] = outcome.status
        return found

    def total_coverage(self) -> Coverage:
        """Which problems were tried, by all checks together."""
        total: Coverage = {}
        for part in (self.coverage, *(outcome.coverage for outcome in self.outcomes)):
            coverage.add(total, part)
        return total

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 violation, 2 harness or adapter error, 3 stale expectation."""
        if self.errors or not self.complete or any(o.status == "error" for o in self.outcomes):
            return 2
        if any(o.status == "violates" for o in self.outcomes):
            return 1
        return 3 if any(o.stale for o in self.outcomes) else 0

    def to_json(self) -> dict[str, Any]:
        """The canonical report, plain data; `conformance.runs.report_form.ReportForm` describes it."""
        return {
            "schema": SCHEMA,
            "implementation": self.implementation,
            "version": self.version,
            "features": list(self.features),
            "profile": self.profile,
            "seed": self.seed,
            "selected": list(self.clauses),
            "selection": asdict(self.selection),
            "shard": asdict(self.shard),
            "command": self.command,
            "where": self.where,
            "started": self.started,
            "complete": self.complete,
            "seconds": round(self.seconds, 3),
            "environment": self.environment,
            **({"foreign_environment": self.foreign} if self.foreign else {}),
            "exit_code": self.exit_code,
            "clauses": self.clause_status(),
            "outcomes": [_outcome_to_json(outcome) for outcome in self.outcomes],
            "ratio_edges": list(EDGES),
            "coverage": self.total_coverage(),
            "deviations": self.reasons,
            "errors": self.errors,
            "replays": {f"{check}#{n}": path for (check, n), path in self.replays.items()},
        }

    @staticmethod
    def from_json(data: Any) -> Run:
        """Inverse of `to_json`.

        Raises:
          ReportError: not a report, of another schema version, about unknown clauses, or incomplete.
        """
        if not isinstance(data, dict) or not {"schema", "outcomes", "clauses"} <= data.keys():
            raise ReportError("is not a report of splash-conformance")
        if data["schema"] != SCHEMA:
            raise ReportError(
                f"is a report of schema {data['schema']!r}, this version reads schema {SCHEMA}; "
                "run again, or use the version that wrote it"
            )
        unknown = sorted(data["clauses"].keys() - all_clauses().keys())
        if unknown:
            raise ReportError(
                f"is about clauses that this version does not have: {', '.join(unknown)}"
            )
        try:
            keys = ((key.rsplit("#", 1), path) for key, path in data["replays"].items())
            return Run(
                **{name: data[name] for name in _SAME},
                features=tuple(data["features"]),
                clauses=tuple(data["selected"]),
                selection=Selection(**data["selection"]),
                shard=Part(**data["shard"]),
                outcomes=[Outcome.from_json(outcome) for outcome in data["outcomes"]],
                replays={(check, int(number)): path for (check, number), path in keys},
                reasons=data["deviations"],
                foreign=data.get("foreign_environment", {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReportError(f"is incomplete: {type(error).__name__}: {error}") from None


#: Fields of `Run` that have the same name and form in JSON.
_SAME = (
    "implementation", "version", "profile", "seed", "command", "where", "started", "complete",
    "seconds", "environment", "coverage", "errors",
)  # fmt: skip


def _outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome without its own coverage, which is part of the total."""
    data = outcome.to_json()
    del data["coverage"]
    data["seconds"] = round(outcome.seconds, 3)
    return data


def environment() -> dict[str, str]:
    """Python, platform and the versions that results depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("splash-conformance", "numpy", "hypothesis", "jax", "jaxlib", "libtpu", "tokamax"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def now() -> str:
    """The time, as reports write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_json(run: Run, path: Path) -> None:
    """Writes the canonical report, one line an outcome."""
    path.write_text(compact(run.to_json()) + "\n", encoding="utf-8")


def compact(data: dict[str, Any]) -> str:
    """JSON with a line for every field, and for every outcome: small, and still to be read and compared."""
    lines = []
    for name, value in data.items():
        text = json.dumps(value)
        if name == "outcomes" and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        lines.append(f' "{name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}"


def read(path: Path) -> Run:
    """Reads a canonical report.

    Raises:
      ReportError: missing, not JSON, not a report, or of another schema version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(f"{path}: is not JSON: {error}") from None
    try:
        return Run.from_json(data)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from None
