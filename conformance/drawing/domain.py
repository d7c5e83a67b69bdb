"""The problems that a check is about, and which of them an implementation can be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.contract.protocol import Description
from conformance.drawing.strategies import Choice, Space, problems
from conformance.problems.mask_json import kind_of
from conformance.problems.problem import Problem
from reference.mask_info import DIRECTIONS


@dataclass(frozen=True)
class Domain:
    """Restrictions on the problems of a check. The default is every structural problem.

    Attributes:
      dynamic: masks known only at run time.
      layout: ``grid`` or ``flat`` only; None for whatever the implementation has.
      several_masks: heads with different masks.
      q_shards, head_shards, kv_shards: shards along that axis.
      shrink: value of the shrink option; None for both.
      kernel: the check builds kernels, so block sizes follow the kernel's multiples.
      rectangular: block sizes that are not square only.
      kinds: kinds of masks (`conformance.problems.mask_json`), outermost; None for all.
      where: a further condition that problems must meet.
      only: names of fixed problems; nothing else is tried.
    """

    dynamic: Choice = "never"
    layout: str | None = None
    several_masks: Choice = "any"
    q_shards: Choice = "any"
    head_shards: Choice = "any"
    kv_shards: Choice = "never"
    shrink: bool | None = None
    kernel: bool = False
    rectangular: bool = False
    kinds: tuple[str, ...] | None = None
    where: Callable[[Problem], bool] | None = None
    only: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Heavy checks of one group run in one process, where they share kernels."""
        return f"kernels-{self.dynamic}"

    def contains(self, problem: Problem) -> bool:
        """Whether a problem belongs to the domain."""
        facts: tuple[tuple[Choice, bool], ...] = (
            (self.dynamic, problem.dynamic),
            (self.several_masks, not problem.single_mask),
            (self.q_shards, problem.shards.q > 1),
            (self.head_shards, problem.shards.head > 1),
            (self.kv_shards, problem.shards.kv > 1),
        )
        if any(c != "any" and (c == "always") != fact for c, fact in facts):
            return False
        if self.shrink is not None and problem.shrink != self.shrink:
            return False
        if self.rectangular and problem.blocks.q == problem.blocks.kv:
            return False
        if self.kinds is not None and not all(kind_of(m) in self.kinds for m in problem.masks):
            return False
        if self.layout is not None and problem.layout not in (None, self.layout):
            return False
        return self.where is None or self.where(problem)

    def space(self, description: Description) -> Space:
        """The part of the domain that an implementation can be given, to draw from."""
        multiples = (
            description.kernel_block_multiples if self.kernel else description.info_block_multiples
        )
        factors = (1, 2) if self.kernel else (1, 2, 3, 4, 8)

        def may(choice: Choice, feature: str) -> Choice:
            return choice if description.offers(feature) else "never"

        return Space(
            block_q=tuple(multiples[0] * f for f in factors),
            block_kv=tuple(multiples[1] * f for f in factors),
            blocks=4,
            heads=4,
            static=self.dynamic != "always",
            dynamic=may(self.dynamic, "dynamic_masks") != "never",
            per_head=may(self.several_masks, "per_head_masks"),
            q_shards=may(self.q_shards, "shards:q"),
            head_shards=may(self.head_shards, "shards:head"),
            kv_shards=may(self.kv_shards, "shards:kv"),
            layouts=self._layouts(description),
            flat_only=not description.offers("layout:grid"),
            shrink=self._shrink(),
            grouped=self.kernel,
            kinds=self.kinds,
            options=tuple(description.options.items()) if self.kernel else (),
        )

    def _shrink(self) -> tuple[bool, ...]:
        """Kernels are built as users build them: shrinking is an option of the compiler only."""
        if self.shrink is not None:
            return (self.shrink,)
        return (True,) if self.kernel else (True, False)

    def _layouts(self, description: Description) -> tuple[str | None, ...]:
        offered = [name for name in ("grid", "flat") if description.offers(f"layout:{name}")]
        wanted = [name for name in offered if self.layout in (None, name)]
        return tuple(wanted) if len(offered) > 1 and wanted else (None,)

    def possible(self, description: Description) -> bool:
        """Whether the implementation offers what every problem of the domain has."""
        needs: tuple[tuple[Choice, str], ...] = (
            (self.dynamic, "dynamic_masks"),
            (self.several_masks, "per_head_masks"),
            (self.q_shards, "shards:q"),
            (self.head_shards, "shards:head"),
            (self.kv_shards, "shards:kv"),
        )
        return all(description.offers(name) for choice, name in needs if choice == "always")

    def strategy(self, description: Description) -> st.SearchStrategy[Problem]:
        """Problems of the domain that the implementation can be given."""
        if not self.possible(description):
            return st.nothing()
        drawn = problems(self.space(description))
        return drawn.filter(lambda p: self.contains(p) and acceptable(p, description, self.kernel))


def acceptable(problem: Problem, description: Description, kernel: bool) -> bool:
    """Whether an implementation declares everything that a problem asks for."""
    needs = {
        "dynamic_masks": problem.dynamic,
        "static": not problem.dynamic,
        "per_head_masks": not problem.single_mask,
        "shards:q": problem.shards.q > 1,
        "shards:head": problem.shards.head > 1,
        "shards:kv": problem.shards.kv > 1,
    }
    if problem.layout is not None:
        needs[f"layout:{problem.layout}"] = True
    flat = problem.layout == "flat" or not description.offers("layout:grid")
    if flat and not (problem.single_mask and problem.shards.head == 1):
        return False
    if problem.shards.kv > 1 and not flat:
        return False
    if not description.offers(*(feature for feature, needed in needs.items() if needed)):
        return False
    multiples = description.kernel_block_multiples if kernel else description.info_block_multiples
    sizes = [problem.blocks.of(direction) for direction in DIRECTIONS]
    if any(size[axis] % multiples[axis] for size in sizes for axis in (0, 1)):
        return False
    return problem.kv_heads % problem.shards.head == 0 or problem.kv_heads == 1
