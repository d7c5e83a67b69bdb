"""Pages from templates; everything that a page needs is inside it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from conformance.reports.html.charts import bin_names, class_of, status_bar
from conformance.reports.summary import MEANINGS, STATUSES, plural

FOLDER = Path(__file__).with_name("templates")


@functools.cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["prose"] = prose
    made.globals.update(
        status_bar=status_bar,
        class_of=class_of,
        bin_names=bin_names,
        plural=plural,
        statuses=STATUSES,
        meanings=MEANINGS,
        inline=_inline,
        min=min,
    )
    return made


def _inline(name: str) -> Markup:
    """A style sheet or a script of our own, as it stands."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


def prose(text: str) -> Markup:
    """Words with ``code`` in backticks."""
    parts = [
        Markup("<code>{}</code>").format(part) if n % 2 else Markup("{}").format(part)
        for n, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


def render(template: str, **values: Any) -> str:
    """A page.

    Args:
      template: its file in the folder of templates.
      values: what it shows.
    """
    return _templates().get_template(template).render(**values)
