"""Checks of the FWD clauses about what changes nothing: block sizes, skipping, hidden keys, the order of heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from conformance.checks.check_forward import ALONE, PLAIN
from conformance.checks.comparison import forward_matches, same_bits
from conformance.checks.registry import expect, judges
from conformance.contract.fence import Subject
from conformance.contract.protocol import Forward
from conformance.drawing.numeric_domain import NumericDomain
from conformance.findings.place import Place
from conformance.findings.values import Plain
from conformance.problems.arrays import inputs, rounded, seeing_rows, visible
from conformance.problems.inputs import Inputs
from conformance.problems.problem import BlockSizes, Problem
from reference.attention import kv_head_of
from reference.blocks import EMPTY, FULL, PARTIAL, labels
from reference.flat import FlatMaskInfo
from reference.mask_info import GridMaskInfo
from reference.masks import Bool


def other_blocks(problem: Problem) -> Iterator[tuple[dict[str, Plain], Problem]]:
    """The problem with larger blocks, as far as they divide its lengths; one size in parts, of which one is inside."""
    q, kv = problem.blocks.q, problem.blocks.kv
    for times_q, times_kv, split in ((1, 1, False), (2, 1, False), (1, 3, True), (2, 2, False)):
        if problem.q_len % (times_q * q) == 0 and problem.kv_len % (times_kv * kv) == 0:
            sizes = BlockSizes(times_q * q, times_kv * kv, kv_compute=kv if split else None)
            given = {f"block_{name}": size for name, size in vars(sizes).items() if size}
            yield given, problem.but(blocks=sizes)


@judges("FWD-12", NumericDomain(signatures=("long",), regimes=("rising", "falling")))
def check_block_sizes_do_not_matter(subject: Subject, problem: Problem) -> None:
    """Every block size that fits, with blocks whole and in parts."""
    for given, other in other_blocks(problem):
        forward_matches(subject, other, given=given)


def everything_computed(info: GridMaskInfo | FlatMaskInfo, problem: Problem) -> GridMaskInfo:
    """Forward arrays that run every block under a stored mask: nothing is skipped.

    Args:
      info: compiled arrays in the grid layout, not shrunk.
      problem: what they were compiled for.
    """
    assert isinstance(info, GridMaskInfo)
    block_q, block_kv = problem.blocks.q, problem.blocks.kv
    heads, rows, columns = info.block_mask.shape
    dense = np.stack([mask.dense() for mask in problem.head_masks[:heads]])
    shape = (heads, rows, block_q, columns, block_kv)
    stack = dense.reshape(shape).swapaxes(2, 3).reshape(-1, block_q, block_kv)
    place = np.arange(len(stack), dtype=np.int32).reshape(heads, rows, columns)
    column = np.broadcast_to(np.arange(columns, dtype=np.int32), place.shape)
    return replace(
        info,
        block_mask=np.full(place.shape, PARTIAL, dtype=np.int32),
        data_next=np.ascontiguousarray(column),
        mask_next=place,
        partial_mask_blocks=stack,
        q_sequence=None,
    )


def is_stored(problem: Problem) -> bool:
    """Whether the masks are block patterns, which no kernel computes, with some block to skip."""
    kinds = {obj["kind"] for obj in problem.to_json()["masks"]}
    return kinds == {"blocks"} and any(
        (labels(mask, problem.blocks.q, problem.blocks.kv) == EMPTY).any()
        for mask in problem.head_masks
    )


def skip_variants(subject: Subject, problem: Problem) -> Iterator[tuple[dict[str, Plain], Problem]]:
    """The problem shrunk and not, in every layout that is offered."""
    description = subject.description
    layouts: list[str | None] = [n for n in ("grid", "flat") if description.offers(f"layout:{n}")]
    for layout in layouts if len(layouts) > 1 else [None]:
        if layout == "flat" and not problem.single_mask:
            continue
        for shrink in (
            (True, False) if description.offers("shrink") and layout != "flat" else (True,)
        ):
            given: dict[str, Plain] = {"layout": layout} if layout else {}
            yield given | {"shrink": shrink}, problem.but(layout=layout, shrink=shrink)


@judges("FWD-13", NumericDomain(signatures=ALONE, where=is_stored))
def check_skipping_does_not_matter(subject: Subject, problem: Problem) -> None:
    """Shrunk and not, in every layout, and with every block computed under its mask."""
    for given, other in skip_variants(subject, problem):
        forward_matches(subject, other, given=given)
        edits = subject.description.offers("edit_mask_info") and not other.shrink
        if not edits or not isinstance(subject.mask_info(other, "fwd"), GridMaskInfo):
            continue
        prepared = subject.prepare(other)
        edit = partial(everything_computed, problem=other)
        call = partial(prepared.forward, inputs(other), edit=edit)
        found: Forward = subject.call("forward", call)
        forward_matches(subject, other, found=found, given={"every_block": "computed"})


def hidden_keys_changed(problem: Problem) -> tuple[Inputs, Bool]:
    """Arrays with other keys and values at about a quarter of the positions, and the rows to which none is visible."""
    made, seen = inputs(problem), visible(problem)
    chosen = np.zeros(problem.kv_len, dtype=np.bool_)
    chosen[problem.kv_len // 4 :: 3] = True
    rows = ~(seen & chosen).any(axis=2)
    k, v = made.k.copy(), made.v.copy()
    k[:, chosen] = rounded(-2.0 * k[:, chosen].astype(np.float64) + 1, problem.dtype)
    v[:, chosen] = rounded(-4096.0 * v[:, chosen].astype(np.float64) - 64, problem.dtype)
    return replace(made, k=k, v=v), rows


HIDING = NumericDomain(
    allows={"segment_ids", "bfloat16", "sinks", "soft_cap", "gqa"},
    signatures=("plain", "segments", "bfloat16", "gqa-segments-cap-sinks"),
)


@judges("FWD-14", HIDING)
def check_hidden_keys_have_no_influence(subject: Subject, problem: Problem) -> None:
    """Other keys and values where they are hidden: not a bit changes."""
    changed, rows = hidden_keys_changed(problem)
    prepared = subject.prepare(problem)
    found: Forward = subject.call("forward", lambda: prepared.forward(changed))
    before = subject.forward(problem)
    given = {"hidden_keys": "changed"}
    same_bits("output", found.output, before.output, problem, rows=rows, given=given)


@judges(
    "FWD-15",
    NumericDomain(
        allows={"gqa", "per_head_masks", "sinks", "soft_cap", "segment_ids"},
        signatures=("plain", "gqa", "gqa-segments-cap-sinks"),
    ),
)
def check_heads_are_independent(subject: Subject, problem: Problem) -> None:
    """Heads in reverse order."""
    made = inputs(problem)
    sinks = None if made.sinks is None else made.sinks[::-1].copy()
    turned = replace(
        made, q=made.q[::-1].copy(), k=made.k[::-1].copy(), v=made.v[::-1].copy(), sinks=sinks
    )
    other = problem.but(
        masks=problem.masks[::-1], sinks=None if problem.sinks is None else problem.sinks[::-1]
    )
    prepared = subject.prepare(other)
    found: Forward = subject.call("forward", lambda: prepared.forward(turned))
    output = np.asarray(found.output)
    if output.ndim:
        output = output[::-1]
    before, given = subject.forward(problem), {"heads": "in reverse order"}
    same_bits("output", output, before.output, problem, given=given)


def batch_of(problem: Problem) -> list[Problem]:
    """The problem, and one with other arrays and the segments in reverse order."""
    segments = problem.segments
    if segments is not None:
        segments = (segments[0][::-1], segments[1][::-1])
    return [problem, problem.but(seed=problem.seed + 1, segments=segments)]


@judges(
    "FWD-16",
    NumericDomain(
        allows={"segment_ids"},
        signatures=("plain", "segments"),
        regimes=("signed", "tilted"),
    ),
)
def check_batch(subject: Subject, problem: Problem) -> None:
    """Two elements with other arrays, and other segments, in one batch."""
    members = batch_of(problem)
    prepared = subject.prepare(problem)
    batch: list[Forward] = subject.call(
        "forward_batch", lambda: prepared.forward_batch([inputs(p) for p in members])
    )
    expect(Place("forward_batch", "length"), 2, len(batch))
    for n, (member, found) in enumerate(zip(members, batch, strict=True)):
        rows = seeing_rows(member)
        forward_matches(subject, member, found=found, rows=rows, given={"batch_element": n})


@judges("FWD-20", PLAIN)
def check_determinism(subject: Subject, problem: Problem) -> None:
    """The same call again, and again after preparing anew."""
    before, prepared = subject.forward(problem), subject.fresh(problem)
    for number in (2, 3):
        found: Forward = subject.call("forward", lambda: prepared.forward(inputs(problem)))
        same_bits("output", found.output, before.output, problem, given={"call": number})


def has_full_and_partial(problem: Problem) -> bool:
    """Whether some mask has a stored partial block and a full one."""
    kinds = {obj["kind"] for obj in problem.to_json()["masks"]}
    grids = [labels(mask, problem.blocks.q, problem.blocks.kv) for mask in problem.head_masks]
    return kinds == {"blocks"} and any((g == FULL).any() and (g == PARTIAL).any() for g in grids)


def full_blocks_handed_nothing(info: GridMaskInfo | FlatMaskInfo) -> GridMaskInfo | FlatMaskInfo:
    """Arrays whose full positions name an additional mask block in which nothing is visible."""
    stack, place = info.partial_mask_blocks, info.mask_next
    if stack is None or place is None:
        return info
    wider = place.astype(np.int32)
    wider[np.asarray(info.block_mask) == FULL] = len(stack)
    more = np.concatenate([stack, np.zeros_like(stack[:1])])
    return replace(info, mask_next=wider, partial_mask_blocks=more)


@judges("FWD-21", NumericDomain(signatures=ALONE, where=has_full_and_partial))
def check_full_blocks_ignore_their_mask_block(subject: Subject, problem: Problem) -> None:
    """Full positions are handed a mask block that hides everything."""
    prepared = subject.prepare(problem)
    found: Forward = subject.call(
        "forward", lambda: prepared.forward(inputs(problem), edit=full_blocks_handed_nothing)
    )
    before, given = subject.forward(problem), {"mask_block_at_full_positions": "empty"}
    same_bits("output", found.output, before.output, problem, given=given)


def unseen_kv_blocks(problem: Problem) -> Bool:
    """kv blocks that are empty for all query heads of a key/value head, bool ``[kv_heads, kv blocks]``."""
    q, kv = problem.blocks.q, problem.blocks.kv
    empty = np.stack([(labels(mask, q, kv) == EMPTY).all(axis=0) for mask in problem.head_masks])
    source = kv_head_of(problem.heads, problem.kv_heads)
    return np.stack([empty[source == g].all(axis=0) for g in range(problem.kv_heads)])


def spoiled_unseen_blocks(problem: Problem, value: float) -> Inputs:
    """The arrays with a number in every key and value of the blocks that nobody sees."""
    made = inputs(problem)
    spoil = np.repeat(unseen_kv_blocks(problem), problem.blocks.kv, axis=1)
    k, v = made.k.copy(), made.v.copy()
    k[spoil] = v[spoil] = value
    return replace(made, k=k, v=v)


def has_unseen_block(problem: Problem) -> bool:
    """Whether nobody sees some kv block."""
    return bool(unseen_kv_blocks(problem).any())


@judges("FWD-22", NumericDomain(signatures=ALONE, where=has_unseen_block))
def check_unseen_blocks_are_not_read(subject: Subject, problem: Problem) -> None:
    """NaN and infinity in kv blocks whose column of labels is empty."""
    before, prepared = subject.forward(problem), subject.prepare(problem)
    for value in (np.nan, np.inf):
        spoiled = spoiled_unseen_blocks(problem, value)
        found: Forward = subject.call("forward", partial(prepared.forward, spoiled))
        given = {"unseen_keys_and_values": str(value)}
        same_bits("output", found.output, before.output, problem, given=given)
