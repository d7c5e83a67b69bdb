"""Pages in a real headless Chromium, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str:
    """The installed browser; without one the test is skipped."""
    given = os.environ.get("SPLASH_CONFORMANCE_CHROMIUM")
    found = given or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on the path; SPLASH_CONFORMANCE_CHROMIUM may name one")
    return found


@contextmanager
def started() -> Iterator[Any]:
    """A browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = executable()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, file: Path, **context: Any) -> Iterator[Any]:
    """A page that must neither complain nor ask for anything but itself.

    Args:
      browser: from `started`.
      file: the page.
      context: options of the browser context, e.g. ``color_scheme``.
    """
    made = browser.new_context(offline=True, **context)
    page = made.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    yield page
    made.close()
    assert said == []
    assert [url for url in asked if url != file.as_uri() and not url.startswith("data:")] == []
