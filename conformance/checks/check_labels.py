"""Checks of the LABEL clauses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.checks.compiled_arrays import (
    active_blocks,
    expected_labels,
    parts_of,
    place_of,
    shards_of,
)
from conformance.checks.registry import expect, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import MaskDomain
from conformance.findings.place import Place
from conformance.problems.problem import Problem
from reference.blocks import EMPTY, FULL, PARTIAL, Int32
from reference.mask_info import Direction
from reference.sharding import Shard


def label_pair(
    subject: Subject, problem: Problem, direction: Direction, shard: Shard
) -> tuple[Int32, Int32, Place]:
    """Expected and actual labels of a shard, and their place."""
    place = place_of("labels", direction, shard, problem)
    expected = expected_labels(problem, direction, shard)
    actual = active_blocks(subject, problem, direction, shard).grid(expected.shape, place)
    return expected, actual, place


def compare_labels(
    subject: Subject, problem: Problem, directions: Sequence[Direction] | None = None
) -> None:
    """Compares all labels of some directions, of all of them if None."""
    for direction, shard in parts_of(subject, problem, directions):
        expected, actual, place = label_pair(subject, problem, direction, shard)
        expect_array(place, expected, actual)


def compare_label(subject: Subject, problem: Problem, label: int) -> None:
    """Compares where a label stands, in the forward arrays."""
    for shard in shards_of(problem):
        expected, actual, place = label_pair(subject, problem, "fwd", shard)
        if ((expected == label) != (actual == label)).any():
            expect_array(place, expected, actual)


@judges("LABEL-1")
def check_empty_blocks(subject: Subject, problem: Problem) -> None:
    """Label 0 stands exactly at empty blocks."""
    compare_label(subject, problem, EMPTY)


@judges("LABEL-2")
def check_full_blocks(subject: Subject, problem: Problem) -> None:
    """Label 2 stands exactly at full blocks."""
    compare_label(subject, problem, FULL)


@judges("LABEL-3")
def check_partial_blocks(subject: Subject, problem: Problem) -> None:
    """Label 1 stands exactly at partial blocks."""
    compare_label(subject, problem, PARTIAL)


@judges("LABEL-4", MaskDomain({"rectangular"}))
def check_labels_of_rectangular_blocks(subject: Subject, problem: Problem) -> None:
    """All labels, with block sizes that are not square."""
    compare_labels(subject, problem, ["fwd"])


@judges("LABEL-5", MaskDomain(where=lambda p: 1 in p.grid()))
def check_labels_of_a_single_row_or_column(subject: Subject, problem: Problem) -> None:
    """All labels of a single row, column or block."""
    compare_labels(subject, problem, ["fwd"])


@judges("LABEL-6")
def check_backward_labels(subject: Subject, problem: Problem) -> None:
    """All labels of the backward directions, at their own block sizes."""
    backward = [name for name in subject.description.directions if name != "fwd"]
    compare_labels(subject, problem, backward)


@judges("LABEL-7")
def check_number_of_active_blocks(subject: Subject, problem: Problem) -> None:
    """As many active entries as non-empty blocks, over all shards."""
    shards = shards_of(problem)
    expected = sum(int((expected_labels(problem, "fwd", s) > 0).sum()) for s in shards)
    actual = sum(len(active_blocks(subject, problem, "fwd", s).label) for s in shards)
    expect(Place("active blocks", "length", "fwd"), expected, actual)


@judges("HEADS-3", MaskDomain({"per_head_masks"}))
def check_every_head_has_its_own_blocks(subject: Subject, problem: Problem) -> None:
    """Labels and stored blocks of every head come from its own mask."""
    for shard in shards_of(problem):
        expected, actual, place = label_pair(subject, problem, "fwd", shard)
        for head, (e, a) in enumerate(zip(expected, actual, strict=True)):
            expect_array(place.under(head=head), np.asarray(e), a)
