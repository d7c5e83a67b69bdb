"""Problems about compiled masks and the schedules of kernels, whose arrays do not matter."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Set
from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.contract.protocol import Description
from conformance.drawing.domain import Domain, Work
from conformance.drawing.mask_vectors import MaskVector, vectors
from conformance.drawing.strategies import Choice, Space, problems
from conformance.problems.features import COMPILED, declared_for
from conformance.problems.mask_json import kind_of
from conformance.problems.problem import LAYOUTS, Problem

#: Features of problems unless a domain says something else.
ANY = COMPILED - {"dynamic", "shards:kv"}
ONE_MASK = ANY - {"per_head_masks"}
ONE_SHARD = ANY - {"shards:q", "shards:head"}
ONE_HEAD_SHARD = ANY - {"shards:head"}
GRID = ANY - {"layout:flat"}
FLAT = ANY - {"layout:grid"}
SHRUNK = ANY - {"unshrunk"}


@dataclass(frozen=True)
class MaskDomain(Domain):
    """Problems about compiled masks. The default is every mask that is known in advance.

    Attributes:
      allows: as in `Domain`: sets of this module, or parts common to them (``ONE_MASK & GRID``).
      kinds: kinds of masks (`conformance.problems.mask_json`), outermost; None for all.
      kernel: the check builds kernels, so block sizes follow the kernel's multiples.
      traced: the check runs something inside a kernel of its own.
    """

    allows: Set[str] = ANY
    kinds: tuple[str, ...] | None = None
    kernel: bool = False
    traced: bool = False

    about = COMPILED
    required = COMPILED

    def __post_init__(self) -> None:
        if self.work == "kernels" and not self.group:
            object.__setattr__(self, "group", f"kernels-{self.may('dynamic')}")

    @property
    def work(self) -> Work:
        heavy = self.kernel or self.traced or self.may("dynamic") == "always"
        return "kernels" if heavy else "structure"

    def multiples(self, description: Description) -> tuple[int, int]:
        if self.kernel:
            return description.kernel_block_multiples
        return description.info_block_multiples

    def contains(self, problem: Problem) -> bool:
        kinds = self.kinds
        of_kind = kinds is None or all(kind_of(mask) in kinds for mask in problem.masks)
        return of_kind and super().contains(problem)

    def accepts(self, problem: Problem, description: Description) -> bool:
        flat = problem.layout == "flat" or not description.offers("layout:grid")
        if flat and not (problem.single_mask and problem.shards.head == 1):
            return False
        if problem.shards.kv > 1 and not flat:
            return False
        fits = problem.kv_heads % problem.shards.head == 0 or problem.kv_heads == 1
        return fits and super().accepts(problem, description)

    def space(self, description: Description) -> Space:
        """The part of the domain that an implementation can be given, to draw from."""
        multiples = self.multiples(description)
        factors = (1, 2) if self.kernel else (1, 2, 3, 4, 8)

        def may(feature: str) -> Choice:
            offered = description.offers(*declared_for({feature}))
            return self.may(feature) if offered else "never"

        return Space(
            block_q=tuple(multiples[0] * f for f in factors),
            block_kv=tuple(multiples[1] * f for f in factors),
            blocks=4,
            heads=4,
            static=self.may("dynamic") != "always",
            dynamic=may("dynamic") != "never",
            per_head=may("per_head_masks"),
            q_shards=may("shards:q"),
            head_shards=may("shards:head"),
            kv_shards=may("shards:kv"),
            layouts=self._layouts(description),
            flat_only=not description.offers("layout:grid"),
            shrink=self._shrink(),
            grouped=self.kernel,
            kinds=self.kinds,
            options=tuple(description.options.items()) if self.kernel else (),
        )

    def _shrink(self) -> tuple[bool, ...]:
        """Kernels are built as users build them: shrinking is an option of the compiler only."""
        unshrunk = self.may("unshrunk")
        if unshrunk == "always":
            return (False,)
        return (True,) if unshrunk == "never" or self.kernel else (True, False)

    def _layouts(self, description: Description) -> tuple[str | None, ...]:
        offered = [name for name in LAYOUTS if description.offers(f"layout:{name}")]
        wanted = [name for name in offered if self.may(f"layout:{name}") != "never"]
        return tuple(wanted) if len(offered) > 1 and wanted else (None,)

    def strategy(self, description: Description) -> st.SearchStrategy[Problem]:
        if not self.possible(description):
            return st.nothing()
        drawn = problems(self.space(description))
        return drawn.filter(lambda p: self.contains(p) and self.accepts(p, description))

    def vectors(
        self, description: Description, every_variant: bool = True
    ) -> Iterator[tuple[MaskVector, Problem]]:
        space = self.space(description)
        tiny = min(space.block_q) == min(space.block_kv) == 1
        q, kv = (sizes[-2 if tiny else 0] for sizes in (space.block_q, space.block_kv))
        if "rectangular" in self.needs:
            kv = space.block_kv[1]
        offered = dict(space.options)
        for item, problem in vectors(q, kv, tiny, self.only):
            if not all(value in offered.get(name, ()) for name, value in item.given):
                continue
            problem = problem.but(options=item.given) if item.given else problem
            layouts = space.layouts[::-1] if self.kernel and item.flat else space.layouts
            for layout, shrink in itertools.product(layouts, space.shrink):
                varied = problem.but(layout=layout, shrink=shrink)
                if self.accepts(varied, description) and self.contains(varied):
                    yield item, varied
                    if not every_variant:
                        break
