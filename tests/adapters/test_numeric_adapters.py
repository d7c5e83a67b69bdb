"""The adapters run the libraries' kernels on what a problem says, and share compiled programs honestly."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from conformance.adapter import Adapter, load
from conformance.adapters.shared.prepared import KernelSpec
from conformance.checks.budgets import exact_backward, exact_forward
from conformance.contract.fence import Subject
from conformance.problem import BlockSizes, Problem
from conformance.problems.arrays import d_out, inputs
from conformance.problems.mask_json import Blocks
from reference.error_budget import U_BFLOAT16, error_ratio
from reference.masks import Causal, Expr, Full

needs_tokamax = pytest.mark.skipif(find_spec("tokamax") is None, reason="without tokamax")
LIBRARIES = [
    "jax",
    pytest.param("tokamax", marks=needs_tokamax),
]

PLAIN = Problem(256, 256, (Causal(),), BlockSizes(128, 128), heads=2, kv_heads=2, head_dim=64,
                head_dim_v=64)  # fmt: skip
STORED = Blocks(("2a", "r2"), 128, 128)


def adapter(name: str) -> Adapter:
    return load(name)


def forward_excess(name: str, problem: Problem, **more: Any) -> float:
    """Largest error of the output, in budgets."""
    made = adapter(name)
    subject = Subject(made, made.describe())
    found = made.prepare(problem).forward(inputs(problem), **more)
    exact = exact_forward(subject, problem)
    return float(error_ratio(found.output, exact.output, exact.budget.output).max())


def backward_excess(name: str, problem: Problem) -> float:
    """Largest error of dq, dk and dv, in budgets."""
    made = adapter(name)
    subject = Subject(made, made.describe())
    found = made.prepare(problem).backward(inputs(problem), d_out(problem))
    exact = exact_backward(subject, problem)
    return max(
        float(error_ratio(getattr(found, n), getattr(exact.gradients, n), getattr(exact.budget, n)).max())
        for n in ("dq", "dk", "dv")
    )  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
class TestBoth:
    @pytest.mark.parametrize("mask", [Causal(), Full(), STORED])
    def test_forward_and_backward(self, name: str, mask: Expr) -> None:
        problem = PLAIN.but(masks=(mask,))
        assert 0 < forward_excess(name, problem) < 1
        assert 0 < backward_excess(name, problem) < 1

    def test_every_option_reaches_the_library(self, name: str) -> None:
        made = adapter(name)
        mqa = PLAIN.but(kv_heads=1)
        plain = made.prepare(mqa).make_kernel(KernelSpec("dkv"))[0]
        for option, values in made.describe().options.items():
            for value in values[1:]:
                other = made.prepare(mqa.but(options=((option, value),)))
                assert other.make_kernel(KernelSpec("dkv"))[0] != plain, f"{option}={value}"

    def test_equal_masks_share_a_program(self, name: str) -> None:
        made = adapter(name)
        one, two = (
            made.prepare(PLAIN.but(seed=n)).make_kernel(KernelSpec("fwd"))[0] for n in (0, 1)
        )
        assert one == two
        other = made.prepare(PLAIN.but(masks=(Causal(-16),))).make_kernel(KernelSpec("fwd"))[0]
        assert one != other

    def test_unnamed_blocks_fill_the_stack(self, name: str) -> None:
        problem = PLAIN.but(masks=(Blocks(("rs", "t2"), 128, 128),))
        prepared = adapter(name).prepare(problem)
        padded = prepared.make_kernel(KernelSpec("fwd"))[1][0]
        bare = prepared.make_kernel(KernelSpec("fwd", uninitialised=True))[1][0]
        assert (len(bare.partial_mask_blocks), len(padded.partial_mask_blocks)) == (3, 4)
        np.testing.assert_array_equal(padded.mask_next, bare.mask_next)

    def test_bfloat16_is_returned_as_it_is(self, name: str) -> None:
        problem = PLAIN.but(dtype="bfloat16")
        found = adapter(name).prepare(problem).forward(inputs(problem), residuals=True)
        assert (found.dtype, found.residual_dtype) == ("bfloat16", "float32")
        assert forward_excess(name, problem) < 1

    def test_batch_elements_have_their_own_segments(self, name: str) -> None:
        runs = (((1, 100), (2, 156)),) * 2
        members = [
            PLAIN.but(segments=runs),
            PLAIN.but(segments=(runs[0][::-1], runs[1][::-1]), seed=1),
        ]
        prepared = adapter(name).prepare(members[0])
        for member, found in zip(
            members, prepared.forward_batch([inputs(m) for m in members]), strict=True
        ):
            alone = adapter(name).prepare(member).forward(inputs(member))
            np.testing.assert_allclose(found.output, alone.output, rtol=0, atol=2e-6)

    def test_an_edit_reaches_the_kernel(self, name: str) -> None:
        """A kernel that is told to read another mask block computes something else."""
        problem = PLAIN.but(masks=(Blocks(("22", "r2"), 128, 128),))
        prepared, made = adapter(name).prepare(problem), inputs(problem)
        before = prepared.forward(made).output
        same = prepared.forward(made, edit=lambda info: info).output
        changed = prepared.forward(
            made,
            edit=lambda info: replace(info, partial_mask_blocks=info.partial_mask_blocks[:, ::-1]),
        ).output
        np.testing.assert_array_equal(same, before)
        np.testing.assert_array_equal(changed[:, :128], before[:, :128])
        assert (changed[:, 128:] != before[:, 128:]).any()

    def test_a_fork_may_round_probabilities(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prepared = adapter(name).prepare(PLAIN.but(dtype="bfloat16"))
        own = prepared.arithmetic()
        monkeypatch.setenv(f"SPLASH_CONFORMANCE_PACKAGE_{name.upper()}", "my.fork")
        of_fork = prepared.arithmetic()
        assert own.forward.probability_u < of_fork.forward.probability_u == U_BFLOAT16
        assert own.backward == of_fork.backward

    def test_uninitialised_memory_does_not_matter_where_all_is_seen(self, name: str) -> None:
        assert forward_excess(name, PLAIN, uninitialised=True) < 1


@needs_tokamax
class TestTokamax:
    def test_powers_of_two_round_bfloat16_queries(self) -> None:
        made = adapter("tokamax")
        rounded = made.prepare(PLAIN.but(dtype="bfloat16")).arithmetic().forward
        natural = made.prepare(
            PLAIN.but(dtype="bfloat16", options=(("use_base2_exp", False),))
        ).arithmetic()
        assert rounded.base2
        assert not natural.forward.base2
        assert rounded.multiply_u > 1000 * natural.forward.multiply_u

    def test_dynamic_mask(self) -> None:
        problem = PLAIN.but(masks=(STORED,), dynamic=True)
        assert forward_excess("tokamax", problem) < 1
        assert backward_excess("tokamax", problem) < 1

    @pytest.mark.parametrize("mask", [Causal(), Full()])
    def test_natural_ring(self, mask: Expr) -> None:
        problem = PLAIN.but(masks=(mask,), ring=2, options=(("use_base2_exp", False),))
        assert forward_excess("tokamax", problem) < 1
        assert backward_excess("tokamax", problem) < 1

    def test_ring_is_handed_sinks(self) -> None:
        problem = PLAIN.but(ring=2, sinks=(0.5, 1.0))
        with pytest.raises(NotImplementedError, match="Sinks"):
            adapter("tokamax").prepare(problem).forward(inputs(problem))


class TestJax:
    def test_unshrunk_grid_is_run(self) -> None:
        problem = PLAIN.but(masks=(Blocks(("20", "02"), 128, 128),))
        prepared = [adapter("jax").prepare(problem.but(shrink=s)) for s in (True, False)]
        widths = [p.make_kernel(KernelSpec("fwd"))[1][0].data_next.shape[-1] for p in prepared]
        assert widths == [1, 2]
        assert forward_excess("jax", problem.but(shrink=False)) < 1

    def test_fused_backward_has_no_dq_kernel(self) -> None:
        problem = PLAIN.but(options=(("use_fused_bwd_kernel", True),))
        assert adapter("jax").prepare(problem).make_kernel(KernelSpec("dkv"))[1][1] is None
        assert backward_excess("jax", problem) < 1
