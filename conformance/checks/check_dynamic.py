"""Checks of the DYNAMIC clauses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.checks.check_labels import compare_labels
from conformance.checks.check_mask_info import compare_stored, in_range, mask_next_in_range
from conformance.checks.comparison import forward_matches, gradients_match
from conformance.checks.compiled_arrays import (
    active_blocks,
    expected_labels,
    local_info,
    parts_of,
    place_of,
)
from conformance.checks.registry import expect_presence, judges
from conformance.contract.fence import Subject
from conformance.drawing.mask_domain import MaskDomain
from conformance.drawing.numeric_domain import MODERATE, NumericDomain
from conformance.problems.arrays import inputs
from conformance.problems.problem import Problem
from reference.blocks import PARTIAL
from reference.mask_info import GridMaskInfo

DYNAMIC = MaskDomain({"dynamic"})
#: Calls with a run-time mask.
RESULTS = NumericDomain({"dynamic"}, {"per_head_masks", "options"}, regimes=MODERATE)


@judges("DYNAMIC-1", DYNAMIC)
def check_dynamic_labels(subject: Subject, problem: Problem) -> None:
    """The labels of a run-time mask."""
    compare_labels(subject, problem)


@judges("DYNAMIC-2", DYNAMIC)
def check_dynamic_stored_blocks(subject: Subject, problem: Problem) -> None:
    """Every partial block finds its values."""
    for direction, shard in parts_of(subject, problem):
        if (expected_labels(problem, direction, shard) == PARTIAL).any():
            stack = active_blocks(subject, problem, direction, shard).stack
            place = place_of("partial_mask_blocks", direction, shard, problem)
            expect_presence(place, True, stack)
        compare_stored(subject, problem, direction, shard)


@judges("DYNAMIC-3", DYNAMIC)
def check_dynamic_indices(subject: Subject, problem: Problem) -> None:
    """Every index of a run-time mask names a block of the shard."""
    for direction, shard in parts_of(subject, problem):
        info = local_info(subject, problem, direction, shard)
        _, q_blocks, kv_blocks = expected_labels(problem, direction, shard).shape
        name = "data_next" if isinstance(info, GridMaskInfo) else "active_cols"
        in_range(
            place_of(name, direction, shard, problem),
            getattr(info, name).astype(np.int32),
            q_blocks if direction == "dkv" else kv_blocks,
        )
        mask_next_in_range(subject, problem, direction, shard)


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
