"""Findings and problems as text: the one place where places, expectations and observations get words."""

from __future__ import annotations

import itertools
import shlex
import textwrap
from typing import TYPE_CHECKING

import numpy as np

from conformance.findings import expectation as expect
from conformance.findings import observation as saw
from conformance.findings.place import Place
from conformance.findings.values import Plain
from conformance.problems.mask_json import expr_from_json
from conformance.problems.predicates import label_grids
from conformance.problems.problem import Problem
from spec import clause

if TYPE_CHECKING:  # they print themselves with this module
    from conformance.findings.finding import Finding, Outcome

GLYPHS = "·▒█"


def place_text(place: Place) -> str:
    """A place in one line, e.g. ``output[head 0, row 129 (q block 1), 3] with heads reversed``."""
    given = ", ".join(itertools.starmap(_given_text, place.given.items()))
    if place.aspect == "argument":
        return given
    text = place.quantity
    if place.aspect not in ("", "call"):
        text = f"{place.aspect} of {text}"
    shard = vars(place.shard) if place.shard else {}
    parts = [place.direction or "", *(f"{n} shard {k}" for n, k in shard.items() if k is not None)]
    if any(parts):
        text += f" ({', '.join(filter(None, parts))})"
    if place.index:
        text += f"[{', '.join(_coordinates(place))}]"
    return f"{text} with {given}" if given else text


def _given_text(name: str, value: Plain) -> str:
    """One thing that a call was given; words stand beside the name, numbers behind an equals sign."""
    words = isinstance(value, str) and value not in ("nan", "inf", "-inf")
    return f"{name} {value}" if words else f"{name}={value_text(value)}"


def _coordinates(place: Place) -> list[str]:
    """The numbers of an index, each with what it counts."""
    axes = place.axes or ("",) * len(place.index)
    blocks = {"row": "q block", "key": "kv block"} if place.block is not None else {}
    return [
        f"{axis} {number}".lstrip() + (f" ({blocks[axis]} {place.block})" if axis in blocks else "")
        for axis, number in zip(axes, place.index, strict=True)
    ]


def value_text(value: Plain) -> str:
    """A value: numbers with nine digits, tables as NumPy prints them."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, tuple) and value and all(isinstance(row, tuple) for row in value):
        return np.array2string(np.array(value), separator=" ", max_line_width=100)
    return str(value)


_WRITTEN = {
    "at all": "stored",
    "after a reset": "reset before it accumulates",
    "after its last step": "stored after its last step",
    "in one visit": "visited once",
}
_MISWRITTEN = {
    "not reset": "not reset",
    "written early": "stored before its last step",
    "visited again": "left, and visited again later",
}


def expectation_text(item: expect.Expectation) -> str:
    """What a clause asks for, to stand after "expected"."""
    match item:
        case expect.Equal(value):
            return value_text(value)
        case expect.Within(value, budget):
            return f"{value_text(value)} within {float(budget):.2g}"
        case expect.Finite():
            return "a finite number"
        case expect.Unchanged(value):
            return f"{value_text(value)}, unchanged"
        case expect.InRange(None, high):
            return f"at most {value_text(high)}"
        case expect.InRange(low, None):
            return f"at least {value_text(low)}"
        case expect.InRange(low, high):
            return f"a number from {value_text(low)} to {value_text(high)}"
        case expect.OneOf(values, of):
            return f"one of {of}" if of else " or ".join(map(value_text, values))
        case expect.Presence(present):
            return presence_text(present)
        case expect.Written(how):
            return _WRITTEN[how]
        case expect.OfForm(types):
            return " or ".join(types)
        case expect.Refusal(names):
            return f"an error that names {' or '.join(names)}"
        case expect.NoError():
            return "no error on a valid problem"


def observation_text(item: saw.Observation) -> str:
    """What an implementation did, to stand after "got"."""
    match item:
        case saw.Value(value, off, times, as_if):
            text = value_text(value)
            if off is not None:
                text += f", off by {float(off):.3g}, {float(times or 0):.3g} times the budget"
            elif times is not None:
                text += f" ({float(times):.2f} times the minimum)"
            return (
                f"{text}, as if the row {as_if.row} {as_if.unit} {as_if.number}" if as_if else text
            )
        case saw.NotFinite(value):
            return value
        case saw.Unwritten():
            return "unwritten"
        case saw.Miswritten(fault):
            return _MISWRITTEN[fault]
        case expect.Presence(present):
            return presence_text(present)
        case saw.Form(type_, text, dtype, shape):
            return f"{dtype} array of shape {shape}" if dtype else f"{type_} {text}".rstrip()
        case saw.Raised(type_, message):
            return f"{type_}: {message}" if message else f"a bare {type_}"
        case saw.Accepted(returned):
            return f"no error, but a {returned}"


def presence_text(present: bool) -> str:
    """Whether something is there."""
    return "present" if present else "absent"


def count_text(differing: int, of: int) -> str:
    """How many places differ."""
    return f"{differing} of {of} places differ"


def block_map(problem: Problem) -> list[str]:
    """The labels of a problem as pictures, one line a row of blocks, heads side by side.

    ``·`` empty, ``▒`` partial, ``█`` full. Larger grids than 32 × 32 are left out.
    """
    grids = label_grids(problem)
    if grids.shape[1] > 32 or grids.shape[2] > 32:
        return [f"{grids.shape[1]} × {grids.shape[2]} blocks"]
    shown = grids[:1] if problem.single_mask else grids[:6]
    return [
        "   ".join("".join(GLYPHS[int(label)] * 2 for label in grid[row]) for grid in shown)
        for row in range(grids.shape[1])
    ]


def mask_text(data: dict[str, object]) -> str:
    """A mask of a problem in one line."""
    expr = expr_from_json(data)
    if data["kind"] == "dense":
        return "dense mask"
    return f"{expr}".replace("conformance.problems.mask_json.", "")


def problem_facts(problem: Problem) -> list[str]:
    """What a problem is, in a few lines, without a picture."""
    data = problem.to_json()
    q, kv = problem.grid()
    sizes = ", ".join(f"{k}={v}" for k, v in data["blocks"].items())
    lines = [
        f"q_len={problem.q_len}, kv_len={problem.kv_len}: {q}×{kv} blocks ({sizes})",
        "mask: " + "; ".join(mask_text(mask) for mask in data["masks"]),
    ]
    plain = {"format", "q_len", "kv_len", "blocks", "masks"}
    rest = [f"{name}={value}" for name, value in data.items() if name not in plain]
    if rest:
        lines.append(", ".join(rest))
    return lines


def finding_text(finding: Finding, impl: str, replay: str = "", options: str = "") -> str:
    """One finding: clause, problem, difference, how to run it again.

    Args:
      finding: what was found.
      impl: the implementation.
      replay: the replay file.
      options: where the implementation ran, as on the command line.
    """
    rule = clause(finding.clause)
    words = {"value": "violates", "crash": "crashes", "quality": "measured"}
    head = f"{finding.clause} — {rule.title}: {words[finding.kind]} ({finding.check})"
    if finding.deviation:
        head += f"  [known deviation: {finding.deviation}]"
    out = [head, *textwrap.wrap(rule.sentence, 96, initial_indent="  ", subsequent_indent="  ")]
    if finding.vector:
        out.append(f"  fixed problem {finding.vector!r}")
    out += ["  " + line for line in problem_facts(finding.problem) + block_map(finding.problem)]
    out += [f"  where:    {finding.where}"]
    out += _labelled("expected", finding.expected) + _labelled("actual", finding.actual)
    if finding.kind == "value" and finding.detail:
        out.append(f"            {finding.detail}")
    if finding.kind == "crash" and finding.detail:
        out += ["  " + line for line in finding.detail.rstrip().split("\n")[-3:-1]]
    if replay:
        out.append(f"  replay:   {replay_command(replay, impl, options)}")
    return "\n".join(out)


def replay_command(replay: str, impl: str, options: str = "") -> str:
    """The command that runs a saved problem again; arguments as in `finding_text`."""
    command = f"splash-conformance replay {shlex.quote(replay)} {shlex.quote(impl)} {options}"
    return command.rstrip()


def _labelled(name: str, value: str) -> list[str]:
    first, *rest = value.split("\n")
    return [f"  {name + ':':<9} {first}", *(" " * 12 + line for line in rest)]


def outcome_text(outcome: Outcome, impl: str, replays: dict[int, str] | None = None) -> str:
    """All findings of a check that are not known deviations, and what is stale."""
    replays = replays or {}
    parts = [
        finding_text(finding, impl, replays.get(n, ""))
        for n, finding in enumerate(outcome.findings)
        if not finding.deviation and finding.kind != "quality"
    ]
    parts += [
        f"stale expectation {name!r}: its fixed problem no longer fails" for name in outcome.stale
    ]
    if outcome.status == "error":
        parts.append(f"{outcome.clause} could not be judged: {outcome.reason}")
    return "\n\n".join(parts)
