"""The numerical problems that a check is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from conformance.contract.protocol import Description
from conformance.drawing.ingredients import (
    EMPTYING,
    SEGMENTS,
    SINKS_FAR,
    SINKS_NEAR,
    patterns,
    simple_masks,
)
from conformance.drawing.signatures import SIGNATURES, TRAITS, Signature, traits_of, unit
from conformance.drawing.strategies import differs
from conformance.problems.problem import Problem
from conformance.problems.regimes import overflows_backward
from reference.masks import Expr

#: Regimes for implementations of any arithmetic: every logit is moderate.
MODERATE = ("signed", "flat", "rising", "falling", "positive", "cancelling", "representable")
#: Regimes for every kernel that takes the maximum of a row.
GENERAL = (*MODERATE, "tilted", "low", "leading")


@dataclass(frozen=True)
class NumericDomain:
    """The numerical problems of a check. The default is plain attention in the general regimes.

    Attributes:
      needs: traits that every problem has.
      allows: traits that a problem may have.
      signatures: names of signatures to choose from; None for all that fit the traits.
      regimes: regimes to choose from.
      where: a further condition that problems must meet.
      extreme_sinks: whether sinks are far from the logits (True), near them (False), or either (None).
      offers_option: name of an option that the implementation must have.
      broad: the domain holds every feature: it is searched although that takes new kernels.
      costly: a kernel takes seconds to build, and other checks try the options on cheaper ones: the quick
        profile repeats no problem for every option, and draws half as many.
      group: checks of one group run in one process, where they share compiled kernels.
    """

    needs: frozenset[str] = frozenset()
    allows: frozenset[str] = frozenset()
    signatures: tuple[str, ...] | None = None
    regimes: tuple[str, ...] = GENERAL
    where: Callable[[Problem], bool] | None = None
    extreme_sinks: bool | None = None
    offers_option: str | None = None
    broad: bool = False
    costly: bool = False
    group: str = "numerics-forward"

    #: Numerical problems are always searched, not only fixed ones.
    only = ()

    def contains(self, problem: Problem) -> bool:
        """Whether a problem belongs to the domain."""
        traits = traits_of(problem)
        if not self.needs <= traits <= self.needs | self.allows | {"dynamic"}:
            return False
        if problem.regime not in self.regimes:
            return False
        if self.extreme_sinks is not None and problem.sinks is not None:
            extreme = any(abs(sink) > EXTREME for sink in problem.sinks)
            if extreme != self.extreme_sinks:
                return False
        if self.backward and overflows_backward(problem):
            return False
        return self.where is None or self.where(problem)

    @property
    def backward(self) -> bool:
        """Whether the checks look at gradients."""
        return self.group.endswith("backward")

    def pool(self, description: Description) -> list[Signature]:
        """The signatures of the domain that an implementation can be given."""
        varying = {"per_head_masks", "options", "empty_rows"}
        return [
            item
            for item in SIGNATURES
            if self.needs - varying <= item.traits <= self.needs | self.allows
            and (not item.many if self.signatures is None else item.name in self.signatures)
            and item.fits(description)
        ]

    def possible(self, description: Description) -> bool:
        """Whether an implementation declares what all problems of the domain need."""
        needed = {TRAITS[name] for name in self.needs} - {""}
        if "options" in self.needs and not description.options:
            return False
        if self.offers_option is not None and self.offers_option not in description.options:
            return False
        return description.offers(*needed)

    def may(self, trait: str) -> str:
        """``always``, ``any`` or ``never``: whether problems have a trait."""
        if trait in self.needs:
            return "always"
        return "any" if trait in self.allows else "never"

    def strategy(self, description: Description) -> st.SearchStrategy[Problem]:
        """Problems of the domain that the implementation can be given."""
        pool = [item for item in self.pool(description) if not item.many]
        if not pool or not self.possible(description):
            return st.nothing()
        return numeric_problems(self, description, pool).filter(self.contains)


#: Sinks above this size are far from the logits of the moderate regimes.
EXTREME = 25.0


def with_options(description: Description) -> Iterable[tuple[tuple[str, Any], ...]]:
    """Every value of every option but the default ones, one at a time; options of a problem."""
    for name, values in sorted(description.options.items()):
        for value in values[1:]:
            yield ((name, value),)


@st.composite
def _masks(
    draw: st.DrawFn, domain: NumericDomain, item: Signature, description: Description
) -> tuple[Expr, ...]:
    """One mask for all heads, or two that the heads choose from."""
    q, kv = unit(description)
    empty = "empty_rows" in domain.needs | domain.allows
    simple = simple_masks(q, kv)
    if not empty or item.grid[0] != item.grid[1]:
        del simple["late_causal"]
    pattern = patterns(item, q, kv, empty)
    one = st.one_of(st.sampled_from(list(simple.values())), pattern, pattern)
    first = draw(one)
    choice = domain.may("per_head_masks")
    offered = item.heads > 1 and description.offers("per_head_masks")
    if not offered or choice == "never" or (choice == "any" and draw(st.booleans())):
        return (first,)
    other = draw(pattern.filter(differs(first, item.grid[0] * q, item.grid[1] * kv)))
    rest = draw(
        st.lists(st.sampled_from((first, other)), min_size=item.heads - 2, max_size=item.heads - 2)
    )
    return (first, *rest, other)


@st.composite
def numeric_problems(
    draw: st.DrawFn, domain: NumericDomain, description: Description, pool: list[Signature]
) -> Problem:
    """Problems of a domain, with a signature out of a pool."""
    item = draw(st.sampled_from(pool))
    masks = draw(_masks(domain, item, description))
    q, kv = unit(description)
    segments = sinks = None
    if item.segments:
        names = [*SEGMENTS] if "empty_rows" in domain.needs | domain.allows else [
            name for name in SEGMENTS if name not in EMPTYING
        ]  # fmt: skip
        segments = SEGMENTS[draw(st.sampled_from(names))](item.grid[0] * q, item.grid[1] * kv)
    if item.sinks:
        kinds = {True: (SINKS_FAR,), False: (SINKS_NEAR,), None: (SINKS_NEAR, SINKS_FAR)}
        values = st.sampled_from(draw(st.sampled_from(kinds[domain.extreme_sinks])))
        sinks = tuple(draw(st.lists(values, min_size=item.heads, max_size=item.heads)))
    options = ()
    choice = domain.may("options")
    if choice != "never" and description.options:
        wanted = list(with_options(description))
        options = draw(st.sampled_from([*([()] if choice == "any" else []), *wanted]))
    return item.build(
        description,
        masks,
        regime=draw(st.sampled_from(domain.regimes)),
        seed=draw(st.integers(0, 1)),
        segments=segments,
        sinks=sinks,
        options=options,
    )
