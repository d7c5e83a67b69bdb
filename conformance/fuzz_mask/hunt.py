"""Searches for cases in which judges find something, and shrinks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import strategies as st

from conformance.fuzz_mask.case import Advice, Judge, Kind
from conformance.search import hypothesis_settings
from conformance.subject import Crash
from conformance.violation import Violation

#: So many findings are made smaller; one cause may show in many checks.
SHRUNK = 8


class _Hit(Exception):
    """Tells Hypothesis that a case is one that is looked for."""


@dataclass(frozen=True)
class Found:
    """What a judge found.

    Attributes:
      judge: which.
      kind: ``value``, ``crash`` or ``advice``.
      case: the case.
      error: what the judge raised.
    """

    judge: Judge
    kind: Kind
    case: Any
    error: Violation | Crash


@dataclass
class Hunt:
    """What a search came to.

    Attributes:
      found: the smallest case of every judge and kind.
      judged: cases that every judge had a say in, by its name.
    """

    found: list[Found] = field(default_factory=list)
    judged: Counter[str] = field(default_factory=Counter)


class NotAsked(Exception):
    """A judge has nothing to say about a case."""


class NotToBlame(NotAsked):
    """Something is wrong in a case that is no fault of what is judged: those that come after say nothing."""


def look(judges: Iterable[Judge], case: Any) -> tuple[list[Found], set[str]]:
    """What judges find in one case, each only if those that it comes after find nothing but advice.

    Returns:
      What was found, and the names of the judges that had a say.
    """
    found: list[Found] = []
    judged: set[str] = set()
    wrong: set[str] = set()
    for judge in judges:
        if wrong & set(judge.after):
            wrong.add(judge.name)
            continue
        kind: Kind
        try:
            judge.function(case)
        except NotAsked as reason:
            if isinstance(reason, NotToBlame):
                wrong.add(judge.name)
            continue
        except (Violation, Crash) as error:
            kind = "crash" if isinstance(error, Crash) else "value"
            kind = "advice" if isinstance(error, Advice) else kind
            found.append(Found(judge, kind, case, error))
            if kind != "advice":
                wrong.add(judge.name)
        judged.add(judge.name)
    return found, judged


def needed(judge: Judge, judges: Mapping[str, Judge]) -> list[Judge]:
    """The judges that one comes after, directly or not, in order, and itself."""
    wanted = {judge.name}
    for other in reversed(list(judges.values())):
        if other.name in wanted:
            wanted |= set(other.after)
    return [other for other in judges.values() if other.name in wanted]


def hunt(
    cases: st.SearchStrategy[Any],
    judges: Mapping[str, Judge],
    wanted: Iterable[str],
    *,
    examples: int,
    shrinks: int,
    seed: int,
) -> Hunt:
    """Tries cases, and makes those in which something is found as small as possible.

    Args:
      cases: what to try.
      judges: by name, those that others come after first.
      wanted: names of the judges whose findings are wanted.
      examples: cases to try.
      shrinks: further cases to try for every finding.
      seed: the same seed tries the same cases.
    """
    names = list(wanted)
    result, smallest = Hunt(), dict[tuple[str, Kind], Found]()
    chosen = _together(names, judges)

    def note(found: list[Found]) -> None:
        for item in found:
            key = (item.judge.name, item.kind)
            if key not in smallest or item.case.size < smallest[key].case.size:
                smallest[key] = item

    def try_case(case: Any) -> None:
        found, judged = look(chosen, case)
        result.judged.update(name for name in names if name in judged)
        note([item for item in found if item.judge.name in names])

    _run(cases, try_case, examples, seed)
    for name, kind in list(smallest)[:SHRUNK]:
        few = needed(judges[name], judges)
        left, failing = examples, False

        def shrink(case: Any, name: str = name, kind: Kind = kind, few: list[Judge] = few) -> None:
            nonlocal left, failing
            if left <= 0:
                return
            left -= 1
            found = [i for i in look(few, case)[0] if (i.judge.name, i.kind) == (name, kind)]
            note(found)
            if found:
                if not failing:
                    failing, left = True, shrinks
                raise _Hit

        _run(cases, shrink, examples, seed)
    result.found = list(smallest.values())
    return result


def _together(names: list[str], judges: Mapping[str, Judge]) -> list[Judge]:
    """All judges that some judges need, in order."""
    wanted = {other.name for name in names for other in needed(judges[name], judges)}
    return [judge for judge in judges.values() if judge.name in wanted]


def _run(
    cases: st.SearchStrategy[Any], function: Callable[[Any], None], examples: int, seed: int
) -> None:
    wrapped = hypothesis.given(cases)(lambda case: function(case))
    run = hypothesis.seed(seed)(hypothesis_settings(examples)(wrapped))
    try:
        run()
    except (_Hit, hypothesis.errors.Unsatisfiable):
        pass
    except hypothesis.errors.Flaky:
        pass  # a class whose answers change: the smallest case that was seen counts
