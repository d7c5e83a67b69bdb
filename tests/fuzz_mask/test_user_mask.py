"""Masks of other classes in problems, and given to the libraries."""

from __future__ import annotations

import gc
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from conformance.adapters.shared.user_masks import as_library_mask
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import expr_from_json, expr_to_json, kind_of
from conformance.problems.neighbours import neighbours
from conformance.problems.user_mask import UserMask
from reference.mask_info import compile_grid
from reference.masks import Causal, Mask
from tests.fuzz_mask.broken import Causal as Duck
from tests.fuzz_mask.broken import Positions, Prefix

SPLASH = "splash_attention.splash_attention_mask"
LIBRARIES = [
    pytest.param("pallas_impl.masks", id="pallas_impl"),
    pytest.param(f"jax.experimental.pallas.ops.tpu.{SPLASH}", id="jax"),
    pytest.param(
        f"tokamax._src.ops.experimental.tpu.{SPLASH}",
        id="tokamax",
        marks=[
            pytest.mark.tokamax,
            pytest.mark.skipif(find_spec("tokamax") is None, reason="without tokamax"),
        ],
    ),
]


def test_masks_are_what_was_called() -> None:
    one, again = (UserMask(Duck((2, 3)), "Duck((2, 3))", 1) for _ in range(2))
    other = UserMask(Duck((2, 3)), "Duck((2, 3))", 2)
    assert one == again != other
    assert hash(one) == hash(again)
    assert str(one & Causal()) == "And(left=Duck((2, 3)), right=Causal(offset=0))"
    assert kind_of(one) == "user"
    assert neighbours(UserMask(Duck((2, 3)), "x", 1, others=(other,))) == [other]
    np.testing.assert_array_equal(Mask(one, 2, 3).dense(), Mask(Causal(), 2, 3).dense())
    with pytest.raises(ValueError, match=r"has shape \(2, 3\), expected \(3, 2\)"):
        Mask(one, 3, 2)


def test_json_finds_masks_of_this_process() -> None:
    mask = UserMask(Duck((2, 4)), "Duck((2, 4))", 3)
    duplicate = UserMask(Duck((2, 4)), "Duck((2, 4))", 3)
    problem = Problem(2, 4, (mask,), BlockSizes(1, 2))
    del duplicate
    gc.collect()
    assert Problem.from_json(problem.to_json()) == problem
    data = expr_to_json(mask)
    del mask, problem
    gc.collect()
    with pytest.raises(ValueError, match="lives only in the run that made it"):
        expr_from_json(data)


def test_positions_of_computed_masks_are_their_own() -> None:
    moved = Prefix((4, 2), 1, q_sequence=np.array([3, 2, 1, 0]))
    computed = compile_grid([Mask(UserMask(moved, "moved", 4), 4, 2)], 2, 2)
    assert computed.q_sequence is not None
    assert computed.q_sequence.tolist() == [3, 2, 1, 0]
    assert compile_grid([Mask(UserMask(Duck((4, 2)), "duck", 4), 4, 2)], 2, 2).q_sequence is None


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("make", [Duck, Positions], ids=["stored", "computed"])
def test_wrappers_hand_everything_on(name: str, make: Any) -> None:
    lib = import_module(name)
    one, again, other = (as_library_mask(lib, make((4, 6), n)) for n in (1, 1, 2))
    assert isinstance(one, lib.Mask)
    assert one == again
    assert hash(one) == hash(again)
    assert one != other
    assert tuple(one.shape) == (4, 6)
    expected = Mask(Causal(1), 4, 6).dense()
    np.testing.assert_array_equal(one[1:3, 2:5], expected[1:3, 2:5])
    combined = one & other
    np.testing.assert_array_equal(combined[0:4, 0:6], expected)
    assert as_library_mask(lib, one) is one
    computed = hasattr(one, "mask_function")
    assert computed == hasattr(one, "q_sequence") == (make is Positions)
    if computed:
        q_ids, kv_ids = np.arange(4, dtype=np.int32), np.arange(6, dtype=np.int32)
        found = one.mask_function(q_ids[:, None], kv_ids[None, :])
        np.testing.assert_array_equal(found, expected)


def test_functions_of_two_axes_are_asked_about_more_by_pallas_impl() -> None:
    from pallas_impl import compile_mask, masks

    class TwoAxes(Positions):
        def __init__(self, shape: tuple[int, int]) -> None:
            super().__init__(shape)
            function = self.mask_function

            def of_two_axes(q_ids: Any, kv_ids: Any) -> Any:
                assert q_ids.ndim == kv_ids.ndim == 2
                return function(q_ids, kv_ids)

            self.mask_function = of_two_axes

    info, function = compile_mask(as_library_mask(masks, TwoAxes((6, 6))), (2, 2))
    assert function is not None
    assert np.asarray(info.block_mask).tolist() == [[[1, 0, 0], [2, 1, 0], [2, 2, 1]]]
