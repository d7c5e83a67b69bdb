"""Checks of the DYNAMIC clauses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.checks.budgets import forward_matches, gradients_match
from conformance.checks.check_labels import label_pair
from conformance.checks.check_mask_info import compare_stored, in_range
from conformance.checks.compiled_arrays import (
    active_blocks,
    expected_labels,
    local_info,
    place_name,
    shards_of,
)
from conformance.checks.registry import Violation, expect_array, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import MaskDomain
from conformance.drawing.numeric_domain import MODERATE, NumericDomain
from conformance.problems.problem import Problem
from conformance.problems.regimes import inputs
from reference.blocks import PARTIAL
from reference.mask_info import GridMaskInfo

DYNAMIC = MaskDomain({"dynamic"})
#: Calls with a run-time mask.
RESULTS = NumericDomain({"dynamic"}, {"per_head_masks", "options"}, regimes=MODERATE)


@judges("DYNAMIC-1", DYNAMIC)
def check_dynamic_labels(subject: Subject, problem: Problem) -> None:
    """The labels of a run-time mask."""
    for direction in subject.description.directions:
        for shard in shards_of(problem):
            expected, actual, where = label_pair(subject, problem, direction, shard)
            expect_array(where, expected, actual)


@judges("DYNAMIC-2", DYNAMIC)
def check_dynamic_stored_blocks(subject: Subject, problem: Problem) -> None:
    """Every partial block finds its values."""
    for direction in subject.description.directions:
        for shard in shards_of(problem):
            partial = (expected_labels(problem, direction, shard) == PARTIAL).any()
            if partial and active_blocks(subject, problem, direction, shard).stack is None:
                where = f"stack ({place_name(direction, shard, problem)})"
                raise Violation(where, "the blocks of the mask", "none")
            compare_stored(subject, problem, direction, shard)


@judges("DYNAMIC-3", DYNAMIC)
def check_dynamic_indices(subject: Subject, problem: Problem) -> None:
    """Every index of a run-time mask names a block of the shard."""
    for direction in subject.description.directions:
        for shard in shards_of(problem):
            info = local_info(subject, problem, direction, shard)
            where = f"({place_name(direction, shard, problem)})"
            _, q_blocks, kv_blocks = expected_labels(problem, direction, shard).shape
            blocks = q_blocks if direction == "dkv" else kv_blocks
            data = info.data_next if isinstance(info, GridMaskInfo) else info.active_cols
            in_range(f"fetch index {where}", data.astype(np.int32), blocks)
            if info.mask_next is not None and info.partial_mask_blocks is not None:
                stored = len(info.partial_mask_blocks)
                in_range(f"mask_next {where}", info.mask_next.astype(np.int32), stored)


@judges("DYNAMIC-5", RESULTS)
def check_output_of_dynamic_masks(subject: Subject, problem: Problem) -> None:
    """The output with a mask that is known at run time only."""
    forward_matches(subject, problem)


@judges("DYNAMIC-6", replace(RESULTS, group="numerics-backward"))
def check_gradients_of_dynamic_masks(subject: Subject, problem: Problem) -> None:
    """All gradients with a mask that is known at run time only."""
    gradients_match(subject, problem)


@judges("DYNAMIC-7", RESULTS)
def check_mask_in_a_compiled_program(subject: Subject, problem: Problem) -> None:
    """The output where the mask is an argument of the compiled program."""
    found = subject.call(
        "forward",
        lambda: subject.prepare(problem).forward(inputs(problem), traced_mask=True),
    )
    forward_matches(subject, problem, found=found)
