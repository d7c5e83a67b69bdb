"""``fuzz-mask``: judge a mask class of somebody else."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from conformance.commands.common import add_output_options, check_targets, detail_of, fail
from conformance.contract.load import Loader, LoadError
from conformance.contract.protocol import AdapterError
from conformance.contract.remote.where import Where
from conformance.contract.shipped import DEFAULT_IMPL
from conformance.contract.smoke import ready
from conformance.fuzz_mask.arguments.source import Source
from conformance.fuzz_mask.class_checks import OracleError
from conformance.fuzz_mask.outcome import FuzzRun
from conformance.fuzz_mask.run import EFFORTS, STAGES, Fuzzing
from conformance.fuzz_mask.show import print_run
from conformance.reports.terminal import console_for

EXAMPLES = """\
  splash-conformance fuzz-mask masks.py:DocumentMask --impl jax --oracle masks.py:same_document
  splash-conformance fuzz-mask masks.py:DocumentMask --instance 'DocumentMask((2, 3), ids=[0, 1, 1])'
"""

DESCRIPTION = """\
Judges a mask class of your own: one that extends the Mask of jax, tokamax or pallas_impl, or that has just a shape
(q_len, kv_len) and mask[q slice, kv slice]. First the class itself: shape, slices, booleans, the mask function on
arrays and inside a kernel, bounds and intervals, equality and hash. Then what an implementation makes of its masks:
compiled arrays, steps of the kernels, attention and gradients.

Arguments are drawn from the annotations of the constructor, where FILE:NAME of --strategy or an attribute
fuzz_parameters of the class or its module does not say otherwise. It is a Hypothesis strategy of dicts of arguments, a
function of the shape (q_len, kv_len) that returns one, or a dict of a strategy for single parameters. What a ValueError
refuses is discarded.

The function of --oracle is called with q_ids [q_len, 1] and kv_ids [1, kv_len], and with the parameters that it names.
Ids are the numbers of rows and columns, or positions where q_sequence or kv_sequence was an argument of the mask.
"""

#: Packages whose mask classes tell which implementation a class is for.
LIBRARIES = {
    "pallas_impl": "pallas_impl",
    "jax": "jax.experimental.pallas.ops.tpu.splash_attention",
    "tokamax": "tokamax._src.ops.experimental.tpu.splash_attention",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "target",
        metavar="CLASS",
        help="path/to/file.py:Class or package.module:Class; also a function that makes masks",
    )
    parser.add_argument(
        "--impl",
        metavar="IMPL",
        help=f"what its masks are given to (default: the library whose Mask it extends, else {DEFAULT_IMPL})",
    )
    parser.add_argument(
        "--strategy",
        metavar="FILE:NAME",
        help="how arguments are drawn, see above",
    )
    parser.add_argument(
        "--oracle",
        metavar="FILE:NAME",
        help="what a mask should mean: a function of (q_ids, kv_ids, **parameters) to booleans, see above",
    )
    parser.add_argument(
        "--instance",
        action="append",
        default=[],
        metavar="CALL",
        help="judge only the mask that this call makes (repeatable)",
    )
    parser.add_argument(
        "--profile", default="quick", choices=list(EFFORTS), help="how much to try (default quick)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the search (default 0)"
    )
    parser.add_argument(
        "--stage",
        action="append",
        default=[],
        choices=list(STAGES),
        help="judge only this: the class itself, compiled arrays, kernels or attention (repeatable)",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="give masks to the implementation although the class itself is wrong",
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the report as JSON")
    add_output_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """``fuzz-mask``: judge a mask class."""
    loader = Loader()
    try:
        check_targets({"--json": arguments.json})
    except ValueError as error:
        return fail(str(error))
    try:
        return _judge(arguments, loader)
    except (LoadError, AdapterError) as error:
        return fail(str(error))
    except OracleError as error:
        trace = "".join(traceback.format_exception(error.error)).rstrip()
        return fail(f"--oracle {arguments.oracle} fails for {error.call}:\n{trace}")
    except Exception as error:
        if not loader.owns(error):
            raise
        trace = "".join(traceback.format_exception(error)).rstrip()
        return fail(f"the strategy of {arguments.target} fails:\n{trace}")


def _judge(arguments: argparse.Namespace, loader: Loader) -> int:

    source = _source(arguments, loader)
    oracle = None
    if arguments.oracle:
        function, _ = loader.load(arguments.oracle)
        if not callable(function):
            return fail(f"--oracle {arguments.oracle}: is not a function")
        oracle = (function, arguments.oracle)
    impl = arguments.impl or implementation_of(source.make)
    _, subject = ready(impl, Where())
    run = FuzzRun(
        target=arguments.target,
        implementation=subject.description.name,
        version=subject.description.version,
        profile=arguments.profile,
        seed=arguments.seed,
        command=_command(arguments),
        oracle=arguments.oracle or "",
    )
    console = console_for(color=not arguments.no_color)
    fuzzing = Fuzzing(
        run,
        source,
        subject,
        oracle,
        stages=arguments.stage or tuple(STAGES),
        keep_going=arguments.keep_going,
    )
    with redirect_stdout(sys.stderr):  # whatever the class prints
        if console.is_terminal:
            with console.status("") as status:
                fuzzing.say = lambda text: status.update(f"judging {text}")
                fuzzing.execute()
        else:
            fuzzing.execute()
    print_run(run, console, detail_of(arguments))
    if arguments.json:
        text = json.dumps(run.to_json(), indent=1) + "\n"
        arguments.json.write_text(text, encoding="utf-8")
    return run.exit_code


def _source(arguments: argparse.Namespace, loader: Loader) -> Source:

    make, module = loader.load(arguments.target)
    strategy: Any = None
    if arguments.strategy:
        strategy, _ = loader.load(arguments.strategy)
    name = arguments.target.rpartition(":")[2]
    return Source(make, name, module, strategy, arguments.instance)


def implementation_of(make: Any) -> str:
    """The library whose ``Mask`` a class extends; this project's own for others."""
    for base in getattr(make, "__mro__", ()):
        for name, package in LIBRARIES.items():
            if base.__module__ == package or base.__module__.startswith(f"{package}."):
                return name
    return DEFAULT_IMPL


def _command(arguments: argparse.Namespace) -> str:
    """The command that judges the class as this one does, but for the masks."""
    words = ["splash-conformance", "fuzz-mask", arguments.target]
    for option in ("impl", "oracle"):
        value = getattr(arguments, option)
        words += [f"--{option}", value] if value else []
    words += ["--keep-going"] if arguments.keep_going else []
    return shlex.join(words)
