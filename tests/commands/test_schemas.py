"""Schemas of the JSON that commands write: generated from types, and fresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest

from conformance.commands import schemas
from conformance.findings.json_schema import Count, Form, Keywords, document

type Tree = int | list[Tree]


@dataclass
class Leaf:
    """One leaf.

    Attributes:
      name, colour: what is said
        about it.
      secret: not shown.
    """

    name: str
    colour: Literal["red", "green"] | None
    secret: int = 0

    @property
    def size(self) -> Count:
        """How large it is."""
        return len(self.name)


class Base(TypedDict):
    """A base.

    Attributes:
      schema: version.
    """

    schema: int


class Whole(Base):
    """A whole.

    Further words.

    Attributes:
      leaves: by name.
    """

    leaves: dict[Annotated[str, Keywords(pattern="^[a-z]+$")], Leaf]
    tree: NotRequired[Tree]
    pair: tuple[int, str]
    flags: tuple[bool, ...]


def made() -> dict[str, Any]:
    return document(Whole, "whole", 7, {Leaf: Form(left_out=("secret",), properties=("size",))})


VALID: dict[str, Any] = {
    "schema": 7,
    "leaves": {"a": {"name": "a", "colour": None, "size": 1}},
    "tree": [1, [2, []]],
    "pair": [1, "x"],
    "flags": [True, False],
}


def test_types_become_schemas_with_their_texts() -> None:
    found = made()
    assert found["$id"] == "urn:splash-conformance:whole:7"
    assert found["title"] == "A whole. Schema 7."
    assert found["required"] == ["schema", "leaves", "pair", "flags"]
    assert found["properties"]["schema"]["description"] == "version."
    assert found["properties"]["leaves"]["description"] == "by name."
    leaf = found["$defs"]["Leaf"]
    assert leaf["description"] == "One leaf."
    assert leaf["properties"]["colour"]["description"] == "what is said about it."
    assert leaf["properties"]["size"]["description"] == "How large it is."
    assert leaf["required"] == ["name", "colour", "size"]
    jsonschema.Draft202012Validator.check_schema(found)


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"schema": 6}, False),
        ({"leaves": {"A": VALID["leaves"]["a"]}}, False),
        ({"leaves": {"a": {"name": "a", "colour": "blue", "size": 1}}}, False),
        ({"leaves": {"a": {"name": "a", "colour": "red", "size": -1}}}, False),
        ({"leaves": {"a": {"name": "a", "colour": "red", "size": 1, "secret": 0}}}, False),
        ({"tree": [1, ["x"]]}, False),
        ({"pair": [1]}, False),
        ({"flags": [1]}, False),
        ({"more": 1}, False),
    ],
)
def test_schemas_accept_what_the_types_hold_and_nothing_else(
    change: dict[str, Any], valid: bool
) -> None:
    assert jsonschema.Draft202012Validator(made()).is_valid(VALID | change) is valid


def test_what_json_cannot_hold_is_no_schema() -> None:
    class Bad(TypedDict):
        schema: int
        what: object

    with pytest.raises(TypeError, match="no JSON form for <class 'object'>"):
        document(Bad, "bad", 1, {})


def test_schema_files_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert len({form.SCHEMA_FILE for form in schemas.FORMS}) == 4
    assert schemas.stale() == [], "run: python -m conformance.commands.schemas"
    assert schemas.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
