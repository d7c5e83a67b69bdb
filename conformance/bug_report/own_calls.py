"""A marked place for the calls of an implementation that this suite knows through its adapter alone."""

from __future__ import annotations

from conformance.bug_report.calls import forward_names
from conformance.bug_report.case import Case

MARK = "# >>> your call: replace the next line"


def _arguments(case: Case) -> list[str]:
    made, problem = case.inputs, case.problem
    names = ["q", "k", "v", "visible"]
    names += ["q_ids, kv_ids"] * (made.segment_ids is not None) + ["sinks"] * (
        made.sinks is not None
    )
    return names + ["soft_cap"] * (problem.soft_cap is not None)


def _about(case: Case) -> list[str]:
    """What the implementation was asked for besides arrays."""
    problem = case.problem
    sizes = ", ".join(f"{k}={v}" for k, v in vars(problem.blocks).items() if v is not None)
    lines = [f"# Blocks: {sizes}; arrays of {problem.dtype}."]
    facts = [
        f"{problem.ring} devices in a ring" if problem.ring > 1 else "",
        f"shards: {problem.shards}"
        if problem.shards.head * problem.shards.q * problem.shards.kv > 1
        else "",
        "the mask is known at run time only" if problem.dynamic else "",
        f"options: {dict(problem.options)}" if problem.options else "",
        f"layout: {problem.layout}" if problem.layout else "",
        "the grid is not shrunk" if not problem.shrink else "",
        "memory starts as NaN" if case.call.keywords.get("uninitialised") else "",
    ]
    return lines + [f"# {fact[0].upper()}{fact[1:]}." for fact in facts if fact]


class OwnCalls:
    """See `conformance.bug_report.calls.Calls`."""

    runs = False

    def imports(self, case: Case) -> list[str]:
        del case
        return []

    def compiled(self, case: Case) -> list[str]:
        direction = case.call.arguments[0]
        sizes = case.problem.blocks.of(direction)
        return [
            *_about(case),
            MARK,
            f"info = compile_mask(visible, block_q={sizes[0]}, block_kv={sizes[1]}, direction={direction!r})",
        ]

    def forward(self, case: Case) -> list[str]:
        names = ", ".join(forward_names(case)) or "output"
        return [*_about(case), MARK, f"{names} = attend({', '.join(_arguments(case))})"]

    def backward(self, case: Case) -> list[str]:
        given = [*_arguments(case), "d_out"]
        names = "dq, dk, dv" + ", dsinks" * (case.inputs.sinks is not None)
        if case.call.keywords.get("d_logsumexp") is not None:
            given.append("d_logsumexp")
        return [*_about(case), MARK, f"{names} = gradients_of_attend({', '.join(given)})"]
