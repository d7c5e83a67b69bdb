"""The commands of ``splash-conformance``, one module each.

In here: the table of commands, and for every command a module of the same name with ``configure(parser)``, which
declares its options, ``EXAMPLES``, the further examples of its help page, and ``execute(arguments)``, which returns the
exit code. `conformance.commands.cli` imports the module of the command that was asked for, and no other. Comes in:
the words of the command line. Goes out: text, files and an exit code. No other room imports this one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """What is known about a command without importing its module.

    Attributes:
      help: one line.
      example: the first example of its help page, which stands on the main help page too.
    """

    help: str
    example: str


#: By name, in the order of the help page.
COMMANDS: dict[str, Command] = {
    "run": Command(
        "run the checks against an implementation",
        "splash-conformance run jax                      judge the installed jax",
    ),
    "compare": Command(
        "judge several implementations and show where they differ",
        "splash-conformance compare jax tokamax pallas_impl",
    ),
    "report": Command(
        "show the report of an earlier run, or turn it into a page",
        "splash-conformance report report.json           in the terminal",
    ),
    "explain": Command(
        "predict what a mask costs: blocks, fetches, memory",
        "splash-conformance explain causal --seq 8192",
    ),
    "fuzz-mask": Command(
        "judge a mask class of your own",
        "splash-conformance fuzz-mask masks.py:DocumentMask",
    ),
    "list": Command(
        "list clauses and their checks",
        "splash-conformance list                         every clause and its check",
    ),
    "smoke": Command(
        "call everything that an adapter declares once",
        "splash-conformance smoke jax",
    ),
    "replay": Command(
        "run one saved problem again",
        "splash-conformance replay splash-conformance-failures/LABEL-1-….json jax",
    ),
    "minimise": Command(
        "shrink a saved problem further, and print a script for a bug report",
        "splash-conformance minimise splash-conformance-failures/BWD-14-….json jax > report.py",
    ),
    "merge": Command(
        "merge the reports of all shards of a run",
        "splash-conformance merge shard-*.json --json report.json --junit report.xml",
    ),
    "mutants": Command(
        "run deliberately wrong implementations: every check must notice its own",
        "splash-conformance mutants",
    ),
    "completion": Command(
        "print the completion script of a shell",
        "splash-conformance completion bash > ~/.local/share/bash-completion/completions/splash-conformance",
    ),
}
