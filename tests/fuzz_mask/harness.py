"""Judges classes of a module with little effort."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from conformance.adapter import Adapter
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.contract.fence import Subject
from conformance.fuzz_mask.arguments.source import Source
from conformance.fuzz_mask.outcome import FuzzRun
from conformance.fuzz_mask.run import Effort, Fuzzing

#: Without kernels, with many masks, and with some kernels.
FEW = Effort(16, 0, 8, 0, 0, 60, 20)
MANY = Effort(60, 0, 8, 0, 0, 80, 20)
KERNELS = Effort(16, 3, 8, 1, 1, 60, 20)


def judged(
    module: ModuleType,
    name: str,
    oracle: Callable[..., Any] | None = None,
    *,
    stages: tuple[str, ...] = ("class",),
    effort: Effort = FEW,
    adapter: Adapter | None = None,
    keep_going: bool = False,
    seed: int = 0,
    **more: Any,
) -> FuzzRun:
    """The run of one class.

    Args:
      module, name: where the class stands.
      oracle: what its masks should mean.
      stages, effort, keep_going, seed: as for `Fuzzing` and `FuzzRun`.
      adapter: what the masks are given to; the reference if None.
      more: arguments of `Source`.
    """
    adapter = adapter or ReferenceAdapter()
    description = adapter.describe()
    source = Source(getattr(module, name), name, module, **more)
    command = f"splash-conformance fuzz-mask masks.py:{name}"
    run = FuzzRun(name, description.name, description.version, "quick", seed, command)
    declared = None if oracle is None else (oracle, "declared")
    subject = Subject(adapter, description)
    Fuzzing(
        run, source, subject, declared, effort=effort, stages=stages, keep_going=keep_going
    ).execute()
    return run
