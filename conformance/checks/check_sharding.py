"""Checks of the SHARD clauses of the grid layout and of both layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.checks.check_labels import label_pair
from conformance.checks.check_mask_info import compare_stored, in_range, mask_next_in_range
from conformance.checks.comparison import forward_matches, gradients_match
from conformance.checks.compiled_arrays import expected_labels, local_info, parts_of, place_of
from conformance.checks.registry import expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import GRID, MaskDomain
from conformance.drawing.numeric_domain import MODERATE, NumericDomain
from conformance.problems.problem import Problem
from reference.mask_info import GridMaskInfo

#: Calls on several devices, where the mask is known in advance.
DEVICES = NumericDomain(
    {"shards"},
    {"segment_ids", "sinks", "per_head_masks", "gqa"},
    regimes=MODERATE,
    where=lambda problem: problem.ring == 1,
)


def compare_shards(subject: Subject, problem: Problem) -> None:
    """Every shard has the labels and the stored blocks of its own part of the mask."""
    for direction, shard in parts_of(subject, problem):
        expected, actual, place = label_pair(subject, problem, direction, shard)
        expect_array(place, expected, actual)
        compare_stored(subject, problem, direction, shard)


@judges("SHARD-1", MaskDomain({"shards:q"}))
def check_q_shards(subject: Subject, problem: Problem) -> None:
    """The arrays of every q shard describe its rows."""
    compare_shards(subject, problem)


@judges("SHARD-2", MaskDomain({"shards:head"}))
def check_head_shards(subject: Subject, problem: Problem) -> None:
    """The arrays of every head shard describe its heads."""
    compare_shards(subject, problem)


@judges("SHARD-3", MaskDomain({"shards:kv"}))
def check_kv_shards(subject: Subject, problem: Problem) -> None:
    """The arrays of every kv shard describe its columns."""
    compare_shards(subject, problem)


@judges("SHARD-4", MaskDomain({"shards:q"}, GRID))
def check_dkv_indices_are_local(subject: Subject, problem: Problem) -> None:
    """``data_next`` of dkv stays inside the shard."""
    if "dkv" not in subject.description.directions:
        return
    for direction, shard in parts_of(subject, problem, ["dkv"]):
        info = local_info(subject, problem, direction, shard)
        if isinstance(info, GridMaskInfo):
            blocks = expected_labels(problem, direction, shard).shape[1]
            place = place_of("data_next", direction, shard, problem)
            in_range(place, info.data_next.astype(np.int32), blocks)


@judges("SHARD-5", MaskDomain({"shards:q"}, GRID))
def check_stored_blocks_are_shared(subject: Subject, problem: Problem) -> None:
    """``mask_next`` of every shard points into the one stack."""
    for direction, shard in parts_of(subject, problem):
        mask_next_in_range(subject, problem, direction, shard)
        info = local_info(subject, problem, direction, shard)
        if info.mask_next is not None:
            compare_stored(subject, problem, direction, shard)


@judges("SHARD-7", DEVICES)
def check_output_of_several_devices(subject: Subject, problem: Problem) -> None:
    """The output of all devices together."""
    forward_matches(subject, problem)


@judges("SHARD-8", replace(DEVICES, group="numerics-backward"))
def check_gradients_over_several_devices(subject: Subject, problem: Problem) -> None:
    """dq of every device, dk and dv summed over them."""
    gradients_match(subject, problem)


@judges("SHARD-9", replace(DEVICES, needs={"shards", "dynamic"}))
def check_dynamic_masks_on_several_devices(subject: Subject, problem: Problem) -> None:
    """A mask that is known at run time only, split over devices."""
    forward_matches(subject, problem)
