"""Links of a built site: every one leads to a page and a place that exist, and nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Written by the theme with addresses from the root of a server.
LEFT_OUT = ("404.html",)

_LINK = re.compile(r"<(\w+)[^<>]*? (?:href|src)=\"?([^\"\s>]+)")
_ID = re.compile(r" (?:id|name)=\"?([^\"\s>]+)")
#: Elements whose address is loaded with the page.
_LOADED = ("link", "script", "img", "iframe", "source")


def problems(site: Path) -> Iterator[str]:
    """What is wrong with the links of a folder of HTML files, as text with the page."""
    pages = {
        path: path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
        if path.name not in LEFT_OUT
    }
    places = {path: set(map(unescape, _ID.findall(text))) for path, text in pages.items()}
    for path, text in pages.items():
        for tag, address in set(_LINK.findall(text)):
            wrong = _wrong(path, tag, unescape(address), places)
            if wrong:
                yield f"{path.relative_to(site)}: {address}: {wrong}"


def _wrong(page: Path, tag: str, address: str, places: dict[Path, set[str]]) -> str:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        return "is loaded from elsewhere" if tag in _LOADED else ""
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    place = unquote(parts.fragment)
    if place and target in places and place not in places[target]:
        return "no such place on that page"
    return ""
