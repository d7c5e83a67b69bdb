"""Alternative block sizes to compare."""

from __future__ import annotations

#: Width of a vector register: TPU kernels take blocks of multiples of it.
LANES = 128
#: Rows of a vector register: smaller blocks are never useful.
SUBLANES = 8
LARGEST = 2048


def neighbours(length: int, block: int) -> list[int]:
    """Sizes of one axis: halves of ``block`` down to 128 and doubles up to 2048 that divide ``length``.

    For a block that is not a multiple of 128 (a small example), halves down to 8.
    """
    found = {block}
    smallest = LANES if block % LANES == 0 else SUBLANES
    half = block
    while half % 2 == 0 and half // 2 >= smallest and half // 2 % smallest == 0:
        half //= 2
        found.add(half)
    double = 2 * block
    while double <= max(LARGEST, block) and length % double == 0:
        found.add(double)
        double *= 2
    return sorted(found)


def pairs(q_len: int, kv_len: int, block_q: int, block_kv: int) -> list[tuple[int, int]]:
    """Block sizes to compare: both sides halved or doubled together, and square ones."""
    q_sizes, kv_sizes = neighbours(q_len, block_q), neighbours(kv_len, block_kv)
    found = {(block_q, block_kv)} | {(size, size) for size in set(q_sizes) & set(kv_sizes)}
    for size in q_sizes:
        if size * block_kv % block_q == 0 and size * block_kv // block_q in kv_sizes:
            found.add((size, size * block_kv // block_q))
    return sorted(found)


def dividing(length: int, block: int) -> int | None:
    """The largest size up to ``block`` that divides ``length``: a multiple of 128 if there is one."""
    fits = [size for size in range(1, min(block, length) + 1) if length % size == 0]
    return max((size for size in fits if size % LANES == 0), default=max(fits, default=None))
