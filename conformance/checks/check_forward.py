"""Checks of the FWD clauses: what the output is.

A clause about a feature is checked on problems that have this feature and no other, so that a report names what is
wrong; features in pairs are the subject of NUM-3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from conformance.checks.budgets import shift_equivalent
from conformance.checks.comparison import compare, forward_matches, same_bits
from conformance.checks.registry import (
    Violation,
    bad_argument,
    expect,
    judges,
    result_unless_refused,
)
from conformance.contract.fence import Subject
from conformance.contract.protocol import Forward
from conformance.drawing.numeric_domain import NumericDomain
from conformance.drawing.signatures import MANY
from conformance.findings.expectation import Written
from conformance.findings.observation import Unwritten
from conformance.findings.place import Place
from conformance.problems.arrays import inputs, rounded, seeing_rows
from conformance.problems.problem import Problem
from reference.blocks import EMPTY, labels
from reference.masks import Causal
from reference.outputs import unwritten
from reference.sharding import Shard

ALONE = ("plain", "oblong", "long")
PLAIN = NumericDomain(signatures=ALONE)


def with_trait(*traits: str, **more: Any) -> NumericDomain:
    """Problems with exactly these traits."""
    return NumericDomain(needs=frozenset(traits), **more)


@judges("FWD-1", NumericDomain(signatures=(*ALONE, *MANY)))
def check_masked_softmax(subject: Subject, problem: Problem) -> None:
    """Plain attention in every general regime."""
    forward_matches(subject, problem)


@judges("FWD-2", NumericDomain(signatures=ALONE, regimes=("tilted", "leading")))
def check_masked_pairs_have_no_weight(subject: Subject, problem: Problem) -> None:
    """Hidden keys that would outweigh every visible one."""
    forward_matches(subject, problem)


@judges("FWD-3", with_trait("gqa"))
def check_grouped_queries(subject: Subject, problem: Problem) -> None:
    """Two groups of three query heads, every key/value head with its own values."""
    forward_matches(subject, problem)


@judges("FWD-4", with_trait("mqa", allows={"options"}))
def check_one_kv_head(subject: Subject, problem: Problem) -> None:
    """All query heads read one key/value head."""
    forward_matches(subject, problem)


@judges("FWD-5", NumericDomain({"per_head_masks"}, {"gqa"}))
def check_masks_of_heads(subject: Subject, problem: Problem) -> None:
    """Heads with different masks."""
    forward_matches(subject, problem)


@judges("FWD-6", with_trait("segment_ids"))
def check_segment_ids(subject: Subject, problem: Problem) -> None:
    """Segments that end beside block edges."""
    forward_matches(subject, problem)


@judges("FWD-7", with_trait("segment_ids"))
def check_segment_ids_are_only_compared(subject: Subject, problem: Problem) -> None:
    """The same segments under other ids give the same result: swapped, shifted, with 0 and negative ones."""
    assert problem.segments is not None
    ids = sorted({i for runs in problem.segments for i, _ in runs})
    for name, new in (
        ("in reverse order", ids[::-1]),
        ("from 0", list(range(len(ids)))),
        ("negative", [-1 - i for i in range(len(ids))]),
    ):
        other = dict(zip(ids, new, strict=True))
        renamed = tuple(tuple((other[i], n) for i, n in runs) for runs in problem.segments)
        found = subject.forward(problem.but(segments=renamed))
        forward_matches(subject, problem, found=found, given={"segment_ids": name})


@judges("FWD-8", with_trait("soft_cap"))
def check_soft_cap_before_mask(subject: Subject, problem: Problem) -> None:
    """A low cap: hidden keys that are capped after the mask keep a large weight."""
    forward_matches(subject, problem)


@judges("FWD-9", with_trait("sinks", extreme_sinks=False))
def check_sinks(subject: Subject, problem: Problem) -> None:
    """Sinks of the size of the logits."""
    forward_matches(subject, problem)


@judges("FWD-10", with_trait("sinks", extreme_sinks=True))
def check_extreme_sinks(subject: Subject, problem: Problem) -> None:
    """Sinks far above and far below the logits, and -inf."""
    forward_matches(subject, problem)


@judges("FWD-11", with_trait("head_dim_v"))
def check_width_of_values(subject: Subject, problem: Problem) -> None:
    """v wider or narrower than q and k."""
    forward_matches(subject, problem)


@judges("FWD-17", NumericDomain({"empty_rows"}, {"sinks", "segment_ids", "blocks"}))
def check_empty_rows_are_zero(subject: Subject, problem: Problem) -> None:
    """Rows to which the mask, or the segment ids, leave no key."""
    found = np.asarray(subject.forward(problem).output)
    same_bits("output", found, np.zeros_like(found), problem, rows=~seeing_rows(problem))


@judges("FWD-18", NumericDomain({"empty_rows"}, {"segment_ids", "blocks"}))
def check_other_rows_are_right(subject: Subject, problem: Problem) -> None:
    """Rows that see something, beside rows that do not."""
    forward_matches(subject, problem, rows=seeing_rows(problem))


def has_empty_q_block(problem: Problem) -> bool:
    """Whether a q block of some head sees no kv block, by its mask."""
    q, kv = problem.blocks.q, problem.blocks.kv
    return any(
        bool((labels(mask, q, kv) == EMPTY).all(axis=1).any()) for mask in problem.head_masks
    )


@judges("FWD-19", NumericDomain({"empty_rows"}, signatures=("plain",), where=has_empty_q_block))
def check_every_q_block_is_written(subject: Subject, problem: Problem) -> None:
    """A q block that sees nothing: by the schedule, by its value, and by memory that starts as NaN."""
    description, found = subject.description, np.asarray(subject.forward(problem).output)
    if description.offers("schedule"):
        schedule = subject.schedule(problem, "fwd", Shard())
        missing = unwritten(schedule, "o")
        if len(missing):
            place = Place("output", direction="fwd").at(*missing[0], axes=("head", "q block"))
            raise Violation(place, Written(), Unwritten())
    rows = ~seeing_rows(problem)
    if description.offers("empty_rows:zero"):
        same_bits("output", found, np.zeros_like(found), problem, rows=rows)
    if description.offers("uninitialised"):
        prepared = subject.prepare(problem)
        other: Forward = subject.call(
            "forward", lambda: prepared.forward(inputs(problem), uninitialised=True)
        )
        given = {"memory": "that starts as NaN"}
        same_bits("output", np.asarray(other.output), found, problem, rows=rows, given=given)


def extreme(*regimes: str) -> NumericDomain:
    """Logits that no ordinary number stands beside, with every option."""
    return NumericDomain(allows={"options"}, signatures=ALONE, regimes=regimes)


@judges("FWD-23", extreme("huge"))
def check_huge_logits(subject: Subject, problem: Problem) -> None:
    """Logits of 10000, with every option but a constant maximum (UNDEF-10)."""
    forward_matches(subject, problem)


@judges("FWD-24", extreme("sentinel", "float_edge"))
def check_logits_below_a_sentinel(subject: Subject, problem: Problem) -> None:
    """Equal logits of -2**112, and below -0.7 times the largest number where the arithmetic can hold them."""
    expected, found = shift_equivalent(subject, problem), subject.forward(problem)
    compare("output", found.output, expected.output, expected.budget.output, problem)


def is_causal(problem: Problem) -> bool:
    """Whether all masks are causal."""
    return all(mask == Causal() for mask in problem.masks)


@judges("FWD-25", NumericDomain(signatures=("plain",), regimes=("signed",), where=is_causal))
def check_head_dimensions(subject: Subject, problem: Problem) -> None:
    """64 to 256: right, or refused with an error that names the head dimension."""
    for dim in (64, 96, 128, 192, 256):
        other = problem.but(head_dim=dim, head_dim_v=dim)
        if dim in subject.description.head_dims:
            forward_matches(subject, other, given={"head_dim": dim})
        else:
            names = ("head_dim", "head dim", "head size", "lanes", str(dim))
            call = partial(_forward_anew, subject, other)
            found = result_unless_refused(bad_argument("head_dim", head_dim=dim), names, call)
            if found is not None:
                forward_matches(subject, other, found=found, given={"head_dim": dim})


def _forward_anew(subject: Subject, problem: Problem) -> Forward:
    found: Forward = subject.adapter.prepare(problem).forward(inputs(problem))
    return found


@judges("FWD-26", NumericDomain(allows={"bfloat16"}, signatures=("plain", "bfloat16")))
def check_type_of_output(subject: Subject, problem: Problem) -> None:
    """The declared type, values of that type, within a budget that has one rounding to it."""
    found = forward_matches(subject, problem)
    expect(Place("output", "dtype"), problem.dtype, found.dtype)
    wide = np.asarray(found.output, dtype=np.float64)
    same_bits("output", wide, rounded(wide, problem.dtype).astype(np.float64), problem)
