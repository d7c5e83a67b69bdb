"""Searches for cases in which one of several judges finds something, and shrinks them.

All judges see the same cases, and each runs only if its prerequisites pass: one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import hypothesis
from hypothesis import strategies as st

from conformance.contract.fence import Crash
from conformance.contract.remote.errors import Refused
from conformance.findings.violation import Violation
from conformance.fuzz_mask.case import Judge, Kind, NotAsked, NotToBlame
from conformance.search.search import Hit, draw_until_hit

#: Shrink at most this many findings: one cause may show in many checks.
SHRUNK = 8


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

    @property
    def key(self) -> tuple[str, Kind]:
        """The search keeps the smallest case for each of these."""
        return self.judge.name, self.kind


def look(judges: Iterable[Judge], case: Any) -> tuple[list[Found], set[str]]:
    """Runs judges on one case, each only if its prerequisites find nothing but advice.

    Returns:
      What they found, and the names of the judges that applied.
    """
    found: list[Found] = []
    judged: set[str] = set()
    wrong: set[str] = set()
    for judge in judges:
        if wrong & set(judge.after):
            wrong.add(judge.name)
            continue
        try:
            judge.function(case)
        except NotToBlame:
            wrong.add(judge.name)
            continue
        except (NotAsked, Refused):
            continue
        except (Violation, Crash) as error:
            kind: Kind = "crash" if isinstance(error, Crash) else "value"
            found.append(Found(judge, "advice" if error.advice else kind, case, error))
            if not error.advice:
                wrong.add(judge.name)
        judged.add(judge.name)
    return found, judged


class Hunt:
    """A search and its results.

    Args:
      judges: by name, prerequisites first.
      wanted: names of the judges whose findings are wanted.
      examples: cases to try.
      seed: the same seed tries the same cases.
      module: numbers in its source are drawn more often than others.

    Attributes:
      smallest: the smallest case of every judge and kind, and the strategy that it came from.
      judged: names of the judges that applied to some case.
      cases: how many cases were tried, without those of shrinking.
    """

    def __init__(
        self,
        judges: Mapping[str, Judge],
        wanted: Iterable[str],
        *,
        examples: int,
        seed: int,
        module: ModuleType,
    ) -> None:
        self.judges = judges
        self.wanted = set(wanted)
        self.how: dict[str, Any] = {"examples": examples, "seed": seed, "modules": (module,)}
        self.smallest: dict[tuple[str, Kind], tuple[Found, st.SearchStrategy[Any]]] = {}
        self.judged: set[str] = set()
        self.cases = 0

    def run(
        self, cases: st.SearchStrategy[Any], tiny: st.SearchStrategy[Any] | None, shrinks: int
    ) -> None:
        """Tries cases, and shrinks those in which a judge finds something.

        Args:
          cases: what to try.
          tiny: very small cases, tried after a finding: small and large masks often fail for different arguments, and
            shrinking does not get from one to the other.
          shrinks: how many cases to try for shrinking each finding.
        """
        self.try_cases(cases, self.wanted)
        if self.smallest and tiny is not None:
            self.try_cases(tiny, {name for name, _ in self.smallest})
        for key in list(self.smallest)[:SHRUNK]:
            self.shrink(key, shrinks)

    def needed(self, names: set[str]) -> list[Judge]:
        """The named judges and all their prerequisites, in order."""
        wanted = set(names)
        for judge in reversed(list(self.judges.values())):
            if judge.name in wanted:
                wanted |= set(judge.after)
        return [judge for judge in self.judges.values() if judge.name in wanted]

    def try_cases(self, cases: st.SearchStrategy[Any], names: set[str]) -> None:
        """Runs the named judges on new cases, and keeps the smallest ones."""
        judges = self.needed(names)

        def test(case: Any) -> None:
            found, judged = look(judges, case)
            self.cases += 1
            self.judged |= judged & names
            for item in found:
                known = self.smallest.get(item.key)
                if item.judge.name in names and (not known or case.size < known[0].case.size):
                    self.smallest[item.key] = item, cases

        self.draw(cases, test)

    def draw(self, cases: st.SearchStrategy[Any], test: Callable[[Any], None]) -> None:
        """Draws cases for a test."""
        # Flaky: the answers of the class change. The smallest case so far counts.
        with suppress(hypothesis.errors.Flaky):
            draw_until_hit(cases, test, **self.how)

    def shrink(self, key: tuple[str, Kind], shrinks: int) -> None:
        """Finds a case of a judge and kind again, and shrinks it."""
        first, cases = self.smallest[key]
        judges = self.needed({first.judge.name})
        largest, left, failing = first.case.size, self.how["examples"], False

        def test(case: Any) -> None:
            nonlocal largest, left, failing
            if left <= 0:
                return
            left -= 1
            if case.size > largest:
                return  # a smaller one is known
            found = [item for item in look(judges, case)[0] if item.key == key]
            if found:
                # Of equal size, Hypothesis ends with the last.
                self.smallest[key] = found[0], cases
                largest = case.size
                if not failing:
                    failing, left = True, shrinks
                raise Hit

        self.draw(cases, test)
