"""``replay``: run one saved problem again."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands.common import fail
from conformance.contract.protocol import AdapterError
from conformance.contract.remote.errors import NotTried
from conformance.contract.remote.where import Where, add_options
from conformance.contract.smoke import ready
from conformance.findings.printed import finding_text
from conformance.search import replay

EXAMPLES = """\
  splash-conformance replay FILE ./adapter.py:Mine
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a file of the failures folder")
    parser.add_argument("impl", metavar="IMPL")
    add_options(parser.add_argument)


def execute(arguments: argparse.Namespace) -> int:
    """``replay``: run one saved problem again."""

    try:
        finding = replay.read(arguments.file)
        where = Where.of(arguments)
        _, subject = ready(arguments.impl, where)
    except (replay.ReplayError, AdapterError) as error:
        return fail(str(error))
    reason = replay.not_applicable(finding, subject)
    if reason:
        return fail(f"{arguments.impl!r} {reason}, so {finding.check} says nothing about it")
    try:
        again = replay.run(finding, subject)
    except NotTried as refusal:
        return fail(
            f"{arguments.impl!r} was not tried ({refusal}), so {finding.check} says nothing about it"
        )
    name = f"{subject.description.name} {subject.description.version}"
    if again is None:
        print(f"{name}: {finding.clause} holds on this problem ({finding.check})")
        return 0
    print(finding_text(again, arguments.impl, str(arguments.file), str(where)))
    print(f"\n{name}: still so")
    return 0 if again.kind == "quality" else 1
