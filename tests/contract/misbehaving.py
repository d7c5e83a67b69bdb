"""Adapters that end their process, hang, eat memory, print, or answer with something of a wrong form.

Unless said otherwise they misbehave for problems with several heads, and are right for all others.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.adapter import Forward, Gradients, Inputs
from conformance.adapters.reference.adapter import PreparedReference, ReferenceAdapter
from conformance.problem import Problem
from reference.schedule import Schedule


class Misbehaving(ReferenceAdapter):
    """The reference; ``change`` gets the name of a method and its right answer."""

    change: Callable[[str, Any], Any]

    def prepare(self, problem: Problem) -> Any:
        return Prepared(super().prepare(problem).problem, self)


class Prepared(PreparedReference):
    def __init__(self, problem: Problem, adapter: Misbehaving) -> None:
        super().__init__(problem)
        self.adapter = adapter

    def _changed(self, name: str, answer: Any) -> Any:
        return self.adapter.change(name, answer) if self.problem.heads > 1 else answer

    def mask_info(self, direction: Any) -> Any:
        return self._changed("mask_info", super().mask_info(direction))

    def schedule(self, direction: Any, shard: Any) -> Schedule:
        made: Schedule = self._changed("schedule", super().schedule(direction, shard))
        return made

    def forward(self, inputs: Inputs, **more: Any) -> Forward:
        made: Forward = self._changed("forward", super().forward(inputs, **more))
        return made

    def backward(self, inputs: Inputs, d_out: Any, **more: Any) -> Gradients:
        made: Gradients = self._changed("backward", super().backward(inputs, d_out, **more))
        return made


class Hang(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        Path("hanging").touch()
        time.sleep(1000)


class Exit(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)


class Segfault(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        return ctypes.string_at(0)


class Abort(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        os.abort()


class Killed(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Eat(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        return [np.ones(1 << 24) for _ in range(1000)]


class Leave(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        sys.exit("enough")


class Noise(Misbehaving):
    """Right, but writes what looks like replies to its standard output."""

    def change(self, name: str, answer: Any) -> Any:
        os.write(1, b'{"id": 1, "key": "", "value": 0}\n' * 1000)
        print("garbage", flush=True)
        os.write(2, b"\xff\xfe\n")
        return answer


class OtherProblem(ReferenceAdapter):
    """Answers for the first problem that it was ever given."""

    first: Any = None

    def prepare(self, problem: Problem) -> Any:
        self.first = self.first or super().prepare(problem)
        return self.first


class NoMethods(ReferenceAdapter):
    def prepare(self, problem: Problem) -> Any:
        return object()


class Nothing(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        return None


class Text(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        return "all good"


class OtherKind(Misbehaving):
    """Returns what another method should."""

    def change(self, name: str, answer: Any) -> Any:
        return Forward(np.zeros(1), "float32") if name == "mask_info" else np.zeros(3)


class Flattened(Misbehaving):
    def change(self, name: str, answer: Any) -> Any:
        if name == "mask_info":
            return replace(answer, block_mask=answer.block_mask[None])
        if name == "schedule":
            return replace(answer, runs=answer.runs[:-1])
        if name == "forward":
            return replace(answer, output=answer.output.ravel())
        return replace(answer, dk=answer.dk[:, :-1])


class Fractional(Misbehaving):
    """Indices and flags as floats, results as complex numbers."""

    def change(self, name: str, answer: Any) -> Any:
        if name == "mask_info":
            return replace(answer, block_mask=answer.block_mask.astype(np.float32))
        if name == "schedule":
            return replace(answer, runs=answer.runs.astype(np.float32))
        if name == "forward":
            return replace(answer, output=answer.output.astype(np.complex64))
        return replace(answer, dq=answer.dq.astype(np.complex64))


class Objects(Misbehaving):
    """Arrays of Python objects and lists in place of arrays."""

    def change(self, name: str, answer: Any) -> Any:
        if name == "mask_info":
            return replace(answer, block_mask=answer.block_mask.tolist())
        if name == "schedule":
            return replace(answer, outputs=None)
        if name == "forward":
            return replace(answer, output=np.array(["a"] * answer.output.size, dtype=object))
        return replace(answer, dv=answer.dv.tolist())
