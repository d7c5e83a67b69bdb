"""Strategies of arguments as a user may give them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.contract.load import LoadError
from conformance.fuzz_mask.errors import own_trace

#: Attribute of a class, or of its module, with a strategy of its arguments.
ATTRIBUTE = "fuzz_parameters"

FORMS = (
    "a Hypothesis strategy of dicts of arguments (or of masks), a function of a shape (q_len, kv_len) or of nothing "
    "that returns one, or a dict of a strategy for each parameter"
)


def signature_of(make: Any, name: str) -> inspect.Signature:
    """The signature of a class or function.

    Raises:
      LoadError: it has none.
    """
    try:
        return inspect.signature(make)
    except (TypeError, ValueError) as error:
        raise LoadError(f"{name}: its parameters cannot be found out: {error}") from None


def normal(given: Any, name: str) -> Any:
    """A strategy of the user as a function of a shape, a dict of strategies, or None.

    Args:
      given: in one of `FORMS`.
      name: of the class that it is for.

    Raises:
      LoadError: it has another form.
    """
    if given is None:
        return None
    if isinstance(given, st.SearchStrategy):
        return lambda shape: given
    if isinstance(given, Mapping):
        wrong = [n for n, value in given.items() if not isinstance(value, st.SearchStrategy)]
        if wrong:
            raise LoadError(f"the strategy of {name} for {wrong[0]!r} is not a Hypothesis strategy")
        return dict(given)
    if not callable(given):
        raise LoadError(f"the strategy of {name} must be {FORMS}; got a {type(given).__name__}")
    required = [
        p
        for p in signature_of(given, name).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if len(required) > 1:
        text = f"the strategy of {name} must be {FORMS}; it takes {len(required)} arguments"
        raise LoadError(text)
    return given if required else lambda shape: given()


def called(
    given: Callable[[tuple[int, int]], Any], shape: tuple[int, int], name: str
) -> st.SearchStrategy[Any]:
    """The strategy that a function of the user gives for a shape.

    Raises:
      LoadError: it fails, or gives none.
    """
    try:
        found = given(shape)
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        raise LoadError(
            f"the strategy of {name} fails:\n{own_trace(error, _file(given))}"
        ) from error
    if isinstance(found, st.SearchStrategy):
        return found
    raise LoadError(f"the function for the strategy of {name} must return one, got {found!r:.80}")


def _file(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return code.co_filename if code is not None else ""
