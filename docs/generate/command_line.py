"""The command line as a page: the help of every command, as its parser prints it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from conformance.commands.cli import build_parser
from docs.generate.console import WIDTH


def page() -> str:
    """The help of all commands, a section each."""
    with _width():
        parser = build_parser()
        out = ["```text", parser.format_help().rstrip(), "```", ""]
        for name, command in commands(parser).items():
            out += [f"## {name}", "", "```text", command.format_help().rstrip(), "```", ""]
    return "\n".join(out)


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands by name."""
    (choices,) = (
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(choices)


@contextmanager
def _width() -> Iterator[None]:
    """Help pages of one width, whatever the terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
