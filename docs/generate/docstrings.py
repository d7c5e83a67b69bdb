"""Griffe extension: what docstrings say by convention becomes links.

Names in backquotes lead to the documented object that they mean where they stand; what executes or judges a clause says
so; comments that begin with ``#:`` describe what follows.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

from docs.generate import registry

_NAME = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(\(\))?`(?!`)")


class Docstrings(griffe.Extension):
    """Rewrites docstrings before they are rendered."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Called when all modules of a package are there."""
        del kwargs
        for item in _members(pkg):
            if item.is_attribute and item.docstring is None:
                _read_comment(item)
            if item.docstring is not None:
                item.docstring.value = linked(item.docstring.value, item)
            note = clauses_of(item.path)
            if note and item.docstring is not None:
                item.docstring.value += f"\n\n{note}"


def _members(module: griffe.Object) -> list[griffe.Object]:
    found = [module]
    for member in module.members.values():
        if not member.is_alias:
            found += _members(member)  # type: ignore[arg-type]
    return found


def _read_comment(item: griffe.Object) -> None:
    """The docstring of an attribute whose comment begins with ``#:``."""
    if item.lineno is None or isinstance(item.filepath, list):
        return
    lines = item.lines_collection[item.filepath]
    found: list[str] = []
    for line in reversed(lines[: item.lineno - 1]):
        if not line.startswith("#:"):
            break
        found.insert(0, line[2:].strip())
    if found:
        item.docstring = griffe.Docstring(
            "\n".join(found), lineno=item.lineno, parent=item, parser="google"
        )


def linked(text: str, scope: griffe.Object) -> str:
    """Names in backquotes as references to what they mean in a scope; others are left as they are."""

    def link(match: re.Match[str]) -> str:
        target = resolved(match[1], scope)
        if target is None or target == scope.path:
            return match[0]
        return f'<autoref identifier="{target}" optional>`{match[1]}{match[2] or ""}`</autoref>'

    return _NAME.sub(link, text)


def resolved(name: str, scope: griffe.Object) -> str | None:
    """The dotted name of what a name in a docstring means, or None."""
    roots = ("spec.", "reference.", "conformance.", "pallas_impl.")
    if name.startswith(roots):
        return name
    first, *rest = name.split(".")
    try:
        found = scope.resolve(first)
    except griffe.NameResolutionError:
        return None
    path = ".".join([found, *rest])
    return path if path.startswith(roots) else None


def clauses_of(path: str) -> str:
    """Which clauses an object executes or judges, as Markdown; "" if none."""
    executes = registry.clauses_defined_by().get(path, ())
    if executes:
        return f"Executes {', '.join(executes)}."
    check = registry.checks_by_path().get(path)
    if check is None:
        return ""
    caught = [
        registry.mutant_link(mutant, "../checks/")
        for mutant in registry.mutants_of(check.clause_id)
    ]
    note = f"Judges {check.clause_id}, {check.clause.title}."
    return f"{note} Mutants of that clause: {', '.join(caught)}." if caught else note
