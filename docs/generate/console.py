"""Pages that are run: their files are written, their commands executed, and what is printed goes onto the page.

Three kinds of code blocks are special::

    ```python file=my_kernel.py            the file, as shown
    ```python edit=my_kernel.py            functions that take the place of those of the same name
    ```console run exit=1 shows=FWD-1      lines "$ command"; the last one ends with this exit code, and prints that

``first=16 last=20`` shows that many lines of the beginning and of the end of an output; ``keep=report.html`` puts
a file that the commands have written beside the page. All blocks of a page share a folder. A page whose commands do
not do what it says cannot be built.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds a command may take.
PATIENCE = 300
#: Columns of the terminal: what fits on a page.
WIDTH = "88"

_BLOCK = re.compile(r"^```(python|console) ((?:file|edit|run)\b[^\n]*)\n(.*?)^```$", re.M | re.S)


class PageError(Exception):
    """A page shows what is not so; the message names the block."""


def executed(markdown: str) -> tuple[str, dict[str, str]]:
    """A page with its files and with what its commands print, and the files that are kept, by name.

    Raises:
      PageError: a command ends with another exit code or does not print what the page says, or an edit fits nothing.
    """
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        _make_tools(home / "bin")
        work = home / "work"
        work.mkdir()

        def run(match: re.Match[str]) -> str:
            options = _options(match[2])
            if match[1] == "console":
                shown = _transcript(match[3], options, work)
                if "keep" in options:
                    files[options["keep"]] = (work / options["keep"]).read_text(encoding="utf-8")
                return f"```console\n{shown}\n```"
            name = options.get("file") or options["edit"]
            if "file" in options:
                (work / name).write_text(match[3], encoding="utf-8")
                return f'```python title="{name}"\n{match[3]}```'
            source = (work / name).read_text(encoding="utf-8")
            (work / name).write_text(edited(source, match[3]), encoding="utf-8")
            return f'```python title="{name}, changed"\n{match[3]}```'

        return _BLOCK.sub(run, markdown), files


def kept(markdown: str) -> list[str]:
    """The files that the commands of a page leave beside it."""
    return re.findall(r"^```console run[^\n]* keep=(\S+)", markdown, re.M)


def edited(source: str, changed: str) -> str:
    """A module in which the functions of another text take the place of those of the same name.

    Raises:
      PageError: it has no such function.
    """
    lines = source.split("\n")
    for node in ast.parse(changed).body:
        places = [n for n in ast.parse("\n".join(lines)).body if _name(n) == _name(node)]
        if len(places) != 1 or not _name(node):
            raise PageError(f"nothing to change: {ast.unparse(node)[:60]}")
        text = changed.split("\n")[node.lineno - 1 : node.end_lineno]
        lines[places[0].lineno - 1 : places[0].end_lineno] = text
    return "\n".join(lines)


def _name(node: ast.stmt) -> str:
    return str(getattr(node, "name", ""))


def _options(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in shlex.split(text)]
    return {name: value for name, _, value in pairs}


def _make_tools(folder: Path) -> None:
    """The commands that pages use, of this interpreter and these sources."""
    folder.mkdir()
    for name, start in {"splash-conformance": "-m conformance.commands.cli", "python": ""}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {start} "$@"\n')
        script.chmod(0o755)


def _transcript(block: str, options: Mapping[str, str], work: Path) -> str:
    lines = [line for line in block.split("\n") if line.strip()]
    out = []
    for place, line in enumerate(lines, start=1):
        if not line.startswith("$ "):
            raise PageError(f"a command begins with '$ ', got {line!r}")
        code, text = _run(line[2:], work)
        expected = int(options.get("exit", 0)) if place == len(lines) else 0
        if code != expected:
            raise PageError(f"{line}: ends with {code}, not {expected}:\n{text}")
        if place == len(lines) and options.get("shows", "") not in text:
            raise PageError(f"{line}: does not print {options['shows']!r}:\n{text}")
        out += [line, *_shortened(text.split("\n"), options)]
    return "\n".join(out).rstrip()


def _run(command: str, work: Path) -> tuple[int, str]:
    environment = dict(
        os.environ,
        # A file that is edited within a second would be taken from its compiled form.
        PYTHONDONTWRITEBYTECODE="1",
        # What is printed appears in its order, as in a terminal.
        PYTHONUNBUFFERED="1",
        PATH=f"{work.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
        PYTHONPATH=str(ROOT),
        COLUMNS=WIDTH,
        NO_COLOR="1",
    )
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    text = done.stdout
    for folder in (work, ROOT, Path(sys.prefix)):
        text = text.replace(f"{folder}{os.sep}", "")
    return done.returncode, "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def _shortened(lines: list[str], options: Mapping[str, str]) -> list[str]:
    first, last = int(options.get("first", 0)), int(options.get("last", 0))
    if not first + last or len(lines) <= first + last + 1:
        return lines
    return [*lines[:first], "⋮", *lines[len(lines) - last :]]
