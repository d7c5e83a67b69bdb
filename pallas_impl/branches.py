"""Which body a step runs: the same choice in every kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax.numpy as jnp
from jax.experimental import pallas as pl

from pallas_impl.block_sizes import LANES
from pallas_impl.steps import Step


class Body(Protocol):
    """The arithmetic of a kernel."""

    def init(self) -> None:
        """Runs before the first block of a row."""

    def whole(self, slots: Sequence[int], partial: bool) -> None:
        """Some slots, all of label 1 (``partial``) or all of label 2."""

    def mixed(self, count: int, full: Any) -> None:
        """The first ``count`` slots; bit i of ``full`` tells whether slot i has label 2."""


def one_by_one(column_block: int) -> bool:
    """Whether slots of different labels are computed one after another.

    Blocks this wide fill the machine alone; narrower ones are computed together, their masks
    applied in between, where the logits wait in memory.
    """
    return column_block > LANES


def run_step(
    body: Body, step: Step, slots: int, column_block: int, finish: Callable[[], None]
) -> None:
    """Runs one grid step: initialise, compute in the branch that fits, write.

    A label-2 block never meets the mask and a label-0 block is never computed: a step with
    fewer active slots has branches of its own.
    """
    pl.when(step.first)(body.init)
    everything = range(slots)
    all_full = (1 << slots) - 1
    busy, all_equal = step.count == slots, (step.full == 0) | (step.full == all_full)
    pl.when(busy & (step.full == all_full))(lambda: body.whole(everything, False))
    pl.when(busy & (step.full == 0))(lambda: body.whole(everything, True))
    if slots > 1 and one_by_one(column_block):
        split = jnp.logical_not(busy & all_equal)
        for slot in everything:
            active = split & (slot < step.count)
            is_full = (step.full >> slot) & 1 == 1
            pl.when(active & is_full)(functools.partial(body.whole, [slot], False))
            partial = active & jnp.logical_not(is_full)
            pl.when(partial)(functools.partial(body.whole, [slot], True))
    elif slots > 1:
        for count in range(1, slots + 1):
            wanted = step.count == count
            if count == slots:
                wanted = wanted & jnp.logical_not(all_equal)
            pl.when(wanted)(functools.partial(body.mixed, count, step.full))
    pl.when(step.last)(finish)
