"""Checks of the CONV clauses."""

from __future__ import annotations

import numpy as np

from conformance.checks.compiled_arrays import active_blocks, expected_labels, shards_of
from conformance.checks.registry import expect, expect_array, expect_presence, judges
from conformance.contract.fence import Crash, Subject
from conformance.contract.remote.errors import Refused
from conformance.drawing.mask_domain import ANY, ONE_MASK, ONE_SHARD, MaskDomain
from conformance.findings.place import Place
from conformance.problems.neighbours import neighbours
from conformance.problems.problem import Problem

SINGLE = MaskDomain(allows=ONE_MASK)


@judges("CONV-1", SINGLE)
def check_mask_shape(subject: Subject, problem: Problem) -> None:
    """The shape is (q_len, kv_len) and indexing follows it."""
    mask = subject.prepare(problem).mask(0)
    shape = subject.call("mask.shape", lambda: tuple(mask.shape))
    expect(Place("mask", "shape"), (problem.q_len, problem.kv_len), shape)


@judges("CONV-2", MaskDomain(allows=ANY | {"shards:kv"}))
def check_every_mask_compiles(subject: Subject, problem: Problem) -> None:
    """Every direction compiles without an error."""
    for direction in subject.description.directions:
        subject.mask_info(problem, direction)


@judges("CONV-2", MaskDomain({"dynamic"}))
def check_every_dynamic_mask_compiles(subject: Subject, problem: Problem) -> None:
    """Every direction of a run-time mask compiles without an error."""
    for direction in subject.description.directions:
        subject.mask_info(problem, direction)


@judges("CONV-3", MaskDomain(allows=ONE_MASK & ONE_SHARD))
def check_compiling_does_not_depend_on_history(subject: Subject, problem: Problem) -> None:
    """Compiling neighbours in between changes nothing, and they get their own arrays."""
    fields = ("block_mask", "data_next", "mask_next", "partial_mask_blocks")

    def compiled(p: Problem) -> dict[str, object]:
        prepared = subject.fresh(p)
        info = subject.call("mask_info(fwd)", lambda: prepared.mask_info("fwd"))
        return {name: getattr(info, name) for name in fields if hasattr(info, name)}

    before = compiled(problem)
    for other in neighbours(problem.masks[0])[:2]:
        changed = problem.but(masks=(other,))
        try:
            compiled(changed)
        except (Crash, Refused):
            continue  # that every mask compiles is CONV-2
        for shard in shards_of(changed):
            expected = expected_labels(changed, "fwd", shard)
            place = Place("labels", direction="fwd").under(
                mask=other, compiled_after=problem.masks[0]
            )
            got = active_blocks(subject, changed, "fwd", shard).grid(expected.shape, place)
            expect_array(place, expected, got)
    after = compiled(problem)
    for name, value in before.items():
        place = Place(name, direction="fwd").under(compiled="again")
        expect_presence(place, value is not None, after[name])
        if value is not None:
            expect_array(place, np.asarray(value), after[name])
