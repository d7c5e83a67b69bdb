"""Pages of the checks and of the mutants."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.checks import MODULES
from conformance.checks.registry import CHECKS
from conformance.mutants import MUTANTS
from docs.generate import registry
from spec import all_clauses
from spec.clauses import DEFINITIONS, chapter_files, chapter_title

FOLDER = "checks"


def pages() -> dict[str, str]:
    """The page of every module of checks by its path, in order."""
    return {f"{FOLDER}/{module}.md": module_page(module) for module in MODULES}


def module_page(module: str) -> str:
    """The checks of one module: a table, and each with its source."""
    name = f"conformance.checks.{module}"
    out = [f"# {module}", "", "| check | clause | what it does |", "|-|-|-|"]
    for check in CHECKS.values():
        if check.module == name:
            doc = " ".join((check.function.__doc__ or "").split("\n\n")[0].split())
            out.append(f"| [`{check.name}`][{name}.{check.name}] | {check.clause_id} | {doc} |")
    out += ["", f"::: {name}"]
    return "\n".join(out) + "\n"


def traceability() -> str:
    """Every clause with what belongs to it."""
    out = []
    for path in chapter_files():
        out += [f"## {chapter_title(path)}", ""]
        out += ["| clause | defined by | judged by | mutants |", "|-|-|-|-|"]
        for item in all_clauses().values():
            if item.chapter != path.stem:
                continue
            cells = (
                f"{item.id} {item.title}".replace("|", "\\|"),
                _list(f"[`{_short(n)}`][{n}]" for n in DEFINITIONS.get(item.id, [])),
                _list(f"[`{c.name}`][{c.module}.{c.name}]" for c in registry.checks_of(item.id)),
                _list(registry.mutant_link(m, "") for m in registry.mutants_of(item.id)),
            )  # fmt: skip
            out.append("| " + " | ".join(cells) + " |")
        out.append("")
    return "\n".join(out)


def _short(name: str) -> str:
    return name.removeprefix("reference.")


def _list(links: Iterable[str]) -> str:
    return ", ".join(links) or "—"


def mutants() -> str:
    """Every mutant by chapter of its clause."""
    out = []
    for path in chapter_files():
        found = [m for m in MUTANTS.values() if registry.chapter_of(m.clause) == path.stem]
        if not found:
            continue
        out += [f"## {chapter_title(path)}", ""]
        out += ["| mutant | clause | kind of mistake | seen in |", "|-|-|-|-|"]
        out += [
            f'| <span id="mutant-{m.name}">{m.name}</span> | {m.clause} | {m.bug_class} | {m.seen_in or "—"} |'
            for m in found
        ]
        out.append("")
    return "\n".join(out)
