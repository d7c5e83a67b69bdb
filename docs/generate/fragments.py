"""Generated parts of pages that people write: ``<!-- generated: NAME -->`` stands where one goes."""

from __future__ import annotations

import re
from collections.abc import Callable

from docs.generate import api, chapters, checks

#: What makes a part, by name.
FRAGMENTS: dict[str, Callable[[], str]] = {
    "clauses": chapters.tables,
    "modules": api.modules,
    "mutants": checks.mutants,
    "traceability": checks.traceability,
}

_PLACE = re.compile(r"<!-- generated: ([\w-]+) -->")


def filled(markdown: str) -> str:
    """A page with its generated parts.

    Raises:
      KeyError: a part that nothing makes.
    """
    return _PLACE.sub(lambda match: FRAGMENTS[match[1]](), markdown)
