"""The flat layout against brute force."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_impl import CausalMask, DenseMask, compile_flat, compile_mask
from tests.pallas_impl.mask_problems import Problem, problems


@settings(deadline=None, max_examples=300)
@given(problems(), st.booleans())
def test_every_list_is_as_defined(problem: Problem, downcast: bool) -> None:
    info, function = compile_flat(
        problem.mask,
        problem.block_shape,
        downcast=downcast,
        **problem.options,  # type: ignore[arg-type]
    )
    rows = 0
    longest = 0
    for (s_h, s_q, s_kv), shard in problem.shards(shrink=False).items():
        heads = len(problem.head_groups()[s_h])
        for head in range(heads):
            steps = np.array(shard.steps(head))
            at = (s_h * heads + head, s_q, s_kv)
            n = info.num_active[at]
            assert n == len(steps)
            lists = (info.active_rows, info.active_cols, info.block_mask)
            for column, found in enumerate(lists):
                np.testing.assert_array_equal(found[at][:n], steps[:, column])
            if info.mask_next is not None:
                np.testing.assert_array_equal(info.mask_next[at][:n], steps[:, 3])
            assert (info.active_rows[at][n:] == steps[-1, 0]).all()
            assert (info.active_cols[at][n:] == steps[-1, 1]).all()
            assert (info.block_mask[at][n:] == 0).all()
            longest = max(longest, len(steps))
            rows = max(rows, at[0] + 1)
    assert info.block_mask.shape == (rows, problem.q_shards, problem.kv_shards, longest)
    blocks = problem.distinct_blocks()
    assert (info.mask_next is None) == (problem.computable or not blocks)
    grid, grid_function = compile_mask(
        problem.mask,
        problem.block_shape,
        **problem.options,  # type: ignore[arg-type]
    )
    assert function == grid_function
    for found, wanted in zip(info[-3:], grid[-3:], strict=True):
        np.testing.assert_array_equal(found, wanted)
    for array in info:
        assert array is None or not array.flags.writeable


@settings(deadline=None)
@given(problems())
def test_nothing_is_fetched_but_what_runs(problem: Problem) -> None:
    info, _ = compile_flat(problem.mask, problem.block_shape, **problem.options)  # type: ignore[arg-type]
    for at in np.ndindex(*info.num_active.shape):
        active = info.block_mask[at] != 0
        columns = info.active_cols[at]
        if active.any():
            assert changes(columns) == changes(columns[active])
        else:
            assert changes(columns) == 0


def changes(values: Any) -> int:
    return int((np.diff(values.astype(np.int64)) != 0).sum())


def test_narrow_types() -> None:
    info, _ = compile_flat(CausalMask((130, 130)), (1, 1))
    assert info.active_rows.dtype == info.active_cols.dtype == np.int16
    assert info.block_mask.dtype == np.int8
    assert info.num_active.dtype == np.int32
    assert info.block_mask.size == 130 * 131 // 2


def test_empty_masks_still_write_every_output_block() -> None:
    info, _ = compile_flat(DenseMask(np.zeros((6, 4), dtype=np.bool_)), (2, 2))
    np.testing.assert_array_equal(info.active_rows[0, 0, 0], [0, 1, 2])
    np.testing.assert_array_equal(info.active_cols[0, 0, 0], [0, 0, 0])
    np.testing.assert_array_equal(info.block_mask[0, 0, 0], [0, 0, 0])
