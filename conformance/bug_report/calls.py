"""How a library is called: the lines of a script that make its masks and kernels and run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from conformance.bug_report import masks
from conformance.bug_report.arrays import number
from conformance.bug_report.case import FORWARD, Case
from conformance.problems.problem import Problem


class Calls(Protocol):
    """What a library's part of a script consists of."""

    #: Whether the script runs as it is.
    runs: bool

    def imports(self, case: Case) -> list[str]:
        """Import statements, and what must come before them."""

    def compiled(self, case: Case) -> list[str]:
        """Statements that leave the compiled mask in ``info``."""

    def forward(self, case: Case) -> list[str]:
        """Statements that leave ``output``, and ``logsumexp`` and ``max_logits`` if there are."""

    def backward(self, case: Case) -> list[str]:
        """Statements that leave ``dq``, ``dk``, ``dv``, and ``dsinks`` if there are sinks."""


class LibraryCalls:
    """What the calls of jax and of tokamax share: see `Calls`."""

    runs = True

    def imports(self, case: Case) -> list[str]:
        modules = ["splash_attention_kernel as splash", "splash_attention_mask as masks"]
        if case.call.method == "mask_info":
            modules = ["splash_attention_mask as masks", "splash_attention_mask_info as mask_info"]
        return [
            "import jax",
            "import jax.numpy as jnp",
            *(["from jax.experimental.pallas import tpu as pltpu"] * is_uninitialised(case)),
            *(
                f"from {case.package} import {module}"
                for module in [*self.more_modules(case), *modules]
            ),
            "",
            'jax.config.update("jax_platforms", "cpu")',
        ]

    def more_modules(self, case: Case) -> list[str]:
        """Modules of the library that a case needs besides masks and kernels."""
        return []

    def prepared(self, case: Case) -> list[str]:
        """Statements that give the arrays the form that the library's kernels take."""
        lines = []
        if case.problem.dtype != "float32":
            lines.append(f"q, k, v = (jnp.asarray(x, jnp.{case.problem.dtype}) for x in (q, k, v))")
        if is_mqa(case):
            lines.append("k, v = k[0], v[0]")
        if case.inputs.segment_ids is not None:
            lines.append("segment_ids = splash.SegmentIds(q_ids, kv_ids)")
        return lines

    def sizes(self, case: Case, backward: bool) -> dict[str, object]:
        """The block sizes that both libraries have, and the layout of the arrays."""
        blocks = case.problem.blocks
        values: dict[str, object] = {
            "block_q": blocks.q, "block_kv": blocks.kv, "block_kv_compute": blocks.kv_compute,
        }  # fmt: skip
        if backward:
            values["block_q_dkv"], values["block_kv_dkv"] = blocks.of("dkv")
            values["block_kv_dkv_compute"] = blocks.kv_dkv_compute
        if case.problem.option("layouts") == "seq_minor":
            minor = Raw("splash.QKVLayout.SEQ_MINOR")
            values |= {"q_layout": minor, "k_layout": minor, "v_layout": minor}
        return values


def wants_residuals(case: Case) -> bool:
    """Whether the call is one that returns residuals."""
    keys = case.call.keywords
    named = keys.get("residuals") or keys.get("with_residuals")
    return bool(named) or keys.get("d_logsumexp") is not None


def is_uninitialised(case: Case) -> bool:
    """Whether memory starts as NaN."""
    return bool(case.call.keywords.get("uninitialised"))


def keywords(values: dict[str, Any], defaults: dict[str, Any] | None = None) -> str:
    """Keyword arguments as code, without those that have their default."""
    known = defaults or {}
    given = {k: v for k, v in values.items() if k not in known or known[k] != v}
    return ", ".join(
        f"{name}={value if isinstance(value, Raw) else plain(value)}"
        for name, value in given.items()
    )


class Raw(str):
    """Code that stands for itself."""


def plain(value: Any) -> str:
    """A plain value as code."""
    return (
        number(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else repr(value)
    )


def shape_of(problem: Problem) -> str:
    """The shape of the mask, as code."""
    return f"({problem.q_len}, {problem.kv_len})"


def library_masks(problem: Problem) -> str:
    """The masks of all heads as a list of objects, as code."""
    shape = shape_of(problem)
    found = [masks.library(expr, shape, f"visible[{n}]") for n, expr in enumerate(problem.masks)]
    if len(found) == 1:
        return f"[{found[0]}]" if problem.heads == 1 else f"[{found[0]}] * {problem.heads}"
    return "[" + ", ".join(found) + "]"


def needs_values(problem: Problem) -> bool:
    """Whether the values of the masks must be there before the library's masks can be made."""
    return problem.dynamic or "visible[" in library_masks(problem)


def call_arguments(case: Case) -> str:
    """The arrays of a call, as code."""
    made = case.inputs
    names = ["q", "k", "v"]
    if made.segment_ids is not None:
        names.append("segment_ids")
    if made.sinks is not None:
        names.append("sinks=sinks")
    return ", ".join(names)


def results(case: Case, code: str) -> list[str]:
    """Statements that take the results of a forward call apart."""
    if not case.call.keywords.get("residuals"):
        return [f"output = {code}"]
    lines = [f"output, residuals = {code}"]
    lines.append("named = isinstance(residuals, dict)")
    lines.append('logsumexp = residuals["logsumexp"] if named else residuals[0]')
    if getattr(case.call.answer, "max_logits", None) is not None:
        lines.append('max_logits = residuals["max_logits"] if named else residuals[1]')
    return lines


def gradient_lines(case: Case) -> list[str]:
    """Statements for gradients of a kernel that is called ``kernel``."""
    made, keys = case.inputs, case.call.keywords
    names = ["q", "k", "v"] + ["sinks"] * (made.sinks is not None)
    residuals = wants_residuals(case)
    lines = ["", "", f"def run({', '.join(names)}):"]
    lines += ["    " + line for line in _differentiable(case, residuals)]
    lines += ["", "", f"results, back = jax.vjp(run, {', '.join(names)})"]
    if residuals:
        lse = (
            "jnp.asarray(d_logsumexp)"
            if keys.get("d_logsumexp") is not None
            else "jnp.zeros_like(results[1])"
        )
        lines.append(f"given = (jnp.asarray(d_out, results[0].dtype), {lse})")
    else:
        lines.append("given = jnp.asarray(d_out, results.dtype)")
    lines.append(f"{', '.join('d' + name for name in names)} = back(given)")
    return lines


def _differentiable(case: Case, residuals: bool) -> list[str]:
    call = f"kernel({call_arguments(case)})"
    if not residuals:
        return [f"return {call}"]
    return [
        f"output, residuals = {call}",
        'return output, residuals["logsumexp"] if isinstance(residuals, dict) else residuals[0]',
    ]


def inside_program(made: str, values: str) -> list[str]:
    """Statements for a kernel whose mask is an argument of the program, as in a training step.

    Args:
      made: code that makes the kernel of ``mask``.
      values: code of the values of the mask.
    """
    return [
        "",
        "",
        "def kernel(q, k, v, *ids, **more):  # the mask is an argument of the program",
        f"    run = jax.jit(lambda mask, q, k, v: {made}(q, k, v, *ids, **more))",
        f"    return run(jnp.asarray({values}), q, k, v)",
        "",
        "",
    ]


def interpreted(case: Case) -> str:
    """The option ``interpret``, as code."""
    if not is_uninitialised(case):
        return "True"
    return 'pltpu.InterpretParams(uninitialized_memory="nan", out_of_bounds_reads="raise")'


def is_mqa(case: Case) -> bool:
    """Whether the kernel for a single key/value head is used."""
    return bool(case.problem.option("mqa", False)) and case.problem.kv_heads == 1


def unsupported(case: Case) -> str:
    """Why a call of a library cannot be written down; "" if it can."""
    problem, keys = case.problem, case.call.keywords
    if case.call.method not in ("prepare", "mask", "mask_info", "schedule", "forward", "backward"):
        return f"it is about {case.call.method}"
    if keys.get("edit") is not None:
        return "it edits the compiled mask"
    if problem.option("scaled_q") == "by_caller":
        return "q is scaled by the caller"
    if case.call.method in ("forward", "backward") and not problem.shrink:
        return "users cannot switch shrinking off"
    shards = problem.shards
    if case.call.method != "mask_info" and shards.head * shards.q * shards.kv > 1:
        return "it is about one of several devices"
    return ""


def forward_names(case: Case) -> Sequence[str]:
    """The arrays that a forward call returned."""
    return [name for name in FORWARD if getattr(case.call.answer, name, None) is not None]
