"""Signatures: what a kernel is compiled for.

Kernels are compiled by shape, and compiling takes longer than running. So the shapes of numerical problems come from a
small pool of *signatures*. Masks, regimes, seeds, segments and sinks vary inside a signature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict, Unpack

from conformance.contract.protocol import Description
from conformance.problems.features import FEATURES, declared_for, features_of
from conformance.problems.problem import BlockSizes, Problem
from reference.mask_info import Shards
from reference.masks import Expr, Full

Runs = tuple[tuple[int, int], ...]

#: Features that vary inside a signature.
VARYING = frozenset({"per_head_masks", "options", "empty_rows"})


def unit(description: Description) -> tuple[int, int]:
    """The block size (q, kv) of numerical problems: the smallest multiple of at least 8 tokens."""
    q, kv = (m * -(-8 // m) for m in description.kernel_block_multiples)
    return q, kv


class Varying(TypedDict, total=False):
    """Fields of a problem that vary inside a signature."""

    regime: str
    seed: int
    segments: tuple[Runs, Runs] | None
    sinks: tuple[float, ...] | None
    options: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Signature:
    """What a kernel is compiled for.

    Attributes:
      name: for vectors and domains.
      grid: length of the queries and of the keys in units of the smallest block.
      heads, kv_heads: query heads and key/value heads.
      segments, sinks: whether there are any.
      soft_cap: the cap, or None.
      wide_v: v has another head dimension.
      dims: head dimensions of q and k, and of v, where an implementation has both; else as without.
      dtype: of the arrays.
      blocks: block sizes in units.
      ring: devices.
      shards: devices along heads and queries.
      dynamic: the values of the mask are known only at run time.
      head_dim: None for the smallest that the implementation can run.
      many: so many blocks that only domains which name the signature have it, and only in fixed problems.
    """

    name: str
    grid: tuple[int, int] = (2, 2)
    heads: int = 2
    kv_heads: int = 2
    segments: bool = False
    sinks: bool = False
    soft_cap: float | None = None
    wide_v: bool = False
    dtype: str = "float32"
    blocks: BlockSizes = BlockSizes(1, 1)  # noqa: RUF009  (frozen)
    ring: int = 1
    shards: Shards = Shards()  # noqa: RUF009  (frozen)
    dynamic: bool = False
    head_dim: int | None = None
    dims: tuple[int, int] | None = None
    many: bool = False

    @cached_property
    def features(self) -> frozenset[str]:
        """The features that every problem of the signature has."""
        dims = (128, 64) if self.wide_v else (128, 128)
        example = self._made((1, 1), dims, (Full(),), self.dynamic)
        if self.segments:
            example = example.but(segments=(((0, example.q_len),), ((0, example.kv_len),)))
        if self.sinks:
            example = example.but(sinks=(0.0,) * self.heads)
        return features_of(example, FEATURES.keys() - VARYING)

    def _made(
        self, units: tuple[int, int], dims: tuple[int, int], masks: tuple[Expr, ...], dynamic: bool
    ) -> Problem:
        """A problem without segments and sinks, for units of (q, kv) tokens and head dimensions of (q, v)."""
        sizes = {
            name: value * units[0 if name.startswith("q") else 1]
            for name, value in vars(self.blocks).items()
            if value is not None
        }
        return Problem(
            self.grid[0] * units[0],
            self.grid[1] * units[1],
            masks,
            BlockSizes(**sizes),
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=dims[0],
            head_dim_v=dims[1],
            dtype=self.dtype,
            soft_cap=self.soft_cap,
            ring=self.ring,
            shards=self.shards,
            dynamic=dynamic,
        )

    def build(
        self, description: Description, masks: tuple[Expr, ...], **more: Unpack[Varying]
    ) -> Problem:
        """A problem of the signature.

        Args:
          description: of the implementation; decides block sizes and head dimensions.
          masks: one for all heads, or one a head.
          more: segments and sinks are given if and only if the signature has them.
        """
        dim = self.head_dim or min(description.head_dims)
        others = [d for d in sorted(description.head_dims) if d != dim]
        dims = (dim, others[0] if self.wide_v and others else dim)
        if self.dims is not None and set(self.dims) <= set(description.head_dims):
            dims = self.dims
        dynamic = self.dynamic or not description.offers("static")
        return self._made(unit(description), dims, masks, dynamic).but(**more)

    def fits(self, description: Description) -> bool:
        """Whether an implementation declares what the signature needs."""
        if self.ring > 1 and self.ring not in description.ring_sizes:
            return False
        if self.head_dim is not None and self.head_dim not in description.head_dims:
            return False
        if self.wide_v and len(set(description.head_dims)) < 2:
            return False
        # Where masks are never known in advance, problems get run-time masks.
        return description.offers(*declared_for(self.features - {"static"}))


_LARGE_BACKWARD = BlockSizes(1, 1, q_dkv=2, kv_dkv=1, q_dq=1, kv_dq=2)
_LARGE_FORWARD = BlockSizes(
    2, 2, q_dkv=1, kv_dkv=2, q_dq=2, kv_dq=1, kv_compute=1, kv_dkv_compute=1
)
_LARGE_BOTH = BlockSizes(1, 1, q_dkv=2, kv_dkv=2, q_dq=2, kv_dq=2)

#: The pool. One signature for every feature alone, and four that hold every pair of features.
SIGNATURES: tuple[Signature, ...] = (
    Signature("plain"),
    Signature("oblong", grid=(2, 3)),
    Signature("gqa", heads=6),
    Signature("mqa", kv_heads=1),
    Signature("segments", segments=True),
    Signature("cap", soft_cap=2.0),
    Signature("sinks", sinks=True),
    Signature("wide_v", wide_v=True),
    Signature("bfloat16", dtype="bfloat16"),
    Signature("large_backward", blocks=_LARGE_BACKWARD),
    Signature("large_forward", blocks=_LARGE_FORWARD),
    Signature("large_both", blocks=_LARGE_BOTH),
    Signature("gqa-segments-cap-sinks", heads=4, segments=True, sinks=True, soft_cap=10.0),
    Signature(
        "gqa-v-cap-sinks-bfloat16",
        heads=4,
        wide_v=True,
        sinks=True,
        soft_cap=10.0,
        dtype="bfloat16",
        dims=(192, 128),
    ),
    Signature(
        "mqa-v-segments-bfloat16",
        kv_heads=1,
        wide_v=True,
        segments=True,
        dtype="bfloat16",
        dims=(64, 256),
    ),
    Signature(
        "mqa-segments-cap-parts",
        grid=(4, 4),
        kv_heads=1,
        segments=True,
        soft_cap=10.0,
        blocks=_LARGE_FORWARD,
    ),
    Signature("mqa-cap-sinks", kv_heads=1, sinks=True, soft_cap=10.0),
    Signature("segments-blocks", segments=True, blocks=_LARGE_BOTH),
    Signature("segments-sinks", segments=True, sinks=True),
    *(Signature(f"head_dim_{dim}", head_dim=dim) for dim in (64, 96, 128, 192, 256)),
    Signature("dynamic", dynamic=True),
    Signature("shards-q", grid=(6, 6), shards=Shards(q=2)),
    Signature("shards-head", heads=4, shards=Shards(head=2)),
    Signature("shards-both", grid=(4, 2), heads=4, shards=Shards(head=2, q=2)),
    Signature("shards-segments", grid=(4, 2), segments=True, shards=Shards(q=2)),
    Signature("shards-sinks", grid=(4, 2), sinks=True, shards=Shards(q=2)),
    Signature("shards-dynamic", grid=(4, 2), dynamic=True, shards=Shards(q=2)),
    Signature("ring2", ring=2),
    Signature("ring2-long", grid=(4, 4), heads=1, kv_heads=1, ring=2),
    Signature("ring4", grid=(4, 4), heads=1, kv_heads=1, ring=4),
    Signature("ring8", grid=(8, 8), heads=1, kv_heads=1, ring=8),
    Signature("ring2-segments", segments=True, ring=2),
    Signature("ring2-mqa", kv_heads=1, ring=2),
    Signature("ring2-v", wide_v=True, ring=2),
    Signature("ring2-cap", soft_cap=10.0, ring=2),
    Signature("ring2-sinks", sinks=True, ring=2),
    Signature("ring2-bfloat16", dtype="bfloat16", ring=2),
    Signature("ring2-blocks", grid=(4, 4), heads=1, kv_heads=1, ring=2, blocks=_LARGE_BACKWARD),
    Signature("long", grid=(6, 6), heads=1, kv_heads=1),
    # More blocks than int8 can count.
    Signature("many-kv", grid=(1, 130), heads=1, kv_heads=1, many=True),
    Signature("many-q", grid=(130, 1), heads=1, kv_heads=1, many=True),
)
#: Signatures of problems with more blocks along an axis, and more stored blocks, than int8 can count.
MANY = tuple(item.name for item in SIGNATURES if item.many)


def signature(name: str) -> Signature:
    """The signature of a name.

    Raises:
      KeyError: there is none.
    """
    return {item.name: item for item in SIGNATURES}[name]
