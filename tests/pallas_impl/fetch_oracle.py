"""How many blocks the pipeline fetches, and the fewest that any kernel could.

The pipeline copies a block into a slot when the index of the slot differs from the step before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core
from jax._src.state import discharge

from pallas_impl.schedule import unpack_meta
from pallas_impl.slots import ACTIVE, HOLD, NEVER, NEXT, column_of, head_offset, kind_of
from pallas_impl.steps import Reader, by_members, grid_ids, grid_of


def changes(index: np.ndarray) -> int:
    """Fetches of one slot whose block index is ``index`` [steps, dimensions]."""
    return 1 + int((index[1:] != index[:-1]).any(1).sum()) if len(index) else 0


def chunks(row: np.ndarray, slots: int) -> list[list[int]]:
    """The blocks of each step that a row of labels takes."""
    blocks = np.flatnonzero(row).tolist()
    return [blocks[i : i + slots] for i in range(0, len(blocks), slots)]


def fewest(steps: Sequence[Sequence[Any]], slots: int) -> int:
    """The fewest fetches of any placement: a search over everything that slots could hold.

    Before a step the slots hold a set; the step needs its own blocks among what they hold after.
    """
    costs: dict[frozenset[Any], int] = {frozenset(): 0}
    for step in steps:
        wanted = frozenset(step)
        reached: dict[frozenset[Any], int] = {}
        for held, cost in costs.items():
            others = held - wanted
            room = min(slots - len(wanted), len(others))
            for kept in itertools.combinations(others, room):
                after = wanted.union(kept)
                total = cost + len(wanted - held)
                reached[after] = min(total, reached.get(after, total))
        costs = reached
    return min(costs.values())


class Table(NamedTuple):
    """What slots hold, in the order of the grid.

    Attributes:
      active: bool[steps, slots], the slot works on its block.
      block: [steps, slots, 2], (head, column) of the block.
      idle: slots that never work; each fetches one block all the same.
    """

    active: np.ndarray
    block: np.ndarray
    idle: int

    def steps(self) -> list[list[tuple[int, ...]]]:
        """The blocks that each step works on, ascending."""
        return [
            sorted(map(tuple, index[active].tolist()))
            for active, index in zip(self.active, self.block, strict=True)
        ]

    @property
    def fetched(self) -> int:
        """Fetches of all slots."""
        return sum(changes(self.block[:, slot]) for slot in range(self.block.shape[1]))


def read_table(schedule: Any, heads: int, group: int = 1, *, kv: bool = True) -> Table:
    """Reads a table in the order of the grid.

    ``kv``: heads of k and v, rows being q blocks; else query heads, of which ``group`` take turns.
    """
    if len(schedule.words) > 1 and group > 1 and not kv:
        schedule = by_members(schedule, group)
    slots, shared = schedule.layout.slots, len(schedule.words) == 1
    entries = np.asarray(schedule.entries).reshape(len(schedule.words), -1, slots)
    meta = unpack_meta(np.asarray(schedule.words)[..., None])
    active = (meta.active >> np.arange(slots)) & 1 == 1
    entries, active = (np.broadcast_to(x, (heads, *x.shape[1:])) for x in (entries, active))
    own = np.arange(heads)[:, None, None]
    kind = kind_of(entries)
    if not shared:
        head = own + head_offset(entries)
    else:
        first = own - own % group
        held = np.select([kind == NEXT, kind == HOLD], [first, first + group - 1], own)
        head = np.where(kind == NEVER, 0, own if kv else held)
    if kv:
        head = head // group
    index = np.stack([head, column_of(entries)], -1)
    assert np.all(active == (kind == ACTIVE))
    if not kv:
        turns = (heads // group, group)
        active, index = (
            x.reshape(*turns, *x.shape[1:]).swapaxes(1, 2).reshape(-1, *x.shape[2:])
            for x in (active, index)
        )
    active, index = active.reshape(-1, slots), index.reshape(-1, slots, 2)
    return Table(active, index, int(np.count_nonzero(~active.any(0))))


def one_kept(table: Table) -> int:
    """The fewest fetches of a kernel that works on the same blocks one by one and keeps one."""
    return changes(np.array([b for step in table.steps() for b in step]).reshape(-1, 2))


# ---- what the index maps of a kernel say ----------------------------------------------------


def pallas_calls(jaxpr: Any) -> list[Any]:
    """Every ``pallas_call`` of a program, in order."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "pallas_call":
            found.append(eqn)
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns") and eqn.primitive.name != "pallas_call":
                found += pallas_calls(inner)
    return found


def indices(eqn: Any, operands: list[int], prefetch: list[Any]) -> list[np.ndarray]:
    """Block index of some inputs at every grid step, in order: [steps, dimensions] each."""
    mapping = eqn.params["grid_mapping"]
    maps = [mapping.block_mappings[i].index_map_jaxpr for i in operands]
    plain = [discharge.discharge_state(closed) for closed in maps]
    points = np.array(list(itertools.product(*map(range, mapping.grid))), np.int32)

    def one(point: Any) -> Any:
        args = [*point, *map(jnp.asarray, prefetch)]
        found = []
        for closed, jaxpr in zip(maps, plain, strict=True):
            consts = getattr(jaxpr, "consts", ())
            out = core.eval_jaxpr(getattr(jaxpr, "jaxpr", jaxpr), consts, *args)
            wanted = out[: len(closed.jaxpr.outvars)]
            found.append(jnp.stack([jnp.asarray(x, jnp.int32) for x in wanted]))
        return found

    return [np.asarray(x) for x in jax.jit(jax.vmap(one))(points)]


def step_bits(schedule: Any, heads: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Which slots compute, and which of full blocks, at every grid step in order: [steps, slots]."""
    layout, per_head = schedule.layout, len(schedule.words) > 1
    refs = {n: jnp.ravel(jnp.asarray(a)) for n, a in schedule.arrays().items()}
    sizes = grid_of(layout, heads, group)
    points = np.array(list(itertools.product(*map(range, sizes))), np.int32)

    def one(point: Any) -> Any:
        head, *ids = grid_ids(layout, tuple(point), group)
        info = Reader(layout, refs, per_head, head, tuple(ids), group).step_info()
        return info.active, info.full

    active, full = (np.asarray(x)[:, None] for x in jax.jit(jax.vmap(one))(points))
    bits = np.arange(layout.slots)
    return (active >> bits) & 1 == 1, (full >> bits) & 1 == 1
