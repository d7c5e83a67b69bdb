"""Searches for cases in which judges find something, and shrinks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import hypothesis
from hypothesis import strategies as st

from conformance.contract.fence import Crash
from conformance.contract.remote.errors import Refused
from conformance.drawing import constants
from conformance.findings.violation import Violation
from conformance.fuzz_mask.case import Judge, Kind, NotAsked, NotToBlame
from conformance.search.search import hypothesis_settings

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
      cases: cases that were looked at, but for those of shrinking.
    """

    found: list[Found] = field(default_factory=list)
    judged: Counter[str] = field(default_factory=Counter)
    cases: int = 0


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
        except NotToBlame:
            wrong.add(judge.name)
            continue
        except (NotAsked, Refused):
            continue
        except (Violation, Crash) as error:
            kind = "crash" if isinstance(error, Crash) else "value"
            kind = "advice" if error.advice else kind
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
    tiny: st.SearchStrategy[Any] | None = None,
    module: ModuleType | None = None,
) -> Hunt:
    """Tries cases, and makes those in which something is found as small as possible.

    Args:
      cases: what to try.
      judges: by name, those that others come after first.
      wanted: names of the judges whose findings are wanted.
      examples: cases to try.
      shrinks: further cases to try for every finding.
      seed: the same seed tries the same cases.
      tiny: the smallest cases, tried where something was found: a number that is wrong in a large mask is often
        another one than in a small mask, which shrinking alone does not see.
      module: numbers in its source are drawn more often than others.
    """
    search = _Search(judges, list(wanted), examples, seed, module)
    search.try_cases(cases)
    if search.smallest and tiny is not None:
        search.try_cases(tiny, only={name for name, _ in search.smallest})
    for name, kind in list(search.smallest)[:SHRUNK]:
        search.shrink(name, kind, shrinks)
    search.result.found = [found for found, _ in search.smallest.values()]
    return search.result


class _Search:
    """State of a hunt.

    Attributes:
      smallest: the smallest case of every judge and kind, and the strategy that it came from.
      result: what the hunt comes to.
    """

    def __init__(
        self,
        judges: Mapping[str, Judge],
        wanted: list[str],
        examples: int,
        seed: int,
        module: ModuleType | None,
    ) -> None:
        self.judges = judges
        self.modules = [] if module is None else [module]
        self.wanted = wanted
        self.examples = examples
        self.seed = seed
        self.smallest: dict[tuple[str, Kind], tuple[Found, st.SearchStrategy[Any]]] = {}
        self.result = Hunt()

    def note(self, found: Iterable[Found], cases: st.SearchStrategy[Any]) -> None:
        """Keeps what is smaller than what was found before."""
        for item in found:
            key = (item.judge.name, item.kind)
            if key not in self.smallest or item.case.size < self.smallest[key][0].case.size:
                self.smallest[key] = (item, cases)

    def try_cases(self, cases: st.SearchStrategy[Any], only: set[str] | None = None) -> None:
        """Looks at cases, as many as wanted; with some judges only, if something was found already."""
        names = [name for name in self.wanted if only is None or name in only]
        chosen = _together(names, self.judges)

        def test(case: Any) -> None:
            found, judged = look(chosen, case)
            self.result.cases += 1
            self.result.judged.update(name for name in names if name in judged)
            self.note([item for item in found if item.judge.name in names], cases)

        self.run(cases, test)

    def shrink(self, name: str, kind: Kind, shrinks: int) -> None:
        """Finds the smallest case of a judge and kind again, and makes it smaller."""
        few = needed(self.judges[name], self.judges)
        first, cases = self.smallest[name, kind]
        largest, left, failing = first.case.size, self.examples, False

        def test(case: Any) -> None:
            nonlocal largest, left, failing
            if left <= 0:
                return
            left -= 1
            if case.size > largest:
                return  # what was seen already is smaller
            found = [i for i in look(few, case)[0] if (i.judge.name, i.kind) == (name, kind)]
            if found:
                # The last of equal size is what Hypothesis ends with.
                self.smallest[name, kind] = (found[0], cases)
                largest = case.size
                if not failing:
                    failing, left = True, shrinks
                raise _Hit

        self.run(cases, test)

    def run(self, cases: st.SearchStrategy[Any], test: Callable[[Any], None]) -> None:
        """Draws cases for a test until it raises `_Hit` or there are enough."""
        wrapped = hypothesis.given(cases)(lambda case: test(case))
        run = hypothesis.seed(self.seed)(hypothesis_settings(self.examples)(wrapped))
        try:
            with constants.only_of(*self.modules):
                run()
        except (_Hit, hypothesis.errors.Unsatisfiable):
            pass
        except hypothesis.errors.Flaky:
            pass  # a class whose answers change: the smallest case that was seen counts


def _together(names: list[str], judges: Mapping[str, Judge]) -> list[Judge]:
    """All judges that some judges need, in order."""
    wanted = {other.name for name in names for other in needed(judges[name], judges)}
    return [judge for judge in judges.values() if judge.name in wanted]
