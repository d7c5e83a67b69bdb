"""Which slot of a step each block goes to, and what a slot without work holds.

A kernel receives the blocks of a step in slots.  The pipeline keeps one block in each slot and
fetches another when the index of the slot changes, so a block that is wanted again costs nothing
if it goes to the slot where it still is.  The order of the blocks inside a step is free: the
softmax is one update for all of them.

What slots hold is a cache of as many places as there are slots, and a step wants several blocks
at once.  For a mask known beforehand the blocks to give up are those wanted again last, which
makes the fewest fetches possible (Belady 1966, "A study of replacement algorithms for a
virtual-storage computer").  For a mask known only at run time a block stays if the step before
had it too.  Clauses FETCH-1 to FETCH-3.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ACTIVE, NEXT, HOLD, NEVER = 0, 1, 2, 3
"""Why a slot holds its block: to work on it, for its next use, after its last, or for none."""
COLUMN_BITS, KIND_BITS = 16, 2
COLUMN_MASK = (1 << COLUMN_BITS) - 1
MAX_HEADS = 1 << (31 - COLUMN_BITS - KIND_BITS)
_UNUSED = 1 << 40
_EMPTY = 1 << 41


def _namespace(x: Any) -> Any:
    return np if isinstance(x, np.ndarray) else jnp


def column_of(entry: Any) -> Any:
    """The block that an entry names."""
    return entry & COLUMN_MASK


def kind_of(entry: Any) -> Any:
    """ACTIVE, NEXT, HOLD or NEVER."""
    return (entry >> COLUMN_BITS) & ((1 << KIND_BITS) - 1)


def head_offset(entry: Any) -> Any:
    """How many heads further the block's own head is."""
    return entry >> (COLUMN_BITS + KIND_BITS)


def _reverse_cummin(x: Any, axis: int) -> Any:
    if isinstance(x, np.ndarray):
        return np.flip(np.minimum.accumulate(np.flip(x, axis), axis), axis)
    return jax.lax.cummin(x, axis=axis % x.ndim, reverse=True)


def sources(active: Any) -> tuple[Any, Any]:
    """Where each slot gets its block from: (step, kind), of the shape of ``active``.

    Args:
      active: bool[..., steps, slots].

    A slot without work takes the block of its next active step, else it keeps that of its last;
    so a slot fetches once for each change between its active steps, and nothing else.
    """
    xp = _namespace(active)
    n = active.shape[-2]
    at = xp.arange(n, dtype=np.int32)[:, None]
    following = _reverse_cummin(xp.where(active, at, np.int32(n)), -2)
    last = xp.max(xp.where(active, at, np.int32(-1)), axis=-2, keepdims=True)
    source = xp.where(following < n, following, xp.maximum(last, 0))
    idle = xp.where(following < n, NEXT, xp.where(last < 0, NEVER, HOLD))
    return source, xp.where(active, ACTIVE, idle).astype(np.int32)


def fill(values: Any, active: Any) -> Any:
    """Replaces the values of idle slots, [..., steps, slots], by what ``sources`` says."""
    return _namespace(values).take_along_axis(values, sources(active)[0], axis=-2)


def encode(columns: Any, active: Any, owner: np.ndarray) -> Any:
    """Entries of slots: column:16 kind:2 head offset:14 (signed).

    Args:
      columns: int32[..., steps, slots].
      active: bool, likewise.
      owner: int32[steps], the head that each step works for.
    """
    xp = _namespace(columns)
    source, kind = sources(active)
    column = xp.where(kind == NEVER, 0, xp.take_along_axis(columns, source, axis=-2))
    mine = xp.broadcast_to(xp.asarray(owner)[:, None], source.shape)
    offset = xp.asarray(owner)[source] - mine
    return (column | (kind << COLUMN_BITS) | (offset << (COLUMN_BITS + KIND_BITS))).astype(np.int32)


def arrange(order: Any, x: Any) -> Any:
    """Puts x[..., steps, blocks] into slots."""
    return _namespace(x).take_along_axis(x, order, axis=-1)


def slot_order(columns: Any, active: Any, *, pinned: np.ndarray | None = None) -> Any:
    """The blocks of each step in the order of slots.

    Args:
      columns: int32[devices, heads, steps, slots], the blocks of each step, ascending; heads run
        one after another on their device.
      active: bool, likewise; the active blocks of a step come first.
      pinned: bool[steps], full steps whose blocks are to stay in order although heads may begin
        with what the head before left; only if nothing is kept before them.

    Returns:
      int32, likewise: which block of its step each slot gets.  Traced if an argument is.
    """
    if columns.shape[-1] == 1:
        return _namespace(columns).zeros_like(columns)
    if not isinstance(active, np.ndarray) or not isinstance(columns, np.ndarray):
        shape = columns.shape
        flat = (shape[0], shape[1] * shape[2], shape[3])
        return _order_traced(columns.reshape(flat), active.reshape(flat)).reshape(shape)
    order = np.empty_like(columns)
    for device in range(len(columns)):
        _order_device(columns[device], active[device], order[device], pinned)
    return order


# ---- masks known beforehand ----------------------------------------------------------------


def _order_device(
    columns: np.ndarray, active: np.ndarray, order: np.ndarray, pinned: np.ndarray | None
) -> None:
    """Fills ``order`` [heads, steps, slots]; renames slots so that heads fit one another.

    How many query heads share a kv head is not known yet.  If several do, a head begins with
    what the one before left.
    """
    heads, _, slots = columns.shape
    held = np.full(slots, -1)
    for h in range(heads):
        order[h] = _order_head(columns[h], active[h])
        first, last = _ends(columns[h], active[h], order[h])
        if h > 0:
            names = _renaming(first, held)
            order[h], last = order[h][:, names], last[list(names)]
        held = np.where(last >= 0, last, held)
    if heads == 1:
        _close(columns[0], active[0], order[0], pinned)


def _next_uses(blocks: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The step at which each visited block is visited again."""
    order = np.argsort(blocks, kind="stable")
    again = np.flatnonzero(blocks[order[1:]] == blocks[order[:-1]])
    later = np.full(len(blocks), _UNUSED)
    later[order[again]] = at[order[again + 1]]
    return later


def _order_head(columns: np.ndarray, active: np.ndarray) -> np.ndarray:
    """``slot_order`` of one head that begins with nothing: int32[steps, slots]."""
    steps, slots = active.shape
    at, position = np.nonzero(active)
    visits = columns[active].tolist()
    later = _next_uses(columns[active], at).tolist()
    counts = np.count_nonzero(active, axis=1)
    held, until = [-1] * slots, [_EMPTY] * slots
    chosen: list[int] = []
    begin = 0
    for count in counts[counts > 0].tolist():
        wanted = visits[begin : begin + count]
        places = [held.index(block) if block in held else -1 for block in wanted]
        missing = [i for i, slot in enumerate(places) if slot < 0]
        if missing:
            free = [slot for slot in range(slots) if slot not in places]
            if len(missing) < len(free):
                farthest = sorted(free, key=lambda slot: -until[slot])
                free = sorted(farthest[: len(missing)])
            for i, slot in zip(missing, free, strict=True):
                places[i] = slot
        for i, slot in enumerate(places):
            held[slot], until[slot] = wanted[i], later[begin + i]
        chosen += places
        begin += count
    order = np.full((steps, slots), -1, np.int32)
    order[at, chosen] = position
    idle = order < 0
    return np.where(idle, np.cumsum(idle, axis=1) - 1 + counts[:, None], order).astype(np.int32)


def _ends(
    columns: np.ndarray, active: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last block that each slot works on; -1 for none."""
    blocks, used = arrange(order, columns), arrange(order, active)
    slots = np.arange(columns.shape[1])
    some = used.any(axis=0)
    first = blocks[used.argmax(axis=0), slots]
    last = blocks[len(used) - 1 - used[::-1].argmax(axis=0), slots]
    return np.where(some, first, -1), np.where(some, last, -1)


def _renaming(first: np.ndarray, held: np.ndarray) -> tuple[int, ...]:
    """The permutation of slots after which the most begin with what is held."""
    names = itertools.permutations(range(len(first)))
    return max(names, key=lambda n: int(np.count_nonzero(first[list(n)] == held)))


def _kept(blocks: np.ndarray, used: np.ndarray) -> np.ndarray:
    """bool[steps]: a slot holds a block from before this step for a use at or after it."""
    change = np.zeros(len(used) + 1, np.int64)
    for slot in range(used.shape[1]):
        at = np.flatnonzero(used[:, slot])
        same = blocks[at[1:], slot] == blocks[at[:-1], slot]
        np.add.at(change, at[:-1][same] + 1, 1)
        np.add.at(change, at[1:][same] + 1, -1)
    return np.cumsum(change)[:-1] > 0


def _close(
    columns: np.ndarray, active: np.ndarray, order: np.ndarray, pinned: np.ndarray | None
) -> None:
    """Lets a head end, where it can, with blocks in the slots in which the next head wants them.

    Slots can be renamed from a step on before which nothing is kept.
    """
    first, last = _ends(columns, active, order)
    if not np.any((first != last) & np.isin(first, last[last >= 0])):
        return
    free = ~_kept(arrange(order, columns), arrange(order, active)) & active.any(axis=1)
    free[0] = False
    if pinned is not None and pinned.any():
        free[: np.flatnonzero(pinned)[-1] + 1] = False
    if not free.any():
        return
    begin = int(np.flatnonzero(free)[-1])

    def renamed(names: tuple[int, ...]) -> np.ndarray:
        return np.concatenate([order[:begin], order[begin:, list(names)]])

    def matches(names: tuple[int, ...]) -> int:
        first, last = _ends(columns, active, renamed(names))
        return int(np.count_nonzero((first == last) & (first >= 0)))

    order[:] = renamed(max(itertools.permutations(range(columns.shape[1])), key=matches))


# ---- masks known at run time ---------------------------------------------------------------


def _positions(shape: tuple[int, ...]) -> Any:
    """Positions along the last axis, int32 of a whole shape: no rank is promoted."""
    return jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)


def _inverse(permutation: Any) -> Any:
    return jnp.argsort(permutation, axis=-1).astype(jnp.int32)


def _compose(later: Any, earlier: Any) -> Any:
    return jnp.take_along_axis(later, earlier, axis=-1)


def _step_before(running: Any) -> Any:
    """Index of the running step before each, [.., steps]; before the first comes the last."""
    at = _positions(running.shape)
    latest = jax.lax.cummax(jnp.where(running, at, -1), axis=running.ndim - 1)
    before = jnp.concatenate([jnp.full_like(latest[..., :1], -1), latest[..., :-1]], axis=-1)
    return jnp.maximum(jnp.where(before < 0, latest[..., -1:], before), 0)


def _order_traced(columns: Any, active: Any) -> Any:
    """``slot_order`` of [devices, steps, slots] with jax operations.

    Each step permutes the positions of the step before: a block that both have keeps its slot.
    The orders are the running products of these permutations.
    """
    running = active.any(-1)
    before = _step_before(running)[..., None]
    old_columns = jnp.take_along_axis(columns, before, axis=-2)
    old_active = jnp.take_along_axis(active, before, axis=-2)
    same = columns[..., :, None] == old_columns[..., None, :]
    link = same & active[..., :, None] & old_active[..., None, :]  # [.., steps, new, old]
    new_linked, old_linked = link.any(-1), link.any(-2)
    # What is new goes first to slots that did not work.
    idle_first = 2 * old_linked.astype(jnp.int32) + old_active.astype(jnp.int32)
    old_rank = _inverse(jnp.argsort(idle_first, axis=-1, stable=True))
    new_list = jnp.argsort(new_linked, axis=-1, stable=True).astype(jnp.int32)
    moved = jnp.where(
        old_linked, jnp.argmax(link, axis=-2).astype(jnp.int32), _compose(new_list, old_rank)
    )
    at = _positions(running.shape)
    is_first = running & (at == jnp.argmax(running, axis=-1).astype(jnp.int32)[..., None])
    identity = _positions(moved.shape)
    moving = (running & ~is_first)[..., None]
    order = jax.lax.associative_scan(
        lambda a, b: _compose(b, a), jnp.where(moving, moved, identity), axis=moved.ndim - 2
    )
    # The last step at which nothing is kept may name the slots so that the end fits the beginning.
    closing = jnp.sum(jnp.where(is_first[..., None], moved, 0), axis=-2, keepdims=True)
    closing = jnp.where(running.any(-1)[..., None, None], closing, identity[..., :1, :])
    free = moving[..., 0] & ~link.any((-1, -2))
    begin = jnp.max(jnp.where(free, at, 0), axis=-1, keepdims=True)
    renaming = _compose(_inverse(order[..., -1:, :]), _inverse(closing))
    renamed = _compose(order, jnp.broadcast_to(renaming, order.shape))
    after = free.any(-1, keepdims=True) & (at >= begin)
    return jnp.where(after[..., None], renamed, order).astype(jnp.int32)
