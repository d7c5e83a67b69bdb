"""Pictures of the pages for the documentation, from a real browser.

``python -m docs.generate.screenshots report.html#violation-1 docs/pages/assets/report.png`` takes one; it needs
playwright and an installed Chromium.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

WIDTH, HEIGHT = 1100, 760


def take(page: str, target: Path, *, height: int, scheme: Literal["light", "dark"]) -> None:
    """Writes a picture of a page.

    Args:
      page: its file, with ``#anchor`` for what is at the top of the picture.
      target: a PNG file.
      height: of the picture, in pixels.
      scheme: ``light`` or ``dark``.
    """
    from playwright.sync_api import sync_playwright

    file, _, anchor = page.partition("#")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        context = browser.new_context(
            viewport={"width": WIDTH, "height": height}, color_scheme=scheme, offline=True
        )
        shown = context.new_page()
        shown.goto(Path(file).resolve().as_uri() + (f"#{anchor}" if anchor else ""))
        shown.screenshot(path=target)
        browser.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Takes one picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page")
    parser.add_argument("target", type=Path)
    parser.add_argument("--height", type=int, default=HEIGHT)
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args(argv)
    scheme: Literal["light", "dark"] = "dark" if arguments.dark else "light"
    take(arguments.page, arguments.target, height=arguments.height, scheme=scheme)


if __name__ == "__main__":
    main()
