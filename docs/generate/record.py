"""Records a replay file for every known deviation of an installed library: ``python -m docs.generate.record jax``.

The files are in ``docs/findings``; the page of findings is made from them. Run this when the expectations of a library
change, with that release installed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from conformance import checks
from conformance.checks.registry import CHECKS, Check
from conformance.contract.fence import Subject
from conformance.contract.remote.where import Where
from conformance.contract.smoke import ready
from conformance.drawing.numeric_vectors import VECTORS as NUMERIC
from conformance.findings.finding import Finding
from conformance.findings.observation import Raised
from conformance.problems.problem import Problem
from conformance.search import known_deviations as expectation
from conformance.search import replay
from conformance.search.known_deviations import Deviation
from conformance.search.search import evaluate
from reference.masks import Causal

FOLDER = Path(__file__).parents[1] / "findings"
#: For deviations without a fixed problem of their own: checks, a fixed problem, and what becomes of it.
MADE: dict[str, list[tuple[str, str, Callable[[Problem], Problem]]]] = {
    "block-size-zero": [("check_block_size_below_one", "one-full-block", lambda p: p)],
    "nothing-visible-with-segments": [
        ("check_segment_ids", "segments", lambda p: p.but(masks=(Causal(-p.q_len),))),
    ],
    "diagonal-skip-with-offset": [
        (
            "check_masked_softmax",
            "plain-causal",
            lambda p: p.but(masks=(Causal(p.blocks.q // 2),), options=(("diag_skip", True),)),
        ),
    ],
    "empty-rows-under-a-given-maximum": [
        (
            "check_loss_on_other_rows",
            "late-causal",
            lambda p: p.but(options=(("max_logit_const", 10.0),)),
        ),
    ],
    "empty-rows-in-base-2": [
        ("check_residuals_of_empty_rows", "segments-empty-block", lambda p: p)
    ],
    "ring-deferred-reciprocal": [
        (
            "check_one_division",
            "ring-empty-device",
            lambda p: p.but(options=(("fuse_reciprocal", False),)),
        ),
    ],
    "ring-q-block-unwritten": [("check_ring_computes_attention", "ring-inside", lambda p: p)],
}


def findings(item: Deviation, subject: Subject) -> Iterator[Finding]:
    """Problems on which the implementation deviates, the fixed one first."""
    if item.vector:
        check = CHECKS[item.proof]
        for fixed, problem in check.domain.vectors(subject.description, True):
            if fixed.name == item.vector:
                yield from _covered(item, evaluate(check, subject, problem, fixed.name))
    for name, vector, change in MADE.get(item.id, []):
        check = CHECKS[name]
        for problem in _fixed(check, vector, subject):
            made = change(problem)
            yield from _covered(item, evaluate(check, subject, made))


def _fixed(check: Check, vector: str, subject: Subject) -> Iterator[Problem]:
    """Fixed problems of an implementation by their name, also those that are not of the check's domain."""
    description = subject.description
    for item, problem in check.domain.vectors(subject.description, True):
        if item.name == vector:
            yield problem
    yield from (item.build(description) for item in NUMERIC if item.name == vector)


def _covered(item: Deviation, found: Finding | None) -> Iterator[Finding]:
    if found is not None and item.covers(found, found.problem):
        yield replace(found, deviation=item.id)


def record(impl: str, only: Sequence[str] = ()) -> list[str]:
    """Writes the files of an implementation; returns the deviations that were not met."""
    checks.load_all()
    _, subject = ready(impl, Where())
    missed = []
    for item in expectation.load(subject.description):
        if only and item.id not in only:
            continue
        found = next(findings(item, subject), None)
        if found is None:
            missed.append(item.id)
            continue
        path = replay.save(portable(found), FOLDER, impl, subject.description.version)
        path.replace(FOLDER / f"{impl}-{item.id}.json")
        print(f"{item.id}: {found.clause} {found.where}")
    return missed


def portable(found: Finding) -> Finding:
    """A finding that names no folder of the machine on which it was made."""
    seen = found.observation
    if isinstance(seen, Raised):
        seen = replace(seen, message=re.sub(r"/\S*/([\w.]+\.py)", r"\1", seen.message))
    detail = "" if found.kind == "crash" else found.detail  # that of a crash is a traceback
    return replace(found, observation=seen, detail=detail, region=None)


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate.record", description=__doc__)
    parser.add_argument("impl", help="jax or tokamax")
    parser.add_argument("ids", nargs="*", help="only these deviations")
    arguments = parser.parse_args()
    missed = record(arguments.impl, arguments.ids)
    for item in missed:
        print(f"{item}: not met")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
