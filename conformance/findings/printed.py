"""Problems, findings and outcomes as lines for the terminal."""

from __future__ import annotations

import shlex
import textwrap

from conformance.findings.finding import Finding, Outcome
from conformance.problems.mask_json import expr_from_json
from conformance.problems.predicates import label_grids
from conformance.problems.problem import Problem
from spec import clause

GLYPHS = "·▒█"


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
