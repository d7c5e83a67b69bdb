"""``completion``: what a shell needs to complete the command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import shtab

from conformance.commands.cli import build_parser
from conformance.contract.shipped import SHIPPED
from spec import all_clauses

EXAMPLES = """\
  splash-conformance completion zsh > ~/.zfunc/_splash-conformance
  splash-conformance completion fish > ~/.config/fish/completions/splash-conformance.fish
"""

SHELLS = ("bash", "zsh", "fish")

#: Implementations are shipped names, or files that hold an adapter or a report.
FUNCTION = "_splash_conformance_impl"
BASH = f"""
{FUNCTION}() {{
  compgen -W "{" ".join(SHIPPED)}" -- "$1"
  compgen -f -X '!*.py' -- "$1"
  compgen -f -X '!*.json' -- "$1"
  compgen -d -- "$1"
}}
"""
ZSH = f"""
{FUNCTION}() {{
  _alternative 'names:implementation:({" ".join(SHIPPED)})' 'files:file:_files -g "*.(py|json)"'
}}
"""
FISH = f"""
function {FUNCTION}
  string join \\n {" ".join(SHIPPED)}
  __fish_complete_path (commandline -ct)
end
"""
IMPLEMENTATION = {
    "bash": FUNCTION,
    "zsh": FUNCTION,
    "fish": f"({FUNCTION})",
    "preamble": {"bash": BASH, "zsh": ZSH, "fish": FISH},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("shell", choices=SHELLS)


def execute(arguments: argparse.Namespace) -> int:
    """``completion``: prints the script of a shell."""

    parser = build_parser()
    for command in parser.commands.values():
        command.configure()
        for action in command._actions:
            _describe(action)
    print(shtab.complete(parser, arguments.shell))
    return 0


def _describe(action: Any) -> None:
    """Says what an argument may be, where `argparse` does not know."""
    if action.metavar == "ID":
        action.choices = [item.id for item in all_clauses().values() if item.is_checkable]
    elif action.metavar == "IMPL":
        action.complete = IMPLEMENTATION
    elif action.metavar == "DIR":
        action.complete = shtab.DIRECTORY
    elif action.type is Path or action.metavar == "PATH":
        action.complete = shtab.FILE
