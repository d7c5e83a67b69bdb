"""Chapters of the specification as pages: an anchor for every clause, its facts, and what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from docs.generate import findings, registry, tables
from spec import Clause, all_clauses
from spec.clauses import DEFINITIONS, chapter_files, chapter_title

#: Where the pages are, relative to the folder of all pages.
FOLDER = "spec"


def paths() -> list[str]:
    """The pages of all chapters in reading order."""
    return [f"{FOLDER}/{path.name}" for path in chapter_files()]


def page(path: Path) -> str:
    """A chapter as the Markdown of its page.

    Clauses become sections of the second level, or of the third below headings of the chapter's own; their field
    lines become badges, examples become code, and links to definitions, checks and mutants follow.
    """
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    clauses = {item.line: item for item in all_clauses().values() if item.chapter == path.stem}
    out: list[str] = []
    level, current = "##", None
    for number, line in enumerate(lines, start=1):
        if line.startswith("## "):
            level = "###"
        if line.startswith("#") and current is not None:
            out += [*trace(current), ""]
            current = None
        if number in clauses:
            current = clauses[number]
            title = f"{current.id} — {current.title}"
            out += [f"{level} {title} {{ #{current.id} .clause }}", "", badges(current)]
        elif number - 1 not in clauses:
            out.append(line)
    if current is not None:
        out += ["", *trace(current)]
    return fenced("\n".join(out)) + "\n"


def badges(item: Clause) -> str:
    """Status, kind and features of a clause in one line of HTML."""
    parts = [
        _badge(item.status, f"status-{item.status}", "status"),
        _badge(item.kind, f"kind-{item.kind}", "kind"),
        *(_feature(name) for name in item.features),
    ]
    line = f'<p class="badges">{" ".join(parts)}</p>'
    if item.reason:
        line += f'\n<p class="reason">Not checked: {escape(item.reason)}.</p>'
    return line


def _badge(text: str, kind: str, meaning: str) -> str:
    return f'<span class="badge {kind}" title="{meaning}: {text}">{escape(text)}</span>'


def _feature(name: str) -> str:
    address = f"../guide/adapter.html#{tables.anchor(name)}"
    link = f'<a href="{address}">{escape(name)}</a>'
    return f'<span class="badge feature" title="needs the feature {escape(name)}">{link}</span>'


def trace(item: Clause) -> list[str]:
    """What belongs to a clause, as a definition list."""
    rows = [
        ("Defined by", [f"[`{name}`][{name}]" for name in DEFINITIONS.get(item.id, [])]),
        ("Judged by", [f"[`{c.name}`][{c.module}.{c.name}]" for c in registry.checks_of(item.id)]),
        ("Catches", [registry.mutant_link(m, "../checks/") for m in registry.mutants_of(item.id)]),
        ("Violated by", [f"[{text}](../{place})" for text, place in findings.places(item.id)]),
    ]
    shown = [(name, links) for name, links in rows if links]
    if not shown:
        return []
    lines = ['<div class="trace" markdown>', ""]
    for name, links in shown:
        lines += [name, f":   {', '.join(links)}", ""]
    return [*lines, "</div>"]


def fenced(text: str) -> str:
    """Markdown whose doctests are code blocks."""
    out: list[str] = []
    inside = False
    for line in text.split("\n"):
        if not inside and line.startswith(">>> "):
            out.append("```pycon")
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line)
    return "\n".join([*out, "```"] if inside else out)


def clauses() -> str:
    """Every clause by chapter."""
    out = []
    for path in chapter_files():
        out += [f"## [{chapter_title(path)}]({path.name})", ""]
        out += _rows(item for item in all_clauses().values() if item.chapter == path.stem)
        out.append("")
    return "\n".join(out)


def _rows(items: Iterable[Clause]) -> list[str]:
    return [
        "| clause | about | status | kind |",
        "|-|-|-|-|",
        *(
            f"| [{item.id}]({item.chapter}.md#{item.id}) | {_cell(item.title)} | {item.status} | {item.kind} |"
            for item in items
        ),
    ]


def _cell(text: str) -> str:
    return re.sub(r"\|", r"\\|", text)
