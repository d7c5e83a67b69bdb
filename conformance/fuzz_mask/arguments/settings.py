"""Sizes that masks are drawn for: small and unequal lengths first, then lengths around the edges of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

#: Block sizes of small masks, and those of kernels.
SMALL_BLOCKS = (1, 2, 3, 4, 8)
KERNEL_BLOCK = 128


@dataclass(frozen=True)
class Setting:
    """The sizes that a mask is drawn for.

    Attributes:
      q_len, kv_len: tokens.
      block_q, block_kv: tokens per block: numbers near their multiples are worth trying.
    """

    q_len: int
    kv_len: int
    block_q: int
    block_kv: int

    @property
    def shape(self) -> tuple[int, int]:
        """(q_len, kv_len)."""
        return self.q_len, self.kv_len

    def edges(self) -> list[int]:
        """Numbers on, just before and just after block edges, lengths and 0; the nearest to 0 first."""
        ends = {0, self.block_q, self.block_kv, self.q_len, self.kv_len, self.kv_len - self.q_len}
        ends |= {2 * self.block_q, 2 * self.block_kv, -self.block_q, -self.block_kv, -self.q_len}
        near = {end + step for end in ends for step in (-1, 0, 1)}
        return sorted(near, key=lambda n: (abs(n), n))


_BLOCK = st.sampled_from(SMALL_BLOCKS)
_NEXT_TO = st.sampled_from((0, -1, 1))
_EDGE = st.builds(lambda n, b, d: max(1, n * b + d), st.integers(1, 4), _BLOCK, _NEXT_TO)

#: A small length, or one on, just before or just after a block edge.
_LENGTH = st.one_of(
    st.integers(1, 5), _EDGE, _EDGE, st.builds(lambda d: KERNEL_BLOCK + d, _NEXT_TO)
)


@st.composite
def small_settings(draw: st.DrawFn) -> Setting:
    """Masks that are read entry by entry, of any shape; about every second one is square."""
    q_len, kv_len, square = draw(_LENGTH), draw(_LENGTH), draw(st.booleans())
    return Setting(q_len, q_len if square else kv_len, draw(_BLOCK), draw(_BLOCK))


@st.composite
def tiny_settings(draw: st.DrawFn) -> Setting:
    """The smallest masks."""
    length, block = st.integers(1, 3), st.integers(1, 2)
    return Setting(draw(length), draw(length), draw(block), draw(block))


@st.composite
def block_settings(
    draw: st.DrawFn, block_q: tuple[int, ...], block_kv: tuple[int, ...], most: int
) -> Setting:
    """Masks of whole blocks, at most ``most`` along either axis."""
    size_q, size_kv = draw(st.sampled_from(block_q)), draw(st.sampled_from(block_kv))
    q_len = size_q * draw(st.integers(1, most))
    if draw(st.booleans()):
        size_kv = size_q if q_len % size_kv else size_kv
        return Setting(q_len, q_len, size_q, size_kv)
    return Setting(q_len, size_kv * draw(st.integers(1, most)), size_q, size_kv)
