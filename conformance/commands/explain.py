"""``explain``: what a mask costs, predicted without running anything."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from importlib.util import find_spec
from pathlib import Path

from conformance.commands import common
from conformance.commands.common import fail
from conformance.explain.costs.memory import DTYPES
from conformance.explain.costs.sizes import dividing
from conformance.explain.costs.study import Question, study
from conformance.explain.costs.visits import Heads
from conformance.explain.language.expressions import Documents, leaves
from conformance.explain.language.grammar import MaskError, number, parse
from conformance.explain.language.segments import documents, segments
from conformance.explain.output.advice import remarks
from conformance.explain.output.page import write_page
from conformance.explain.output.picture import write_picture
from conformance.explain.output.report import to_json
from conformance.explain.output.terminal import print_study
from conformance.reports.terminal import console_for
from reference.masks import Dense, Expr, Mask

EXAMPLES = """\
  splash-conformance explain 'causal & local:1024,0' --seq 32k --block 512 --heads 32 --kv-heads 8
  splash-conformance explain 'prefix:100+causal' --seq 8k --html mask.html
"""
DESCRIPTION = """\
Predicts, without running anything and without a TPU, what a mask costs: blocks by label, arithmetic that is
skipped, steps and fetches in the layouts of jax, tokamax and pallas_impl, stored mask blocks, scalar and vector memory
with the limits of every TPU, and what would be better.

MASK is one of
  causal  causal:OFFSET            k <= q + OFFSET
  full                             everything
  local:LEFT,RIGHT[,OFFSET]        a window; none for no limit on a side
  chunked:SIZE                     causal inside chunks of SIZE tokens
  prefix:LENGTH                    the first tokens
  documents:LENGTH[,LENGTH…]       tokens of the same document; a single length repeats
  random:SHARE[,block=N][,seed=N]  SHARE of the pairs hidden, at random; with block=N whole N×N squares
  FILE.npy                         a stored array (q_len, kv_len); --seq is not needed
  FILE.py:NAME  FILE.py:NAME(…)    a mask of your own: an array, an object with shape and mask[q slice, kv slice],
                                   or a function of (q_ids, kv_ids); arguments are literals, q_len, kv_len or shape;
                                   masks too long to be read need block_bounds, as those of pallas_impl have
joined by & (both), | (either) and + (either, binds tightest), with parentheses. Numbers: 8192, 8_192, 8k, 1M.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = DESCRIPTION
    parser.add_argument("mask", metavar="MASK", help="see above")
    parser.add_argument("--seq", metavar="N", help="query tokens, and key tokens without --kv")
    parser.add_argument("--kv", metavar="N", help="key tokens")
    parser.add_argument(
        "--block", default="128x128", metavar="Q[xKV]", help="tokens a block (default %(default)s)"
    )
    parser.add_argument("--heads", default="1", metavar="H", help="query heads (default 1)")
    parser.add_argument("--kv-heads", metavar="H", help="key/value heads (default: as many)")
    parser.add_argument(
        "--head-dim", default="128", metavar="D", help="of q, k and v (default 128)"
    )
    parser.add_argument(
        "--dtype", default="bfloat16", metavar="T", help="of q, k and v (default %(default)s)"
    )
    parser.add_argument(
        "--segments",
        metavar="S",
        help="segment ids: a length of all documents, lengths with commas, ids.npy, or any (not known)",
    )
    parser.add_argument(
        "--dynamic", action="store_true", help="the mask is an array that is known only at run time"
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="F",
        help="write a page to explore: map, schedule step by step, other block sizes",
    )
    parser.add_argument(
        "--png", type=Path, metavar="F", help="write the block map as a picture (needs matplotlib)"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON instead")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print the verdict only, without map and tables"
    )
    parser.add_argument(
        "--no-color", action="store_true", help="no colours; also with NO_COLOR in the environment"
    )


def execute(arguments: argparse.Namespace) -> int:
    """``explain``: what a mask costs."""

    try:
        check_targets(arguments)
        found = study(question_of(arguments))
        said = remarks(found)
        if arguments.html:
            write_page(found, said, arguments.html)
        if arguments.png:
            write_picture(found, said, arguments.png)
    except MaskError as error:
        return fail(f"MASK: {error}")
    except (ValueError, OSError) as error:
        return fail(str(error))
    if arguments.json:
        print(json.dumps(to_json(found, said), indent=2))
    else:
        console = console_for(color=not arguments.no_color)
        print_study(found, said, console, quiet=arguments.quiet)
    for path in (arguments.html, arguments.png):
        if path:
            print(f"written: {path}", file=sys.stderr)
    return 0


def check_targets(arguments: argparse.Namespace) -> None:
    """Checks that files can be written before any work is done.

    Raises:
      ValueError: one has no folder, a page of a run-time mask, or a picture without matplotlib.
    """

    common.check_targets({"--html": arguments.html, "--png": arguments.png})
    if arguments.html and arguments.dynamic:
        raise ValueError("--html shows the blocks of a mask that is known: leave out --dynamic")
    if arguments.png and find_spec("matplotlib") is None:
        raise ValueError(
            "--png needs matplotlib: pip install 'splash-conformance[plots]' (--html needs nothing)"
        )


def whole(option: str, text: str) -> int:
    """A number of the command line.

    Raises:
      ValueError: it is no whole number of at least 1.
    """

    try:
        found = number(text)
    except ValueError:
        found = 0
    if not isinstance(found, int) or found < 1:
        raise ValueError(f"{option}: must be a whole number of at least 1, got {text!r}")
    return found


def question_of(arguments: argparse.Namespace) -> Question:
    """What is asked about.

    Raises:
      ValueError: an option that cannot be, or that does not go with the others.
    """

    q_len = whole("--seq", arguments.seq) if arguments.seq else None
    kv_len = whole("--kv", arguments.kv) if arguments.kv else q_len
    expr = parse(arguments.mask, q_len, kv_len)
    q_len, kv_len = lengths(expr, q_len, kv_len)
    heads = whole("--heads", arguments.heads)
    kv_heads = whole("--kv-heads", arguments.kv_heads) if arguments.kv_heads else heads
    if heads % kv_heads:
        raise ValueError(f"--kv-heads {kv_heads} must divide --heads {heads}")
    if arguments.dtype not in DTYPES:
        raise ValueError(f"--dtype {arguments.dtype}: must be one of {', '.join(DTYPES)}")
    block_q, block_kv = block_sizes(arguments.block, q_len, kv_len)
    question = Question(
        text=arguments.mask,
        expr=expr,
        q_len=q_len,
        kv_len=kv_len,
        block_q=block_q,
        block_kv=block_kv,
        heads=Heads(heads, kv_heads),
        head_dim=whole("--head-dim", arguments.head_dim),
        dtype=arguments.dtype,
        dynamic=arguments.dynamic,
    )
    if arguments.segments is None:
        return question
    try:
        same = segments(arguments.segments, q_len, kv_len)
    except ValueError as error:
        raise ValueError(f"--segments {arguments.segments}: {error}") from error
    return dataclasses.replace(question, segmented=True, segments=same)


def lengths(expr: Expr, q_len: int | None, kv_len: int | None) -> tuple[int, int]:
    """The lengths that were given, or those that the mask brings along.

    Raises:
      ValueError: there are none, or they do not go together.
    """

    parts = leaves(expr)
    shape = next((part.array.shape for part in parts if isinstance(part, Dense)), None)
    if q_len is None or kv_len is None:
        if shape is None:
            raise ValueError("--seq is needed: how many tokens, for example --seq 8192")
        q_len, kv_len = shape[0] if q_len is None else q_len, shape[1] if kv_len is None else kv_len
    Mask(expr, q_len, kv_len)  # checks shapes
    for part in parts:
        if isinstance(part, Documents):
            documents(part.lengths, q_len, kv_len)
    return q_len, kv_len


def block_sizes(text: str, q_len: int, kv_len: int) -> tuple[int, int]:
    """``128`` or ``128x256``.

    Raises:
      ValueError: it is neither, or does not divide the lengths; the message has sizes that do.
    """

    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2:
        raise ValueError(f"--block {text}: must be one size, or two as in 128x256")
    block_q, block_kv = (whole("--block", side) for side in (sides[0], sides[-1]))
    if q_len % block_q or kv_len % block_kv:
        near_q, near_kv = dividing(q_len, block_q), dividing(kv_len, block_kv)
        raise ValueError(
            f"--block {block_q}x{block_kv} must divide {q_len}×{kv_len} tokens; --block {near_q}x{near_kv} does"
        )
    return block_q, block_kv
