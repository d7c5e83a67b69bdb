"""What MkDocs calls: adds the generated pages and their place in the navigation."""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.plugins import event_priority  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

from docs.generate import api, chapters, checks, console, fragments, links, readable  # noqa: E402
from docs.generate.clause_links import ClauseLinks  # noqa: E402
from spec.clauses import chapter_files  # noqa: E402

#: Warnings of this logger count in a strict build.
_log = logging.getLogger("mkdocs.hooks")


def generated() -> dict[str, str]:
    """Markdown of every generated page by its path."""
    pages = {f"{chapters.FOLDER}/{path.name}": chapters.page(path) for path in chapter_files()}
    return pages | api.pages() | checks.pages()


def navigation() -> dict[str, list[Any]]:
    """Generated pages of the sections of ``mkdocs.yml``, which they follow there."""
    return {
        "Specification": list(chapters.paths()),
        "API": api.navigation(),
        "Checks": list(checks.pages()),
    }


@event_priority(100)  # before mkdocstrings copies the Markdown extensions
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the navigation and adds links to clauses."""
    sections = navigation()
    for item in config.nav or []:
        for title in item:
            item[title] += sections.get(title, "")
    config.markdown_extensions.append(ClauseLinks())  # type: ignore[arg-type]
    return config


def completed(file: File, config: MkDocsConfig) -> tuple[str, dict[str, str]]:
    """A page that people write, with its generated parts and what its commands print, and the files that they keep.

    Raises:
      PluginError: a command does not do what the page says.
    """
    markdown = fragments.filled(file.content_string)
    if not config.extra["run_commands"]:
        return markdown, dict.fromkeys(console.kept(markdown), "not written: commands were not run")
    try:
        return console.executed(markdown)
    except console.PageError as error:
        raise PluginError(f"{file.src_uri}: {error}") from error


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, completes those that people write, and runs what they want to have run."""
    written = list(files.documentation_pages())
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        made = list(pool.map(lambda file: completed(file, config), written))
    for file, (markdown, kept) in zip(written, made, strict=True):
        files.remove(file)
        files.append(File.generated(config, file.src_uri, content=markdown))
        folder = file.src_uri.rpartition("/")[0]
        for name, content in kept.items():
            files.append(File.generated(config, f"{folder}/{name}", content=content))
    for path, content in generated().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Checks all pages; those that are opened from a folder may not fetch JSON and get the index as a script."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
    site = Path(config.site_dir).resolve()
    for problem in (*links.problems(site), *readable.problems(site)):
        _log.warning(problem)
