"""Pages from templates; a page is one file that holds everything it needs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from conformance.reports.html.charts import bin_names, class_of, status_bar
from conformance.reports.summary import MEANINGS, STATUSES, plural

#: Templates that pages share, and those of the report of a run. Rooms that make other pages have a folder of their own.
FOLDER = Path(__file__).with_name("templates")


@functools.cache
def _templates(folder: Path) -> jinja2.Environment:
    """The templates of a folder, and those that pages share."""
    loader = jinja2.FileSystemLoader([folder, FOLDER])
    made = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def inline(name: str) -> Markup:
        """A style sheet or a script of our own, as it stands."""
        return Markup(loader.get_source(made, name)[0])

    made.filters["prose"] = prose
    made.globals.update(
        status_bar=status_bar,
        class_of=class_of,
        bin_names=bin_names,
        plural=plural,
        statuses=STATUSES,
        meanings=MEANINGS,
        inline=inline,
        min=min,
    )
    return made


def prose(text: str) -> Markup:
    """Words with ``code`` in backticks."""
    parts = [
        Markup("<code>{}</code>").format(part) if n % 2 else Markup("{}").format(part)
        for n, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


def render(template: Path, **values: Any) -> str:
    """A page.

    Args:
      template: its file.
      values: what it shows.
    """
    return _templates(template.parent).get_template(template.name).render(**values)
