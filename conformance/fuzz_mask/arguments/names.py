"""Guesses from the name of a parameter what its annotation does not say."""

from __future__ import annotations

import re
from typing import Literal

#: What a parameter says about the shape of a mask.
Sizes = Literal["shape", "q_len", "kv_len", "length", ""]
#: What an array, or a sequence of numbers, holds.
Content = Literal["lengths", "indices", "positions", "ids", "flags", "matrix", ""]

_SHAPES = ("shape", "mask_shape")
_Q = ("q", "query", "queries", "target", "tgt", "row", "rows")
_KV = ("kv", "k", "key", "keys", "source", "src", "column", "columns", "memory")
_LENGTHS = ("len", "length", "size", "seq", "seqlen", "tokens", "num")
_NOT_OF_MASKS = ("block", "blocks", "chunk", "window", "heads", "prefix", "group")
_WHOLE = ("seq_len", "seqlen", "sequence_length", "seq_length", "length", "n", "num_tokens")

_CONTENTS: dict[Content, tuple[str, ...]] = {
    "lengths": ("lengths", "lens", "sizes"),
    "indices": (
        "index", "indices", "starts", "ends", "boundaries", "offsets", "seqlens", "tokens", "splits",
    ),
    "positions": ("sequence", "position", "positions", "order", "permutation"),
    "ids": (
        "id", "ids", "segment", "segments", "document", "documents", "doc", "docs", "type", "types",
        "kind", "kinds", "group", "groups", "label", "labels", "modality", "modalities",
    ),
    "flags": ("valid", "padding", "flags", "is", "visible", "hidden"),
    "matrix": ("array", "mask", "dense", "matrix", "entries", "values"),
}  # fmt: skip


def words(name: str) -> list[str]:
    """The words of a parameter's name."""
    return [word for word in re.split(r"[_\d]+", name.lower()) if word]


def axis_of(name: str) -> str:
    """The axis that a name is about: ``q``, ``kv``, or ``""`` if it does not say."""
    found = set(words(name))
    q, kv = bool(found & set(_Q)), bool(found & set(_KV))
    return "" if q == kv else "q" if q else "kv"


def sizes_of_number(name: str) -> Sizes:
    """Whether a whole number is a length of the mask."""
    if name.lower().strip("_") in _WHOLE:
        return "length"
    found, axis = set(words(name)), axis_of(name)
    if not axis or not found & set(_LENGTHS) or found & set(_NOT_OF_MASKS):
        return ""
    return "q_len" if axis == "q" else "kv_len"


def sizes_of_pair(name: str) -> Sizes:
    """Whether a pair of whole numbers is the shape of the mask."""
    return "shape" if name.lower().strip("_") in _SHAPES else ""


def content_of(name: str) -> Content:
    """What an array or a sequence of numbers holds; ``""`` if the name does not tell."""
    found = set(words(name))
    return next((content for content, names in _CONTENTS.items() if found & set(names)), "")
