"""Replay files: one failing problem, enough to run its check again without any search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance import checks
from conformance.checks.registry import CHECKS
from conformance.contract.fence import Subject
from conformance.findings.expectation import Equal
from conformance.findings.finding import Finding
from conformance.findings.observation import Value
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from conformance.problems.regimes import REGIMES
from conformance.search.search import evaluate

FORMAT = 2


class ReplayError(ValueError):
    """A replay file cannot be used; the message names file and reason."""


def save(finding: Finding, folder: Path, implementation: str, version: str) -> Path:
    """Writes a finding into a folder, or a file that is named, and returns the file.

    Args:
      finding: what to save.
      folder: created if missing; a path that ends in ``.json`` is the file itself.
      implementation, version: where it was found, for the reader.
    """
    path = folder
    if folder.suffix != ".json":
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{finding.clause}-{finding.check}-{finding.problem.key[:8]}.json"
    data: dict[str, Any] = {
        "format": FORMAT,
        "found_in": {"implementation": implementation, "version": version},
        "finding": finding.to_json(),
    }
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Finding:
    """The finding of a replay file.

    Raises:
      ReplayError: missing, not JSON, another format, unknown check or an invalid problem.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReplayError(f"{path}: is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") not in (1, FORMAT):
        raise ReplayError(f"{path}: is not a replay file of format {FORMAT}")
    try:
        finding = (_of_format_1 if data["format"] == 1 else Finding.from_json)(data["finding"])
    except (KeyError, TypeError) as error:
        raise ReplayError(f"{path}: is incomplete: {error}") from None
    except ValueError as error:
        raise ReplayError(f"{path}: {error}") from None
    checks.load_all()
    if not isinstance(finding.check, str) or finding.check not in CHECKS:
        raise ReplayError(f"{path}: unknown check {finding.check!r}")
    if finding.problem.regime not in REGIMES:
        raise ReplayError(f"{path}: unknown regime {finding.problem.regime!r}")
    return finding


def _of_format_1(data: Mapping[str, Any]) -> Finding:
    """The finding of an older file, which has the difference in words only: enough to run the problem again."""
    fields = {name: data[name] for name in ("clause", "check", "kind", "vector")}
    return Finding(
        **fields,
        problem=Problem.from_json(data["problem"]),
        place=Place(data["where"]),
        expectation=Equal(data["expected"]),
        observation=Value(data["actual"]),
    )


def not_applicable(finding: Finding, subject: Subject) -> str:
    """Why an implementation cannot be judged by a finding ("" if it can)."""
    check = CHECKS[finding.check]
    missing = check.missing(subject)
    if missing:
        return f"does not declare {', '.join(missing)}"
    if not check.domain.accepts(finding.problem, subject.description):
        return "cannot be given this problem (features or block sizes)"
    return ""


def run(finding: Finding, subject: Subject) -> Finding | None:
    """Runs the check of a finding again on its problem; None if nothing is wrong any more."""
    return evaluate(CHECKS[finding.check], subject, finding.problem)
