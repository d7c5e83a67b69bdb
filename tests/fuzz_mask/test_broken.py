"""Every mistake of `tests.fuzz_mask.broken` is found, in the smallest mask that shows it."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.fuzz_mask.outcome import Fault
from tests.fuzz_mask import broken
from tests.fuzz_mask.harness import FEW, KERNELS, MANY, judged

#: Class, clause, check, and the calls that make the smallest masks; None where they are not the same every time.
WRONG: list[tuple[str, str, str, list[str] | None]] = [
    ("Integers", "MASK-16", "check_values_are_booleans", ["Integers((1, 1))"]),
    ("IgnoresStart", "MASK-12", "check_slices", ["IgnoresStart((1, 2))"]),
    ("SquareOnly", "MASK-12", "check_whole", ["SquareOnly((1, 2))"]),
    ("LosesAnAxis", "MASK-13", "check_empty_and_single_slices", ["LosesAnAxis((2, 1))"]),
    ("SwapsShape", "CONV-1", "check_shape", ["SwapsShape((2, 1))"]),
    ("Forgetful", "MASK-17", "check_reading_again", ["Forgetful((1, 1))"]),
    ("Noise", "MASK-14", "check_equal_masks", None),
    ("Unhashable", "MASK-14", "check_equal_masks", ["Unhashable((1, 1))"]),
    ("HashOfIdentity", "MASK-14", "check_equal_masks", ["HashOfIdentity((1, 1))"]),
    (
        "ComparesArrays",
        "MASK-14",
        "check_equal_masks",
        ["ComparesArrays(ids=np.array([0, 0], dtype=np.int32))"],
    ),
    (
        "ForgetsOffset",
        "MASK-15",
        "check_different_masks",
        ["ForgetsOffset((1, 1))", "ForgetsOffset((1, 1), offset=-1)"],
    ),
    (
        "ForgetsShape",
        "MASK-15",
        "check_different_masks",
        ["ForgetsShape((1, 1))", "ForgetsShape((1, 2))"],
    ),
    (
        "SameBytes",
        "MASK-15",
        "check_different_masks",
        [
            "SameBytes(q_ids=np.array([0], dtype=np.int32), kv_ids=np.array([0, 0], dtype=np.int32))",
            "SameBytes(q_ids=np.array([0, 0], dtype=np.int32), kv_ids=np.array([0], dtype=np.int32))",
        ],
    ),
    (
        "FunctionDiffers",
        "COMPUTE-2",
        "check_function_agrees",
        ["FunctionDiffers((1, 2), prefix=1)"],
    ),
    (
        "FirstColumn",
        "MASK-18",
        "check_mask_function_is_asked_pair_by_pair",
        ["FirstColumn((2, 2), prefix=0)"],
    ),
    (
        "CapturesAnArray",
        "MASK-19",
        "check_mask_function_inside_a_kernel",
        ["CapturesAnArray((1, 1), prefix=0)"],
    ),
    (
        "AsksForValues",
        "MASK-19",
        "check_mask_function_inside_a_kernel",
        ["AsksForValues((1, 1), prefix=1)"],
    ),
    (
        "NotOnATpu",
        "MASK-19",
        "check_mask_function_inside_a_kernel",
        ["NotOnATpu((1, 1), prefix=0)"],
    ),
    ("WidePositions", "COMPUTE-3", "check_positions", ["WidePositions((1, 1))"]),
    ("IgnoresPositions", "COMPUTE-3", "check_rows_that_are_moved", ["IgnoresPositions((2, 2))"]),
    (
        "ForgetsPositions",
        "MASK-15",
        "check_masks_with_moved_rows",
        ["ForgetsPositions((2, 2))"],
    ),
    ("LooseBounds", "MASK-20", "check_rectangles", ["LooseBounds((1, 2), prefix=0)"]),
    (
        "OverlappingIntervals",
        "MASK-21",
        "check_intervals",
        ["OverlappingIntervals((1, 1), prefix=1)"],
    ),
]


def only(faults: list[Fault]) -> Fault:
    (fault,) = faults
    return fault


@pytest.mark.parametrize(("name", "clause", "check", "calls"), WRONG, ids=[w[0] for w in WRONG])
def test_mistakes_are_found(name: str, clause: str, check: str, calls: list[str] | None) -> None:
    run = judged(broken, name, effort={"MASK-19": KERNELS, "MASK-15": MANY}.get(clause, FEW))
    assert run.exit_code == 1
    fault = only(run.of("required"))
    assert (fault.clause, fault.check) == (clause, check)
    assert calls is None or list(fault.calls) == calls
    assert run.stages["class"].clauses[clause] == "violates"
    assert fault.again.startswith("splash-conformance fuzz-mask masks.py:")
    names = {"np": np} | vars(broken)
    assert all(type(eval(call, names)).__name__ == name for call in fault.calls)  # can be pasted
