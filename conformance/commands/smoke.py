"""``smoke``: call everything that an adapter declares once."""

from __future__ import annotations

import argparse

from conformance.commands.common import fail
from conformance.contract.protocol import AdapterError
from conformance.contract.remote.where import Where, add_options
from conformance.contract.smoke import profiles_of, smoke

EXAMPLES = """\
  splash-conformance smoke ./adapter.py:Mine
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("impl", metavar="IMPL")
    add_options(parser.add_argument)


def execute(arguments: argparse.Namespace) -> int:
    """``smoke``: call everything that is declared once."""

    try:
        adapter = Where.of(arguments).open(arguments.impl)
    except AdapterError as error:
        return fail(str(error))
    description, steps = smoke(adapter)
    if description is not None:
        print(f"{description.name} {description.version}")
        print(f"features: {', '.join(sorted(description.features))}")
        print(f"profiles: {', '.join(profiles_of(description)) or 'none is complete'}")
    for step in steps:
        print(f"  {'ok  ' if not step.error else 'FAIL'} {step.name}")
        if step.error:
            print("       " + (step.trace or step.error).rstrip().replace("\n", "\n       "))
    return 2 if any(step.error for step in steps) else 0
