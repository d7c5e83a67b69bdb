"""Finds the Pallas calls of a function, with the operands that decide what they do.

The function is traced, not run. Of the program around the kernels only what a grid size or a scalar
operand needs is evaluated, when it is asked for: no attention is ever computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from conformance.adapters.tracing.jaxpr import (
    CALLS,
    bind_vectorised,
    open_program,
    program_of,
    split_scan,
)
from conformance.adapters.tracing.primitives import Array, evaluate


class Later:
    """An array that is computed when it is asked for; None where that needs data nobody has."""

    def __init__(self, compute: Callable[[], Array | None]) -> None:
        self._compute: Callable[[], Array | None] | None = compute
        self._result: Array | None = None

    def get(self) -> Array | None:
        """The array, or None."""
        if self._compute is not None:
            compute, self._compute = self._compute, None
            self._result = compute()
        return self._result


@dataclass(frozen=True)
class FoundCall:
    """A Pallas call and its operands in the order of the equation."""

    equation: Any
    operands: list[Later]


def now(array: Any) -> Later:
    """An array that is there already; a shape without values is data that nobody has."""
    if isinstance(array, jax.ShapeDtypeStruct):
        return Later(lambda: None)
    return Later(lambda: np.asarray(array))


def find_calls(fn: Callable[..., Any], *args: Any) -> tuple[list[FoundCall], list[Later]]:
    """The Pallas calls of ``fn(*args)`` in program order, and its results.

    Args:
      fn: a function of arrays.
      args: arrays, or `jax.ShapeDtypeStruct` where the values do not matter; pytrees of them.

    Returns:
      The calls, and the results as far as they can be known without running a kernel.

    Raises:
      ValueError: a Pallas call inside a loop whose length is not known.
    """
    program, consts = open_program(jax.make_jaxpr(fn)(*args))
    calls: list[FoundCall] = []
    leaves = [now(leaf) for leaf in jax.tree_util.tree_leaves(args)]
    results = _walk(program, [now(const) for const in consts], leaves, calls)
    return calls, results


def _walk(
    program: Any, consts: Sequence[Later], args: Sequence[Later], calls: list[FoundCall]
) -> list[Later]:
    env: dict[Any, Later] = dict(zip(program.constvars, consts, strict=True))
    env.update(zip(program.invars, args, strict=True))

    def read(atom: Any) -> Later:
        return now(atom.val) if hasattr(atom, "val") else env[atom]

    for equation in program.eqns:
        inputs = [read(atom) for atom in equation.invars]
        env.update(zip(equation.outvars, _equation(equation, inputs, calls), strict=True))
    return [read(atom) for atom in program.outvars]


def _equation(equation: Any, inputs: list[Later], calls: list[FoundCall]) -> list[Later]:
    name = equation.primitive.name
    if name == "pallas_call":
        calls.append(FoundCall(equation, inputs))
        return [Later(lambda: None) for _ in equation.outvars]
    inner = program_of(equation.params) if name in CALLS else None
    if inner is not None:
        program, consts = inner
        return _walk(program, [now(const) for const in consts], inputs, calls)
    if _calls_pallas(equation.params):
        if name == "scan":
            return _scan(equation, inputs, calls)
        if name == "cond":
            return _cond(equation, inputs, calls)
        raise ValueError(f"cannot follow a Pallas call inside {name!r}")
    results = _Several(equation, inputs)
    return [results.part(number) for number in range(len(equation.outvars))]


def _calls_pallas(entry: Any) -> bool:
    """Whether any program among the parameters of an equation holds a Pallas call."""
    if isinstance(entry, dict):
        return any(_calls_pallas(part) for part in entry.values())
    if isinstance(entry, (tuple, list)):
        return any(_calls_pallas(part) for part in entry)
    equations = getattr(entry, "eqns", None)
    if equations is None:
        return False
    return any(
        equation.primitive.name == "pallas_call" or _calls_pallas(equation.params)
        for equation in equations
    )


class _Several:
    """The results of one equation, computed together."""

    def __init__(self, equation: Any, inputs: list[Later]) -> None:
        self._equation, self._inputs = equation, inputs
        self._all: list[Array | None] | None = None

    def part(self, number: int) -> Later:
        return Later(lambda: self._compute()[number])

    def _compute(self) -> list[Array | None]:
        if self._all is None:
            self._all = _evaluate(self._equation, [entry.get() for entry in self._inputs])
        return self._all


def _evaluate(equation: Any, inputs: Sequence[Array | None]) -> list[Array | None]:
    arrays = [array for array in inputs if array is not None]
    if equation.primitive.name == "select_n" and inputs[0] is not None and inputs[0].size:
        first = inputs[0].flat[0]
        if (inputs[0] == first).all():  # the case that is not taken need not be known
            return [inputs[1 + int(first)]]
    if len(arrays) < len(inputs):
        return [None for _ in equation.outvars]
    batched = [array[None] for array in arrays]
    shapes = [array.shape for array in arrays]
    aval = equation.outvars[0].aval if len(equation.outvars) == 1 else None
    if aval is not None and isinstance(getattr(aval, "dtype", None), np.dtype):
        name, params = equation.primitive.name, equation.params
        out = evaluate(name, params, batched, shapes, aval.shape)
        if out is not None:
            out = out.astype(aval.dtype, copy=False)[0]
            return [np.broadcast_to(out, aval.shape)]
    return [out[0] for out in bind_vectorised(equation, batched, shapes)]


def _scan(equation: Any, inputs: list[Later], calls: list[FoundCall]) -> list[Later]:
    params = equation.params
    consts, carry, slices = split_scan(params, inputs)
    program, closed = open_program(params["jaxpr"])
    length = params["length"]
    order = range(length - 1, -1, -1) if params["reverse"] else range(length)
    for number in order:
        parts = [_row(part, number) for part in slices]
        fixed = [now(const) for const in closed]
        carry = _walk(program, fixed, [*consts, *carry, *parts], calls)[: len(carry)]
    rest = len(equation.outvars) - len(carry)
    return [*carry, *(Later(lambda: None) for _ in range(rest))]


def _row(array: Later, number: int) -> Later:
    def compute() -> Array | None:
        known = array.get()
        return None if known is None else np.asarray(known[number])

    return Later(compute)


def _cond(equation: Any, inputs: list[Later], calls: list[FoundCall]) -> list[Later]:
    which = inputs[0].get()
    if which is None:
        raise ValueError("cannot tell which branch with a Pallas call is taken: it depends on data")
    branches = equation.params["branches"]
    program, consts = open_program(branches[int(np.clip(which, 0, len(branches) - 1))])
    return _walk(program, [now(const) for const in consts], inputs[1:], calls)
