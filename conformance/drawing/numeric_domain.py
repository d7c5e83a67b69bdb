"""The numerical problems that a check is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from conformance.contract.protocol import Description
from conformance.drawing.domain import Domain, Work
from conformance.drawing.ingredients import (
    EMPTYING,
    SEGMENTS,
    SINKS_FAR,
    SINKS_NEAR,
    patterns,
    simple_masks,
)
from conformance.drawing.numeric_vectors import VECTORS, NumericVector
from conformance.drawing.signatures import SIGNATURES, VARYING, Signature, unit
from conformance.drawing.strategies import differs
from conformance.problems.arrays import overflows_backward
from conformance.problems.features import COMPUTED
from conformance.problems.problem import Problem
from reference.masks import Expr

#: Regimes for implementations of any arithmetic: every logit is moderate.
MODERATE = ("signed", "flat", "rising", "falling", "positive", "cancelling", "representable")
#: Regimes for every kernel that takes the maximum of a row.
GENERAL = (*MODERATE, "tilted", "low", "leading")


#: Which kernels the checks of a group run, as in `NumericVector.passes`.
PASSES = {"numerics-forward": "f", "numerics-residuals": "r", "numerics-backward": "b",
          "numerics-ring-backward": "b"}  # fmt: skip


@dataclass(frozen=True)
class NumericDomain(Domain):
    """The numerical problems of a check. The default is plain attention in the general regimes.

    Attributes:
      signatures: names of signatures to choose from; None for all that have the features.
      extreme_sinks: whether sinks are far from the logits (True), near them (False), or either (None).
      offers_option: name of an option that the implementation must have.
      broad: the domain holds every feature: it is searched although that takes new kernels.
    """

    regimes: tuple[str, ...] = GENERAL
    group: str = "numerics-forward"
    signatures: tuple[str, ...] | None = None
    extreme_sinks: bool | None = None
    offers_option: str | None = None
    broad: bool = False

    about = COMPUTED
    #: Some implementations have run-time masks only.
    free = frozenset({"dynamic"})

    @property
    def work(self) -> Work:
        if self.broad:
            return "broad"
        return "ring" if "ring" in self.needs else "numbers"

    def contains(self, problem: Problem) -> bool:
        if self.extreme_sinks is not None and problem.sinks is not None:
            extreme = any(abs(sink) > EXTREME for sink in problem.sinks)
            if extreme != self.extreme_sinks:
                return False
        overflows = self.backward and overflows_backward(problem)
        return not overflows and super().contains(problem)

    def pool(self, description: Description) -> list[Signature]:
        """The signatures of the domain that an implementation can be given."""
        return [
            item
            for item in SIGNATURES
            if self.needs - VARYING <= item.features & COMPUTED <= self.needs | self.allows
            and (not item.many if self.signatures is None else item.name in self.signatures)
            and item.fits(description)
        ]

    def possible(self, description: Description) -> bool:
        if "options" in self.needs and not description.options:
            return False
        if self.offers_option is not None and self.offers_option not in description.options:
            return False
        return super().possible(description)

    def strategy(self, description: Description) -> st.SearchStrategy[Problem]:
        pool = [item for item in self.pool(description) if not item.many]
        if not pool or not self.possible(description):
            return st.nothing()
        return numeric_problems(self, description, pool).filter(self.contains)

    def vectors(
        self, description: Description, every_variant: bool = True
    ) -> Iterator[tuple[NumericVector, Problem]]:
        if not self.possible(description):
            return
        names = {item.name for item in self.pool(description)}
        kernel = PASSES.get(self.group, "")
        for item in VECTORS:
            if item.signature not in names or kernel not in item.passes:
                continue
            if len(item.masks) > 1 and not description.offers("per_head_masks"):
                continue
            problem = item.build(description)
            variants: list[tuple[tuple[str, Any], ...]] = [()]
            repeats = kernel in item.options and item.options != ""
            if repeats and (every_variant or not self.costly) and self.may("options") != "never":
                variants += list(with_options(description))
            for options in variants:
                made = problem.but(options=options or problem.options)
                if self.contains(made):
                    yield item, made


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
