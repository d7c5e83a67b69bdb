"""Makes the masks of a class: from a derived or given strategy of its arguments, or from given calls."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from hypothesis import strategies as st

from conformance.contract.load import LoadError
from conformance.fuzz_mask.arguments.annotations import Parameter, Underivable, parameters_of
from conformance.fuzz_mask.arguments.given import ATTRIBUTE, FORMS, called, normal, signature_of
from conformance.fuzz_mask.arguments.literals import literal
from conformance.fuzz_mask.arguments.settings import Setting
from conformance.problems.user_mask import UserMask

_families = itertools.count(1)


class Refused(Exception):
    """The constructor refused its arguments with a ValueError."""


class Raised(Exception):
    """The constructor raised something other than ValueError.

    Attributes:
      error: what it raised.
      arguments: of the call.
    """

    def __init__(self, error: BaseException, arguments: Arguments) -> None:
        self.error = error
        self.arguments = arguments
        super().__init__(str(error))


@dataclass(frozen=True)
class Arguments:
    """Arguments of one call, by parameter; defaults are left out.

    Attributes:
      values: in the order of the parameters.
      ready: the mask itself, where a strategy draws masks instead of arguments.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    ready: Any = None


@dataclass
class Counts:
    """How the calls of a constructor ended.

    Attributes:
      made: calls that gave a mask.
      refused: calls that ended in a ValueError, by its message with the numbers left out.
      messages: one whole message for each of these.
      raised: a call that ended in another error, the shortest of each type.
    """

    made: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    raised: dict[str, Raised] = field(default_factory=dict)

    @property
    def discarded(self) -> int:
        """Calls that were refused."""
        return sum(self.refused.values())

    def refuse(self, message: str) -> None:
        """Counts a refusal."""
        first = message.split("\n")[0]
        kind = re.sub(r"-?\d+(\.\d+)?", "…", first)
        self.refused[kind] += 1
        self.messages.setdefault(kind, first)

    def reasons(self) -> dict[str, int]:
        """The most frequent refusals, each with a message that was met."""
        return {self.messages[kind]: number for kind, number in self.refused.most_common(3)}


class Source:
    """Masks of one class.

    Args:
      make: the class, or a function that makes masks.
      name: how it is called in the report, an expression of its module.
      module: where it stands.
      strategy: as the user gave it, see `FORMS`; None to look for `ATTRIBUTE` and else derive one.
      calls: only the masks that these expressions make; none are drawn.

    Raises:
      LoadError: the class is none, the strategy has none of the forms, a parameter has no annotation from which
        values follow, or a call cannot be evaluated.
    """

    def __init__(
        self,
        make: Any,
        name: str,
        module: ModuleType,
        strategy: Any = None,
        calls: Sequence[str] = (),
    ) -> None:
        if not callable(make):
            raise LoadError(f"{name} is not a class but a {type(make).__name__}")
        self.make, self.name, self.module = make, name, module
        self.family = next(_families)
        self.counts = Counts()
        self.signature = signature_of(make, name)
        of_class = getattr(make, ATTRIBUTE, None) if isinstance(make, type) else None
        offered = (strategy, of_class, getattr(module, ATTRIBUTE, None))
        self.given = normal(next((one for one in offered if one is not None), None), name)
        self.calls = [self._of_call(call) for call in calls]
        self.parameters: list[Parameter] = []
        if not self.calls and not callable(self.given):
            self.parameters = self._parameters(self.given or {})

    @property
    def derived(self) -> bool:
        """Whether values of some parameter follow from annotations, and may be none that the author had in mind."""
        known = self.given if isinstance(self.given, Mapping) else {}
        return not self.calls and any(p.recipe and p.name not in known for p in self.parameters)

    @property
    def left_at_default(self) -> list[str]:
        """Parameters for which no values are drawn."""
        known = self.given if isinstance(self.given, Mapping) else {}
        return [p.name for p in self.parameters if p.recipe is None and p.name not in known]

    def _parameters(self, given: Mapping[str, Any]) -> list[Parameter]:
        unknown = given.keys() - self.signature.parameters.keys()
        if unknown:
            raise LoadError(
                f"the strategy names {sorted(unknown)}, which {self.name} does not have"
            )
        try:
            return parameters_of(self.make, given)
        except Underivable as error:
            raise LoadError(
                f"{self.name}: cannot derive values for the parameter {error}; give it a default, or {self.advice()}"
            ) from None

    def arguments(self, setting: Setting) -> st.SearchStrategy[Arguments]:
        """Arguments of masks that are wanted for a setting; the constructor may refuse them."""
        if self.calls:
            return st.sampled_from(self.calls)
        if callable(self.given):
            return called(self.given, setting.shape, self.name).map(self._of_value)
        return st.fixed_dictionaries(
            {p.name: self.values_of(p, setting) for p in self.parameters if not p.optional},
            optional={
                p.name: self.values_of(p, setting)
                for p in self.parameters
                if p.optional and (p.recipe is not None or p.name in (self.given or {}))
            },
        ).map(self.ordered)

    def values_of(self, parameter: Parameter, setting: Setting) -> st.SearchStrategy[Any]:
        """Values of a parameter: from the user's strategy for it, or by its annotation."""
        if isinstance(self.given, Mapping) and parameter.name in self.given:
            found: st.SearchStrategy[Any] = self.given[parameter.name]
            return found
        return parameter.values(setting)

    def ordered(self, values: Mapping[str, Any]) -> Arguments:
        """Arguments in the order of the parameters, without those that are the default."""
        return Arguments(
            {
                name: values[name]
                for name, parameter in self.signature.parameters.items()
                if name in values and not _is_default(values[name], parameter)
            }
        )

    def _of_value(self, value: Any) -> Arguments:
        """What a strategy of the user drew, as arguments."""
        if isinstance(value, Arguments):
            return value
        if isinstance(value, Mapping):
            return self._bound((), dict(value))
        if isinstance(value, tuple):
            return self._bound(value, {})
        if hasattr(value, "shape") and hasattr(value, "__getitem__"):
            return Arguments(ready=value)
        raise LoadError(
            f"the strategy of {self.name} must draw dicts of arguments or masks, got {value!r:.80}"
        )

    def _bound(self, positional: tuple[Any, ...], named: dict[str, Any]) -> Arguments:
        try:
            bound = self.signature.bind(*positional, **named)
        except TypeError as error:
            raise LoadError(
                f"{self.name} cannot be called with {named or positional}: {error}"
            ) from None
        return Arguments(dict(bound.arguments))

    def _of_call(self, text: str) -> Arguments:
        """The arguments of a call as the report prints them."""
        names = vars(self.module) | {"np": np}
        try:
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call) or any(k.arg is None for k in call.keywords):
                raise LoadError(f"--instance {text}: expected a call such as {self.name}((2, 3))")
            if ast.unparse(call.func) != self.name:
                raise LoadError(f"--instance {text}: expected a call of {self.name}")
            positional = [eval(ast.unparse(item), names) for item in call.args]
            named = {str(k.arg): eval(ast.unparse(k.value), names) for k in call.keywords}
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(f"--instance {text}: {type(error).__name__}: {error}") from error
        return self._bound(tuple(positional), named)

    def text(self, arguments: Arguments) -> str:
        """The call that makes a mask, as Python."""
        if arguments.ready is not None:
            return repr(arguments.ready)
        parts: list[str] = []
        for name, value in arguments.values.items():
            kind = self.signature.parameters[name].kind
            plain = kind is inspect.Parameter.POSITIONAL_ONLY or (name == "shape" and not parts)
            parts.append(literal(value) if plain else f"{name}={literal(value)}")
        return f"{self.name}({', '.join(parts)})"

    def build(self, arguments: Arguments) -> Any:
        """A mask object, made anew.

        Raises:
          Refused, Raised: the constructor does not want these arguments.
        """
        if arguments.ready is not None:
            return arguments.ready
        # Copies: a class may keep what it is given, and must not be equal to another for that alone.
        values = {name: _copy(value) for name, value in arguments.values.items()}
        bound = inspect.BoundArguments(self.signature, values)
        try:
            return self.make(*bound.args, **bound.kwargs)
        except ValueError as error:
            raise Refused(str(error)) from error
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            raise Raised(error, arguments) from error

    def masks(self, setting: Setting) -> st.SearchStrategy[tuple[Arguments, UserMask]]:
        """Masks that are wanted for a setting, with their arguments; those that are refused are drawn again."""

        def made(arguments: Arguments) -> tuple[Arguments, UserMask | None]:
            return arguments, self.mask_or_none(arguments)

        accepted: Any = self.arguments(setting).map(made).filter(lambda both: both[1] is not None)
        drawn: st.SearchStrategy[tuple[Arguments, UserMask]] = accepted
        return drawn

    def mask_or_none(self, arguments: Arguments) -> UserMask | None:
        """A mask object as an expression; None, counted, if the constructor does not want the arguments."""
        try:
            made = self.build(arguments)
        except Refused as refusal:
            self.counts.refuse(str(refusal))
            return None
        except Raised as raised:
            known = self.counts.raised.get(type(raised.error).__name__)
            if known is None or len(self.text(arguments)) < len(self.text(known.arguments)):
                self.counts.raised[type(raised.error).__name__] = raised
            return None
        self.counts.made += 1
        again = None if arguments.ready is not None else partial(self.build, arguments)
        return UserMask(made, self.text(arguments), self.family, again=again)

    def complete(self, arguments: Arguments) -> dict[str, Any]:
        """All parameters with their values, defaults included, for an oracle."""
        bound = inspect.BoundArguments(self.signature, dict(arguments.values))
        bound.apply_defaults()
        return dict(bound.arguments)

    @property
    def file(self) -> str:
        """The file of the class."""
        return getattr(self.module, "__file__", None) or ""

    def advice(self) -> str:
        """How to pass a strategy."""
        return (
            f"pass --strategy path.py:name or an attribute {ATTRIBUTE!r} of the class: {FORMS}; for example\n\n"
            f"{self.example()}"
        )

    def example(self) -> str:
        """A strategy for the class, to be filled in."""
        values = ", ".join(
            f'"{name}": {"st.just(shape)" if name == "shape" else "st.…"}'
            for name, parameter in self.signature.parameters.items()
            if parameter.default is parameter.empty
        )
        return f"def strategy(shape):\n    return st.fixed_dictionaries({{{values}}})"


def _is_default(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether a value is a plain one that equals the default."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return plain and type(value) is type(parameter.default) and value == parameter.default


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
