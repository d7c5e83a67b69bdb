"""Whether pages of a built site can be read without seeing them: headings in order, words for pictures and columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

_ARTICLE = re.compile(r"<article\b.*?</article>", re.DOTALL)
_HEADING = re.compile(r"<h([1-6])\b")
_IMAGE = re.compile(r"<img\b[^>]*>")
_ALT = re.compile(r" alt=\"[^\"]+\"")
_EMPTY_HEAD = re.compile(r"<th\b[^>]*>\s*</th>")
_PICTURE = re.compile(r"<svg\b[^>]*role=\"img\"[^>]*>(?!<title>)")


def problems(site: Path) -> Iterator[str]:
    """What is wrong on the pages of the theme, as text with the page; pages of other kinds are left out."""
    for path in sorted(site.rglob("*.html")):
        found = _ARTICLE.search(path.read_text(encoding="utf-8"))
        if found is not None and path.name != "404.html":
            for wrong in _of_page(found[0]):
                yield f"{path.relative_to(site)}: {wrong}"


def _of_page(text: str) -> Iterator[str]:
    levels = [int(level) for level in _HEADING.findall(text)]
    if levels[:1] != [1] or levels.count(1) != 1:
        yield "must begin with its only heading of the first level"
    for before, after in itertools.pairwise(levels):
        if after > before + 1:
            yield f"a heading of level {after} follows one of level {before}"
    for image in _IMAGE.findall(text):
        if not _ALT.search(image):
            yield f"no words for {image}"
    for _ in _PICTURE.findall(text):
        yield "no words for a drawing"
    for _ in _EMPTY_HEAD.findall(text):
        yield "a column without a name"
