"""Checks of the MaskInfo chapter about where mask values come from (PARTIAL, COMPUTE)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.checks.check_mask_info import forward_directions
from conformance.checks.registry import Violation, expect, expect_array, expect_presence, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import ONE_MASK, MaskDomain
from conformance.findings.expectation import OneOf
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from reference.blocks import PARTIAL, labels, partial_stack
from reference.mask_info import Direction, distinct
from reference.masks import Bool


def stacks(
    subject: Subject, problem: Problem, directions: list[Direction]
) -> Iterator[tuple[Bool, Bool, Place]]:
    """Expected and actual stack of every direction that stores one."""
    unique, _ = distinct(problem.head_masks)
    for direction in directions:
        info = subject.mask_info(problem, direction)
        sizes = problem.blocks.of(direction)
        expected, _ = partial_stack(unique, [labels(m, *sizes) for m in unique], *sizes)
        if info.partial_mask_blocks is None or expected is None:
            continue
        actual = np.asarray(info.partial_mask_blocks, dtype=np.bool_)
        if direction == "dkv":
            expected = expected.swapaxes(1, 2)
        yield expected, actual, Place("partial_mask_blocks", direction=direction)


def as_set(stack: Bool) -> set[bytes]:
    """The blocks of a stack, for comparison without order."""
    return {block.tobytes() for block in stack}


@judges("PARTIAL-1")
def check_stored_blocks_are_blocks_of_the_mask(subject: Subject, problem: Problem) -> None:
    """No stored block is foreign to the masks."""
    for expected, actual, where in stacks(subject, problem, forward_directions(subject)):
        expect(where.of("shape").at(0), expected.shape[1:], actual.shape[1:])
        known = as_set(expected)
        for n, block in enumerate(actual):
            if block.tobytes() not in known:
                partial_blocks = OneOf(of="the partial blocks of the masks")
                raise Violation(where.at(n), partial_blocks, block.astype(int))


@judges("PARTIAL-2")
def check_stored_blocks_are_different(subject: Subject, problem: Problem) -> None:
    """Every different partial block is stored exactly once."""
    for expected, actual, where in stacks(subject, problem, forward_directions(subject)):
        expect(
            where.of("length").under(counted="once each"),
            len(as_set(expected)),
            len(as_set(actual)),
        )
        expect(where.of("length"), len(expected), len(actual))


@judges("PARTIAL-3")
def check_stored_blocks_are_in_first_seen_order(subject: Subject, problem: Problem) -> None:
    """The order of the stack; what it contains is judged by PARTIAL-1 and PARTIAL-2."""
    for expected, actual, where in stacks(subject, problem, forward_directions(subject)):
        if len(expected) == len(actual) and as_set(expected) == as_set(actual):
            expect_array(where, expected, actual)


@judges("PARTIAL-4")
def check_stored_blocks_are_transposed_for_dkv(subject: Subject, problem: Problem) -> None:
    """The dkv stack holds transposed blocks in the same order."""
    if "dkv" in subject.description.directions:
        for expected, actual, where in stacks(subject, problem, ["dkv"]):
            expect_array(where, expected, actual)


@judges("PARTIAL-5")
def check_no_stack_without_partial_blocks(subject: Subject, problem: Problem) -> None:
    """Without partial blocks both arrays are absent; with them (and no mask function) present."""
    for direction in subject.description.directions:
        info = subject.mask_info(problem, direction)
        sizes = problem.blocks.of(direction)
        some = any((labels(m, *sizes) == PARTIAL).any() for m in set(problem.head_masks))
        stack = Place("partial_mask_blocks", direction=direction)
        if not some:
            expect_presence(stack, False, info.partial_mask_blocks)
            expect_presence(stack.named("mask_next"), False, info.mask_next)
        elif info.computed_mask is None:
            expect_presence(stack, True, info.partial_mask_blocks)


@judges("PARTIAL-6", MaskDomain(allows=ONE_MASK))
def check_bytes_of_stored_blocks(subject: Subject, problem: Problem) -> None:
    """A stored block takes no more than one byte an entry."""
    for direction in subject.description.directions:
        stack = subject.mask_info(problem, direction).partial_mask_blocks
        if stack is not None and stack.dtype.itemsize > 1:
            place = Place("partial_mask_blocks", "dtype", direction)
            raise Violation(place, OneOf(of="the types of one byte"), stack.dtype)


COMPUTED = MaskDomain(
    allows=ONE_MASK,
    kinds=("causal", "local", "chunked_causal", "user"),
    where=lambda problem: problem.masks[0].computable,
)


@judges("COMPUTE-1", COMPUTED)
def check_computed_masks_store_nothing(subject: Subject, problem: Problem) -> None:
    """A single computed mask has neither mask_next nor stored blocks."""
    for direction in subject.description.directions:
        info, place = (
            subject.mask_info(problem, direction),
            Place("mask function", direction=direction),
        )
        if (labels(problem.head_masks[0], *problem.blocks.of(direction)) == PARTIAL).any():
            expect_presence(place, True, info.computed_mask)
        for name in ("mask_next", "partial_mask_blocks"):
            expect_presence(place.named(name), False, getattr(info, name))


@judges("COMPUTE-2", MaskDomain(allows=ONE_MASK))
def check_mask_function(subject: Subject, problem: Problem) -> None:
    """The mask function agrees with the mask at every pair."""
    for direction in subject.description.directions:
        computed = subject.mask_info(problem, direction).computed_mask
        if computed is not None:
            place = Place("mask function", direction=direction)
            expect_array(place, problem.head_masks[0].dense(), computed)


@judges("COMPUTE-3")
def check_q_sequence(subject: Subject, problem: Problem) -> None:
    """Positions of the query rows, present wherever the mask is computed."""
    for direction in subject.description.directions:
        info, place = (
            subject.mask_info(problem, direction),
            Place("q_sequence", direction=direction),
        )
        if info.computed_mask is not None:
            expect_presence(place, True, info.q_sequence)
        if info.q_sequence is not None:
            positions = problem.masks[0].q_positions(problem.q_len)
            expect_array(place, positions, info.q_sequence)
            expect(place.of("dtype"), np.dtype(np.int32), np.asarray(info.q_sequence).dtype)
