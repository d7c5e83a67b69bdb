"""Masks and compiled arrays from their definitions, in plain loops over lists.

Nothing here uses the reference's code: it is what the reference is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference.masks import And, Causal, ChunkedCausal, Dense, Expr, Full, Local, Or

Rows = list[list[bool]]
Grid = list[list[int]]


def sees(expr: Expr, q: int, kv: int) -> bool:
    """Whether query ``q`` sees key ``kv``."""
    match expr:
        case Full():
            return True
        case Causal():
            return kv - q <= expr.offset
        case Local():
            distance = kv - (q + expr.offset)
            if expr.left is not None and distance < -expr.left:
                return False
            return expr.right is None or distance <= expr.right
        case ChunkedCausal():
            start = q - q % expr.chunk_size
            return start <= kv <= q
        case Dense():
            return bool(expr.array[q, kv])
        case And():
            return sees(expr.left, q, kv) and sees(expr.right, q, kv)
        case Or():
            return sees(expr.left, q, kv) or sees(expr.right, q, kv)
    raise TypeError(type(expr).__name__)


def dense(expr: Expr, q_len: int, kv_len: int) -> Rows:
    return [[sees(expr, q, kv) for kv in range(kv_len)] for q in range(q_len)]


def block(rows: Rows, i: int, j: int, block_q: int, block_kv: int) -> Rows:
    return [
        [rows[i * block_q + a][j * block_kv + b] for b in range(block_kv)] for a in range(block_q)
    ]


def label(entries: Rows) -> int:
    flat = [value for row in entries for value in row]
    return 2 if all(flat) else int(any(flat))


def label_grid(rows: Rows, block_q: int, block_kv: int) -> Grid:
    return [
        [label(block(rows, i, j, block_q, block_kv)) for j in range(len(rows[0]) // block_kv)]
        for i in range(len(rows) // block_q)
    ]


def transposed(rows: list[list[bool]]) -> list[list[bool]]:
    return [list(column) for column in zip(*rows, strict=True)]


@dataclass
class Compiled:
    """Arrays ``[leading row][row][column]`` and the stack, as lists."""

    block_mask: list[Grid]
    data_next: list[Grid]
    mask_next: list[Grid]
    stack: list[Rows]


def stored_blocks(
    masks: Sequence[Rows], block_q: int, block_kv: int
) -> tuple[list[Rows], list[Grid]]:
    """Different partial blocks by first appearance; place of every block of every mask (or -1)."""
    stack: list[Rows] = []
    places: list[Grid] = []
    for rows in masks:
        grid = label_grid(rows, block_q, block_kv)
        place = [[-1] * len(grid[0]) for _ in grid]
        for i in range(len(grid)):
            for j in range(len(grid[0])):
                if grid[i][j] == 1:
                    entries = block(rows, i, j, block_q, block_kv)
                    if entries not in stack:
                        stack.append(entries)
                    place[i][j] = stack.index(entries)
        places.append(place)
    return stack, places


def source(wanted: list[bool], n: int, backwards: bool) -> int:
    """The wanted position that position ``n`` refers to: ahead with wrap-around, or behind."""
    if not any(wanted):
        return -1
    if backwards:
        while n >= 0 and not wanted[n]:
            n -= 1
        return n if n >= 0 else wanted.index(True)
    while not wanted[n]:
        n = (n + 1) % len(wanted)
    return n


def compile_arrays(
    of_head: Sequence[int],
    masks: Sequence[Rows],
    block_q: int,
    block_kv: int,
    direction: str,
    *,
    head_shards: int = 1,
    q_shards: int = 1,
    shrink: bool = True,
) -> Compiled:
    """MaskInfo of the two-dimensional layout.

    Args:
      of_head: which of ``masks`` every head has; first appearances in order 0, 1, ….
      masks: the different masks.
      block_q, block_kv: tokens a block.
      direction: ``fwd``, ``dq`` or ``dkv``.
      head_shards, q_shards: devices along heads and queries.
      shrink: drop empty blocks where all heads have one mask.
    """
    stack, places = stored_blocks(masks, block_q, block_kv)
    grids = [label_grid(rows, block_q, block_kv) for rows in masks]
    shrunk = shrink and len(masks) == 1
    per_shard = len(of_head) // head_shards
    groups = [list(of_head[s * per_shard : (s + 1) * per_shard]) for s in range(head_shards)]
    if all(len(set(group)) == 1 for group in groups):
        groups = [group[:1] for group in groups]
    dkv = direction == "dkv"
    rows_a_shard = len(grids[0]) // q_shards

    def lines(grid: Grid, shard: int) -> list[list[tuple[int, int, int, int]]]:
        """Of one shard: (q row, column, label, own index) line by line along the accumulation."""
        first = shard * rows_a_shard
        at = [
            [(first + i, j, grid[first + i][j], i if dkv else j) for j in range(len(grid[0]))]
            for i in range(rows_a_shard)
        ]
        out = [list(column) for column in zip(*at, strict=True)] if dkv else at
        return [[e for e in line if e[2]] for line in out] if shrunk else out

    width = max(
        1, *(len(line) for grid in grids for s in range(q_shards) for line in lines(grid, s))
    )
    result = Compiled([], [], [], [transposed(b) if dkv else b for b in stack])
    leading = sum(len(group) for group in groups)
    for name in ("block_mask", "data_next", "mask_next"):
        getattr(result, name).extend([[] for _ in range(leading)])
    for shard in range(q_shards):
        start = 0
        for group in groups:
            # One entry a position, in the order in which the grid visits them.
            order: list[tuple[int, int, int]] = []  # (member of the group, line, step)
            n_lines = len(grids[0][0]) if dkv else rows_a_shard
            if dkv:
                order = [
                    (h, line, k)
                    for line in range(n_lines)
                    for h in range(len(group))
                    for k in range(width)
                ]
            else:
                order = [
                    (h, line, k)
                    for h in range(len(group))
                    for line in range(n_lines)
                    for k in range(width)
                ]
            entry = []
            for h, line, k in order:
                own = lines(grids[group[h]], shard)[line]
                if k < len(own):
                    i, j, lab, index = own[k]
                    entry.append((lab, index, places[group[h]][i][j]))
                else:
                    entry.append((0, -1, -1))
            some = [e[0] > 0 for e in entry]
            part = [e[0] == 1 for e in entry]
            values = {}
            for n, (h, line, k) in enumerate(order):
                data, mask = source(some, n, shrunk), source(part, n, shrunk)
                values[h, line, k] = (
                    entry[n][0],
                    entry[data][1] if data >= 0 else 0,
                    entry[mask][2] if mask >= 0 else 0,
                )
            for h in range(len(group)):
                for field, name in enumerate(("block_mask", "data_next", "mask_next")):
                    array: Grid = [
                        [values[h, line, k][field] for k in range(width)] for line in range(n_lines)
                    ]
                    if dkv:
                        array = [list(column) for column in zip(*array, strict=True)]
                    getattr(result, name)[start + h].extend(array)
            start += len(group)
    return result
