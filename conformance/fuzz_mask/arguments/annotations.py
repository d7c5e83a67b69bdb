"""Derives strategies of arguments from the annotations of a constructor.

A parameter becomes a *recipe*: a function from a setting, the sizes that a mask is drawn for, to a strategy of values.
Numbers are small or near block edges, arrays have one entry per token, and about half of the time a parameter with a
default is left out.
"""

from __future__ import annotations

import collections.abc
import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsIndex

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from conformance.fuzz_mask.arguments import tokens
from conformance.fuzz_mask.arguments.names import (
    Sizes,
    axis_of,
    content_of,
    sizes_of_number,
    sizes_of_pair,
)
from conformance.fuzz_mask.arguments.settings import Setting

Recipe = Callable[[Setting], st.SearchStrategy[Any]]

SEQUENCES = (
    list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection,
    collections.abc.MutableSequence,
)  # fmt: skip


class Underivable(Exception):
    """No strategy can be derived from an annotation."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a constructor.

    Attributes:
      name: as in the signature.
      recipe: how values are drawn; None if nothing can be derived, so that the default is used.
      optional: it has a default.
      sizes: what it says about the shape of the mask.
    """

    name: str
    recipe: Recipe | None
    optional: bool
    sizes: Sizes = ""

    def values(self, setting: Setting) -> st.SearchStrategy[Any]:
        """Values for a setting."""
        assert self.recipe is not None
        return self.recipe(setting)


def parameters_of(make: Any, given: collections.abc.Container[str] = ()) -> list[Parameter]:
    """The parameters of a class or function, with recipes.

    Args:
      make: the class or function.
      given: names whose values come from somewhere else: no recipe is derived.

    Raises:
      Underivable: a parameter has neither a default nor an annotation from which values follow.
    """
    hints = _hints(make)
    found = []
    for parameter in inspect.signature(make).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        optional = parameter.default is not parameter.empty
        annotation = hints.get(parameter.name, parameter.empty)
        if annotation is parameter.empty:
            annotation = _guess(parameter.name, parameter.default)
        recipe: Recipe | None = None
        sizes: Sizes = ""
        if parameter.name not in given:
            try:
                recipe, sizes = _recipe(annotation, parameter.name)
            except Underivable:
                if not optional:
                    raise
        found.append(Parameter(parameter.name, recipe, optional, sizes))
    return found


def _hints(make: Any) -> dict[str, Any]:
    """The annotations of a constructor or function, evaluated as far as possible."""
    if isinstance(make, partial):
        return _hints(make.func)
    if not isinstance(make, type):
        return _evaluated(make, make)
    made_by = make.__init__ if make.__init__ is not object.__init__ else make.__new__  # type: ignore[misc]
    # Fields of dataclasses and named tuples are annotated in the class.
    return _evaluated(make, make) | _evaluated(made_by, make)


def _evaluated(annotated: Any, make: Any) -> dict[str, Any]:
    """The annotations of an object; those that cannot be evaluated are left out."""
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except Exception:  # names that exist for type checkers only
        names = vars(sys.modules.get(make.__module__, types.ModuleType("none")))
        found = {}
        for name, annotation in getattr(annotated, "__annotations__", {}).items():
            text = getattr(annotation, "__forward_arg__", annotation)
            try:
                found[name] = eval(text, dict(names)) if isinstance(text, str) else annotation
            except Exception:
                continue
        return found


def _guess(name: str, default: Any) -> Any:
    """An annotation for a parameter that has none, from its default or its name."""
    if isinstance(default, bool | int | float | enum.Enum):
        return type(default)
    if default is not inspect.Parameter.empty and default is not None:
        return _guess_of_object(default)
    if sizes_of_pair(name):
        return tuple[int, int]
    if sizes_of_number(name):
        return int
    return np.ndarray if content_of(name) else inspect.Parameter.empty


def _guess_of_object(default: Any) -> Any:
    if isinstance(default, np.ndarray):
        return np.ndarray
    if type(default) is tuple and default:
        return types.GenericAlias(tuple, tuple(_guess("", item) for item in default))
    return inspect.Parameter.empty


def _recipe(annotation: Any, name: str) -> tuple[Recipe, Sizes]:
    """How values of an annotation are drawn.

    Raises:
      Underivable: nothing follows from it.
    """
    annotation, limits = _plain(annotation)
    recipe, sizes = _of_plain(annotation, name)
    if limits:
        return lambda setting: _within(recipe(setting), limits), sizes
    return recipe, sizes


def _plain(annotation: Any) -> tuple[Any, list[Any]]:
    """An annotation without aliases and metadata, and its metadata."""
    limits: list[Any] = []
    while True:
        if isinstance(annotation, typing.TypeAliasType) and annotation is not ArrayLike:
            annotation = annotation.__value__
        elif typing.get_origin(annotation) is typing.Annotated:
            annotation, *more = typing.get_args(annotation)
            limits += more
        elif typing.get_origin(annotation) in (typing.Final, typing.ClassVar):
            (annotation,) = typing.get_args(annotation)
        elif hasattr(annotation, "__supertype__"):  # a NewType
            annotation = annotation.__supertype__
        else:
            return annotation, limits


def _within(values: st.SearchStrategy[Any], limits: list[Any]) -> st.SearchStrategy[Any]:
    """Values that metadata allows: strategies of Hypothesis, and bounds as `annotated_types` has them."""
    for limit in limits:
        if isinstance(limit, st.SearchStrategy):
            values = limit
            continue
        for attribute, holds in _BOUNDS.items():
            bound = getattr(limit, attribute, None)
            if bound is not None:
                values = values.filter(partial(_holds, holds, bound))
    return values


def _holds(holds: Callable[[Any, Any], bool], bound: Any, value: Any) -> bool:
    return holds(value, bound)


_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "ge": lambda value, bound: value >= bound,
    "gt": lambda value, bound: value > bound,
    "le": lambda value, bound: value <= bound,
    "lt": lambda value, bound: value < bound,
    "multiple_of": lambda value, bound: value % bound == 0,
    "min_length": lambda value, bound: len(value) >= bound,
    "max_length": lambda value, bound: len(value) <= bound,
}


def _of_plain(annotation: Any, name: str) -> tuple[Recipe, Sizes]:
    if _is_array(annotation):
        return _array(annotation, name)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, name)
    if origin is typing.Literal:
        return (lambda setting: st.sampled_from(arguments)), ""
    if (origin or annotation) in SEQUENCES:
        return _sequence(annotation, name)
    return _simple(annotation, name)


def _simple(annotation: Any, name: str) -> tuple[Recipe, Sizes]:
    if annotation is None or annotation is type(None):
        return (lambda setting: st.none()), ""
    if not isinstance(annotation, type):
        raise Underivable(f"{name}: {_shown(annotation)}")
    if issubclass(annotation, bool | np.bool_):
        return (lambda setting: st.booleans()), ""
    if issubclass(annotation, enum.Enum):
        return (lambda setting: st.sampled_from(annotation)), ""
    if issubclass(annotation, int | np.integer) or annotation is SupportsIndex:
        return _number(name)
    if issubclass(annotation, float | np.floating):
        return (lambda setting: st.one_of(st.sampled_from((0.0, 0.5, 1.0)), st.floats(0, 1))), ""
    raise Underivable(f"{name}: {_shown(annotation)}")


def _number(name: str) -> tuple[Recipe, Sizes]:
    """A length of the mask by its name, else a number that is small or near an edge."""
    sizes = sizes_of_number(name)
    if sizes:
        attribute = "kv_len" if sizes == "kv_len" else "q_len"
        return (lambda setting: st.just(getattr(setting, attribute))), sizes
    return numbers, ""


def numbers(setting: Setting) -> st.SearchStrategy[int]:
    """Whole numbers that are small, or on, just before or just after an edge."""
    return st.one_of(st.integers(0, 3), st.sampled_from(setting.edges()))


def _union(arguments: tuple[Any, ...], name: str) -> tuple[Recipe, Sizes]:
    """Any of the alternatives from which values follow."""
    ways: list[tuple[Recipe, Sizes]] = []
    if set(arguments) >= _ARRAY_LIKE:
        ways.append(_array(np.ndarray, name))
        arguments = tuple(item for item in arguments if item not in _ARRAY_LIKE)
    # None first: the simplest value.
    for item in sorted(arguments, key=lambda item: item is not type(None)):
        try:
            ways.append(_recipe(item, name))
        except Underivable:
            continue
    if not ways:
        raise Underivable(f"{name}: none of {', '.join(map(_shown, arguments))}")
    sizes: Sizes = next((sizes for _, sizes in ways if sizes), "")
    recipes = [recipe for recipe, _ in ways]
    return (lambda setting: st.one_of(*(recipe(setting) for recipe in recipes))), sizes


#: What the alias ``ArrayLike`` stands for: itself, or the members of a union in older releases of NumPy.
_ARRAY_LIKE: set[Any] = set(typing.get_args(ArrayLike)) or {ArrayLike}


def _is_array(annotation: Any) -> bool:
    """Whether an annotation is that of an array: of NumPy, of JAX, or what can be made into one."""
    if annotation == ArrayLike:
        return True
    kind = typing.get_origin(annotation) or annotation
    if kind is NDArray or typing.get_origin(kind) is np.ndarray:
        return True
    if not isinstance(kind, type):
        return False
    return issubclass(kind, np.ndarray) or (
        kind.__name__ == "Array" and kind.__module__.split(".")[0].startswith("jax")
    )


def _array(annotation: Any, name: str) -> tuple[Recipe, Sizes]:
    """One entry a token, or what the name says, in the type of the array."""
    dtype = _dtype_of(annotation)
    content = content_of(name) or ("flags" if dtype == np.bool_ else "ids")
    if dtype == np.bool_ and content != "matrix":
        content = "flags"
    axis = axis_of(name)

    def recipe(setting: Setting) -> st.SearchStrategy[Any]:
        drawn = tokens.holding(content, axis, setting)
        return drawn if dtype is None else drawn.map(lambda array: array.astype(dtype))

    return recipe, ""


def _dtype_of(annotation: Any) -> Any:
    """The element type of an ``NDArray[…]`` or ``np.ndarray[…, np.dtype[…]]``; None if it does not say."""
    for item in typing.get_args(annotation):
        scalar = typing.get_args(item)[0] if typing.get_origin(item) is np.dtype else item
        if scalar in _CONCRETE:
            return np.dtype(scalar)
    return None


_CONCRETE = (
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float32, np.float64,
)  # fmt: skip


def _sequence(annotation: Any, name: str) -> tuple[Recipe, Sizes]:
    """Shapes, fixed tuples, what the name says, or a few entries."""
    origin = typing.get_origin(annotation) or annotation
    arguments = typing.get_args(annotation)
    make = list if origin in (list, collections.abc.MutableSequence) else tuple
    if sizes_of_pair(name):
        return (lambda setting: st.just(make(setting.shape))), "shape"
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        recipes = [_recipe(item, name)[0] for item in arguments]
        return (lambda setting: st.tuples(*(recipe(setting) for recipe in recipes))), ""
    element = _plain(arguments[0])[0] if arguments else int
    content, axis = content_of(name), axis_of(name)
    wanted = (bool, np.bool_) if content == "flags" else (int, np.int32, np.int64, SupportsIndex)
    if content not in ("", "matrix") and element in wanted:

        def listed(setting: Setting) -> st.SearchStrategy[Any]:
            return tokens.holding(content, axis, setting).map(lambda array: make(array.tolist()))

        return listed, ""
    entry = _recipe(element, "")[0]
    return (lambda setting: st.lists(entry(setting), max_size=4).map(make)), ""


def _shown(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return "no annotation"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
