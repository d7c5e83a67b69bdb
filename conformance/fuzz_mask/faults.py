"""Findings as faults of a report: calls, pictures, the difference, and the command that shows it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from conformance.contract.fence import Crash
from conformance.findings.text import block_map, problem_facts
from conformance.fuzz_mask.case import Case, Difference, Pair
from conformance.fuzz_mask.functions import explain
from conformance.fuzz_mask.hunt import Found
from conformance.fuzz_mask.load import own_frames, short
from conformance.fuzz_mask.outcome import Fault
from conformance.fuzz_mask.pictures import ROWS, beside, draw
from conformance.fuzz_mask.problems import ProblemCase
from conformance.fuzz_mask.source import Raised, Source
from reference.masks import Bool

#: Frames of a traceback that are shown.
FRAMES = 2


def fault_of(found: Found, source: Source, command: str) -> Fault:
    """A finding as a fault.

    Args:
      found: the finding.
      source: of the masks.
      command: what judges the class, to which the masks of the fault are added.
    """
    cases = _cases(found)
    calls = tuple(case.expr.text for case in cases) or tuple(mask.text for mask in found.case.masks)
    error = found.error
    where, expected, actual, detail = _difference(error, source)
    case = found.case
    lines = _problem(case) if isinstance(case, ProblemCase) else _pictures(cases, error)
    repeatable = all(case.arguments.ready is None for case in cases) and bool(calls)
    return Fault(
        severity="advice" if found.kind == "advice" else "required",
        clause=found.judge.clause,
        check=found.judge.name,
        kind="crash" if found.kind == "crash" else "value",
        calls=calls,
        lines=tuple(lines),
        where=where,
        expected=expected,
        actual=actual,
        detail=detail,
        again=_again(command, calls) if repeatable else "",
    )


def _problem(case: ProblemCase) -> list[str]:
    """Sizes and pictures of a problem; its masks only where they are more than that of the class."""
    sizes, masks, *rest = problem_facts(case.problem) + block_map(case.problem)
    plain = case.problem.masks == case.masks
    entries = draw(case.masks[0].whole) if plain and case.problem.q_len <= ROWS else []
    return [sizes, *([] if plain else [masks]), *rest, *entries]


def _cases(found: Found) -> list[Case]:
    if isinstance(found.case, Pair):
        return [found.case.first, found.case.second]
    return [found.case] if isinstance(found.case, Case) else []


def _difference(error: Exception, source: Source) -> tuple[str, str, str, str]:
    """Where, expected, actual and detail of an error."""
    if isinstance(error, Crash):
        hint = explain(error)
        frames = own_frames(error.error, source.file, FRAMES, also_others=not hint)
        parts = [frames, f"hint: {hint}" if hint else ""]
        return error.phase, "no error", short(error.error), "\n".join(filter(None, parts))
    differing = getattr(error, "differing", None)
    count = f"{differing[0]} of {differing[1]} places differ" if differing else ""
    return error.where, error.expected, error.actual, count  # type: ignore[attr-defined]


def _pictures(cases: Sequence[Case], error: Exception) -> list[str]:
    """The masks of a finding, and the two arrays that differ."""
    wholes = [whole for whole in map(_whole, cases) if whole is not None]
    if len(wholes) == 2:
        pictures = [draw(whole) for whole in wholes]
        most = max(map(len, pictures))
        left, right = ([*lines, *[""] * (most - len(lines))] for lines in pictures)
        return beside(("first", "second"), left, right)
    if not isinstance(error, Difference) or error.arrays[0].ndim != 2:
        return [line for whole in wholes for line in draw(whole)]
    expected, actual = error.arrays
    at = next(zip(*(expected != actual).nonzero(), strict=True), (0, 0))
    centre = (int(at[0]), int(at[1]))
    shown = beside(("expected", "actual"), draw(expected, centre), draw(actual, centre))
    whole = [] if expected.shape == wholes[0].shape else draw(wholes[0])
    return [*whole, *shown]


def _whole(case: Case) -> Bool | None:
    try:
        return case.whole
    except Exception:
        return None


def _again(command: str, calls: Sequence[str]) -> str:
    return " ".join([command, *(f"--instance {shlex.quote(call)}" for call in calls)])


def fault_of_constructor(raised: Raised, source: Source, command: str) -> Fault:
    """A constructor that raises something else than a ValueError.

    Where the arguments were guessed from annotations it is advice: they may be none that the author had in mind.
    """
    call = source.text(raised.arguments)
    return Fault(
        severity="advice" if source.derived else "required",
        clause="",
        check="constructor",
        kind="crash",
        calls=(call,),
        lines=(),
        where="the constructor",
        expected="a mask, or a ValueError that refuses the arguments",
        actual=short(raised.error),
        detail=own_frames(raised.error, source.file, FRAMES),
        again=_again(command, (call,)),
    )
