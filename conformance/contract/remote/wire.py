"""Encodes values that the suite and a worker exchange: JSON, with arrays as bytes or as files.

Runs on Python 3.9 and NumPy 1.22. Plain data, NumPy arrays and scalars, slices and the dataclasses of
`conformance` and `reference` arrive as they were, bit for bit; bfloat16 arrays travel as their bits and arrive
as float32 of the same value; everything else arrives as `Opaque`.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import os
import tempfile
from typing import Any

import numpy as np

#: Larger arrays, in bytes, travel as files.
INLINE = 1 << 15

#: Dataclasses of these packages travel by name.
PACKAGES = ("conformance", "reference")

TAG = "$"


@dataclasses.dataclass(frozen=True)
class Opaque:
    """Stands for a value that cannot be sent.

    Attributes:
      type_name: of the value.
      text: the beginning of its ``repr``.
    """

    type_name: str
    text: str

    def __str__(self) -> str:
        return f"{self.type_name} {self.text}"


def dumps(value: Any, folder: str) -> str:
    """Encodes a value as one line of JSON.

    Args:
      value: what to send.
      folder: where files of large arrays are written; the reader removes them.
    """
    return json.dumps(encode(value, folder))


def loads(line: str | bytes) -> Any:
    """Inverse of `dumps`.

    Raises:
      ValueError: the line is not a message.
    """
    try:
        return decode(json.loads(line))
    except (KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


def encode(value: Any, folder: str) -> Any:
    """The JSON form of a value."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [encode(item, folder) for item in value]
    if isinstance(value, (tuple, set, frozenset)):
        kind = "tuple" if isinstance(value, tuple) else "set"
        return {TAG: kind, "items": [encode(item, folder) for item in value]}
    if isinstance(value, dict):
        pairs = [[encode(k, folder), encode(v, folder)] for k, v in value.items()]
        return {TAG: "dict", "items": pairs}
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return {TAG: "slice", "items": [encode(end, folder) for end in ends]}
    if isinstance(value, (np.ndarray, np.generic)):
        return _encode_array(value, folder)
    if dataclasses.is_dataclass(value) and type(value).__module__.split(".")[0] in PACKAGES:
        # Field by field, without the constructor: invalid problems must arrive too.
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        values = {name: encode(getattr(value, name), folder) for name in names}
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        return {TAG: "data", "class": kind, "fields": values}
    if hasattr(value, "__array__") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return _encode_array(np.asarray(value), folder)
    return opaque(value)


def opaque(value: Any, type_name: str = "") -> dict[str, str]:
    """The JSON form of a value that cannot be sent."""
    try:
        text = repr(value)[:200]
    except Exception as error:
        text = f"(its repr raises {type(error).__name__})"
    return {TAG: "opaque", "type": type_name or type(value).__name__, "text": text}


def _encode_array(value: Any, folder: str) -> Any:
    array = np.asarray(value)
    name = array.dtype.name
    if name == "bfloat16":
        array = array.view(np.uint16)
    elif array.dtype.kind not in "biufc" or array.dtype.type.__module__ != "numpy":
        return opaque(value, f"array of {name}")
    header = {
        TAG: "scalar" if isinstance(value, np.generic) else "array",
        "dtype": "bfloat16" if name == "bfloat16" else array.dtype.str,
        "shape": list(array.shape),
    }
    data = array.tobytes()
    if len(data) <= INLINE:
        return {**header, "bytes": base64.b64encode(data).decode("ascii")}
    handle, path = tempfile.mkstemp(suffix=".array", dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return {**header, "file": path}


def _decode_array(data: dict[str, Any]) -> Any:
    if "file" in data:
        with open(data["file"], "rb") as file:
            raw = file.read()
        os.unlink(data["file"])
    else:
        raw = base64.b64decode(data["bytes"])
    bfloat16 = data["dtype"] == "bfloat16"
    array = np.frombuffer(raw, dtype=np.uint16 if bfloat16 else np.dtype(data["dtype"]))
    array = array.reshape(data["shape"]).copy()
    if bfloat16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array[()] if data[TAG] == "scalar" else array


def decode(data: Any) -> Any:
    """The value of a JSON form.

    Raises:
      ValueError, KeyError, TypeError, AttributeError, OSError: it is not the JSON form of a value.
    """
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    kind = data[TAG]
    if kind in ("array", "scalar"):
        return _decode_array(data)
    if kind == "opaque":
        return Opaque(str(data["type"]), str(data["text"]))
    if kind == "data":
        return _decode_dataclass(data)
    items = [decode(item) for item in data["items"]]
    if kind == "dict":
        return dict(items)
    if kind == "slice":
        return slice(*items)
    return {"tuple": tuple, "set": frozenset}[kind](items)


def _decode_dataclass(data: dict[str, Any]) -> Any:
    module, _, name = data["class"].partition(":")
    if module.split(".")[0] not in PACKAGES:
        raise ValueError(f"not a class of {' or '.join(PACKAGES)}: {data['class']}")
    made_of: Any = importlib.import_module(module)
    for part in name.split("."):
        made_of = getattr(made_of, part)
    if not (isinstance(made_of, type) and dataclasses.is_dataclass(made_of)):
        raise ValueError(f"not a dataclass: {data['class']}")
    made: Any = object.__new__(made_of)
    for field, value in data["fields"].items():
        object.__setattr__(made, field, decode(value))
    return made
