"""What a run is asked to judge, and which part of it one machine does."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from conformance.findings.json_schema import Count, Positive


@dataclass(frozen=True)
class Selection:
    """The checks that the clauses of a command line stand for; equal where two runs are about the same.

    Attributes:
      expectations: known deviations are taken into account.
      checks: how many checks there are.
      digest: fingerprint of their names.
    """

    expectations: bool = True
    checks: Count = 0
    digest: str = ""


@dataclass(frozen=True)
class Part:
    """One of several parts of a run.

    Attributes:
      number: from 1.
      of: how many there are.
    """

    number: Positive = 1
    of: Positive = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"the number of a part must be in 1…{self.of}, got {self.number}")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_part(text: str) -> Part:
    """A part from the command line, such as ``3/16``.

    Raises:
      argparse.ArgumentTypeError: another form, or a number that is not in 1…n.
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"must be I/N with 1 <= I <= N, e.g. 3/16, got {text!r}")
    return Part(int(match[1]), int(match[2]))
