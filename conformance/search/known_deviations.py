"""Known deviations: what released implementations are known to do, by clause and problem.

One file per implementation, ``expectations/<name>.toml``, with entries like::

    [[deviation]]
    id = "empty-shard"
    clauses = ["CONV-2", "LABEL-1"]      # or ["*"]
    kind = "crash"                       # crash or value
    place = { quantity = "output" }      # fields of the place, see `conformance.findings.place`
    expectation = { kind = "within" }    # fields of what the clause asks for, see `conformance.findings.expectation`
    observation = { kind = "raised", type = "AssertionError" }     # and of what was found
    when = ["static", "empty_q_shard"]   # predicates that all hold (conformance/problems/predicates.py)
    versions = ["0.4.31", "0.12.0.1"]    # first and last version that was seen to have it
    vector = "empty-first-q-shard"       # a fixed problem that shows it
    proof = "check_every_mask_compiles"  # the check that shows it on that problem
    avoid = { use_base2_exp = false }    # options with which it does not show
    reason = "…"

``place``, ``expectation`` and ``observation`` keep a deviation from hiding more than itself: every field that is given
must have exactly this value, or one of a list of values. They are compared as data; no text is searched.

Where a deviation shows that options avoid, further problems that it would hide are tried with these options.

A deviation is reported in its own column, never as a pass. If its vector no longer fails it is stale.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from conformance.contract.protocol import Description
from conformance.findings.expectation import BY_KIND as EXPECTATIONS
from conformance.findings.expectation import Expectation
from conformance.findings.finding import Finding
from conformance.findings.observation import BY_KIND as OBSERVATIONS
from conformance.findings.observation import Observation
from conformance.findings.place import Place
from conformance.findings.values import Plain, as_tuples
from conformance.packages import ROOT
from conformance.problems.json_fields import Reader, pair_of, read_object, string, tuple_of
from conformance.problems.predicates import PREDICATES
from conformance.problems.problem import Problem, options_of
from spec import all_clauses


class ExpectationError(ValueError):
    """An expectation file is malformed; the message names file, entry and field."""


#: Fields of a record, and the values that each may have.
type Pattern = Mapping[str, tuple[Plain, ...]]


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
    place: Pattern = field(default_factory=dict)
    expectation: Pattern = field(default_factory=dict)
    observation: Pattern = field(default_factory=dict)
    avoid: tuple[tuple[str, Any], ...] = ()

    def covers_clause(self, clause_id: str) -> bool:
        """Whether the deviation is about a clause."""
        return "*" in self.clauses or clause_id in self.clauses

    def covers(self, finding: Finding, problem: Problem) -> bool:
        """Whether a finding is this deviation."""
        return (
            self.covers_clause(finding.clause)
            and finding.kind == self.kind
            and fits(self.place, finding.place)
            and fits(self.expectation, finding.expectation)
            and fits(self.observation, finding.observation)
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


def fits(pattern: Pattern, record: Place | Expectation | Observation) -> bool:
    """Whether a record has every field of a pattern, with one of its values."""
    return all(
        hasattr(record, name) and getattr(record, name) in values
        for name, values in pattern.items()
    )


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


def _pattern_of(records: Iterable[type]) -> Reader:
    """A reader of patterns for records of these classes."""

    def read(value: object, where: str) -> Pattern:
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a table of fields, got {value!r}")
        kinds = value.get("kind")
        named = [cls for cls in records if kinds is None or getattr(cls, "kind", None) == kinds]
        if not named:
            raise ValueError(f"{where} has the unknown kind {kinds!r}")
        known = {field.name for cls in named for field in fields(cls)}
        if value.keys() - known:
            raise ValueError(f"{where} has unknown fields {sorted(value.keys() - known)}")
        return {
            name: as_tuples(choice) if isinstance(choice, list) else (choice,)
            for name, choice in value.items()
        }

    return read


_OPTIONAL: dict[str, Reader] = {
    "vector": string,
    "proof": string,
    "place": _pattern_of([Place]),
    "expectation": _pattern_of(EXPECTATIONS.values()),
    "observation": _pattern_of(OBSERVATIONS.values()),
    "avoid": options_of,
}


def _entry(entry: object, where: str) -> Deviation:
    try:
        item = Deviation(**read_object(entry, "entry", _REQUIRED | _OPTIONAL, _REQUIRED))
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
