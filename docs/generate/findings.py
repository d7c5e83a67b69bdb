"""Findings in released libraries as pages: from the expectations and the replay files in ``docs/findings``."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from conformance.checks.registry import CHECKS
from conformance.findings.finding import Finding
from conformance.findings.pictures import block_map
from conformance.findings.printed import problem_facts
from conformance.problems.problem import Problem
from conformance.reports.html.blocks import block_pictures, mask_pictures
from conformance.search import known_deviations as expectation
from conformance.search import replay
from conformance.search.known_deviations import Deviation

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "findings"
EXPECTATIONS = ROOT / "conformance" / "expectations"
#: Where the libraries are found in their packages.
LIBRARIES = {
    "jax": "jax.experimental.pallas.ops.tpu.splash_attention",
    "tokamax": "tokamax._src.ops.experimental.tpu.splash_attention",
}


def deviations(library: str) -> list[Deviation]:
    """The known deviations of a library, in the order of their file."""
    return expectation.parse(EXPECTATIONS / f"{library}.toml")


def file_of(library: str, item: Deviation) -> Path:
    """The replay file of a deviation."""
    return FOLDER / f"{library}-{item.id}.json"


def found(library: str, item: Deviation) -> Finding:
    """What was recorded of a deviation.

    Raises:
      ReplayError: it was not, or the file cannot be used.
    """
    return replay.read(file_of(library, item))


def title(item: Deviation) -> str:
    """A heading."""
    return item.id.replace("-", " ").capitalize()


def page(library: str) -> str:
    """All findings in a library: a table, and a section each."""
    items = deviations(library)
    out = ["| finding | clauses | what happens |", "|-|-|-|"]
    for item in items:
        link = f"[{title(item)}](#{item.id})"
        out.append(f"| {link} | {clauses(item)} | {_named(_cell(item.reason))} |")
    for item in items:
        out += ["", *section(library, item)]
    return "\n".join(out)


def clauses(item: Deviation) -> str:
    """The clauses that a deviation is about."""
    return "any" if "*" in item.clauses else ", ".join(item.clauses)


def sentence(reason: str) -> str:
    """A reason as the beginning of a paragraph; names of the code stay as they are."""
    first = reason.split(" ", 1)[0]
    text = reason if "_" in first else f"{reason[0].upper()}{reason[1:]}"
    return _named(text)


def _named(text: str) -> str:
    return re.sub(r"\b[A-Za-z]\w*_\w+(?:=\w+)?\b", r"`\g<0>`", text)


def places(clause_id: str) -> list[tuple[str, str]]:
    """Known deviations from a clause: what they were seen in, and where they are described."""
    return [
        (f"{library} {item.versions[1]}: {title(item).lower()}", f"findings/{library}.md#{item.id}")
        for library in LIBRARIES
        for item in deviations(library)
        if clause_id in item.clauses
    ]


def section(library: str, item: Deviation) -> list[str]:
    """One finding: problem, expected, actual, and how to see it."""
    finding = found(library, item)
    problem = finding.problem
    first, last = item.versions
    seen = f"{library} {first}" if first == last else f"{library} {first} to {last}"
    command = f"splash-conformance replay {file_of(library, item).relative_to(ROOT)} {library}"
    rows = {
        "Seen in": seen,
        "Judged by": f"{finding.clause}, [`{finding.check}`][{_path(finding.check)}]",
        "Problem": "<br>".join(_code(line) for line in problem_facts(problem)),
        "Where": _code(finding.where),
        "Expected": _code(finding.expected),
        "Actual": _code(finding.actual),
    }
    return [
        f"## {title(item)} {{ #{item.id} }}",
        "",
        f"{sentence(item.reason)}.",
        "",
        pictures(problem),
        "",
        '<div class="facts" markdown>',
        "",
        *(f"{name}\n:   {value}\n" for name, value in rows.items()),
        "</div>",
        "",
        "```sh",
        command,
        "```",
    ]


def pictures(problem: Problem) -> str:
    """The blocks of a problem and its mask, as SVG."""
    blocks = block_map(problem)
    shown = block_pictures(blocks) + mask_pictures(blocks)
    figures = (
        f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, picture in shown
    )
    return f'<div class="pictures">{"".join(figures)}</div>'


def _path(check: str) -> str:
    return f"{CHECKS[check].module}.{check}"


def _code(text: str) -> str:
    return f"<code>{escape(' '.join(text.split()))}</code>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
