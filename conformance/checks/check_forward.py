"""Checks of the FWD clauses: what the output is.

A clause about a feature is checked on problems that have this feature and no other, so that a report names what is
wrong; features in pairs are the subject of NUM-3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from conformance.adapter import Forward, Inputs
from conformance.compare import (
    arithmetic_of,
    compare,
    forward_matches,
    same_bits,
    shift_equivalent,
)
from conformance.judge import Violation, expect, judges, result_unless_refused
from conformance.numeric_domain import NumericDomain
from conformance.problem import BlockSizes, Problem
from conformance.regimes import inputs, rounded, seeing_rows, visible
from conformance.subject import Subject
from reference.attention import kv_head_of
from reference.blocks import EMPTY, FULL, PARTIAL, labels
from reference.flat import FlatMaskInfo
from reference.mask_info import GridMaskInfo
from reference.masks import Bool, Causal
from reference.outputs import unwritten
from reference.sharding import Shard

ALONE = ("plain", "oblong")
PLAIN = NumericDomain(signatures=ALONE)


def with_trait(*traits: str, **more: Any) -> NumericDomain:
    """Problems with exactly these traits."""
    return NumericDomain(needs=frozenset(traits), **more)


@judges("FWD-1", PLAIN, heavy=True)
def check_masked_softmax(subject: Subject, problem: Problem) -> None:
    """Plain attention in every general regime."""
    forward_matches(subject, problem)


@judges("FWD-2", NumericDomain(signatures=ALONE, regimes=("tilted", "leading")), heavy=True)
def check_masked_pairs_have_no_weight(subject: Subject, problem: Problem) -> None:
    """Hidden keys that would outweigh every visible one."""
    forward_matches(subject, problem)


@judges("FWD-3", with_trait("gqa"), heavy=True)
def check_grouped_queries(subject: Subject, problem: Problem) -> None:
    """Two groups of two query heads, every key/value head with its own values."""
    forward_matches(subject, problem)


@judges("FWD-4", with_trait("mqa"), heavy=True)
def check_one_kv_head(subject: Subject, problem: Problem) -> None:
    """All query heads read one key/value head."""
    forward_matches(subject, problem)


@judges("FWD-5", NumericDomain(frozenset({"per_head_masks"}), frozenset({"gqa"})), heavy=True)
def check_masks_of_heads(subject: Subject, problem: Problem) -> None:
    """Heads with different masks."""
    forward_matches(subject, problem)


@judges("FWD-6", with_trait("segment_ids"), heavy=True)
def check_segment_ids(subject: Subject, problem: Problem) -> None:
    """Segments that end beside block edges."""
    forward_matches(subject, problem)


@judges("FWD-7", with_trait("segment_ids"), heavy=True)
def check_segment_ids_are_only_compared(subject: Subject, problem: Problem) -> None:
    """The same segments under other ids give the same result: swapped, shifted, with 0 and negative ones."""
    assert problem.segments is not None
    ids = sorted({i for runs in problem.segments for i, _ in runs})
    for name, new in (
        ("reversed", ids[::-1]),
        ("from 0", list(range(len(ids)))),
        ("negative", [-1 - i for i in range(len(ids))]),
    ):
        other = dict(zip(ids, new, strict=True))
        renamed = tuple(tuple((other[i], n) for i, n in runs) for runs in problem.segments)
        found = subject.forward(problem.but(segments=renamed))
        forward_matches(subject, problem, found=found, note=f" with {name} segment ids")


@judges("FWD-8", with_trait("soft_cap"), heavy=True)
def check_soft_cap_before_mask(subject: Subject, problem: Problem) -> None:
    """A low cap: hidden keys that are capped after the mask keep a large weight."""
    forward_matches(subject, problem)


@judges("FWD-9", with_trait("sinks", extreme_sinks=False), heavy=True)
def check_sinks(subject: Subject, problem: Problem) -> None:
    """Sinks of the size of the logits."""
    forward_matches(subject, problem)


@judges("FWD-10", with_trait("sinks", extreme_sinks=True), heavy=True)
def check_extreme_sinks(subject: Subject, problem: Problem) -> None:
    """Sinks far above and far below the logits, and -inf."""
    forward_matches(subject, problem)


@judges("FWD-11", with_trait("head_dim_v"), heavy=True)
def check_width_of_values(subject: Subject, problem: Problem) -> None:
    """v wider or narrower than q and k."""
    forward_matches(subject, problem)


def other_blocks(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """The problem with larger blocks, as far as they divide its lengths."""
    q, kv = problem.blocks.q, problem.blocks.kv
    for times_q, times_kv, split in ((1, 1, False), (2, 1, False), (1, 2, True), (2, 2, False)):
        if problem.q_len % (times_q * q) == 0 and problem.kv_len % (times_kv * kv) == 0:
            sizes = BlockSizes(times_q * q, times_kv * kv, kv_compute=kv if split else None)
            name = f"block_q={sizes.q}, block_kv={sizes.kv}"
            yield f"{name}, block_kv_compute={kv}" if split else name, problem.but(blocks=sizes)


@judges("FWD-12", NumericDomain(signatures=("plain",), regimes=("rising", "falling")), heavy=True)
def check_block_sizes_do_not_matter(subject: Subject, problem: Problem) -> None:
    """Every block size that fits, with blocks whole and in parts."""
    for name, other in other_blocks(problem):
        forward_matches(subject, other, note=f" with {name}")


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


def skip_variants(subject: Subject, problem: Problem) -> Iterator[tuple[str, Problem]]:
    """The problem shrunk and not, in every layout that is offered."""
    description = subject.description
    layouts: list[str | None] = [n for n in ("grid", "flat") if description.offers(f"layout:{n}")]
    for layout in layouts if len(layouts) > 1 else [None]:
        if layout == "flat" and not problem.single_mask:
            continue
        for shrink in (
            (True, False) if description.offers("shrink") and layout != "flat" else (True,)
        ):
            name = f" in the {layout} layout" if layout else ""
            yield (
                f"{name}{'' if shrink else ', not shrunk'}",
                problem.but(layout=layout, shrink=shrink),
            )


@judges("FWD-13", NumericDomain(signatures=ALONE, where=is_stored), heavy=True)
def check_skipping_does_not_matter(subject: Subject, problem: Problem) -> None:
    """Shrunk and not, in every layout, and with every block computed under its mask."""
    for name, other in skip_variants(subject, problem):
        forward_matches(subject, other, note=name)
        edits = subject.description.offers("edit_mask_info") and not other.shrink
        if not edits or not isinstance(subject.mask_info(other, "fwd"), GridMaskInfo):
            continue
        prepared = subject.prepare(other)
        edit = partial(everything_computed, problem=other)
        call = partial(prepared.forward, inputs(other), edit=edit)
        found: Forward = subject.call("forward", call)
        forward_matches(subject, other, found=found, note=", every block computed")


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
    allows=frozenset({"segment_ids", "bfloat16", "sinks", "soft_cap", "gqa"}),
    signatures=("plain", "segments", "bfloat16", "gqa-segments-cap-sinks"),
)


@judges("FWD-14", HIDING, heavy=True)
def check_hidden_keys_have_no_influence(subject: Subject, problem: Problem) -> None:
    """Other keys and values where they are hidden: not a bit changes."""
    changed, rows = hidden_keys_changed(problem)
    prepared = subject.prepare(problem)
    found: Forward = subject.call("forward", lambda: prepared.forward(changed))
    before = subject.forward(problem)
    note = " after other keys and values, hidden from this row"
    same_bits("output", found.output, before.output, problem, rows=rows, note=note)


@judges(
    "FWD-15",
    NumericDomain(
        allows=frozenset({"gqa", "per_head_masks", "sinks", "soft_cap", "segment_ids"}),
        signatures=("plain", "gqa", "gqa-segments-cap-sinks"),
    ),
    heavy=True,
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
    same_bits(
        "output", output, subject.forward(problem).output, problem, note=" with reversed heads"
    )


@judges(
    "FWD-16",
    NumericDomain(
        allows=frozenset({"segment_ids"}),
        signatures=("plain", "segments"),
        regimes=("signed", "tilted"),
    ),
    heavy=True,
)
def check_batch(subject: Subject, problem: Problem) -> None:
    """Two elements with other arrays, and other segments, in one batch."""
    segments = problem.segments
    if segments is not None:
        segments = (segments[0][::-1], segments[1][::-1])
    members = [problem, problem.but(seed=problem.seed + 1, segments=segments)]
    prepared = subject.prepare(problem)
    batch: list[Forward] = subject.call(
        "forward_batch", lambda: prepared.forward_batch([inputs(p) for p in members])
    )
    expect("number of results of a batch of 2", 2, len(batch))
    for n, (member, found) in enumerate(zip(members, batch, strict=True)):
        rows = seeing_rows(member)
        forward_matches(subject, member, found=found, rows=rows, note=f" of batch element {n}")


@judges(
    "FWD-17",
    NumericDomain(frozenset({"empty_rows"}), frozenset({"sinks", "segment_ids", "blocks"})),
    heavy=True,
)
def check_empty_rows_are_zero(subject: Subject, problem: Problem) -> None:
    """Rows to which the mask, or the segment ids, leave no key."""
    found = np.asarray(subject.forward(problem).output)
    same_bits("output", found, np.zeros_like(found), problem, rows=~seeing_rows(problem))


@judges(
    "FWD-18",
    NumericDomain(frozenset({"empty_rows"}), frozenset({"segment_ids", "blocks"})),
    heavy=True,
)
def check_other_rows_are_right(subject: Subject, problem: Problem) -> None:
    """Rows that see something, beside rows that do not."""
    forward_matches(subject, problem, rows=seeing_rows(problem))


def has_empty_q_block(problem: Problem) -> bool:
    """Whether a q block of some head sees no kv block, by its mask."""
    q, kv = problem.blocks.q, problem.blocks.kv
    return any(
        bool((labels(mask, q, kv) == EMPTY).all(axis=1).any()) for mask in problem.head_masks
    )


@judges(
    "FWD-19",
    NumericDomain(frozenset({"empty_rows"}), signatures=("plain",), where=has_empty_q_block),
    heavy=True,
)
def check_every_q_block_is_written(subject: Subject, problem: Problem) -> None:
    """A q block that sees nothing: by the schedule, by its value, and by memory that starts as NaN."""
    description, found = subject.description, np.asarray(subject.forward(problem).output)
    if description.offers("schedule"):
        schedule = subject.schedule(problem, "fwd", Shard())
        missing = unwritten(schedule, "o")
        if len(missing):
            raise Violation(f"output block {tuple(map(int, missing[0]))}", "stored", "unwritten")
    rows = ~seeing_rows(problem)
    if description.offers("empty_rows:zero"):
        same_bits("output", found, np.zeros_like(found), problem, rows=rows)
    if description.offers("uninitialised"):
        prepared = subject.prepare(problem)
        other: Forward = subject.call(
            "forward", lambda: prepared.forward(inputs(problem), uninitialised=True)
        )
        note = " in memory that starts as NaN"
        same_bits("output", np.asarray(other.output), found, problem, rows=rows, note=note)


@judges("FWD-20", PLAIN, heavy=True)
def check_determinism(subject: Subject, problem: Problem) -> None:
    """The same call again, and again after preparing anew."""
    before, prepared = subject.forward(problem), subject.fresh(problem)
    for number in (2, 3):
        found: Forward = subject.call("forward", lambda: prepared.forward(inputs(problem)))
        same_bits("output", found.output, before.output, problem, note=f" at call {number}")


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


@judges("FWD-21", NumericDomain(signatures=ALONE, where=has_full_and_partial), heavy=True)
def check_full_blocks_ignore_their_mask_block(subject: Subject, problem: Problem) -> None:
    """Full positions are handed a mask block that hides everything."""
    prepared = subject.prepare(problem)
    found: Forward = subject.call(
        "forward", lambda: prepared.forward(inputs(problem), edit=full_blocks_handed_nothing)
    )
    note = " with an empty mask block at full positions"
    same_bits("output", found.output, subject.forward(problem).output, problem, note=note)


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


@judges("FWD-22", NumericDomain(signatures=ALONE, where=has_unseen_block), heavy=True)
def check_unseen_blocks_are_not_read(subject: Subject, problem: Problem) -> None:
    """NaN and infinity in kv blocks whose column of labels is empty."""
    before, prepared = subject.forward(problem), subject.prepare(problem)
    for value in (np.nan, np.inf):
        spoiled = spoiled_unseen_blocks(problem, value)
        found: Forward = subject.call("forward", partial(prepared.forward, spoiled))
        note = f" with {value} in keys and values that nobody sees"
        same_bits("output", found.output, before.output, problem, note=note)


def extreme(*regimes: str) -> NumericDomain:
    """Logits that no ordinary number stands beside, with every option."""
    return NumericDomain(allows=frozenset({"options"}), signatures=ALONE, regimes=regimes)


def gives_maximum(subject: Subject, problem: Problem) -> bool:
    """Whether an option puts a constant in place of the running maximum (UNDEF-10)."""
    return arithmetic_of(subject, problem).forward.constant_maximum is not None


@judges("FWD-23", extreme("huge"), heavy=True)
def check_huge_logits(subject: Subject, problem: Problem) -> None:
    """Logits of 10000, with every option but a constant maximum."""
    if not gives_maximum(subject, problem):
        forward_matches(subject, problem)


@judges("FWD-24", extreme("sentinel", "float_edge"), heavy=True)
def check_logits_below_a_sentinel(subject: Subject, problem: Problem) -> None:
    """Equal logits of -2**112, and below -0.7 times the largest number where the exponent is natural."""
    if gives_maximum(subject, problem):
        return
    if problem.regime == "float_edge" and arithmetic_of(subject, problem).forward.base2:
        return  # these logits times log2(e) are no float32 numbers
    expected, found = shift_equivalent(subject, problem), subject.forward(problem)
    compare("output", found.output, expected.output, expected.budget.output, problem)


def is_causal(problem: Problem) -> bool:
    """Whether all masks are causal."""
    return all(mask == Causal() for mask in problem.masks)


@judges(
    "FWD-25", NumericDomain(signatures=("plain",), regimes=("signed",), where=is_causal), heavy=True
)
def check_head_dimensions(subject: Subject, problem: Problem) -> None:
    """64 to 256: right, or refused with an error that names the head dimension."""
    for dim in (64, 96, 128, 192, 256):
        other = problem.but(head_dim=dim, head_dim_v=dim)
        if dim in subject.description.head_dims:
            forward_matches(subject, other, note=f" with head_dim={dim}")
        else:
            names = ("head_dim", "head dim", "head size", "lanes", str(dim))
            call = partial(_forward_anew, subject, other)
            found = result_unless_refused(f"head_dim={dim}", names, call)
            if found is not None:
                forward_matches(subject, other, found=found, note=f" with head_dim={dim}")


def _forward_anew(subject: Subject, problem: Problem) -> Forward:
    found: Forward = subject.adapter.prepare(problem).forward(inputs(problem))
    return found


@judges(
    "FWD-26",
    NumericDomain(allows=frozenset({"bfloat16"}), signatures=("plain", "bfloat16")),
    heavy=True,
)
def check_type_of_output(subject: Subject, problem: Problem) -> None:
    """The declared type, values of that type, within a budget that has one rounding to it."""
    found = forward_matches(subject, problem)
    expect("type of output", problem.dtype, found.dtype)
    wide = np.asarray(found.output, dtype=np.float64)
    same_bits("output", wide, rounded(wide, problem.dtype).astype(np.float64), problem)
