"""Whether what an implementation returned has the form that its method promises.

Checks compare values; they rely on this for types and shapes, so that an answer of a wrong form is a verdict about
the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from conformance.contract.protocol import Arithmetic, Forward, Gradients
from conformance.contract.remote.wire import Opaque
from conformance.findings.violation import Violation
from conformance.problems.arrays import Inputs
from reference.flat import FlatMaskInfo
from reference.mask_info import GridMaskInfo
from reference.schedule import Schedule

Shape = tuple[int, ...]


def described(value: object) -> str:
    """A value of a wrong type in a few words."""
    if isinstance(value, Opaque):
        return str(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return f"{type(value).__name__} {value!r:.80}"


def _instance(where: str, kinds: tuple[type, ...], value: object) -> None:
    if not isinstance(value, kinds):
        raise Violation(where, " or ".join(kind.__name__ for kind in kinds), described(value))


def _array(where: str, value: Any, kinds: str, *ranks: int, optional: bool = False) -> None:
    """Raises `Violation` unless a value is an array of one of the kinds and ranks."""
    if value is None and optional:
        return
    names = {"b": "boolean", "i": "signed integer", "u": "unsigned integer", "f": "floating"}
    words = [names[kind] for kind in kinds]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        raise Violation(where, f"an array ({' or '.join(words)})", described(value))
    if value.ndim not in ranks:
        raise Violation(f"rank of {where}", " or ".join(map(str, ranks)), value.ndim)


def _one_shape(where: str, arrays: dict[str, Any]) -> None:
    """Raises `Violation` unless all arrays that are there have the shape of the first."""
    (first, model), *others = ((n, a) for n, a in arrays.items() if a is not None)
    for name, array in others:
        if array.shape != model.shape:
            raise Violation(
                f"shape of {name}{where}", f"{model.shape}, that of {first}", array.shape
            )


def check_mask_info(info: Any, arguments: Sequence[Any]) -> None:
    """The arrays of `GridMaskInfo` or `FlatMaskInfo`, of the direction that was asked for."""
    direction = arguments[0]
    _instance(f"mask_info({direction})", (GridMaskInfo, FlatMaskInfo), info)
    where = f" ({direction})"
    if info.direction != direction:
        raise Violation(f"direction of mask_info({direction})", direction, info.direction)
    names, rank = ("block_mask", "data_next", "mask_next"), 3
    if isinstance(info, FlatMaskInfo):
        names, rank = ("block_mask", "active_rows", "active_cols", "mask_next"), 1  # type: ignore[assignment]
        _array(f"num_active_blocks{where}", info.num_active_blocks, "iu", 1)
    for name in names:
        optional = name == "mask_next"
        _array(f"{name}{where}", getattr(info, name), "iu", rank, optional=optional)
    _one_shape(where, {name: getattr(info, name) for name in names})
    # Some store 0 and 1: their type is a matter of clauses.
    _array(f"partial_mask_blocks{where}", info.partial_mask_blocks, "biuf", 3, 5, optional=True)
    _array(f"q_sequence{where}", info.q_sequence, "iu", 1, optional=True)
    _array(f"computed_mask{where}", info.computed_mask, "b", 2, optional=True)


def check_schedule(schedule: Any, arguments: Sequence[Any]) -> None:
    """The arrays of `Schedule`, one entry a step."""
    direction = arguments[0]
    _instance(f"schedule({direction})", (Schedule,), schedule)
    where = f" (schedule of {direction})"
    if schedule.direction != direction:
        raise Violation(f"direction of schedule({direction})", direction, schedule.direction)
    _array(f"runs{where}", schedule.runs, "b", 1)
    numbers = ("head", "q_block", "kv_block", "mask_block")
    for name in numbers:
        _array(f"{name}{where}", getattr(schedule, name), "iu", 1)
    _one_shape(where, {n: getattr(schedule, n) for n in ("runs", *numbers)})
    for field, kinds, rank in (
        ("operands", "iu", 2), ("outputs", "iu", 2), ("initialises", "b", 1), ("writes", "b", 1), ("copies", "b", 1),
    ):  # fmt: skip
        arrays = getattr(schedule, field)
        _instance(f"{field}{where}", (dict,), arrays)
        for name, array in arrays.items():
            _array(f"{field}[{name!r}]{where}", array, kinds, rank)
            if len(array) != len(schedule.runs):
                place = f"length of {field}[{name!r}]{where}"
                raise Violation(place, f"{len(schedule.runs)} steps", len(array))
    _instance(f"output_blocks{where}", (dict,), schedule.output_blocks)


def _at_pairs(where: str, value: Any, *ids: Any) -> None:
    """Raises `Violation` unless a value is a boolean array that broadcasts to what arrays broadcast to."""
    if not isinstance(value, np.ndarray) or value.dtype != np.bool_:
        raise Violation(where, "an array of booleans", described(value))
    shape = np.broadcast_shapes(*(array.shape for array in ids))
    try:
        np.broadcast_to(value, shape)
    except ValueError:
        raise Violation(
            f"shape of {where}", f"one that broadcasts to {shape}", value.shape
        ) from None


def _pair(where: str, value: Any) -> None:
    """Raises `Violation` unless a value is a pair."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise Violation(where, "a pair of arrays", described(value))


def check_mask_at(found: Any, arguments: Sequence[Any]) -> None:
    """Booleans for all pairs, or nothing."""
    if found is not None:
        _at_pairs("mask_at", found, *arguments[1:])


def check_mask_bounds(found: Any, arguments: Sequence[Any]) -> None:
    """Two arrays of booleans for all rectangles, or nothing."""
    if found is not None:
        _pair("mask_bounds", found)
        for answer in found:
            _at_pairs("mask_bounds", answer, *arguments[1:])


def check_mask_intervals(found: Any, arguments: Sequence[Any]) -> None:
    """Two arrays of integers with an axis before those of the queries, or nothing."""
    if found is not None:
        _pair("mask_intervals", found)
        rank = arguments[1].ndim + 1
        for name, bound in zip(("lo", "hi"), found, strict=True):
            _array(f"{name} of mask_intervals", bound, "iu", rank)
            if bound.shape[1:] != arguments[1].shape:
                place = f"shape of {name} of mask_intervals"
                raise Violation(place, ("intervals", *arguments[1].shape), bound.shape)


def _numbers(where: str, value: Any, shape: Shape) -> None:
    """Raises `Violation` unless a value is an array of real numbers of a shape."""
    if not hasattr(value, "shape"):
        raise Violation(where, f"an array of shape {shape}", described(value))
    try:
        with np.errstate(all="ignore"):
            real = not np.iscomplexobj(value) and np.asarray(value, dtype=np.float64).ndim >= 0
    except (TypeError, ValueError):
        real = False
    if not real:
        raise Violation(where, "an array of real numbers", described(value))
    if tuple(value.shape) != shape:
        raise Violation(f"shape of {where}", shape, tuple(value.shape))


def check_forward(found: Any, arguments: Sequence[Any]) -> None:
    """Output and residuals with the shapes that the arrays ask for."""
    inputs: Inputs = arguments[0]
    _instance("forward", (Forward,), found)
    heads, q_len = inputs.q.shape[:2]
    _numbers("output", found.output, (heads, q_len, inputs.v.shape[2]))
    for name in ("logsumexp", "max_logits"):
        if getattr(found, name) is not None:
            _numbers(name, getattr(found, name), (heads, q_len))


def check_batch(found: Any, arguments: Sequence[Any]) -> None:
    """One result an input."""
    batch = arguments[0]
    _instance("forward_batch", (list, tuple), found)
    if len(found) != len(batch):
        raise Violation("length of forward_batch", len(batch), len(found))
    for one, inputs in zip(found, batch, strict=True):
        check_forward(one, [inputs])


def check_backward(found: Any, arguments: Sequence[Any]) -> None:
    """Gradients with the shapes of what they belong to."""
    inputs: Inputs = arguments[0]
    _instance("backward", (Gradients,), found)
    for name in ("q", "k", "v"):
        _numbers(f"d{name}", getattr(found, f"d{name}"), getattr(inputs, name).shape)
    if inputs.sinks is not None and found.dsinks is not None:
        _numbers("dsinks", found.dsinks, inputs.sinks.shape)


def check_backward_batch(found: Any, arguments: Sequence[Any]) -> None:
    """Gradients of every input."""
    batch = arguments[0]
    _instance("backward_batch", (list, tuple), found)
    if len(found) != len(batch):
        raise Violation("length of backward_batch", len(batch), len(found))
    for one, inputs in zip(found, batch, strict=True):
        check_backward(one, [inputs])


def check_arithmetic(found: Any, arguments: Sequence[Any]) -> None:
    """A declaration of arithmetic."""
    del arguments
    _instance("arithmetic", (Arithmetic,), found)


#: What a method must return, by its name: the answer and the arguments of the call.
FORMS: dict[str, Callable[[Any, Sequence[Any]], None]] = {
    "mask_at": check_mask_at,
    "mask_bounds": check_mask_bounds,
    "mask_intervals": check_mask_intervals,
    "mask_info": check_mask_info,
    "schedule": check_schedule,
    "forward": check_forward,
    "forward_batch": check_batch,
    "backward": check_backward,
    "backward_batch": check_backward_batch,
    "arithmetic": check_arithmetic,
}
