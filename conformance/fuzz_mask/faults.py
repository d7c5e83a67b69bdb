"""Turns findings into faults of the report: calls, pictures, the difference, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance.contract.fence import Crash
from conformance.findings.printed import block_map, problem_facts
from conformance.findings.violation import Violation
from conformance.fuzz_mask.arguments.source import Raised, Source
from conformance.fuzz_mask.case import Case, Pair
from conformance.fuzz_mask.errors import own_frames, short
from conformance.fuzz_mask.hunt import Found
from conformance.fuzz_mask.outcome import Fault
from conformance.fuzz_mask.pictures import ROWS, beside, draw
from conformance.fuzz_mask.problems import ProblemCase
from reference.masks import Bool

#: Show this many frames of a traceback.
FRAMES = 2


def fault_of(found: Found, source: Source, command: str) -> Fault:
    """A finding as a fault.

    Args:
      found: the finding.
      source: of the masks.
      command: judges the class; the masks of the fault are added to it.
    """
    cases = _cases(found)
    calls = tuple(case.expr.text for case in cases) or tuple(mask.text for mask in found.case.masks)
    error = found.error
    where, expected, actual, detail = _difference(found, source)
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
    """Sizes and pictures of a problem, and its masks unless the mask of the class is the only one."""
    sizes, masks, *rest = problem_facts(case.problem) + block_map(case.problem)
    plain = case.problem.masks == case.masks
    entries = draw(case.masks[0].whole) if plain and case.problem.q_len <= ROWS else []
    return [sizes, *([] if plain else [masks]), *rest, *entries]


def _cases(found: Found) -> list[Case]:
    if isinstance(found.case, Pair):
        return [found.case.first, found.case.second]
    return [found.case] if isinstance(found.case, Case) else []


def _difference(found: Found, source: Source) -> tuple[str, str, str, str]:
    """Where, expected, actual and detail of what was found."""
    error, hint = found.error, _hint(found)
    if isinstance(error, Crash):
        detail = own_frames(error.error, source.file, FRAMES, also_others=not hint)
        where, expected, actual = error.phase, "no error", short(error.error)
    else:
        differing = error.differing
        detail = f"{differing[0]} of {differing[1]} places differ" if differing else ""
        where, expected, actual = error.where, error.expected, error.actual
        if isinstance(found.case, Pair):
            differ = " and ".join(found.case.differ)
            where = f"first == second{', which differ in ' if differ else ''}{differ}"
    parts = [detail, f"hint: {hint}" if hint else ""]
    return where, expected, actual, "\n".join(filter(None, parts))


def _hint(found: Found) -> str:
    """What a finding means for the author of a class; "" if there is nothing to add."""
    if isinstance(found.error, Crash):
        return explain(found.error)
    if isinstance(found.case, Pair) or found.judge.name == "check_masks_with_moved_rows":
        return "libraries keep compiled masks by their hash, so that one runs in place of the other"
    if found.judge.name == "check_equal_masks" and found.error.advice:
        return f"{why_different(found.case.mask)}; results are right, but every such mask is compiled and stored anew"
    return ""


def why_different(mask: Any) -> str:
    """Why two masks from the same arguments are not equal."""
    kind = type(mask)
    if getattr(kind, "__eq__", None) is object.__eq__:
        return f"{kind.__name__} has no __eq__"
    own = getattr(mask, "parameters", None)
    if callable(own) and own() is None:
        return f"{kind.__name__} has no parameters()"
    return f"{kind.__name__}.__eq__ says so"


def explain(crash: Crash) -> str:
    """What an error inside a kernel means for a mask function; "" if nothing is known."""
    text = str(crash.error)
    if "captures constants" in text:
        return (
            "a kernel may not capture arrays: write the function with numbers and operators, or drop mask_function, "
            "so that blocks are stored"
        )
    if "traced array" in text or "Tracer" in type(crash.error).__name__:
        return "positions have no values inside a kernel: use operators and jax.numpy instead of NumPy and conditions"
    return ""


def _pictures(cases: Sequence[Case], error: Violation | Crash) -> list[str]:
    """The masks of a finding, and the two arrays that differ."""
    wholes = [whole for whole in map(_whole, cases) if whole is not None]
    if len(wholes) == 2:
        pictures = [draw(whole) for whole in wholes]
        most = max(map(len, pictures))
        left, right = ([*lines, *[""] * (most - len(lines))] for lines in pictures)
        return beside(("first", "second"), left, right)
    arrays = error.arrays if isinstance(error, Violation) else None
    if arrays is None or arrays[0].ndim != 2 or arrays[0].dtype != np.bool_:
        return [line for whole in wholes for line in draw(whole)]
    expected, actual = (np.asarray(array, dtype=np.bool_) for array in arrays)
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
    """A constructor that raises something other than ValueError.

    It is advice if the arguments were guessed from annotations: the author may not have meant such arguments.
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
