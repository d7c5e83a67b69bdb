"""The command line: ``splash-conformance COMMAND``, one module of `conformance.commands` each."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import NoReturn

from conformance.shipped import SHIPPED

#: Modules of `conformance.commands`, in the order of the help page.
COMMANDS = ("run", "compare", "report", "list", "smoke", "replay", "merge", "explain")

DETAILS = """\
IMPL is a shipped adapter ({shipped}), package.module:attribute or path/to/file.py:attribute.
exit codes: 0 conforms, 1 violation, 2 harness or adapter error, 3 stale expectation
"""


class Parser(argparse.ArgumentParser):
    """Argument errors in one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and where help is."""
        self.exit(2, f"{self.prog}: {message}\ntry: {self.prog} --help\n")


def build_parser() -> Parser:
    """The parser of the whole command line."""
    details = DETAILS.format(shipped=", ".join(SHIPPED))
    modules = {name: import_module(f"conformance.commands.{name}") for name in COMMANDS}
    examples = "".join(module.EXAMPLES for module in modules.values())
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="splash-conformance",
        description="Judges splash attention implementations against the specification.",
        epilog=f"examples:\n{examples}\n{details}",
        formatter_class=raw,
    )
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
    arguments = build_parser().parse_args(argv)
    try:
        with terminable():
            code: int = arguments.action(arguments)
    except KeyboardInterrupt:
        print("splash-conformance: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
