"""Small random compilation problems: masks, blocks, shards and directions."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from pallas_impl import Mask, MultiHeadMask
from tests.pallas_impl import mask_oracle as oracle
from tests.pallas_impl.mask_oracle import Bools, Shape, Shard, Tree


class Problem(NamedTuple):
    """One mask for each head (a single one without a head axis if `shared`), blocks and shards."""

    trees: list[Tree]
    shared: bool
    shape: Shape
    block_shape: Shape
    direction: str
    head_shards: int
    q_shards: int
    kv_shards: int
    positions: tuple[tuple[int, ...] | None, tuple[int, ...] | None]

    @property
    def mask(self) -> Mask:
        heads = [oracle.build(tree, self.shape, *self.positions) for tree in self.trees]
        return heads[0] if self.shared else MultiHeadMask(heads)

    @property
    def dense(self) -> list[Bools]:
        return [oracle.dense(tree, self.shape, *self.positions) for tree in self.trees]

    @property
    def is_dkv(self) -> bool:
        return self.direction == "dkv"

    @property
    def single(self) -> bool:
        return len(set(self.trees)) == 1

    @property
    def computable(self) -> bool:
        return self.single and "dense" not in str(self.trees[0])

    @property
    def options(self) -> dict[str, object]:
        return {
            "direction": self.direction,
            "head_shards": self.head_shards,
            "q_shards": self.q_shards,
            "kv_shards": self.kv_shards,
        }

    def distinct_blocks(self) -> list[Bools]:
        """The distinct partial blocks over all heads, in first-seen order."""
        return oracle.distinct_blocks(self.dense, self.block_shape)

    def head_groups(self) -> list[list[int]]:
        """For each head shard, a head for each row of its arrays."""
        if self.shared:
            return [[0]] * self.head_shards
        return oracle.row_groups(self.trees, self.head_shards)[0]

    def shards(self, shrink: bool) -> dict[tuple[int, int, int], Shard]:
        """The expected grid of each (head, q, kv) shard."""
        entries, blocks = self.dense, self.distinct_blocks()
        out = {}
        for s_h, group in enumerate(self.head_groups()):
            for s_q, s_kv in np.ndindex(self.q_shards, self.kv_shards):
                heads = [
                    oracle.cut(entries[h], (s_q, self.q_shards), (s_kv, self.kv_shards))
                    for h in group
                ]
                out[s_h, s_q, s_kv] = Shard(heads, blocks, self.block_shape, self.is_dkv, shrink)
        return out


@st.composite
def problems(draw: st.DrawFn, computable: bool | None = None) -> Problem:
    """Problems of up to 6×6 blocks; structured masks only if `computable`."""
    block_shape = draw(st.sampled_from([(1, 1), (2, 3), (3, 2), (2, 8), (4, 4), (1, 5)]))
    q_shards, kv_shards = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    grid = (
        q_shards * draw(st.integers(1, 5 // q_shards)),
        kv_shards * draw(st.integers(1, 5 // kv_shards)),
    )
    shape = (grid[0] * block_shape[0], grid[1] * block_shape[1])
    structured = computable or draw(st.booleans())
    kind = oracle.structured_trees() if structured else oracle.trees(shape, block_shape)
    known = draw(st.lists(kind, min_size=1, max_size=3))
    head_shards = draw(st.integers(1, 3))
    shared = draw(st.booleans())
    heads = 1 if shared else head_shards * draw(st.integers(1, 2))
    trees = draw(st.lists(st.sampled_from(known), min_size=heads, max_size=heads))
    q_ids, kv_ids = (
        draw(st.none() | st.permutations(range(n)).map(tuple)) if structured else None
        for n in shape
    )
    direction = draw(st.sampled_from(["fwd", "dq", "dkv"]))
    return Problem(
        trees=trees,
        shared=shared,
        shape=shape,
        block_shape=block_shape,
        direction=direction,
        head_shards=head_shards,
        q_shards=q_shards,
        kv_shards=kv_shards,
        positions=(q_ids, kv_ids),
    )
