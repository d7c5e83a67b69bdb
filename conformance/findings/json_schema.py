"""JSON Schema from types: from dataclasses and typed dictionaries, with what their docstrings say about attributes.

A report, a comparison and a judgement of a mask class each have a type that says what their JSON form holds. Their
schema files are generated from those types (``python -m conformance.commands.schemas --write``).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypeAliasType, Union

type Schema = dict[str, Any]


class Keywords:
    """Keywords of JSON Schema for what a type of Python cannot say, as metadata of `typing.Annotated`."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


#: Id of a clause.
ClauseId = Annotated[str, Keywords(pattern=r"^[A-Z][A-Z0-9]*-\d+$")]
#: How many of something.
Count = Annotated[int, Keywords(minimum=0)]
#: How many of something that is always there.
Positive = Annotated[int, Keywords(minimum=1)]
#: Two whole numbers, e.g. along q and kv.
Pair = Annotated[list[Count], Keywords(minItems=2, maxItems=2)]
#: Wall time.
Seconds = Annotated[float, Keywords(minimum=0)]

_SIMPLE: dict[object, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null",
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """How the JSON form of a class differs from its attributes.

    Attributes:
      left_out: attributes that are not there.
      properties: names of properties of the class that are.
      further: types of further members.
    """

    left_out: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    further: Mapping[str, Any] = field(default_factory=dict)


class Generator:
    """Makes schemas of types; every class and every named type becomes a definition.

    Args:
      forms: of classes whose JSON form differs from their attributes; a ready schema where it has nothing to do
        with them.

    Attributes:
      definitions: by name.
    """

    def __init__(self, forms: Mapping[type, Form | Schema]) -> None:
        self.forms = forms
        self.definitions: dict[str, Schema] = {}

    def schema(self, hint: Any) -> Schema:
        """The schema of a type.

        Raises:
          TypeError: JSON has no form for it.
        """
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is NotRequired:
            return self.schema(arguments[0])
        if origin is Annotated:
            found = self.schema(arguments[0])
            for item in arguments[1:]:
                found = found | item.keywords
            return found
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(item) for item in arguments]}
        if origin is Literal:
            return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        if hint is Any:
            return {}
        if hint in _SIMPLE:
            return {"type": _SIMPLE[hint]}
        if isinstance(hint, TypeAliasType):
            return self._defined(hint.__name__, lambda: self.schema(hint.__value__))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(*arguments)
        if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
            return self._array(arguments)
        if isinstance(hint, type) and (hint in self.forms or _has_members(hint)):
            return self._defined(hint.__name__, lambda: self.members(hint))
        raise TypeError(f"no JSON form for {hint}")

    def _defined(self, name: str, make: typing.Callable[[], Schema]) -> Schema:
        if name not in self.definitions:
            self.definitions[name] = {}  # a type may hold itself
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def _mapping(self, keys: Any, values: Any) -> Schema:
        names = {} if keys is str else {"propertyNames": self.schema(keys)}
        return {"type": "object", **names, "additionalProperties": self.schema(values)}

    def _array(self, arguments: tuple[Any, ...]) -> Schema:
        if len(arguments) == 1 or arguments[1:] == (...,):
            return {"type": "array", "items": self.schema(arguments[0])}
        items, size = [self.schema(item) for item in arguments], len(arguments)
        return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}

    def members(self, cls: type) -> Schema:
        """The schema of a dataclass or a typed dictionary: an object with these members and no others."""
        form = self.forms.get(cls, Form())
        if not isinstance(form, Form):
            return form
        hints = typing.get_type_hints(cls, include_extras=True)
        if dataclasses.is_dataclass(cls):
            hints = {item.name: hints[item.name] for item in dataclasses.fields(cls)}
        about = attribute_texts(cls)
        optional = {name for name in hints if typing.get_origin(hints[name]) is NotRequired}
        for name in form.properties:
            getter = getattr(cls, name).fget
            hints[name] = typing.get_type_hints(getter, include_extras=True)["return"]
            about[name] = _first_paragraph(getter)
        hints |= form.further
        properties: dict[str, Schema] = {}
        for name, hint in hints.items():
            if name not in form.left_out:
                text = {"description": about[name]} if about.get(name) else {}
                properties[name] = self.schema(hint) | text
        return {
            "type": "object",
            "description": _first_paragraph(cls),
            "additionalProperties": False,
            "required": [name for name in properties if name not in optional],
            "properties": properties,
        }


def _has_members(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) or typing.is_typeddict(cls)


def _first_paragraph(item: Any) -> str:
    return " ".join((inspect.getdoc(item) or "").split("\n\n")[0].split())


def attribute_texts(cls: type) -> dict[str, str]:
    """What the sections Attributes of a class and of its bases say, by attribute."""
    found: dict[str, str] = {}
    for base in types.get_original_bases(cls):
        if isinstance(base, type) and _has_members(base):
            found |= attribute_texts(base)
    section = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2].split("\n\n")[0]
    for names, text in re.findall(
        r"^  (\w+(?:, \w+)*): (.*(?:\n    .*)*)", section, flags=re.MULTILINE
    ):
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return found


def document(
    cls: type, identifier: str, version: int, forms: Mapping[type, Form | Schema]
) -> Schema:
    """The schema document of the JSON form of a class.

    Args:
      cls: a dataclass or a typed dictionary with a member ``schema``, the version of the form.
      identifier: what it is called, e.g. ``report``.
      version: of the form.
      forms: as for `Generator`.
    """
    generator = Generator(forms)
    body = generator.members(cls)
    body["properties"]["schema"] |= {"const": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:splash-conformance:{identifier}:{version}",
        "title": f"{body.pop('description')} Schema {version}.",
        **body,
        "$defs": dict(sorted(generator.definitions.items())),
    }
