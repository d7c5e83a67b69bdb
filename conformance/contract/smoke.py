"""The smoke test: calls everything that an adapter declares once, before it is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from conformance.contract.fence import Crash, Subject
from conformance.contract.protocol import PROFILES, Adapter, AdapterError, Description
from conformance.contract.remote.errors import Refused
from conformance.contract.remote.host import close
from conformance.contract.remote.where import Where
from conformance.findings.violation import Violation
from conformance.problems.problem import BlockSizes, Problem
from reference.masks import Causal
from reference.sharding import Shard


@dataclass(frozen=True)
class Step:
    """One call of the smoke test: its name, and what went wrong ("" if nothing did)."""

    name: str
    error: str = ""
    trace: str = ""


def simplest_problem(description: Description) -> Problem:
    """Causal attention over 2 × 2 blocks at the smallest block sizes of the kernel."""
    q, kv = description.kernel_block_multiples
    q, kv = max(q, 2), max(kv, 2)
    dynamic = not description.offers("static")
    return Problem(2 * q, 2 * kv, (Causal(),), BlockSizes(q, kv), dynamic=dynamic)


def smoke(adapter: Adapter, whole: bool = True) -> tuple[Description | None, list[Step]]:
    """Calls every declared part of an adapter once, on the simplest problem.

    Args:
      adapter: what to call.
      whole: continue after `describe` and `prepare`.

    Returns:
      The description (None if `describe` fails), and the steps in order; nothing is tried after
      `describe` or `prepare` has failed.
    """
    try:
        description = adapter.describe()
    except Exception as error:
        return None, [Step("describe", f"{type(error).__name__}: {error}")]
    if not isinstance(description, Description):
        return None, [
            Step("describe", f"must return a Description, not {type(description).__name__}")
        ]
    steps = [Step("describe")]
    subject = Subject(adapter, description)
    problem = simplest_problem(description)
    for name, call in _calls(subject, problem):
        try:
            call()
            steps.append(Step(name))
        except Crash as crash:
            steps.append(Step(name, str(crash), crash.trace))
            if name == "prepare":
                break
        except Refused as refusal:
            steps.append(Step(name, f"the simplest problem is refused: {refusal}"))
            if name == "prepare":
                break
        except Violation as wrong:
            steps.append(Step(name, str(wrong)))
        if not whole:
            break
    return description, steps


def _calls(subject: Subject, problem: Problem) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields the calls to make, each when the ones before it have passed."""
    description = subject.description
    yield "prepare", partial(subject.prepare, problem)  # the first, see `smoke`
    if description.offers("masks"):
        yield (
            "mask",
            partial(subject.call, "mask", lambda: subject.prepare(problem).mask(0)[:1, :1]),
        )
    for direction in description.directions:
        if description.offers("mask_info"):
            yield f"mask_info({direction})", partial(subject.mask_info, problem, direction)
        if description.offers("schedule"):
            yield f"schedule({direction})", partial(subject.schedule, problem, direction, Shard())
    if description.offers("forward"):
        yield "forward", partial(subject.forward, problem)
    if description.offers("backward"):
        yield "backward", partial(subject.backward, problem)


def profiles_of(description: Description) -> list[str]:
    """The profiles whose features are all declared."""
    return [name for name, features in PROFILES.items() if description.offers(*features)]


def ready(impl: str, where: Where) -> tuple[Adapter, Subject]:
    """Loads an adapter and runs the beginning of the smoke test.

    Raises:
      AdapterError: it cannot be loaded, or `describe` or `prepare` fails.
    """
    adapter = where.open(impl)
    description, steps = smoke(adapter, whole=False)
    broken = [step for step in steps if step.error and step.name in ("describe", "prepare")]
    if description is None or broken:
        step = broken[0]
        close(adapter)
        raise AdapterError(f"{impl!r} fails its smoke test: {step.name}: {step.error}")
    return adapter, Subject(adapter, description)
