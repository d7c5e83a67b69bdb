"""The command line: ``splash-conformance COMMAND``. Imports the module of that command, and no other."""

from __future__ import annotations

import argparse
import io
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from types import FrameType
from typing import Any, NoReturn

from conformance.commands import COMMANDS
from conformance.contract.shipped import SHIPPED
from conformance.contract.suggest import did_you_mean

DETAILS = f"""\
IMPL is a shipped adapter ({", ".join(SHIPPED)}), package.module:attribute or path/to/file.py:attribute.
exit codes: 0 conforms, 1 violation, 2 harness or adapter error, 3 stale expectation
"""


class Parser(argparse.ArgumentParser):
    """Reports an argument error in one line, suggests what may have been meant, and ends with code 2.

    Attributes:
      commands: the parsers of the commands, by name.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        self.commands: dict[str, CommandParser] = {}

    def error(self, message: str) -> NoReturn:
        """Prints the error and where help is."""
        found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if found:
            message += did_you_mean(found[1], re.findall(r"[^\s',]+", found[2]))
        self.exit(2, f"{self.prog}: {message}\ntry: {self.prog} --help\n")

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Like `parse_args`, but the parser of the command reports options that it does not know."""
        found, unknown = self.parse_known_args(arguments)
        if unknown:
            parser = self.commands[found.command]
            options = [word.split("=")[0] for word in unknown if word.startswith("-")]
            known = [name for action in parser._actions for name in action.option_strings]
            hint = did_you_mean(options[0], known) if options else ""
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found


class CommandParser(Parser):
    """The parser of one command; imports its module when it is used.

    Args:
      command: a name in `COMMANDS`.
      keywords: as for `argparse.ArgumentParser`.
    """

    def __init__(self, *, command: str, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.command = command
        self.configured = False

    def configure(self) -> None:
        """Imports the module of the command and lets it declare its options."""
        if self.configured:
            return
        self.configured = True
        module = import_module(f"conformance.commands.{self.command.replace('-', '_')}")
        examples = f"  {COMMANDS[self.command].example}\n{module.EXAMPLES}"
        self.epilog = f"examples:\n{examples}\n{DETAILS}"
        module.configure(self)
        self.set_defaults(action=module.execute)

    def parse_known_args(self, *arguments: Any, **keywords: Any) -> Any:
        """As in the base class, with the options of the command."""
        self.configure()
        return super().parse_known_args(*arguments, **keywords)

    def format_help(self) -> str:
        """As in the base class, with the options of the command."""
        self.configure()
        return super().format_help()


class Version(argparse.Action):
    """Prints the version; looks it up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *arguments: Any) -> None:
        del arguments
        print(f"splash-conformance {metadata.version('splash-conformance')}")
        parser.exit()


def build_parser() -> Parser:
    """The parser of the whole command line."""
    examples = "".join(f"  {command.example}\n" for command in COMMANDS.values())
    parser = Parser(
        prog="splash-conformance",
        description="Judges splash attention implementations against the specification.",
        epilog=f"examples, more in the help of every command:\n{examples}\n{DETAILS}",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    for name, command in COMMANDS.items():
        parser.commands[name] = commands.add_parser(name, command=name, help=command.help)
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
