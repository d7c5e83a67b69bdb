"""What the releases of JAX call the parts of a traced program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from conformance.adapters.tracing.primitives import Array, Shape, full

#: Primitives that do nothing but run the program in one of their parameters.
CALLS = frozenset(
    {
        "jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint",
        "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin",
        "core_closed_call",
    }
)  # fmt: skip


def program_of(params: dict[str, Any]) -> tuple[Any, Sequence[Any]] | None:
    """The program that a call runs, with its constants; JAX names the parameter in several ways."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        program = params.get(name)
        if program is not None:
            return open_program(program)
    return None


def open_program(program: Any) -> tuple[Any, Sequence[Any]]:
    """The equations and constants of a program, closed or not (which differs by release)."""
    return getattr(program, "jaxpr", program), tuple(getattr(program, "consts", ()))


def split_scan(params: dict[str, Any], args: Sequence[Any]) -> tuple[list[Any], ...]:
    """Constants, carry and slices of the operands of a scan."""
    if "num_consts" in params:
        first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
        return list(args[:first]), list(args[first:second]), list(args[second:])
    return tuple(list(part) for part in params["ft_in"].update(args).unpack())


def bind_vectorised(equation: Any, arrays: Sequence[Array], shapes: Sequence[Shape]) -> list[Array]:
    """Lets JAX evaluate a primitive on known values, all steps at once."""
    primitive, params = equation.primitive, equation.params

    def bind(*args: Any) -> list[Any]:
        out = primitive.bind(*args, **params)
        return list(out) if primitive.multiple_results else [out]

    written = [full(array, shape) for array, shape in zip(arrays, shapes, strict=True)]
    varies = [array.shape[0] != 1 for array in written]
    if not any(varies):
        return [np.asarray(out)[None] for out in bind(*(array[0] for array in written))]
    args = [array if v else array[0] for array, v in zip(written, varies, strict=True)]
    out = jax.vmap(bind, in_axes=[0 if v else None for v in varies])(*args)
    return [np.asarray(part) for part in out]


def shape_of(variable: Any) -> Shape:
    """Shape of a variable of a program; empty for what is not an array."""
    return tuple(getattr(variable.aval, "shape", ()))
