"""``list``: clauses with their checks."""

from __future__ import annotations

import argparse

from conformance import checks
from conformance.checks.registry import CHECKS
from conformance.commands.common import fail
from conformance.contract.suggest import did_you_mean
from spec import all_clauses

EXAMPLES = """\
  splash-conformance list shrink                  those with this word
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("words", nargs="*", metavar="WORD", help="only clauses with these words")


def execute(arguments: argparse.Namespace) -> int:
    """``list``: clauses with their checks."""

    checks.load_all()
    by_clause: dict[str, list[str]] = {}
    for check in CHECKS.values():
        by_clause.setdefault(check.clause_id, []).append(check.name)
    words, found = [word.lower() for word in arguments.words], 0
    for item in all_clauses().values():
        names = ", ".join(by_clause.get(item.id, [])) or "—"
        line = f"{item.id:<12} {item.status:<22} {item.kind:<11} {item.title}  [{names}]"
        if all(word in line.lower() for word in words):
            print(line)
            found += 1
    if not found:
        hint = did_you_mean(arguments.words[0], [*by_clause, *CHECKS])
        return fail(f"no clause has the words {' '.join(arguments.words)!r}{hint}")
    return 0
