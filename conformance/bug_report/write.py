"""Puts the parts of a script together: problem, call, and what is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.bug_report import arrays, masks
from conformance.bug_report.arrays import number
from conformance.bug_report.calls import Calls, needs_values, unsupported
from conformance.bug_report.case import (
    BACKWARD,
    Case,
    Wrong,
    is_missing,
    visible_of,
)
from conformance.bug_report.code import folded
from conformance.bug_report.dense import Parts, attention
from conformance.bug_report.jax_calls import JaxCalls
from conformance.bug_report.own_calls import OwnCalls
from conformance.bug_report.tokamax_calls import TokamaxCalls
from conformance.contract.shipped import SHIPPED
from conformance.findings.expectation import Refusal, Within
from conformance.findings.observation import Unwritten
from reference.masks import Dense

#: Calls that are shown by running a kernel.
RUN = ("prepare", "schedule", "forward", "backward")

LIBRARIES: dict[str, type[Calls]] = {"jax": JaxCalls, "tokamax": TokamaxCalls}


@dataclass(frozen=True)
class Script:
    """A script for a bug report.

    Attributes:
      text: the whole of it.
      runs: it runs as it is; otherwise somebody must put a call into it.
      note: what it cannot show, and why; "" if it shows everything.
    """

    text: str
    runs: bool
    note: str = ""


def script(case: Case) -> Script:
    """The script of a failing problem."""
    calls = LIBRARIES.get(case.implementation.partition("=")[0], OwnCalls)()
    note = ""
    if calls.runs and (reason := unsupported(case)):
        calls, note = OwnCalls(), f"the call of the library is left out: {reason}"
    body = folded(_problem(case) + _shown(case, calls))
    helpers = arrays.helpers("\n".join(body))
    formulas = _formulas(case) if _uses(body, "attention(", "gradients(") else ""
    head = ['"""' + case.header().replace("\\", "\\\\").replace('"""', "'''") + '\n"""', ""]
    modules = [name for name in ("base64", "zlib") if f"{name}." in "\n".join([*body, helpers])]
    imports = folded(calls.imports(case))
    if not any("jnp." in line for line in body):
        imports = [line for line in imports if not line.endswith(" as jnp")]
    if imports[:1] == ["import os"]:
        modules, imports = sorted([*modules, "os"]), imports[2:]
        position = imports.index("")
        environment, imports = imports[:position], imports[position + 1 :]
    else:
        environment = []
    lines = [*head, *(f"import {name}" for name in modules), *([""] if modules else [])]
    lines += [*environment, *([""] if environment else []), "import numpy as np", *imports, ""]
    blocks = [text for text in (helpers, formulas) if text]
    text = "\n".join(lines) + "\n" + "".join(f"\n{block}\n" for block in blocks) + "\n"
    return Script(text + "\n".join(body) + "\n", calls.runs, note)


def _uses(body: list[str], *names: str) -> bool:
    return any(name in line for line in body for name in names)


def _formulas(case: Case) -> str:
    parts = Parts(
        cap=case.problem.soft_cap is not None,
        sinks=case.inputs.sinks is not None,
        backward=any(item.name in BACKWARD for item in case.wrong),
        lse=case.call.keywords.get("d_logsumexp") is not None,
    )
    return attention(parts)


def _problem(case: Case) -> list[str]:
    """Statements that make the masks and the arrays."""
    lines = ["# The problem."]
    if case.call.method in RUN or needs_values(case.problem) or not _library(case):
        lines += _masks(case)
    if case.problem.dynamic:
        lines.append(
            f"values = np.broadcast_to(visible, ({case.problem.heads}, *visible.shape[1:]))"
        )
    return lines + (_arrays(case) if case.call.method in RUN else [])


def _library(case: Case) -> bool:
    return case.implementation.partition("=")[0] in LIBRARIES


def is_backward(case: Case) -> bool:
    """Whether gradients are computed."""
    method, arguments = case.call.method, case.call.arguments
    return method == "backward" or (method == "schedule" and arguments[0] != "fwd")


def _masks(case: Case) -> list[str]:
    """Statements that leave the mask in ``visible``, bool ``[heads or 1, q_len, kv_len]``."""
    problem, lines, names = case.problem, [], []
    for n, expr in enumerate(problem.masks):
        if isinstance(expr, Dense) and expr.array.shape != (problem.q_len, problem.kv_len):
            lines.append(f"visible = {arrays.expression(np.asarray(expr.array))}")
        else:
            lines += masks.values(expr, problem.q_len, problem.kv_len)
        if len(problem.masks) > 1:
            lines.append(f"visible_{n} = visible")
        names.append(f"visible_{n}" if len(problem.masks) > 1 else "visible")
    made = "visible[None]" if len(names) == 1 else f"np.stack([{', '.join(names)}])"
    lines.append(f"visible = {made}  # [heads or 1, q, kv]")
    return lines


def _arrays(case: Case) -> list[str]:
    made, problem, lines = case.inputs, case.problem, []
    unseeing = None
    for name in ("q", "k", "v"):
        lines += arrays.statements(name, getattr(made, name))
    if made.sinks is not None:
        lines += arrays.statements("sinks", made.sinks)
    if made.segment_ids is not None:
        lines += arrays.statements("q_ids", made.segment_ids[0])
        lines += arrays.statements("kv_ids", made.segment_ids[1])
        lines.append("seen_pairs = visible & (q_ids[:, None] == kv_ids)")
    if problem.soft_cap is not None:
        lines.append(f"soft_cap = {number(problem.soft_cap)}")
    if is_backward(case) or any(item.rows is not None for item in case.wrong):
        pairs = "visible" if made.segment_ids is None else "seen_pairs"
        whole = problem.heads > 1 and len(problem.masks) == 1
        seen = f"{pairs}.any(-1)"
        lines.append(
            f"seen = np.broadcast_to({seen}, ({problem.heads}, {problem.q_len}))"
            if whole
            else f"seen = {seen}"
        )
        unseeing = ~visible_of(problem, made).any(axis=2)
    if is_backward(case):
        lines += arrays.statements("d_out", case.d_out, unseeing)
        if case.call.keywords.get("d_logsumexp") is not None:
            lines += arrays.statements("d_logsumexp", case.call.keywords["d_logsumexp"], unseeing)
    return lines


def _call(case: Case, calls: Calls) -> list[str]:
    """Statements that make the call; what a crash outside of a call needs is a run of the kernel."""
    method = case.call.method
    if method == "mask_info":
        return calls.compiled(case)
    if is_backward(case):
        return calls.backward(case)
    return calls.forward(case)


def _shown(case: Case, calls: Calls) -> list[str]:
    """The call, and the assertion that fails because of the mistake."""
    call = _call(case, calls)
    if isinstance(case.finding.expectation, Refusal):
        names = [name.lower() for name in case.finding.expectation.names]
        lines = [
            f"names = {names}",
            "try:",
            *("    " + line if line else "" for line in call),
            "except Exception as error:",
            "    named = any(name in str(error).lower() for name in names)",
            '    assert named, f"the error does not say what is wrong: {error!r}"',
            "else:",
            f"    raise AssertionError({case.finding.where + ': accepted'!r})",
        ]
        return ["", "# The call, which must be refused.", *lines]
    if case.finding.kind == "crash":
        return [
            "",
            f"# The call raises {case.finding.actual.splitlines()[0][:110]}",
            *call,
            'print("no error")',
        ]
    return ["", "# The call.", *call, "", "# What is right.", *_assertions(case)]


def _assertions(case: Case) -> list[str]:
    if not case.wrong:
        return _stated(case)
    if case.call.method == "mask_info":
        return [line for item in case.wrong for line in _equal(item)]
    made, problem = case.inputs, case.problem
    pairs = "visible" if made.segment_ids is None else "seen_pairs"
    given = ["q", "k", "v", pairs] + ["soft_cap"] * (problem.soft_cap is not None)
    given += ["sinks"] * (made.sinks is not None)
    names: tuple[str, ...]
    if case.call.method == "forward":
        names = ("output", "logsumexp", "max_logits")
        right = [f"right = dict(zip({names}, attention({', '.join(given)})))"]
    else:
        names = ("dq", "dk", "dv", "dsinks")[: 3 + (made.sinks is not None)]
        given.append("d_out")
        if case.call.keywords.get("d_logsumexp") is not None:
            given.append("d_logsumexp")
        right = [f"right = dict(zip({names}, gradients({', '.join(given)})))"]
    # Of an output with one head or more the formulas return all heads.
    return right + [line for item in case.wrong for line in _close(item, case)]


def _close(item: Wrong, case: Case) -> list[str]:
    actual = f"np.asarray({item.name}, np.float64)"
    if (
        item.name in ("dk", "dv")
        and case.problem.option("mqa", False)
        and case.problem.kv_heads == 1
    ):
        actual += "[None]"
    rows = "" if item.rows is None or item.rows.all() else "[seen]"
    allowed = f"atol={item.allowed:g}"
    about = f'err_msg="{item.name}"'
    return [
        f'np.testing.assert_allclose({actual}{rows}, right["{item.name}"]{rows}, rtol=0, {allowed}, {about})'
    ]


def _equal(item: Wrong) -> list[str]:
    expected = np.asarray(item.expected)
    if expected.dtype != np.bool_:
        expected = expected.astype(np.int32)
    code = arrays.expression(expected)
    return [
        f'np.testing.assert_array_equal(np.asarray(info.{item.name}), {code}, err_msg="{item.name}")'
    ]


def _stated(case: Case) -> list[str]:
    """An assertion about one place, as the report states it; a comment if it cannot be stated as code."""
    finding = case.finding
    place, expectation = finding.place, finding.expectation
    name, index = place.quantity, ", ".join(map(str, place.index))
    if isinstance(finding.observation, Unwritten):
        return [f'assert np.isfinite(output).all(), "{finding.where} is not written"']
    if is_missing(finding):
        return [f'assert "{name}" in globals(), "no {name} is returned"']
    if isinstance(expectation, Within) and index and not place.aspect:
        right = f"{float(expectation.value):.9g}".replace("inf", "np.inf")
        allowed = f"{float(expectation.budget):.2g}"
        return [
            f"found = float(np.asarray({name}, np.float64)[{index}])",
            f'assert found == {right} or abs(found - {right}) <= {allowed}, f"{name}[{index}] is {{found}}"',
        ]
    return [
        f"# {finding.where}: expected {line}" if n == 0 else f"#   {line}"
        for n, line in enumerate(f"{finding.expected}\nfound {finding.actual}".split("\n"))
    ]


def known(implementation: str) -> bool:
    """Whether scripts of an implementation contain its calls."""
    return implementation.partition("=")[0] in LIBRARIES and bool(SHIPPED)
