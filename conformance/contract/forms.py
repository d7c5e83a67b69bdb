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
from conformance.findings.expectation import OfForm, OneOf
from conformance.findings.observation import Form
from conformance.findings.place import Place
from conformance.findings.violation import Violation
from conformance.problems.inputs import Inputs
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.schedule import Schedule

Shape = tuple[int, ...]


def form_of(value: object) -> Form:
    """What a value of a wrong type is."""
    if isinstance(value, Opaque):
        return Form(str(value))
    if isinstance(value, np.ndarray):
        return Form("ndarray", dtype=str(value.dtype), shape=value.shape)
    return Form(type(value).__name__, f"{value!r:.80}")


def _instance(place: Place, kinds: tuple[type, ...], value: object) -> None:
    if not isinstance(value, kinds):
        raise Violation(place, OfForm(tuple(kind.__name__ for kind in kinds)), form_of(value))


_DTYPES = {"b": "boolean", "i": "signed integer", "u": "unsigned integer", "f": "floating"}


def _array(place: Place, value: Any, kinds: str, *ranks: int, optional: bool = False) -> None:
    """Raises `Violation` unless a value is an array of one of the kinds and ranks."""
    if value is None and optional:
        return
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        raise Violation(
            place, OfForm(tuple(f"{_DTYPES[kind]} array" for kind in kinds)), form_of(value)
        )
    if value.ndim not in ranks:
        raise Violation(place.of("rank"), OneOf(ranks), value.ndim)


def _one_shape(direction: Direction, arrays: dict[str, Any]) -> None:
    """Raises `Violation` unless all arrays that are there have the shape of the first."""
    (_, model), *others = ((n, a) for n, a in arrays.items() if a is not None)
    for name, array in others:
        if array.shape != model.shape:
            raise Violation(Place(name, "shape", direction), model.shape, array.shape)


def check_mask_info(info: Any, arguments: Sequence[Any]) -> None:
    """The arrays of `GridMaskInfo` or `FlatMaskInfo`, of the direction that was asked for."""
    direction = arguments[0]
    _instance(Place("mask_info", direction=direction), (GridMaskInfo, FlatMaskInfo), info)
    if info.direction != direction:
        raise Violation(Place("mask_info", "direction", direction), direction, info.direction)
    names, rank = ("block_mask", "data_next", "mask_next"), 3
    if isinstance(info, FlatMaskInfo):
        names, rank = ("block_mask", "active_rows", "active_cols", "mask_next"), 1  # type: ignore[assignment]
        _array(_array_of(info, "num_active_blocks"), info.num_active_blocks, "iu", 1)
    for name in names:
        optional = name == "mask_next"
        _array(_array_of(info, name), getattr(info, name), "iu", rank, optional=optional)
    _one_shape(direction, {name: getattr(info, name) for name in names})
    for name, kinds, ranks in (
        # Some store 0 and 1: their type is a matter of clauses.
        ("partial_mask_blocks", "biuf", (3, 5)), ("q_sequence", "iu", (1,)), ("computed_mask", "b", (2,)),
    ):  # fmt: skip
        _array(_array_of(info, name), getattr(info, name), kinds, *ranks, optional=True)


def _array_of(arrays: GridMaskInfo | FlatMaskInfo | Schedule, name: str) -> Place:
    """An array of compiled arrays or of a schedule."""
    return Place(name, direction=arrays.direction)


def check_schedule(schedule: Any, arguments: Sequence[Any]) -> None:
    """The arrays of `Schedule`, one entry a step."""
    direction = arguments[0]
    _instance(Place("schedule", direction=direction), (Schedule,), schedule)
    if schedule.direction != direction:
        raise Violation(Place("schedule", "direction", direction), direction, schedule.direction)
    _array(_array_of(schedule, "runs"), schedule.runs, "b", 1)
    numbers = ("head", "q_block", "kv_block", "mask_block")
    for name in numbers:
        _array(_array_of(schedule, name), getattr(schedule, name), "iu", 1)
    _one_shape(direction, {n: getattr(schedule, n) for n in ("runs", *numbers)})
    for field, kinds, rank in (
        ("operands", "iu", 2), ("outputs", "iu", 2), ("initialises", "b", 1), ("writes", "b", 1), ("copies", "b", 1),
    ):  # fmt: skip
        arrays = getattr(schedule, field)
        _instance(_array_of(schedule, field), (dict,), arrays)
        for name, array in arrays.items():
            place = _array_of(schedule, f"{field}[{name!r}]")
            _array(place, array, kinds, rank)
            if len(array) != len(schedule.runs):
                raise Violation(place.of("length"), len(schedule.runs), len(array))
    _instance(_array_of(schedule, "output_blocks"), (dict,), schedule.output_blocks)


def _at_pairs(name: str, value: Any, *ids: Any) -> None:
    """Raises `Violation` unless a value is a boolean array that broadcasts to what arrays broadcast to."""
    if not isinstance(value, np.ndarray) or value.dtype != np.bool_:
        raise Violation(name, OfForm(("boolean array",)), form_of(value))
    shape = np.broadcast_shapes(*(array.shape for array in ids))
    try:
        np.broadcast_to(value, shape)
    except ValueError:
        shapes = OneOf(of=f"the shapes that broadcast to {shape}")
        raise Violation(Place(name, "shape"), shapes, value.shape) from None


def _pair(name: str, value: Any) -> None:
    """Raises `Violation` unless a value is a pair."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise Violation(name, OfForm(("pair of arrays",)), form_of(value))


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
            place = Place(f"{name} of mask_intervals")
            _array(place, bound, "iu", rank)
            if bound.shape[1:] != arguments[1].shape:
                raise Violation(place.of("shape"), ("intervals", *arguments[1].shape), bound.shape)


def _numbers(name: str, value: Any, shape: Shape) -> None:
    """Raises `Violation` unless a value is an array of real numbers of a shape."""
    if not hasattr(value, "shape"):
        raise Violation(name, OfForm((f"array of shape {shape}",)), form_of(value))
    try:
        with np.errstate(all="ignore"):
            real = not np.iscomplexobj(value) and np.asarray(value, dtype=np.float64).ndim >= 0
    except (TypeError, ValueError):
        real = False
    if not real:
        raise Violation(name, OfForm(("array of real numbers",)), form_of(value))
    if tuple(value.shape) != shape:
        raise Violation(Place(name, "shape"), shape, tuple(value.shape))


def check_forward(found: Any, arguments: Sequence[Any]) -> None:
    """Output and residuals with the shapes that the arrays ask for."""
    inputs: Inputs = arguments[0]
    _instance(Place("forward"), (Forward,), found)
    heads, q_len = inputs.q.shape[:2]
    _numbers("output", found.output, (heads, q_len, inputs.v.shape[2]))
    for name in ("logsumexp", "max_logits"):
        if getattr(found, name) is not None:
            _numbers(name, getattr(found, name), (heads, q_len))


def check_batch(found: Any, arguments: Sequence[Any]) -> None:
    """One result an input."""
    batch = arguments[0]
    _instance(Place("forward_batch"), (list, tuple), found)
    if len(found) != len(batch):
        raise Violation(Place("forward_batch", "length"), len(batch), len(found))
    for one, inputs in zip(found, batch, strict=True):
        check_forward(one, [inputs])


def check_backward(found: Any, arguments: Sequence[Any]) -> None:
    """Gradients with the shapes of what they belong to."""
    inputs: Inputs = arguments[0]
    _instance(Place("backward"), (Gradients,), found)
    for name in ("q", "k", "v"):
        _numbers(f"d{name}", getattr(found, f"d{name}"), getattr(inputs, name).shape)
    if inputs.sinks is not None and found.dsinks is not None:
        _numbers("dsinks", found.dsinks, inputs.sinks.shape)


def check_backward_batch(found: Any, arguments: Sequence[Any]) -> None:
    """Gradients of every input."""
    batch = arguments[0]
    _instance(Place("backward_batch"), (list, tuple), found)
    if len(found) != len(batch):
        raise Violation(Place("backward_batch", "length"), len(batch), len(found))
    for one, inputs in zip(found, batch, strict=True):
        check_backward(one, [inputs])


def check_arithmetic(found: Any, arguments: Sequence[Any]) -> None:
    """A declaration of arithmetic."""
    del arguments
    _instance(Place("arithmetic"), (Arithmetic,), found)


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
