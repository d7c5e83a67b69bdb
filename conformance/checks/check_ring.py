"""Checks of the RING clauses: attention over several devices.

Rings have two devices where the number does not matter: every shard is compiled and run one by one where no
devices are at hand, and larger rings show nothing more about heads, caps or types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.checks.budgets import exact_forward
from conformance.checks.comparison import (
    compare,
    forward_matches,
    gradients_match,
    residuals_match,
    same_bits,
)
from conformance.checks.registry import bad_argument, expect, judges, result_unless_refused
from conformance.contract.fence import Crash, Subject
from conformance.contract.protocol import Forward
from conformance.drawing.numeric_domain import MODERATE, NumericDomain
from conformance.findings.place import Place
from conformance.problems.arrays import inputs, seeing_rows, visible
from conformance.problems.problem import Problem
from reference.masks import Bool, Dense

GROUP = "numerics-ring"
BACKWARD = "numerics-ring-backward"
RING = {"ring"}
SMALL = ("ring2", "ring4")


def ring(
    *traits: str, allows: tuple[str, ...] = (), group: str = GROUP, **more: Any
) -> NumericDomain:
    """Problems in the ring with exactly these traits."""
    return NumericDomain(RING | set(traits), frozenset(allows), group=group, **more)


def steps_seen(problem: Problem) -> Bool:
    """Whether device d sees anything of shard s, bool ``[devices, shards]``, in any head."""
    size = problem.ring
    rows, columns = problem.q_len // size, problem.kv_len // size
    parts = visible(problem).reshape(problem.heads, size, rows, size, columns)
    return np.asarray(parts.any(axis=(0, 2, 4)))


def shards_look_different(problem: Problem) -> bool:
    """Whether no two shards have the same mask for all devices: else a wrong shard could not show."""
    size, seen = problem.ring, visible(problem)
    parts = np.split(seen, size, axis=2)
    return all(not (parts[a] == parts[b]).all() for a in range(size) for b in range(a))


@judges("RING-1", ring(broad=True, costly=True))
def check_ring_computes_attention(subject: Subject, problem: Problem) -> None:
    """Rings of every size that there is."""
    forward_matches(subject, problem)


@judges("RING-2", ring(where=shards_look_different, signatures=SMALL))
def check_every_shard_is_met_once(subject: Subject, problem: Problem) -> None:
    """Masks that differ from shard to shard, so that another shard's keys would show."""
    forward_matches(subject, problem)


@judges("RING-3", ring(signatures=SMALL, regimes=("flat", "tilted", "leading")))
def check_mask_of_a_step(subject: Subject, problem: Problem) -> None:
    """Causal and other masks of the whole sequence, with heavy hidden keys."""
    forward_matches(subject, problem)


@judges("RING-4", ring(signatures=SMALL, regimes=("rising", "falling", "leading")))
def check_combination(subject: Subject, problem: Problem) -> None:
    """Shards whose maxima differ."""
    forward_matches(subject, problem)


def rolled(problem: Problem) -> Problem:
    """The problem with the keys moved on by one shard: the shards arrive in another order."""
    shift = problem.kv_len // problem.ring
    masks = tuple(Dense(np.roll(mask.dense(), shift, axis=1)) for mask in problem.head_masks)
    return problem.but(masks=masks[:1] if problem.single_mask else masks)


@judges("RING-5", ring(signatures=("ring2", "ring4"), regimes=MODERATE))
def check_order_of_shards(subject: Subject, problem: Problem) -> None:
    """The same keys, with the shards in another order: the same result."""
    made, other = inputs(problem), rolled(problem)
    shift = problem.kv_len // problem.ring
    k, v = (np.roll(array, shift, axis=1) for array in (made.k, made.v))
    prepared = subject.prepare(other)
    found: Forward = subject.call("forward", lambda: prepared.forward(replace(made, k=k, v=v)))
    exact = exact_forward(subject, problem)
    given = {"shards": "in another order"}
    compare("output", found.output, exact.output, exact.budget.output, problem, given=given)
    forward_matches(subject, problem)


def has_empty_step(problem: Problem) -> bool:
    """Whether some device sees nothing of some shard."""
    return not bool(steps_seen(problem).all())


@judges("RING-6", ring(signatures=("ring2", "ring4"), where=has_empty_step))
def check_nothing_is_the_identity(subject: Subject, problem: Problem) -> None:
    """Steps at which a device sees nothing."""
    forward_matches(subject, problem)


@judges(
    "RING-7", ring(signatures=SMALL, allows=("options",), regimes=("rising", "falling", "positive"))
)
def check_one_division(subject: Subject, problem: Problem) -> None:
    """Several shards with something to see, and every option that is offered."""
    forward_matches(subject, problem)


def unseen_keys_of_devices(problem: Problem) -> Bool:
    """Keys of shards that no device sees, bool ``[kv_len]``."""
    size = problem.kv_len // problem.ring
    return np.repeat(~steps_seen(problem).any(axis=0), size)


@judges(
    "RING-8",
    ring(signatures=("ring2", "ring4"), where=lambda p: bool(unseen_keys_of_devices(p).any())),
)
def check_unseen_shards_contribute_nothing(subject: Subject, problem: Problem) -> None:
    """NaN in a shard that nobody sees."""
    made, unseen = inputs(problem), unseen_keys_of_devices(problem)
    k, v = made.k.copy(), made.v.copy()
    k[:, unseen] = v[:, unseen] = np.nan
    prepared = subject.prepare(problem)
    found: Forward = subject.call("forward", lambda: prepared.forward(replace(made, k=k, v=v)))
    before = forward_matches(subject, problem)
    given = {"unseen_shard": "of NaN"}
    same_bits("output", np.asarray(found.output), np.asarray(before.output), problem, given=given)


@judges("RING-9", ring("segment_ids"))
def check_segments_in_the_ring(subject: Subject, problem: Problem) -> None:
    """Segments that cross shards."""
    forward_matches(subject, problem)


@judges("RING-10", ring("mqa"))
def check_heads_in_the_ring(subject: Subject, problem: Problem) -> None:
    """All query heads read one key/value head."""
    forward_matches(subject, problem)


@judges("RING-11", ring("head_dim_v"))
def check_width_of_values_in_the_ring(subject: Subject, problem: Problem) -> None:
    """v wider or narrower than q and k."""
    forward_matches(subject, problem)


@judges("RING-12", ring(signatures=("ring2",), regimes=MODERATE))
def check_sinks_in_the_ring(subject: Subject, problem: Problem) -> None:
    """Sinks: once, or refused."""
    sinks = tuple(0.5 + head for head in range(problem.heads))
    other = problem.but(sinks=sinks)
    if subject.description.offers("ring:sinks"):
        forward_matches(subject, other)
        return
    names = ("sink",)
    found = result_unless_refused(
        bad_argument("sinks", ring=problem.ring, sinks=sinks),
        names,
        lambda: subject.adapter.prepare(other).forward(inputs(other)),
    )
    if found is not None:
        forward_matches(subject, other, found=found)


@judges(
    "RING-13",
    ring(allows=("segment_ids", "mqa", "head_dim_v", "soft_cap", "sinks", "bfloat16", "blocks", "options"),
         regimes=MODERATE, broad=True, costly=True, group=BACKWARD)
)  # fmt: skip
def check_ring_gradients(subject: Subject, problem: Problem) -> None:
    """All gradients, with every feature that the ring has; with sinks also of a loss on logsumexp, or it is refused."""
    if problem.sinks is not None and subject.description.offers("residuals:cotangent"):
        try:
            subject.backward(problem, with_lse=True)
        except Crash:
            pass
        else:
            gradients_match(
                subject, problem, with_lse=True, given={"loss": "on output and logsumexp"}
            )
            return
    gradients_match(subject, problem)


@judges("RING-14", ring(signatures=SMALL, allows=("empty_rows",), group=BACKWARD))
def check_gradients_return_to_their_shard(subject: Subject, problem: Problem) -> None:
    """A loss on the first device only: dk and dv belong to what it saw, wherever that is."""
    gradients_match(subject, problem, ("dk", "dv"), kind="early")


@judges("FWD-26", ring("bfloat16"))
def check_type_of_output_in_the_ring(subject: Subject, problem: Problem) -> None:
    """The declared type, whatever partial results are kept in."""
    expect(Place("output", "dtype"), problem.dtype, subject.forward(problem).dtype)


@judges("BWD-25", ring("bfloat16", regimes=MODERATE, group=BACKWARD))
def check_type_of_gradients_in_the_ring(subject: Subject, problem: Problem) -> None:
    """Type of the input, whatever gradients travel in."""
    for name, dtype in zip(("q", "k", "v"), subject.backward(problem).dtypes, strict=True):
        expect(Place(f"d{name}", "dtype"), problem.dtype, dtype)


def has_row_unseeing_in_a_shard(problem: Problem) -> bool:
    """Whether some row sees keys in one shard and none in another that its device sees."""
    size = problem.ring
    rows, columns = problem.q_len // size, problem.kv_len // size
    parts = visible(problem).reshape(problem.heads, size, rows, size, columns).any(axis=4)
    some = parts.any(axis=2, keepdims=True)
    return bool((some & ~parts).any())


@judges(
    "RING-15", ring(signatures=SMALL, where=has_row_unseeing_in_a_shard, allows=("empty_rows",))
)
def check_rows_unseeing_in_a_shard(subject: Subject, problem: Problem) -> None:
    """Rows that see nothing in a shard of which others see something."""
    forward_matches(subject, problem, rows=seeing_rows(problem))


@judges(
    "RING-16",
    ring("options", signatures=("ring2", "ring2-cap"), allows=("soft_cap",), regimes=MODERATE),
)
def check_options_in_the_ring(subject: Subject, problem: Problem) -> None:
    """Every value of every option that is offered."""
    forward_matches(subject, problem)


@judges("RING-18", ring(allows=("sinks",), signatures=("ring2", "ring2-sinks")))
def check_residuals_of_the_ring(subject: Subject, problem: Problem) -> None:
    """logsumexp, and max_logits where declared, of the whole sequence."""
    residuals_match(subject, problem)
