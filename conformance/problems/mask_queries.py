"""The ways in which compilers and kernels ask a mask about positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.problems.user_mask import UserMask
from reference.masks import Bool, Mask

Index = NDArray[np.int64]

#: All intervals of so many positions are asked about; of more, those near the ends and some others.
ALL_INTERVALS_OF = 8


@dataclass(frozen=True)
class Asking:
    """Pairs of rows and columns, as two index arrays that broadcast.

    Attributes:
      name: how reports call it.
      rows, columns: two-dimensional.
    """

    name: str
    rows: Index
    columns: Index

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that both broadcast to."""
        return np.broadcast_shapes(self.rows.shape, self.columns.shape)

    def of(self, dense: Bool) -> Bool:
        """The values of a dense mask at the pairs."""
        return np.asarray(np.broadcast_to(dense[self.rows, self.columns], self.shape))


def _whole(name: str, rows: Index, columns: Index) -> Asking:
    whole = np.broadcast_arrays(rows, columns)
    return Asking(name, whole[0].copy(), whole[1].copy())


def tiles(q_len: int, kv_len: int) -> list[Asking]:
    """What kernels ask with: a column and a row, or whole tiles, with queries along either axis."""
    q, kv = np.arange(q_len), np.arange(kv_len)
    return [
        Asking("a column of queries and a row of keys", q[:, None], kv[None, :]),
        _whole("whole tiles", q[:, None], kv[None, :]),
        _whole("whole tiles with queries along the columns", q[None, :], kv[:, None]),
    ]


def askings(q_len: int, kv_len: int, rng: np.random.Generator) -> list[Asking]:
    """`tiles`, and parts of a mask, single pairs and positions that are out of order."""
    q, kv = np.arange(q_len), np.arange(kv_len)
    half_q, half_kv = q[q_len // 2 :], kv[kv_len // 2 :]
    return [
        *tiles(q_len, kv_len),
        Asking("a row of queries and a column of keys", q[None, :], kv[:, None]),
        _whole("a tile that does not start at 0", half_q[:, None], half_kv[None, :]),
        Asking("a single pair", q[-1:, None], kv[None, -1:]),
        _whole(
            "positions out of order", rng.permutation(q_len)[:, None], rng.permutation(kv_len)[None]
        ),
    ]


def positions(mask: Mask) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Positions of the rows and of the columns of a mask."""
    expr = mask.expr
    kv = expr.kv_positions() if isinstance(expr, UserMask) else np.arange(mask.kv_len)
    return expr.q_positions(mask.q_len).astype(np.int32), kv.astype(np.int32)


def _intervals(length: int, rng: np.random.Generator) -> Index:
    """Inclusive intervals of ``range(length)``, ``[n, 2]``."""
    if length <= ALL_INTERVALS_OF:
        pairs = [(a, b) for a in range(length) for b in range(a, length)]
    else:
        ends = {0, 1, length // 2 - 1, length // 2, length - 1}
        ends |= {int(n) for n in rng.integers(0, length, 2)}
        pairs = [(a, b) for a in sorted(ends) for b in sorted(ends) if a <= b]
    return np.array(pairs, dtype=np.int64)


@dataclass(frozen=True)
class Rectangles:
    """Every interval of rows with every interval of columns.

    Attributes:
      q, kv: inclusive bounds, int64 ``[n, 2]``.
    """

    q: Index
    kv: Index

    @staticmethod
    def of(q_len: int, kv_len: int, rng: np.random.Generator) -> Rectangles:
        """All rectangles of a small mask, some of a large one."""
        return Rectangles(_intervals(q_len, rng), _intervals(kv_len, rng))

    def answers(self, dense: Bool) -> tuple[Bool, Bool]:
        """Whether any and whether all entries of every rectangle are True, ``[q intervals, kv intervals]``."""
        total = np.zeros((dense.shape[0] + 1, dense.shape[1] + 1), dtype=np.int64)
        total[1:, 1:] = dense.cumsum(axis=0).cumsum(axis=1)
        lower, upper = self.q[:, 0, None], self.q[:, 1, None] + 1
        left, right = self.kv[None, :, 0], self.kv[None, :, 1] + 1
        visible = (
            total[upper, right] - total[lower, right] - total[upper, left] + total[lower, left]
        )
        return visible > 0, visible == (upper - lower) * (right - left)

    def name(self, at: tuple[int, ...]) -> str:
        """A rectangle as reports name it."""
        (a, b), (c, d) = self.q[at[0]], self.kv[at[1]]
        return f"queries {a}..{b}, keys {c}..{d}"


def times_covered(lo: Any, hi: Any, keys: Any) -> NDArray[np.int64]:
    """How many intervals hold every key position.

    Args:
      lo, hi: inclusive bounds, ``[k, n]``.
      keys: positions, ``[kv_len]``.

    Returns:
      int64 ``[n, kv_len]``.
    """
    inside = (np.asarray(lo)[..., None] <= keys) & (keys <= np.asarray(hi)[..., None])
    return np.asarray(inside.sum(axis=0, dtype=np.int64))
