"""Draws problems with masks of a class: for compilers, for kernels, for arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace

import hypothesis
from hypothesis import strategies as st

from conformance.contract.protocol import Description
from conformance.drawing.mask_domain import ANY, MaskDomain
from conformance.drawing.numeric_domain import MODERATE
from conformance.drawing.signatures import unit
from conformance.drawing.strategies import Space, parts
from conformance.fuzz_mask.arguments.settings import Setting, block_settings
from conformance.fuzz_mask.arguments.source import Source
from conformance.problems.problem import BlockSizes, Problem
from conformance.problems.user_mask import UserMask
from reference.mask_info import Shards
from reference.masks import And, Causal, Expr, Local, Or

#: Build kernels for at most this many blocks along either axis.
KERNEL_BLOCKS = 3


@dataclass(frozen=True)
class ProblemCase:
    """A problem with masks of the class.

    Attributes:
      problem: the problem.
      masks: the masks of the class in it.
    """

    problem: Problem
    masks: tuple[UserMask, ...]

    @property
    def size(self) -> tuple[int, ...]:
        """Sort key: few blocks, few heads, few shards, small masks, short calls first."""
        q, kv = self.problem.grid()
        shards = self.problem.shards
        return (
            q * kv,
            self.problem.heads,
            shards.head * shards.q * shards.kv,
            self.problem.q_len * self.problem.kv_len,
            len(self.problem.dumps()),
        )


def _fitting(draw: st.DrawFn, wanted: int, length: int, multiple: int) -> int:
    """A block size that divides a length: the given one, or another multiple."""
    if length % wanted == 0:
        return wanted
    fitting = [n for n in range(multiple, length + 1, multiple) if length % n == 0]
    if not fitting:
        hypothesis.reject()
    return draw(st.sampled_from(fitting))


def _sizes(draw: st.DrawFn, source: Source, space: Space, blocks: int) -> tuple[UserMask, Setting]:
    """A mask, with a second one of its shape if there is one, and the block sizes that it is cut into."""
    setting = draw(block_settings(space.block_q, space.block_kv, blocks))
    _, mask = draw(source.masks(setting))
    q_len, kv_len = mask.shape
    block_q = _fitting(draw, setting.block_q, q_len, min(space.block_q))
    block_kv = _fitting(draw, setting.block_kv, kv_len, min(space.block_kv))
    other = source.mask_or_none(
        draw(source.arguments(replace(setting, q_len=q_len, kv_len=kv_len)))
    )
    if other is not None and other.shape == mask.shape and other != mask:
        mask = replace(mask, others=(other,))
    return mask, Setting(q_len, kv_len, block_q, block_kv)


@st.composite
def _expressions(draw: st.DrawFn, mask: UserMask, setting: Setting) -> Expr:
    """The mask; about every fourth time combined with one of a library."""
    edge = st.sampled_from(setting.edges())
    plain = st.one_of(st.builds(Causal, edge), st.builds(Local, st.integers(0, 3), edge))
    together = st.one_of(st.builds(And, st.just(mask), plain), st.builds(Or, st.just(mask), plain))
    return draw(st.one_of(st.just(mask), st.just(mask), st.just(mask), together))


@st.composite
def compiler_problems(
    draw: st.DrawFn, source: Source, description: Description, kernel: bool
) -> ProblemCase:
    """Problems for the compiled arrays, or for kernels: any layout, shards, heads with one mask or two."""
    domain = MaskDomain(allows=ANY | {"shards:kv"}, kernel=kernel)
    space = domain.space(description)
    mask, setting = _sizes(draw, source, space, KERNEL_BLOCKS if kernel else space.blocks)
    layout = draw(st.sampled_from(space.layouts))
    flat = layout == "flat" or (layout is None and space.flat_only)
    first = draw(_expressions(mask, setting))
    heads = draw(st.integers(1, 3))
    masks: tuple[Expr, ...] = (first,)
    if not flat and heads > 1 and draw(st.booleans()) and description.offers("per_head_masks"):
        masks = (first, *[draw(st.sampled_from((first, *mask.others, Causal())))] * (heads - 1))
    q_blocks, kv_blocks = setting.q_len // setting.block_q, setting.kv_len // setting.block_kv
    shards = Shards(
        draw(st.sampled_from(parts(heads, "never" if flat else space.head_shards))),
        draw(st.sampled_from(parts(q_blocks, space.q_shards))),
        draw(st.sampled_from(parts(kv_blocks, space.kv_shards if flat else "never"))),
    )
    problem = Problem(
        setting.q_len,
        setting.kv_len,
        masks if len(set(masks)) > 1 else (first,),
        _blocks(draw, setting, q_blocks // shards.q, kv_blocks // shards.kv),
        heads=heads,
        kv_heads=heads,
        shards=shards,
        shrink=draw(st.sampled_from(space.shrink)),
        layout=layout,
    )
    if not domain.accepts(problem, description):
        hypothesis.reject()
    return ProblemCase(problem, _of_class(masks))


def _of_class(masks: tuple[Expr, ...]) -> tuple[UserMask, ...]:
    """The masks of the class in some expressions, each once."""
    found: list[UserMask] = []
    for expr in masks:
        parts = (expr.left, expr.right) if isinstance(expr, And | Or) else (expr,)
        found += [part for part in parts if isinstance(part, UserMask) and part not in found]
    return tuple(found)


def _blocks(draw: st.DrawFn, setting: Setting, q_blocks: int, kv_blocks: int) -> BlockSizes:
    """Block sizes; about every second time larger ones, of whole blocks of a shard, for the backward directions."""
    if not draw(st.booleans()):
        return BlockSizes(setting.block_q, setting.block_kv)
    q = setting.block_q * draw(st.sampled_from(parts(q_blocks, "any")))
    kv = setting.block_kv * draw(st.sampled_from(parts(kv_blocks, "any")))
    return BlockSizes(setting.block_q, setting.block_kv, q_dkv=q, kv_dkv=kv, q_dq=q, kv_dq=kv)


@st.composite
def numeric_problems(draw: st.DrawFn, source: Source, description: Description) -> ProblemCase:
    """Problems for attention and its gradients: the smallest blocks of the kernels, one mask, two heads."""
    q, kv = unit(description)
    space = Space(block_q=(q,), block_kv=(kv,))
    mask, setting = _sizes(draw, source, space, KERNEL_BLOCKS)
    dim = min(description.head_dims)
    problem = Problem(
        setting.q_len,
        setting.kv_len,
        (mask,),
        BlockSizes(setting.block_q, setting.block_kv),
        heads=2,
        kv_heads=2,
        head_dim=dim,
        head_dim_v=dim,
        regime=draw(st.sampled_from(MODERATE)),
        seed=draw(st.integers(0, 1)),
    )
    return ProblemCase(problem, (mask,))
