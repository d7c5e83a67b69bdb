"""The command line: ``splash-conformance COMMAND``, one module of `conformance.commands` each."""

from __future__ import annotations

import argparse
import io
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from conformance.shipped import SHIPPED
from conformance.suggest import did_you_mean

#: Modules of `conformance.commands`, in the order of the help page.
COMMANDS = (
    "run", "compare", "report", "explain", "fuzz_mask", "list", "smoke", "replay", "minimise", "merge", "mutants",
    "completion",
)  # fmt: skip

DETAILS = """\
IMPL is a shipped adapter ({shipped}), package.module:attribute or path/to/file.py:attribute.
exit codes: 0 conforms, 1 violation, 2 harness or adapter error, 3 stale expectation
"""


class Parser(argparse.ArgumentParser):
    """Argument errors in a line, with what may have been meant, and exit code 2.

    Attributes:
      commands: the parsers of the commands, by name.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.commands: dict[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        """Prints the error and where help is."""
        found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if found:
            message += did_you_mean(found[1], re.findall(r"[^\s',]+", found[2]))
        self.exit(2, f"{self.prog}: {message}\ntry: {self.prog} --help\n")

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """`parse_args`, but unknown options are the error of the command that does not have them."""
        found, unknown = self.parse_known_args(arguments)
        if unknown:
            parser = self.commands[found.command]
            options = [word.split("=")[0] for word in unknown if word.startswith("-")]
            known = [name for action in parser._actions for name in action.option_strings]
            hint = did_you_mean(options[0], known) if options else ""
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found


class Version(argparse.Action):
    """Prints the version; looks it up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *arguments: Any) -> None:
        from importlib import metadata

        del arguments
        print(f"splash-conformance {metadata.version('splash-conformance')}")
        parser.exit()


def build_parser() -> Parser:
    """The parser of the whole command line."""
    details = DETAILS.format(shipped=", ".join(SHIPPED))
    modules = {name: import_module(f"conformance.commands.{name}") for name in COMMANDS}
    examples = "".join(module.EXAMPLES.split("\n")[0] + "\n" for module in modules.values())
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="splash-conformance",
        description="Judges splash attention implementations against the specification.",
        epilog=f"examples, more in the help of every command:\n{examples}\n{details}",
        formatter_class=raw,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in modules.items():
        command = commands.add_parser(
            name.replace("_", "-"),
            help=module.HELP,
            epilog=f"examples:\n{module.EXAMPLES}\n{details}",
            formatter_class=raw,
        )
        module.configure(command)
        command.set_defaults(action=module.execute)
        parser.commands[name.replace("_", "-")] = command
    return parser


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends what is done inside as Ctrl-C does: with a report, and without leaving files behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command ``splash-conformance``; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A character that a terminal or a pipe cannot show becomes "?": no verdict hangs on the locale.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    arguments = build_parser().parse(argv)
    try:
        with terminable():
            code: int = arguments.action(arguments)
    except KeyboardInterrupt:
        print("splash-conformance: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
