"""Markdown extension: ids of clauses in running text, also of docstrings, become links to their clauses."""

from __future__ import annotations

import re
import xml.etree.ElementTree as etree

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

from docs.generate.registry import CLAUSE_ID
from spec import all_clauses


class _ClauseProcessor(InlineProcessor):
    """Leaves links and headings as they are; code is taken out of the text before."""

    ANCESTOR_EXCLUDES = ("a", "autoref", "h1", "h2", "h3", "h4", "h5", "h6")

    def handleMatch(  # type: ignore[override]
        self, m: re.Match[str], data: str
    ) -> tuple[etree.Element | None, int | None, int | None]:
        if m[0] not in all_clauses():
            return None, None, None
        link = etree.Element("autoref", {"identifier": m[0], "class": "clause-link"})
        link.text = m[0]
        return link, m.start(), m.end()


class ClauseLinks(Extension):
    """Links the ids of clauses."""

    def extendMarkdown(self, md: Markdown) -> None:
        # After links and code, which have priorities above 100.
        md.inlinePatterns.register(_ClauseProcessor(CLAUSE_ID, md), "clause", 65)
