"""What masks and compiled masks must hold, by brute force: plain loops over single entries.

Shares no code with the package. A mask is described by a nested tuple, its *tree*.
"""

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from pallas_impl import (
    CausalMask,
    ChunkedCausalMask,
    ComputableMask,
    DenseMask,
    FullMask,
    LocalMask,
    Mask,
)

Tree = tuple[Any, ...]
Bools = NDArray[np.bool_]
Shape = tuple[int, int]
Position = tuple[int, int, int]


class Stripes(ComputableMask):
    """A user's mask with neither bounds nor intervals: (q + kv) mod n == 0."""

    def __init__(self, shape: Shape, n: int, **sequences: Any) -> None:
        super().__init__(shape, **sequences)
        self.n = n

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return (q_ids + kv_ids) % self.n == 0

    def parameters(self) -> object:
        return (self.n,)


class Prefix(ComputableMask):
    """A user's mask with bounds only: the first n kv positions."""

    def __init__(self, shape: Shape, n: int, **sequences: Any) -> None:
        super().__init__(shape, **sequences)
        self.n = n

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return (kv_ids < self.n) & (q_ids >= 0)

    def block_bounds(self, q_lo: Any, q_hi: Any, kv_lo: Any, kv_hi: Any) -> tuple[Bools, Bools]:
        return kv_lo < self.n, kv_hi < self.n

    def parameters(self) -> object:
        return (self.n,)


class Hole(ComputableMask):
    """A user's mask with bounds only: every kv position but one."""

    def __init__(self, shape: Shape, n: int, **sequences: Any) -> None:
        super().__init__(shape, **sequences)
        self.n = n

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return (kv_ids != self.n) & (q_ids >= 0)

    def block_bounds(self, q_lo: Any, q_hi: Any, kv_lo: Any, kv_hi: Any) -> tuple[Bools, Bools]:
        return (kv_lo != self.n) | (kv_hi != self.n), (kv_lo > self.n) | (kv_hi < self.n)

    def parameters(self) -> object:
        return (self.n,)


def entry(tree: Tree, q: int, kv: int, row: int, col: int) -> bool:
    """One entry of the mask, from the definitions."""
    match tree:
        case ("full",):
            return True
        case ("causal", offset):
            return bool(q + offset >= kv)
        case ("local", left, right, offset):
            left_ok = left is None or q + offset - left <= kv
            return bool(left_ok and (right is None or kv <= q + offset + right))
        case ("chunked", size):
            return bool(q // size == kv // size and q >= kv)
        case ("stripes", n):
            return bool((q + kv) % n == 0)
        case ("prefix", n):
            return bool(kv < n)
        case ("hole", n):
            return bool(kv != n)
        case ("dense", rows):
            return bool(rows[row][col])
        case ("and", a, b):
            return entry(a, q, kv, row, col) and entry(b, q, kv, row, col)
        case ("or", a, b):
            return entry(a, q, kv, row, col) or entry(b, q, kv, row, col)
    raise AssertionError(tree)


def dense(tree: Tree, shape: Shape, q_ids: Any = None, kv_ids: Any = None) -> Bools:
    """The whole mask, entry by entry."""
    q_ids = range(shape[0]) if q_ids is None else q_ids
    kv_ids = range(shape[1]) if kv_ids is None else kv_ids
    out = np.zeros(shape, dtype=np.bool_)
    for row, col in itertools.product(range(shape[0]), range(shape[1])):
        out[row, col] = entry(tree, int(q_ids[row]), int(kv_ids[col]), row, col)
    return out


def build(tree: Tree, shape: Shape, q_ids: Any = None, kv_ids: Any = None) -> Mask:
    """The package's mask for a tree."""
    at: dict[str, Any] = {"q_sequence": q_ids, "kv_sequence": kv_ids}
    match tree:
        case ("full",):
            # Everything, at positions of one's own: a local mask open on both sides.
            no_positions = q_ids is None and kv_ids is None
            return FullMask(shape) if no_positions else LocalMask(shape, (None, None), **at)
        case ("causal", offset):
            return CausalMask(shape, offset, **at)
        case ("local", left, right, offset):
            return LocalMask(shape, (left, right), offset, **at)
        case ("chunked", size):
            return ChunkedCausalMask(shape, size, **at)
        case ("stripes", n):
            return Stripes(shape, n, **at)
        case ("prefix", n):
            return Prefix(shape, n, **at)
        case ("hole", n):
            return Hole(shape, n, **at)
        case ("dense", rows):
            return DenseMask(np.array(rows, dtype=np.bool_))
        case ("and", a, b):
            return build(a, shape, q_ids, kv_ids) & build(b, shape, q_ids, kv_ids)
        case ("or", a, b):
            return build(a, shape, q_ids, kv_ids) | build(b, shape, q_ids, kv_ids)
    raise AssertionError(tree)


def structured_trees() -> st.SearchStrategy[Tree]:
    """Masks that a kernel can compute, and their combinations."""
    size = st.integers(-8, 12)
    side = st.none() | size
    leaf = st.one_of(
        st.just(("full",)),
        st.tuples(st.just("causal"), st.integers(-14, 14)),
        st.tuples(st.just("local"), side, side, size),
        st.tuples(st.just("chunked"), st.integers(1, 9)),
        st.tuples(st.just("stripes"), st.integers(1, 4)),
        st.tuples(st.just("prefix"), st.integers(0, 12)),
        st.tuples(st.just("hole"), st.integers(0, 9)),
    )
    return st.recursive(leaf, _combine, max_leaves=5)


def trees(shape: Shape, block_shape: Shape) -> st.SearchStrategy[Tree]:
    """Any mask of a shape: structured, dense and combinations of both."""
    leaf = structured_trees() | dense_trees(shape, block_shape)
    return st.recursive(leaf, _combine, max_leaves=3)


def dense_trees(shape: Shape, block_shape: Shape) -> st.SearchStrategy[Tree]:
    """Dense masks made of empty, full, random and few distinct repeated blocks."""
    grid = (shape[0] // block_shape[0], shape[1] // block_shape[1])
    kinds = st.lists(
        st.sampled_from("eeeffrsu"), min_size=grid[0] * grid[1], max_size=grid[0] * grid[1]
    )

    def fill(kinds: list[str], seed: int) -> Tree:
        rng = np.random.default_rng(seed)
        repeated = {kind: rng.random(block_shape) < 0.5 for kind in "su"}
        out = np.zeros(shape, dtype=np.bool_)
        for n, kind in enumerate(kinds):
            i, j = divmod(n, grid[1])
            window = (
                slice(i * block_shape[0], (i + 1) * block_shape[0]),
                slice(j * block_shape[1], (j + 1) * block_shape[1]),
            )
            if kind == "r":
                out[window] = rng.random(block_shape) < rng.random()
            else:
                out[window] = repeated.get(kind, kind == "f")
        return ("dense", tuple(tuple(row) for row in out.tolist()))

    return st.builds(fill, kinds, st.integers(0, 2**16))


def _combine(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.tuples(st.sampled_from(["and", "or"]), inner, inner)


def labels(entries: Bools, block_shape: Shape) -> NDArray[np.int64]:
    """0, 1 or 2 for each block of [q_len, kv_len] entries."""
    block_q, block_kv = block_shape
    out = np.zeros((entries.shape[0] // block_q, entries.shape[1] // block_kv), dtype=np.int64)
    for i, j in np.ndindex(*out.shape):
        block = block_at(entries, block_shape, i, j)
        out[i, j] = 2 if block.all() else 1 if block.any() else 0
    return out


def block_at(entries: Bools, block_shape: Shape, i: int, j: int) -> Bools:
    """Block (i, j) of [q_len, kv_len] entries."""
    block_q, block_kv = block_shape
    return entries[i * block_q : (i + 1) * block_q, j * block_kv : (j + 1) * block_kv]


def distinct_blocks(masks: list[Bools], block_shape: Shape) -> list[Bools]:
    """Every different partial block: mask by mask, row by row."""
    seen: list[Bools] = []
    for entries in masks:
        found = labels(entries, block_shape)
        for i, j in np.ndindex(*found.shape):
            block = block_at(entries, block_shape, i, j)
            if found[i, j] == 1 and not any(np.array_equal(block, other) for other in seen):
                seen.append(block)
    return seen


def find_block(blocks: list[Bools], block: Bools) -> int:
    """Where a block is in a list of blocks."""
    return next(n for n, other in enumerate(blocks) if np.array_equal(other, block))


def following(flags: list[bool], n: int) -> int | None:
    """The first true place at or after n, wrapping around."""
    for step in range(len(flags)):
        if flags[(n + step) % len(flags)]:
            return (n + step) % len(flags)
    return None


class Shard:
    """The grid of one shard: its labels and, for each grid position, what stands there."""

    def __init__(
        self, heads: list[Bools], blocks: list[Bools], block_shape: Shape, dkv: bool, shrink: bool
    ) -> None:
        found = [labels(entries, block_shape) for entries in heads]
        n_q, n_kv = found[0].shape
        outer, inner = (n_kv, n_q) if dkv else (n_q, n_kv)
        # lines[head][outer] lists (inner block, label, index of the partial block).
        self.lines: list[list[list[Position]]] = []
        for entries, grid in zip(heads, found, strict=True):
            head = []
            for o in range(outer):
                line = []
                for n in range(inner):
                    i, j = (n, o) if dkv else (o, n)
                    label = int(grid[i, j])
                    block = block_at(entries, block_shape, i, j)
                    line.append((n, label, find_block(blocks, block) if label == 1 else 0))
                head.append(line)
            self.lines.append(head)
        self.dkv = dkv
        longest = max(sum(label != 0 for _, label, _ in line) for line in self.lines[0])
        if shrink and longest < inner:
            self.lines = [
                [[item for item in line if item[1]] for line in head] for head in self.lines
            ]
            self.pad(max(1, longest))

    @property
    def width(self) -> int:
        return len(self.lines[0][0])

    def pad(self, width: int) -> None:
        """Pads every line to a width, with label 0."""
        for head in self.lines:
            for line in head:
                line.extend([(0, 0, 0)] * (width - len(line)))

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """(block_mask, data_next, mask_next), [heads, n_q, n_kv]."""
        heads, outer = len(self.lines), len(self.lines[0])
        order = list(np.ndindex(heads, outer, self.width))
        if self.dkv:
            order.sort(key=lambda at: (at[1], at[0], at[2]))
        items = [self.lines[h][o][n] for h, o, n in order]
        active = [label != 0 for _, label, _ in items]
        partial = [label == 1 for _, label, _ in items]
        out = np.zeros((3, heads, outer, self.width), dtype=np.int64)
        for n, at in enumerate(order):
            data, mask = following(active, n), following(partial, n)
            out[0][at] = items[n][1]
            out[1][at] = 0 if data is None else items[data][0]
            out[2][at] = 0 if mask is None else items[mask][2]
        if self.dkv:
            out = out.swapaxes(-1, -2)
        return out[0], out[1], out[2]

    def steps(self, head: int) -> list[tuple[int, int, int, int]]:
        """(row, column, label, mask_next) of each entry of the flat list."""
        flat: list[tuple[int, int | None, int, int]] = []
        for o, line in enumerate(self.lines[head]):
            active = [(o, n, label, block) for n, label, block in line if label]
            flat.extend(active or [(o, None, 0, 0)])
        known = [n for n, item in enumerate(flat) if item[1] is not None]
        partial = [item[2] == 1 for item in flat]
        out = []
        for n, (row, column, label, _) in enumerate(flat):
            if column is None:
                later = [m for m in known if m > n]
                column = flat[later[0] if later else known[-1]][1] if known else 0
            mask = following(partial, n)
            assert column is not None
            out.append((row, column, label, 0 if mask is None else flat[mask][3]))
        return out


def cut(entries: Bools, q: tuple[int, int], kv: tuple[int, int]) -> Bools:
    """Shard q[0] of q[1] and kv[0] of kv[1] of [q_len, kv_len] entries."""
    q_size, kv_size = entries.shape[0] // q[1], entries.shape[1] // kv[1]
    return entries[q[0] * q_size : (q[0] + 1) * q_size, kv[0] * kv_size : (kv[0] + 1) * kv_size]


def row_groups(keys: list[Tree], head_shards: int) -> tuple[list[list[int]], bool]:
    """The heads (an example of each row) in each head shard, and whether rows are shared."""
    per_shard = len(keys) // head_shards
    groups = [list(range(s * per_shard, (s + 1) * per_shard)) for s in range(head_shards)]
    if all(len({keys[h] for h in group}) == 1 for group in groups):
        return [group[:1] for group in groups], True
    return groups, False
