"""Which body a step runs: the same choice in every kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax.numpy as jnp
from jax.experimental import pallas as pl

from pallas_impl.block_sizes import LANES
from pallas_impl.schedule import Meta


class Body(Protocol):
    """The arithmetic of a kernel."""

    def init(self) -> None:
        """Runs before the first block of a row."""

    def whole(self, slots: Sequence[int], partial: bool) -> None:
        """Some slots, all of label 1 (``partial``) or all of label 2."""

    def mixed(self, slots: Sequence[int], full: Any) -> None:
        """Some slots; bit i of ``full`` tells whether slot i has label 2."""


def one_by_one(column_block: int) -> bool:
    """Whether slots of different labels are computed one after another.

    Blocks this wide fill the machine alone; narrower ones are computed together, their masks
    applied in between, where the logits wait in memory.
    """
    return column_block > LANES


def run_step(
    body: Body, step: Meta, slots: int, column_block: int, finish: Callable[[], None]
) -> None:
    """Runs one grid step: initialise, compute in the branch that fits, write.

    A label-2 block never meets the mask and a label-0 block is never computed: a step with
    fewer active slots has branches of its own.  Branches are nested, so that the usual step
    passes few of them.
    """
    pl.when(step.first)(body.init)
    ones = (1 << slots) - 1
    busy, full = step.active == ones, step.full == ones
    if slots == 1:
        _alike(body, slots, busy & full, busy & jnp.logical_not(full))
    else:
        alike = busy & (full | (step.full == 0))
        pl.when(alike)(lambda: _alike(body, slots, full, jnp.logical_not(full)))
        other = jnp.logical_not(alike) & (step.active != 0)
        pl.when(other)(lambda: _unlike(body, step, slots, column_block))
    pl.when(step.last)(finish)


def _alike(body: Body, slots: int, full: Any, partial: Any) -> None:
    """All slots active, with one label."""
    pl.when(full)(lambda: body.whole(range(slots), False))
    pl.when(partial)(lambda: body.whole(range(slots), True))


def _unlike(body: Body, step: Meta, slots: int, column_block: int) -> None:
    """Some slots, or labels that differ."""
    if one_by_one(column_block):
        for slot in range(slots):
            active, full = (step.active >> slot) & 1 == 1, (step.full >> slot) & 1 == 1
            pl.when(active & full)(functools.partial(body.whole, [slot], False))
            partial = active & jnp.logical_not(full)
            pl.when(partial)(functools.partial(body.whole, [slot], True))
        return
    busy = step.active == (1 << slots) - 1
    pl.when(busy)(lambda: body.mixed(range(slots), step.full))

    @pl.when(jnp.logical_not(busy))
    def _() -> None:
        for first, wanted, chosen in pairs(slots):
            fits = (step.active >> first) & 3 == wanted
            pl.when(fits)(functools.partial(body.mixed, chosen, step.full))


def pairs(slots: int) -> list[tuple[int, int, list[int]]]:
    """(first slot of a pair, its active bits, the active slots): bodies of an unfilled step.

    Any set of slots is made of at most two of these, and a code for each set would be four times
    as long.
    """
    return [
        (first, wanted, chosen)
        for first in range(0, slots, 2)
        for wanted in (1, 2, 3)
        for chosen in [[first + i for i in (0, 1) if wanted >> i & 1]]
        if chosen[-1] < slots and len(chosen) < slots
    ]
