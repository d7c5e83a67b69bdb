"""Parts of a run for several machines: which checks belong to part 3 of 16.

Parts are made by cost, for the slowest checks take a hundred times as long as most: a hash of the name
would put several of them into one part.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from hashlib import sha256

from conformance.checks import MODULES, load_all
from conformance.checks.registry import CHECKS, Check
from conformance.drawing.domain import Work
from conformance.runs.selection import Part, Selection
from conformance.search.effort import Profile


def selected(clauses: Iterable[str]) -> list[Check]:
    """The checks of some clauses in their fixed order; all checks if no clause is named."""
    load_all()
    wanted = set(clauses)
    order = {name: n for n, name in enumerate(MODULES)}  # whatever was imported first
    return sorted(
        (check for check in CHECKS.values() if not wanted or check.clause_id in wanted),
        key=lambda check: order[check.module.rsplit(".", 1)[1]],
    )


def selection_of(clauses: Iterable[str], expectations: bool) -> Selection:
    """The selection of a command line.

    Args:
      clauses: only these; all if empty.
      expectations: known deviations are taken into account.
    """
    names = [check.name for check in selected(clauses)]
    digest = sha256("\n".join(names).encode()).hexdigest()[:16]
    return Selection(expectations, len(names), digest)


#: Seconds of a check of a kind, and for each problem that it draws: about the means of a run of
#: `pallas_impl` in interpret mode. Only their ratios matter.
SECONDS: dict[Work, tuple[float, float]] = {
    "structure": (0.3, 0.01),
    "kernels": (1.0, 0.2),
    "numbers": (5.0, 1.0),
    "ring": (15.0, 3.0),
    "broad": (10.0, 9.0),
}


def cost(check: Check, profile: Profile) -> float:
    """About how long a check takes, in seconds; the same on every machine."""
    fixed, each = SECONDS[check.domain.work]
    return fixed + each * profile.examples_by(check.domain.work)


def part_of(checks: Sequence[Check], profile: Profile, part: Part) -> list[Check]:
    """The checks of one part, in their fixed order.

    The dearest check first, each goes to the part that has cost least so far. So every check belongs
    to exactly one part, and no part costs more than another by more than one check. There may be
    parts without a check.

    Args:
      checks: the whole selection.
      profile: how much is tried, for the costs.
      part: which part.
    """
    costs = {check.name: cost(check, profile) for check in checks}
    parts = [(0.0, number) for number in range(1, part.of + 1)]
    mine = set()
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        spent, number = heapq.heappop(parts)
        heapq.heappush(parts, (spent + costs[name], number))
        if number == part.number:
            mine.add(name)
    return [check for check in checks if check.name in mine]
