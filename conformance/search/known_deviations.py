"""Known deviations: what released implementations are known to do, by clause and problem.

One file per implementation, ``expectations/<name>.toml``, with entries like::

    [[deviation]]
    id = "empty-shard"
    clauses = ["CONV-2", "LABEL-1"]      # or ["*"]
    kind = "crash"                       # crash or value
    signature = "AssertionError"         # a part of the crash signature (crash only)
    where = "unwritten"                  # a part of the place of the difference (value only)
    when = ["static", "empty_q_shard"]   # predicates that all hold (conformance/problems/predicates.py)
    versions = ["0.4.31", "0.12.0.1"]    # first and last version that was seen to have it
    vector = "empty-first-q-shard"       # a fixed problem that shows it
    proof = "check_every_mask_compiles"  # the check that shows it on that problem
    reason = "…"

Two fields keep a deviation from hiding more than itself::

    actual = "nan"                       # a part of what was found there (value only)
    avoid = { use_base2_exp = false }    # options with which it does not show

Where it shows in a check, further problems that it would hide are tried with the options that avoid it.

A deviation is reported in its own column, never as a pass. If its vector no longer fails it is stale.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.contract.protocol import Description
from conformance.findings.finding import Finding
from conformance.packages import ROOT
from conformance.problems.json_fields import Reader, pair_of, read_object, string, tuple_of
from conformance.problems.predicates import PREDICATES
from conformance.problems.problem import Problem, options_of
from spec import all_clauses


class ExpectationError(ValueError):
    """An expectation file is malformed; the message names file, entry and field."""


@dataclass(frozen=True)
class Deviation:
    """One known deviation; see the module for the fields."""

    id: str
    clauses: tuple[str, ...]
    kind: str
    when: tuple[str, ...]
    versions: tuple[str, str]
    reason: str
    vector: str = ""
    proof: str = ""
    signature: str = ""
    where: str = ""
    actual: str = ""
    avoid: tuple[tuple[str, Any], ...] = ()

    def covers_clause(self, clause_id: str) -> bool:
        """Whether the deviation is about a clause."""
        return "*" in self.clauses or clause_id in self.clauses

    def covers(self, finding: Finding, problem: Problem) -> bool:
        """Whether a finding is this deviation."""
        return (
            self.covers_clause(finding.clause)
            and finding.kind == self.kind
            and self.signature in finding.signature
            and self.where in finding.where
            and self.actual in finding.actual
            and self.may_show(problem)
        )

    def may_show(self, problem: Problem) -> bool:
        """Whether a problem has the properties with which the deviation shows, and not the options that avoid it."""
        if self.avoid and self.avoided(problem).options == problem.options:
            return False
        return all(PREDICATES[name](problem) for name in self.when)

    def avoided(self, problem: Problem) -> Problem:
        """The problem with the options with which the deviation does not show."""
        options = dict(problem.options) | dict(self.avoid)
        return problem.but(options=tuple(sorted(options.items())))


def version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version, for ordering (local and pre-release parts are ignored)."""
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0].split(".dev")[0])[:5])


def load(description: Description, folder: Path | None = None) -> list[Deviation]:
    """Known deviations of the version that is being tested.

    Args:
      description: name and version of the implementation.
      folder: where the files are; the shipped ones if None.

    Raises:
      ExpectationError: the file is malformed.
    """
    path = (folder or ROOT / "conformance" / "expectations") / f"{description.name}.toml"
    if not path.is_file():
        return []
    version = version_key(description.version)
    return [
        item
        for item in parse(path)
        if version_key(item.versions[0]) <= version <= version_key(item.versions[1])
    ]


def parse(path: Path) -> list[Deviation]:
    """All deviations of a file.

    Raises:
      ExpectationError: not TOML, missing or unknown fields, unknown clauses or predicates.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path.name}: {error}") from None
    entries = data.pop("deviation", [])
    if data or not isinstance(entries, list):
        raise ExpectationError(f"{path.name}: entries must be [[deviation]], got {sorted(data)}")
    return [_entry(entry, f"{path.name}, deviation {n + 1}") for n, entry in enumerate(entries)]


_REQUIRED: dict[str, Reader] = {
    "id": string,
    "clauses": tuple_of(string),
    "kind": string,
    "when": tuple_of(string),
    "versions": pair_of(string),
    "reason": string,
}
_TEXTS = ("vector", "proof", "signature", "where", "actual")
_READERS = _REQUIRED | dict.fromkeys(_TEXTS, string) | {"avoid": options_of}


def _entry(entry: object, where: str) -> Deviation:
    try:
        item = Deviation(**read_object(entry, "entry", _READERS, _REQUIRED))
    except ValueError as error:
        raise ExpectationError(f"{where}: {error}") from None
    unknown = {*item.clauses} - {"*"} - all_clauses().keys()
    if unknown:
        raise ExpectationError(f"{where}: unknown clauses {sorted(unknown)}")
    if set(item.when) - PREDICATES.keys():
        raise ExpectationError(
            f"{where}: unknown predicates {sorted(set(item.when) - set(PREDICATES))}"
        )
    if item.kind not in ("crash", "value"):
        raise ExpectationError(f"{where}: kind must be 'crash' or 'value', got {item.kind!r}")
    if bool(item.vector) != bool(item.proof):
        raise ExpectationError(f"{where}: vector and proof go together")
    for field, kind in (("signature", "crash"), ("where", "value"), ("actual", "value")):
        if getattr(item, field) and item.kind != kind:
            raise ExpectationError(f"{where}: {field} belongs to deviations of kind {kind!r}")
    return item


def avoidable(
    clause_id: str, problem: Problem, deviations: Sequence[Deviation]
) -> Deviation | None:
    """The deviation that would hide whatever else is wrong with a problem, and that options avoid."""
    for item in deviations:
        if item.avoid and item.covers_clause(clause_id) and item.may_show(problem):
            return item
    return None


def mark(finding: Finding, problem: Problem, deviations: Sequence[Deviation]) -> Finding:
    """The finding with the id of the deviation that covers it, if any."""
    for item in deviations:
        if item.covers(finding, problem):
            return replace(finding, deviation=item.id)
    return finding
