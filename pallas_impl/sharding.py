"""Cutting the block grid into shards, each of which is a schedule of its own.

Grid arrays are `[heads, n_q, n_kv]`; split arrays put the shards first and the rest into grid
order, so that one vectorised step handles every shard (clauses SHARD-1 to SHARD-6):

- forward and dq: `[head_shards, q_shards, kv_shards, heads, q blocks, kv blocks]`;
- dkv: `[head_shards, q_shards, kv_shards, kv blocks, heads, q blocks]`.
"""

import operator
from typing import Any, Literal, NamedTuple, SupportsIndex, cast, get_args

Direction = Literal["fwd", "dq", "dkv"]


class Layout(NamedTuple):
    """Blocks, shards and direction of one compilation, checked.

    Attributes:
      block_shape: `(block_q, block_kv)`, in positions.
      head_shards, q_shards, kv_shards: the number of shards of each axis.
      direction: "fwd", "dq" or "dkv".
    """

    block_shape: tuple[int, int]
    head_shards: int
    q_shards: int
    kv_shards: int
    direction: Direction

    @property
    def is_dkv(self) -> bool:
        """Whether kv blocks are visited in the outer loop and q blocks in the inner one."""
        return self.direction == "dkv"


def check_layout(
    mask_shape: tuple[int, ...],
    block_shape: tuple[SupportsIndex, SupportsIndex],
    direction: str,
    head_shards: SupportsIndex,
    q_shards: SupportsIndex,
    kv_shards: SupportsIndex,
) -> Layout:
    """Checks block sizes and shard counts against a mask's shape.

    Args:
      mask_shape: `(q_len, kv_len)`, shared by all heads, or `(heads, q_len, kv_len)`.

    Raises:
      ValueError: the direction is unknown, a size is not positive, a block size does not divide
        its axis of a shard, or a shard count does not divide its axis (REJECT-1, REJECT-6, REJECT-8).
      TypeError: a size is not an integer.
    """
    if direction not in get_args(Direction):
        raise ValueError(f"direction: must be one of {get_args(Direction)}, got {direction!r}")
    if not isinstance(block_shape, tuple | list) or len(block_shape) != 2:
        raise ValueError(f"block_shape: expected (block_q, block_kv), got {block_shape!r}")
    block_q = _positive("block_shape[0] (block_q)", block_shape[0])
    block_kv = _positive("block_shape[1] (block_kv)", block_shape[1])
    s_h = _positive("head_shards", head_shards)
    s_q = _positive("q_shards", q_shards)
    s_kv = _positive("kv_shards", kv_shards)
    if len(mask_shape) == 3 and mask_shape[0] % s_h:
        raise ValueError(f"head_shards: {s_h} does not divide {mask_shape[0]} heads")
    for axis, size, count, block in (
        ("q", mask_shape[-2], s_q, block_q),
        ("kv", mask_shape[-1], s_kv, block_kv),
    ):
        if size % count:
            raise ValueError(f"{axis}_shards: {count} does not divide {axis}_len {size}")
        if (size // count) % block:
            raise ValueError(
                f"block_shape: block_{axis} {block} does not divide the {size // count}"
                f" {axis} positions of a shard ({axis}_len {size}, {axis}_shards {count})"
            )
    return Layout((block_q, block_kv), s_h, s_q, s_kv, cast(Direction, direction))


def split(array: Any, layout: Layout) -> Any:
    """Cuts a NumPy or jax array `[heads, n_q, n_kv]` into shards; see the module's text."""
    heads, n_q, n_kv = array.shape
    s_h, s_q, s_kv = layout.head_shards, layout.q_shards, layout.kv_shards
    cut = array.reshape(s_h, heads // s_h, s_q, n_q // s_q, s_kv, n_kv // s_kv)
    order = (0, 2, 4, 5, 1, 3) if layout.is_dkv else (0, 2, 4, 1, 3, 5)
    return cut.transpose(order)


def join(array: Any, layout: Layout) -> Any:
    """The inverse of `split`; the last axis may have shrunk in between."""
    order = (0, 4, 1, 5, 2, 3) if layout.is_dkv else (0, 3, 1, 4, 2, 5)
    cut = array.transpose(order)
    s_h, heads, s_q, n_q, s_kv, n_kv = cut.shape
    return cut.reshape(s_h * heads, s_q * n_q, s_kv * n_kv)


def _positive(name: str, value: SupportsIndex) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None
    if number <= 0:
        raise ValueError(f"{name}: must be positive, got {number}")
    return number
