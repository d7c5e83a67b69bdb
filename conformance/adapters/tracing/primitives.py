"""Values of a traced kernel at all grid steps at once, in NumPy alone.

A value is known or not. A known one is an array whose first axis is the grid step; the others are
those of the value itself. Any axis along which all entries are equal may have size 1: a scalar that
is spread over a tile costs one number a step, and what is the same at every step is kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.masks import Bool

Array = NDArray[Any]
Shape = tuple[int, ...]

#: Entries up to which a value is worked out; larger ones become unknown. Only tiles are larger.
LIMIT = 1 << 22


@dataclass(frozen=True)
class Value:
    """One value of a kernel at every step.

    Attributes:
      shape: of the value at one step.
      data: its entries ``[steps or 1, *shape]``, any axis 1 where it is uniform; None if unknown.
      sources: names of the memories that it was computed from, with the steps at which it was:
        bool ``[steps]`` or ``[1]``.
    """

    shape: Shape
    data: Array | None = None
    sources: Mapping[str, Bool] = field(default_factory=dict)


def constant(entry: Any) -> Value:
    """A value that is the same at every step."""
    array = np.asarray(entry)
    return Value(array.shape, array[None])


def full(array: Array, shape: Shape) -> Array:
    """The array with every uniform axis of the value written out (the step axis stays as it is)."""
    return np.broadcast_to(array, (array.shape[0], *shape))


def join_sources(values: Sequence[Value]) -> dict[str, Bool]:
    """Everything that any of the values was computed from."""
    result: dict[str, Bool] = {}
    for value in values:
        for name, steps in value.sources.items():
            known = result.get(name)
            result[name] = steps if known is None or known is steps else known | steps
    return result


def _div(a: Array, b: Array) -> Array:
    if not np.issubdtype(a.dtype, np.integer):
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b)
    return np.asarray((np.abs(a) // np.abs(safe)) * np.sign(a) * np.sign(safe))  # towards zero


def _not(a: Array) -> Array:
    return np.logical_not(a) if a.dtype == np.bool_ else np.invert(a)


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "rem": lambda a, b: np.fmod(a, np.where(b == 0, 1, b)),
    "neg": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "square": np.square,
    "floor": np.floor,
    "ceil": np.ceil,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": _not,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "convert_element_type": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "stop_gradient": lambda x: x,
    "optimization_barrier": lambda x: x,
    "multiple_of": lambda x: x,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
}

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": np.sum,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_and": np.all,
    "reduce_or": np.any,
}


def _aligned(array: Array, rank: int) -> Array:
    """A scalar of every step, made to broadcast against values of the given rank."""
    if array.ndim == 1 and rank > 0:
        return array.reshape(array.shape[0], *[1] * rank)
    return array


def _select(arrays: Sequence[Array]) -> Array:
    which, *cases = arrays
    result = cases[0]
    for number, case in enumerate(cases[1:], start=1):
        result = np.where(which.astype(np.int64) == number, case, result)
    return result


def _broadcast_in_dim(array: Array, params: Mapping[str, Any]) -> Array:
    sizes = [1] * len(params["shape"])
    for axis, target in enumerate(params["broadcast_dimensions"]):
        sizes[target] = array.shape[1 + axis]
    return array.reshape(array.shape[0], *sizes)


def _slice(array: Array, params: Mapping[str, Any], shape: Shape) -> Array:
    strides = params.get("strides") or (1,) * len(shape)
    starts, limits = params["start_indices"], params["limit_indices"]
    index = [slice(None)] + [
        slice(None) if array.shape[1 + axis] == 1 else slice(start, limit, stride)
        for axis, (start, limit, stride) in enumerate(zip(starts, limits, strides, strict=True))
    ]
    return array[tuple(index)]


def _reshape(array: Array, shape: Shape, out: Shape) -> Array:
    if all(size == 1 for size in array.shape[1:]):
        return array.reshape(array.shape[0], *[1] * len(out))
    return full(array, shape).reshape(array.shape[0], *out)


def _concatenate(arrays: Sequence[Array], shapes: Sequence[Shape], axis: int) -> Array:
    steps = max((array.shape[0] for array in arrays), default=1)
    if any(array.shape[0] == 0 for array in arrays):
        steps = 0
    parts = [
        np.broadcast_to(array, (steps, *shape)) for array, shape in zip(arrays, shapes, strict=True)
    ]
    return np.concatenate(parts, axis=1 + axis)


def take_box(array: Array, shape: Shape, starts: Sequence[Array], sizes: Sequence[Any]) -> Array:
    """A box of every step's array, at a place that may differ by step.

    Args:
      array: ``[steps or 1, *shape]``, axes of size 1 where uniform.
      shape: of the value at one step.
      starts: first index along every axis, arrays ``[steps or 1]``; clipped into range.
      sizes: entries along every axis, with a stride: ``(size, stride)``; None drops the axis and
        takes the one entry at its start.
    """
    kept = [size for size in sizes if size is not None]
    rank = len(kept)
    steps = np.arange(array.shape[0]).reshape(-1, *[1] * rank)
    index: list[Array] = [steps]
    place = 0
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        entries = start.reshape(start.shape[0], *[1] * rank).astype(np.int64)
        if size is not None:
            spread = np.arange(size[0]) * size[1]
            place += 1
            entries = entries + spread.reshape(*[1] * place, -1, *[1] * (rank - place))
        last = array.shape[1 + axis] - 1  # 0 along a uniform axis
        index.append(np.clip(entries, 0, last))
    return np.asarray(array[tuple(index)])


def _dynamic_slice(arrays: Sequence[Array], shape: Shape, sizes: Shape) -> Array:
    starts = [
        np.clip(start, 0, length - size)
        for start, length, size in zip(arrays[1:], shape, sizes, strict=True)
    ]
    return take_box(arrays[0], shape, starts, [(size, 1) for size in sizes])


def footprint(name: str, arrays: Sequence[Array], shapes: Sequence[Shape], out: Shape) -> int:
    """Entries that `evaluate` works with at most."""
    steps = max((array.shape[0] for array in arrays), default=1)
    compact = [array.shape[1:] for array in arrays]
    if all(size == 1 for shape in compact for size in shape):
        return steps
    if name in _ELEMENTWISE or name == "select_n":
        return steps * int(np.prod(np.broadcast_shapes(*compact), dtype=np.int64))
    if name in ("broadcast_in_dim", "broadcast_to", "transpose"):
        return steps * max(int(np.prod(shape, dtype=np.int64)) for shape in compact)
    return steps * max(int(np.prod(shape, dtype=np.int64)) for shape in [*shapes, out])


def evaluate(
    name: str,
    params: Mapping[str, Any],
    arrays: Sequence[Array],
    shapes: Sequence[Shape],
    out_shape: Shape,
) -> Array | None:
    """Result of a primitive on known values; None if it is not one of those known here.

    Args:
      name: of the primitive.
      params: of the equation.
      arrays: operands, ``[steps or 1, *shape]`` each.
      shapes: of the operands at one step.
      out_shape: of the result at one step.

    Returns:
      The result before conversion to the type of the equation's output.
    """
    rank = len(out_shape)
    if name in _ELEMENTWISE:
        with np.errstate(all="ignore"):
            return np.asarray(_ELEMENTWISE[name](*(_aligned(array, rank) for array in arrays)))
    if name == "select_n":
        return _select([_aligned(array, rank) for array in arrays])
    if name == "broadcast_in_dim" and len(arrays) == 1:
        return _broadcast_in_dim(arrays[0], params)
    if name in ("reshape", "squeeze", "expand_dims") and len(arrays) == 1:
        return _reshape(arrays[0], shapes[0], out_shape)
    if name == "broadcast_to":
        return _aligned(arrays[0], rank)
    if name == "iota" and not arrays:
        sizes = [out_shape[axis] if axis == params["dimension"] else 1 for axis in range(rank)]
        return np.arange(out_shape[params["dimension"]]).reshape(1, *sizes)
    if name == "transpose":
        return arrays[0].transpose(0, *(1 + axis for axis in params["permutation"]))
    if name == "slice":
        return _slice(arrays[0], params, out_shape)
    if name == "concatenate":
        return _concatenate(arrays, shapes, params["dimension"])
    if name == "dynamic_slice":
        return _dynamic_slice(arrays, shapes[0], params["slice_sizes"])
    if name in _REDUCTIONS:
        axes = tuple(1 + axis for axis in params["axes"])
        return np.asarray(_REDUCTIONS[name](full(arrays[0], shapes[0]), axis=axes))
    return None
