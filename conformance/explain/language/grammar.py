"""The grammar of masks on the command line.

::

    mask    = union
    union   = both { "|" both }
    both    = sum { "&" sum }
    sum     = operand { "+" operand }            "+" is a union that binds tightest
    operand = "(" mask ")" | name [ ":" value { "," value } ] | FILE.npy | FILE.py:NAME [ "(" … ")" ]
    value   = [ key "=" ] number | "none"        numbers: 8192, 8_192, 8k, 1M, 0.9, -128

Quote paths that contain spaces or operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.suggest import did_you_mean
from conformance.explain.language.expressions import Documents, Prefix, Tiles
from conformance.explain.language.files import from_array_file, from_python_file
from conformance.problems.mask_json import Random
from reference.masks import Causal, ChunkedCausal, Expr, Full, Local

Value = int | float | None


class MaskError(ValueError):
    """A mask that does not parse: what is wrong, and where.

    Attributes:
      message: what is wrong.
      text: the whole mask.
      column, size: where in it.
    """

    def __init__(self, message: str, text: str, column: int, size: int = 1) -> None:
        self.message, self.text, self.column, self.size = message, text, column, max(1, size)
        super().__init__(f"{message}\n  {text}\n  {' ' * column}{'^' * self.size}")


@dataclass(frozen=True)
class Kind:
    """A kind of mask.

    Attributes:
      make: from its values.
      values: names of its values, in order.
      required: how many of them have no default.
      whole: whether they must be whole numbers.
      optional: values that may be ``none``.
      more: whether the last value may be repeated.
    """

    make: Callable[..., Expr]
    values: tuple[str, ...]
    required: int = 0
    whole: bool = True
    optional: frozenset[str] = frozenset()
    more: bool = False


def _random(share: float, block: int = 1, seed: int = 0) -> Expr:
    if not 0 <= share <= 1:
        raise ValueError(f"the share of hidden pairs must lie between 0 and 1, got {share}")
    density = round(1 - share, 12)
    return Random(density, seed) if block == 1 else Tiles(density, block, seed)


KINDS = {
    "full": Kind(Full, ()),
    "causal": Kind(Causal, ("offset",)),
    "local": Kind(Local, ("left", "right", "offset"), 2, optional=frozenset({"left", "right"})),
    "chunked": Kind(ChunkedCausal, ("size",), 1),
    "prefix": Kind(Prefix, ("length",), 1),
    "documents": Kind(lambda *lengths: Documents(lengths), ("length",), 1, more=True),
    "random": Kind(_random, ("share", "block", "seed"), 1, whole=False),
}
ALIASES = {"chunked_causal": "chunked", "sliding": "local", "window": "local", "docs": "documents"}

_NUMBER = re.compile(r"[+-]?\d[\d_]*(\.\d+)?([kKmM])?|[+-]?\.\d+")
_FILE = re.compile(r"[^\s&|+()\"']+?\.(npy|py)(?![\w.])")
_NAME = re.compile(r"[A-Za-z_]\w*")


def number(text: str) -> int | float:
    """A number as people write it: 8192, 8_192, 8k (1024 each), 1M, 0.9.

    Raises:
      ValueError: the text is not a number.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"expected a number, got {text!r}")
    factor = {"k": 1 << 10, "m": 1 << 20}.get(text[-1].lower(), 1)
    digits = text.rstrip("kKmM").replace("_", "")
    value = float(digits) * factor if "." in digits else int(digits) * factor
    return int(value) if factor > 1 else value


def parse(text: str, q_len: int | None = None, kv_len: int | None = None) -> Expr:
    """Parses a mask.

    Args:
      text: in the grammar of this module.
      q_len, kv_len: tokens, for arguments of masks in Python files; None if not known.

    Raises:
      MaskError: the text does not parse.
    """
    return _Parser(text, q_len, kv_len).whole()


class _Parser:
    def __init__(self, text: str, q_len: int | None, kv_len: int | None) -> None:
        self.text, self.at = text, 0
        self.lengths = (q_len, kv_len)

    def whole(self) -> Expr:
        found = self.union()
        if self.at < len(self.text):
            raise self.error(f"expected &, | or + before {self.text[self.at :].strip()[:20]!r}")
        return found

    def error(self, message: str, column: int | None = None, size: int = 1) -> MaskError:
        return MaskError(message, self.text, self.at if column is None else column, size)

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def takes(self, symbol: str) -> bool:
        self.space()
        if not self.text.startswith(symbol, self.at):
            return False
        self.at += len(symbol)
        self.space()
        return True

    def union(self) -> Expr:
        found = self.both()
        while self.takes("|"):
            found = found | self.both()
        return found

    def both(self) -> Expr:
        found = self.sum()
        while self.takes("&"):
            found = found & self.sum()
        return found

    def sum(self) -> Expr:
        found = self.operand()
        while self.takes("+"):
            found = found | self.operand()
        return found

    def operand(self) -> Expr:
        if self.takes("("):
            opened = self.at - 1
            found = self.union()
            if not self.takes(")"):
                raise self.error("this parenthesis is never closed", opened)
            return found
        if self.at == len(self.text):
            raise self.error("a mask is missing here")
        if self.text[self.at] in "\"'":
            return self.quoted()
        file = _FILE.match(self.text, self.at)
        if file:
            return self.file(file.group(), file.end())
        return self.named()

    def quoted(self) -> Expr:
        mark, start = self.text[self.at], self.at
        end = self.text.find(mark, start + 1)
        if end < 0:
            raise self.error("this quotation mark is never closed", start)
        return self.file(self.text[start + 1 : end], end + 1)

    def file(self, path: str, end: int) -> Expr:
        start = self.at
        self.at = end
        try:
            if path.endswith(".npy"):
                return from_array_file(Path(path))
            target = self.call(path)
            return from_python_file(Path(path), target, *self.lengths)
        except MaskError:
            raise
        except (ValueError, OSError) as error:
            raise self.error(str(error), start, self.at - start) from error

    def call(self, path: str) -> str:
        """``NAME`` or ``NAME(…)`` after a file and a colon."""
        if not self.text.startswith(":", self.at):
            raise self.error(f"{path} needs the name of a mask: {path}:NAME or {path}:NAME(…)")
        self.at += 1
        name = _NAME.match(self.text, self.at)
        if not name:
            raise self.error("the name of a mask is missing here")
        start, depth = self.at, 0
        self.at = name.end()
        if not self.text.startswith("(", self.at):
            return name.group()
        opened = self.at
        while self.at < len(self.text):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(self.text[self.at], 0)
            self.at += 1
            if depth == 0:
                return self.text[start : self.at]
        raise self.error("this parenthesis is never closed", opened)

    def named(self) -> Expr:
        start = self.at
        name = _NAME.match(self.text, start)
        if not name:
            raise self.error(f"expected a mask, got {self.text[start]!r}")
        self.at = name.end()
        word = name.group().lower()
        kind = KINDS.get(ALIASES.get(word, word))
        if kind is None:
            raise self.error(
                f"unknown mask {name.group()!r}{_hint(word)}", start, len(name.group())
            )
        ordered, by_name = self.values(kind)
        given = len(ordered) + len(by_name)
        if given < kind.required:
            missing = kind.values[given : kind.required]
            example = ":" + ",".join(kind.values[: kind.required])
            raise self.error(
                f"{word} needs {' and '.join(missing)}: {word}{example}", start, self.at - start
            )
        try:
            return kind.make(*ordered, **by_name)
        except (ValueError, TypeError) as error:
            raise self.error(str(error), start, self.at - start) from error

    def values(self, kind: Kind) -> tuple[list[Value], dict[str, Value]]:
        ordered: list[Value] = []
        by_name: dict[str, Value] = {}
        if not self.takes(":"):
            return ordered, by_name
        while True:
            self.value(kind, ordered, by_name)
            if not self.takes(","):
                return ordered, by_name

    def value(self, kind: Kind, ordered: list[Value], by_name: dict[str, Value]) -> None:
        start = self.at
        key = re.compile(r"([A-Za-z_]+)\s*=\s*").match(self.text, start)
        if key:
            name = key.group(1)
            if name not in kind.values or kind.more:
                known = ", ".join(kind.values) if kind.values and not kind.more else "no names"
                raise self.error(f"unknown value {name!r}: expected {known}", start, len(name))
            if name in by_name or name in kind.values[: len(ordered)]:
                raise self.error(f"{name} is given twice", start, len(name))
            self.at = key.end()
        elif by_name:
            raise self.error("a positional value must come before named ones")
        elif len(ordered) == len(kind.values) and not kind.more:
            raise self.error("too many values")
        else:
            name = kind.values[min(len(ordered), len(kind.values) - 1)]
        found = self.scalar(kind, name)
        if key:
            by_name[name] = found
        else:
            ordered.append(found)

    def scalar(self, kind: Kind, name: str) -> Value:
        word = _NAME.match(self.text, self.at)
        if word:
            if word.group().lower() != "none" or name not in kind.optional:
                allowed = "a number or none" if name in kind.optional else "a number"
                raise self.error(f"{name}: expected {allowed}", size=len(word.group()))
            self.at = word.end()
            return None
        digits = _NUMBER.match(self.text, self.at)
        if not digits:
            raise self.error(f"{name}: a number is missing here")
        found = number(digits.group())
        if isinstance(found, float) and (kind.whole or name != "share"):
            raise self.error(f"{name}: must be a whole number", size=len(digits.group()))
        self.at = digits.end()
        return found


def _hint(word: str) -> str:
    return did_you_mean(word, [*KINDS, *ALIASES]) or f"; known masks: {', '.join(KINDS)}"
