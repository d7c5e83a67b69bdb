"""Reads the clauses out of the chapters beside this file.

A clause is a level-3 heading ``### ID — title`` followed by one line of fields and a body::

    ### DATA-3 — wrap-around after the last non-empty block
    status: required · kind: exact · since: 1 · features: mask_info, layout:grid

    <one normative sentence, then formula, reason, worked example>

Ids are permanent: a withdrawn clause keeps its heading, with ``status: withdrawn``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

STATUSES = ("required", "required-if", "implementation-defined", "undefined", "withdrawn")
KINDS = ("exact", "error-bound", "rejects", "quality", "untestable")

_HEADING = re.compile(r"^### (?P<id>[A-Z][A-Z0-9]*-\d+) — (?P<title>\S.*)$")
_FIELD = re.compile(r"^(status|kind|since|features|reason): (.+)$")
_REQUIRED_FIELDS = ("status", "kind", "since")

F = TypeVar("F", bound=Callable[..., object])


class SpecError(ValueError):
    """A chapter does not follow the clause format; the message gives file and line."""


@dataclass(frozen=True)
class Clause:
    """One numbered statement of the specification.

    Attributes:
      id: permanent identifier, e.g. ``DATA-3``.
      title: what the clause is about, in a few words.
      chapter: file stem of the chapter, e.g. ``04_mask_info``.
      status: one of `STATUSES`.
      kind: one of `KINDS`.
      since: first specification version that has the clause.
      features: what an adapter must declare before the clause applies to it.
      reason: why an ``untestable`` clause has no check ("" otherwise).
      sentence: the normative sentence (first paragraph of the body).
      body: the whole body in Markdown.
      line: line of the heading in the chapter (1-based).
    """

    id: str
    title: str
    chapter: str
    status: str
    kind: str
    since: int
    features: tuple[str, ...]
    reason: str
    sentence: str
    body: str
    line: int

    @property
    def is_checkable(self) -> bool:
        """Whether a conformance check must exist for this clause."""
        return self.status not in ("undefined", "withdrawn") and self.kind != "untestable"


def chapter_files() -> list[Path]:
    """The chapters in reading order."""
    return sorted(Path(__file__).parent.glob("[0-9][0-9]_*.md"))


def chapter_title(path: Path) -> str:
    """The level-1 heading of a chapter.

    Raises:
      SpecError: the file does not start with one.
    """
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    if not first.startswith("# "):
        raise SpecError(f"{path.name}:1: a chapter starts with '# Title'")
    return first[2:].strip()


def parse(text: str, chapter: str) -> list[Clause]:
    """Parses the clauses of one chapter.

    Args:
      text: the chapter, Markdown.
      chapter: its name, used in errors and in `Clause.chapter`.

    Raises:
      SpecError: missing or unknown fields, an unknown status or kind, an empty body.
    """
    lines = text.split("\n")
    starts = [n for n, line in enumerate(lines) if line.startswith("### ")]
    clauses = []
    for start in starts:
        following = (n for n in range(start + 1, len(lines)) if lines[n].startswith("#"))
        # A '#' inside a fenced block would end the clause early; chapters use doctests instead.
        stop = next(following, len(lines))
        clauses.append(_parse_clause(lines[start:stop], chapter, start + 1))
    return clauses


def _parse_clause(lines: list[str], chapter: str, line: int) -> Clause:
    where = f"{chapter}:{line}"
    heading = _HEADING.match(lines[0])
    if heading is None:
        raise SpecError(f"{where}: expected '### ID-1 — title', got {lines[0]!r}")
    fields = _parse_fields(lines[1] if len(lines) > 1 else "", where)
    body = "\n".join(lines[2:]).strip()
    if not body:
        raise SpecError(f"{where}: clause {heading['id']} has no body")
    if fields["kind"] == "untestable" and not fields.get("reason"):
        raise SpecError(f"{where}: an untestable clause gives its reason")
    return Clause(
        id=heading["id"],
        title=heading["title"],
        chapter=chapter,
        status=fields["status"],
        kind=fields["kind"],
        since=int(fields["since"]),
        features=tuple(f.strip() for f in fields.get("features", "").split(",") if f.strip()),
        reason=fields.get("reason", ""),
        sentence=" ".join(body.split("\n\n", 1)[0].split()),
        body=body,
        line=line,
    )


def _parse_fields(line: str, where: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in line.split(" · "):
        match = _FIELD.match(part.strip())
        if match is None:
            raise SpecError(f"{where}: field line expected 'name: value · …', got {part!r}")
        fields[match[1]] = match[2].strip()
    for name in _REQUIRED_FIELDS:
        if name not in fields:
            raise SpecError(f"{where}: field {name!r} is missing")
    if fields["status"] not in STATUSES:
        raise SpecError(f"{where}: unknown status {fields['status']!r}, expected one of {STATUSES}")
    if fields["kind"] not in KINDS:
        raise SpecError(f"{where}: unknown kind {fields['kind']!r}, expected one of {KINDS}")
    if not fields["since"].isdigit():
        raise SpecError(f"{where}: since must be a whole number, got {fields['since']!r}")
    if fields["status"] == "required-if" and not fields.get("features"):
        raise SpecError(f"{where}: a required-if clause names the features it depends on")
    return fields


@functools.cache
def all_clauses() -> dict[str, Clause]:
    """Every clause of the specification by id, in reading order.

    Raises:
      SpecError: a chapter is malformed or an id occurs twice.
    """
    found: dict[str, Clause] = {}
    for path in chapter_files():
        for item in parse(path.read_text(encoding="utf-8"), path.stem):
            if item.id in found:
                raise SpecError(f"{item.chapter}:{item.line}: id {item.id} is already taken")
            found[item.id] = item
    return found


def clause(clause_id: str) -> Clause:
    """The clause with this id.

    Raises:
      KeyError: there is none.
    """
    try:
        return all_clauses()[clause_id]
    except KeyError:
        raise KeyError(f"unknown clause id {clause_id!r}") from None


#: Reference objects by the clause that they execute; filled by `defines`.
DEFINITIONS: dict[str, list[str]] = {}


def defines(*clause_ids: str) -> Callable[[F], F]:
    """Marks a reference function or class as the executable form of clauses.

    The ids are checked when the module is imported, so that a typo cannot survive.

    Raises:
      KeyError: an id is not in the specification.
    """

    for clause_id in clause_ids:
        clause(clause_id)

    def mark(target: F) -> F:
        name = f"{target.__module__}.{target.__qualname__}"
        for clause_id in clause_ids:
            DEFINITIONS.setdefault(clause_id, []).append(name)
        return target

    return mark
