"""Budgets: no correct computation exceeds them, some come near, wrong ones exceed them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from conformance.adapter import Inputs
from conformance.problems.ranges import backward_sizes, forward_sizes, overflowing
from reference.arithmetic import LOG2_E, Arithmetic, Real, to_bfloat16
from reference.attention import AttentionResult, Float, attend
from reference.error_budget import (
    BFLOAT16,
    BFLOAT16_STORED,
    FLOAT32,
    FLOAT64,
    MXU_PASSES,
    U_BFLOAT16,
    U_FLOAT32,
    ArithmeticProfile,
    accumulated,
    accuracy_ratio,
    error_ratio,
    forward_budget,
    mxu_multiply_u,
)
from reference.error_budget_backward import difference_budget, gradient_budget
from reference.gradients import Gradients, gradients
from reference.mask_info import Direction
from reference.masks import Bool, Causal, Dense, Expr, Full, Local, Mask
from reference.online import OnlineForward, Order, RowState, compile_program, online_forward
from reference.online_backward import online_gradients
from reference.summation import BLAS, SUMMATIONS, Summation, summation_order

LENGTH = 32
ORDERS: tuple[Order, ...] = ("listed", "reversed", "shuffled")
DIRECTIONS: tuple[Direction, ...] = ("fwd", "dkv", "dq")
PROFILES = [
    FLOAT32,
    replace(FLOAT32, name="float32, base 2", base2=True),
    replace(FLOAT32, name="float32, constant maximum", constant_maximum=10.0),
    BFLOAT16,
    BFLOAT16_STORED,
    *MXU_PASSES.values(),
]


@dataclass(frozen=True)
class Case:
    q: Float
    k: Float
    v: Float
    d_out: Float
    masks: list[Mask]
    options: dict[str, Any]

    def exact(self) -> tuple[AttentionResult, Gradients]:
        mask = np.stack([mask.dense() for mask in self.masks])
        result = attend(self.q, self.k, self.v, mask, **self.options)
        made = gradients(self.q, self.k, self.v, mask, self.d_out, result=result, **self.options)
        return result, made


def random_mask(rng: np.random.Generator) -> Expr:
    kind = rng.integers(5)
    if kind == 0:
        return Full()
    if kind == 1:
        return Causal(int(rng.integers(-8, 9)))
    if kind == 2:
        return Local(int(rng.integers(0, 9)), int(rng.integers(0, 5)))
    return Dense(rng.random((LENGTH, LENGTH)) < rng.choice([0.03, 0.5, 0.9]))


def random_case(rng: np.random.Generator, bfloat16: bool) -> Case:
    heads, dim, dim_v = 2, int(rng.choice([16, 64, 128])), int(rng.choice([16, 64]))
    kv_heads = int(rng.integers(1, 3))
    scale = float(rng.choice([0.0, 0.1, 1.0, 3.0]))
    shift = float(rng.choice([0.0, 1.0]))  # 1: values and cotangents of one sign, whose sums grow

    def draw(n: int, d: int, size: float, offset: float = 0.0) -> Float:
        array = size * rng.normal(size=(n, LENGTH, d)) + offset
        rounded = to_bfloat16(array) if bfloat16 else array.astype(np.float32)
        return rounded.astype(np.float64)

    arrays = (
        draw(heads, dim, scale / np.sqrt(dim)), draw(kv_heads, dim, 1.0),
        draw(kv_heads, dim_v, 1.0, shift), draw(heads, dim_v, 1.0, shift),
    )  # fmt: skip
    masks = [Mask(random_mask(rng), LENGTH, LENGTH)] * heads
    if rng.random() < 0.3:
        masks[1] = Mask(random_mask(rng), LENGTH, LENGTH)
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        options["soft_cap"] = float(rng.choice([0.5, 5.0, 50.0]))
    if rng.random() < 0.4:
        options["sinks"] = np.float64(rng.choice([-np.inf, -3.0, 0.5, 8.0], size=heads))
    if rng.random() < 0.3:
        ids = np.sort(rng.integers(0, 3, size=LENGTH))
        options["segment_ids"] = (ids, rng.permutation(ids))
    return Case(*arrays, masks, options)


def ratios(
    case: Case,
    profile: ArithmeticProfile,
    rng: np.random.Generator,
    orders: tuple[Summation, Summation] = (BLAS, BLAS),
) -> dict[str, float]:
    """Largest error / budget of every quantity, computed blockwise in the profile's arithmetic.

    Args:
      case: what to compute.
      profile: the arithmetic.
      rng: draws block sizes and the order of blocks.
      orders: of the sums in the forward and in the backward pass.
    """
    result, made = case.exact()
    sizes = rng.choice([4, 8, 16, 32], size=(3, 2))
    order = ORDERS[rng.integers(3)]
    kv_heads = len(case.k)
    programs = [
        compile_program(case.masks, kv_heads, int(q), int(k), direction, order=order)
        for (q, k), direction in zip(sizes, DIRECTIONS, strict=True)
    ]
    arrays = (case.q, case.k, case.v)
    with summation_order(orders[0]):
        forward = online_forward(programs[0], *arrays, profile=profile, **case.options)
    fused = bool(rng.random() < 0.5)
    with summation_order(orders[1]):
        backward = online_gradients(
            programs[1], None if fused else programs[2], *arrays, case.d_out, forward,
            profile=profile, **case.options,
        )  # fmt: skip
    given: dict[str, Any] = {name: case.options.get(name) for name in ("soft_cap", "sinks")}
    blocks = LENGTH // int(sizes[:, 1].min())
    allowed = forward_budget(*arrays, result, profile, rescales=blocks, **given)
    allowed_back = gradient_budget(
        *arrays, case.d_out, result, made, profile, rescales=blocks, **given
    )
    found = {
        name: error_ratio(getattr(forward, name), getattr(result, name), getattr(allowed, name))
        for name in ("output", "logsumexp", "max_logits")
    }
    for name in ("dq", "dk", "dv", "dsinks"):
        if getattr(made, name) is not None:
            found[name] = error_ratio(
                getattr(backward, name), getattr(made, name), getattr(allowed_back, name)
            )
    return {name: float(ratio.max()) for name, ratio in found.items()}


def test_500_correct_cases_stay_within_budgets_that_can_be_reached() -> None:
    worst: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for seed in range(500):
        rng = np.random.default_rng(seed)
        profile = PROFILES[seed % len(PROFILES)]
        case = random_case(rng, bfloat16=profile.output_u == U_BFLOAT16)
        for name, ratio in ratios(case, profile, rng).items():
            assert ratio < 1, f"seed {seed}, {profile.name}: {name} is {ratio:.3g} of its budget"
            worst[profile.name][name] = max(worst[profile.name][name], ratio)
    print("\nlargest error / budget over 500 correct cases")
    for profile_name, row in worst.items():
        figures = "  ".join(f"{name} {ratio:.3f}" for name, ratio in row.items())
        print(f"{profile_name:32s} {figures}")
    for profile_name, row in worst.items():
        assert max(row.values()) > 0.02, f"nothing comes near the budgets of {profile_name}"
    for name in ("output", "logsumexp", "max_logits", "dq", "dk", "dv", "dsinks"):
        assert max(row[name] for row in worst.values()) > 0.02, f"nothing comes near {name}"


REGIMES: dict[str, Callable[[Case], dict[str, Float]]] = {
    "huge logits": lambda case: {"q": case.q * 300},
    "rising maximum": lambda case: {
        "q": abs(case.q), "k": case.k + np.linspace(0, 8, LENGTH)[None, :, None]
    },
    "equal values": lambda case: {"v": 1 + case.v / 128},
    "large values": lambda case: {"v": case.v * 1e6},
    "logits below any sentinel": lambda case: {"q": -abs(case.q) * 1e17, "k": abs(case.k) * 1e17},
    "tiny cotangents": lambda case: {"d_out": case.d_out * 1e-30},
}  # fmt: skip


def is_defined_backward(case: Case, profile: ArithmeticProfile) -> bool:
    """Whether no order of summation can make a gradient overflow."""
    q, k, v = (array.astype(np.float32) for array in (case.q, case.k, case.v))
    cotangent, cap = float(np.abs(case.d_out).max()), case.options.get("soft_cap")
    made = Inputs(q, k, v, sinks=case.options.get("sinks"))
    assert overflowing(forward_sizes(made, profile, cap)) is None
    return overflowing(backward_sizes(made, cotangent, profile, cap)) is None


def extreme_case(regime: str, seed: int) -> tuple[Case, ArithmeticProfile, np.random.Generator]:
    usable = [profile for profile in PROFILES if profile.constant_maximum is None]
    rng = np.random.default_rng(seed)
    case = random_case(rng, bfloat16=True)
    moved: dict[str, Any] = {
        n: to_bfloat16(a).astype(np.float64) for n, a in REGIMES[regime](case).items()
    }
    return replace(case, **moved), usable[seed % len(usable)], rng


def check_extreme_case(
    regime: str, seed: int, orders: tuple[Summation, Summation] = (BLAS, BLAS)
) -> bool:
    """Asserts that what is defined is within its budget; says whether gradients are."""
    case, profile, rng = extreme_case(regime, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        found = ratios(case, profile, rng, orders)
    backward = is_defined_backward(case, profile)
    for name, ratio in found.items():
        if backward or not name.startswith("d"):
            where = f"seed {seed}, {profile.name}, {orders[0].name} and {orders[1].name}"
            assert ratio < 1, f"{where}: {name} is {ratio:.3g} of its budget"
    return backward


#: Of these logits no gradients are defined: they are off by more than any exponential can hold.
FORWARD_ONLY = "logits below any sentinel"


@pytest.mark.parametrize("regime", REGIMES)
def test_extreme_inputs_stay_within_budgets(regime: str) -> None:
    backward = [check_extreme_case(regime, seed) for seed in range(28)]
    # What is defined follows from the sizes of the numbers. Logits of 0, or behind a soft cap, always are.
    assert sum(backward) >= (8 if regime == FORWARD_ONLY else 22)
    assert all(backward) is (
        regime in ("equal values", "large values", "tiny cotangents", "rising maximum")
    )


@pytest.mark.parametrize("order", SUMMATIONS, ids=lambda order: order.name)
def test_correct_cases_stay_within_budgets_in_any_order(order: Summation) -> None:
    for seed in range(500, 500 + 2 * len(PROFILES)):
        rng = np.random.default_rng(seed)
        profile = PROFILES[seed % len(PROFILES)]
        case = random_case(rng, bfloat16=profile.output_u == U_BFLOAT16)
        # The backward pass computes logits anew, and need not add them up as the forward pass did.
        other = SUMMATIONS[(SUMMATIONS.index(order) + seed) % len(SUMMATIONS)]
        for name, ratio in ratios(case, profile, rng, (order, other)).items():
            where = f"seed {seed}, {profile.name}, {order.name} and {other.name}"
            assert ratio < 1, f"{where}: {name} is {ratio:.3g} of its budget"


@pytest.mark.parametrize("regime", REGIMES)
def test_extreme_inputs_stay_within_budgets_in_any_order(regime: str) -> None:
    for seed in range(2 * len(SUMMATIONS)):
        forward = SUMMATIONS[seed % len(SUMMATIONS)]
        # First in the same order as forward, then in another.
        backward = SUMMATIONS[(seed + 4 * (seed // len(SUMMATIONS))) % len(SUMMATIONS)]
        check_extreme_case(regime, seed, (forward, backward))


class Bfloat16Sums(OnlineForward):
    """Rounds the running sums after every block."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        super().absorb(state, logits, seen, values)
        state.sums, state.total = to_bfloat16(state.sums), to_bfloat16(state.total)


class NoRescale(OnlineForward):
    """Forgets to rescale the sums when the maximum grows."""

    def rescale(self, state: RowState, shift: Real) -> None:
        state.shift = shift


class MaximumFromZero(OnlineForward):
    """Starts the running maximum at 0, and so reports it."""

    def start(self) -> RowState:
        state = super().start()
        return replace(state, largest=0 * state.total, shift=0 * state.total)


class UnconvertedBase(OnlineForward):
    """Returns base-2 residuals."""

    def finish(self, state: RowState) -> tuple[Real, Real, Real]:
        output, logsumexp, largest = super().finish(state)
        return output, logsumexp * logsumexp.dtype.type(LOG2_E), largest


class SinkIsKey(OnlineForward):
    """Treats the sink as a key whose value is 1."""

    def add_sink(self, state: RowState, sink: Real) -> None:
        before = state.total * self.math.power(state.shift - np.maximum(state.shift, sink))
        super().add_sink(state, sink)
        state.sums = state.sums + (state.total - before)[:, None]


class CapAfterMask(OnlineForward):
    """Caps hidden logits to -cap in place of hiding them."""

    def absorb(self, state: RowState, logits: Real, seen: Bool, values: Real) -> None:
        cap = logits.dtype.type(self.soft_cap or 0)
        super().absorb(state, np.where(seen, logits, -cap), np.ones_like(seen), values)


class OrderedSegments(OnlineForward):
    """Lets a query see every segment up to its own."""

    def visible(self, step: int) -> Bool:
        rows, columns = self.tokens(step)
        ids = self.segment_ids
        assert ids is not None
        return ids[0][rows, None] >= ids[1][None, columns]


@pytest.mark.parametrize(
    ("wrong", "quantity", "options"),
    [
        (Bfloat16Sums, "output", {}),
        (NoRescale, "output", {}),
        (MaximumFromZero, "max_logits", {}),
        (UnconvertedBase, "logsumexp", {}),
        (SinkIsKey, "output", {"sinks": np.zeros(2)}),
        (CapAfterMask, "output", {"soft_cap": 2.0}),
        (OrderedSegments, "output", {"segment_ids": (np.arange(32) // 8, np.arange(32) // 8)}),
    ],
)
def test_wrong_kernels_exceed_their_budget(
    wrong: type[OnlineForward], quantity: str, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(5)
    case = replace(random_case(rng, bfloat16=False), masks=[Mask(Causal(), 32, 32)] * 2)
    case = replace(case, q=rng.normal(size=case.q.shape), options=options)
    result, _ = case.exact()
    program = compile_program(case.masks, len(case.k), 8, 8)
    arrays = (case.q, case.k, case.v)
    given: dict[str, Any] = {name: options.get(name) for name in ("soft_cap", "sinks")}
    allowed = forward_budget(*arrays, result, FLOAT32, rescales=4, **given)
    for kernel, conforms in ((OnlineForward, True), (wrong, False)):
        found = kernel(program, *arrays, profile=FLOAT32, **options).run()
        ratio = error_ratio(
            getattr(found, quantity), getattr(result, quantity), getattr(allowed, quantity)
        )
        assert bool(ratio.max() < 1) is conforms


def test_a_leaked_key_exceeds_the_budget_of_every_regime() -> None:
    for scale in (0.0, 1.0, 4.0):
        rng = np.random.default_rng(6)
        q, k, v = (rng.normal(size=(1, 32, 64)) for _ in range(3))
        q *= scale / 8
        causal = np.tri(32, dtype=np.bool_)[None]
        result, leaked = attend(q, k, v, causal), attend(q, k, v, np.tri(32, k=1, dtype=bool)[None])
        allowed = forward_budget(q, k, v, result, BFLOAT16_STORED, rescales=4)
        assert error_ratio(leaked.output, result.output, allowed.output).max() > 1


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_differences_of_the_loss_agree_with_right_gradients_only(name: str) -> None:
    rng = np.random.default_rng(8)
    drawn = rng.normal(size=(4, 1, 16, 8)).astype(np.float32).astype(np.float64)
    arrays: dict[str, Any] = dict(zip("qkv", drawn, strict=False))
    d_out = drawn[3]
    masks = [Mask(Causal(), 16, 16)]
    dense = masks[0].dense()[None]
    step = 2.0**-6 * np.sign(rng.normal(size=(1, 16, 8)))
    sides = [arrays | {name: arrays[name] + sign * step} for sign in (1, -1)]
    results = [attend(**side, mask=dense) for side in sides]
    budgets = [
        forward_budget(**side, result=result, profile=FLOAT32, rescales=4).output
        for side, result in zip(sides, results, strict=True)
    ]
    middle = attend(**arrays, mask=dense)
    made = gradients(**arrays, mask=dense, d_out=d_out, result=middle)
    own = gradient_budget(
        **arrays, d_out=d_out, result=middle, expected=made, profile=FLOAT32, rescales=4
    )
    gradient = getattr(made, f"d{name}")
    allowed = difference_budget(
        (results[0].output, results[1].output), (budgets[0], budgets[1]), d_out,
        gradient, getattr(own, f"d{name}"), 2 * step,
    )  # fmt: skip
    program = compile_program(masks, 1, 4, 4)
    found = [online_forward(program, **side, profile=FLOAT32).output * d_out for side in sides]
    forward = online_forward(program, **arrays, profile=FLOAT32)
    backward = compile_program(masks, 1, 4, 4, "dkv")
    ours = online_gradients(backward, None, **arrays, d_out=d_out, forward=forward, profile=FLOAT32)
    difference = float((found[0] - found[1]).sum())
    right = getattr(ours, f"d{name}")
    assert abs(difference - (right * 2 * step).sum()) < allowed
    for wrong in (-right, 2 * right, np.concatenate([right[:, :12], 0 * right[:, 12:]], axis=1)):
        assert abs(difference - (wrong * 2 * step).sum()) > allowed


def test_non_finite_patterns_are_compared_in_both_directions() -> None:
    expected = np.array([1.0, 1.0, -np.inf, -np.inf, np.inf, np.nan, np.nan])
    actual = np.array([np.nan, np.inf, 1.0, -np.inf, -np.inf, np.nan, 0.0])
    found = error_ratio(actual, expected, np.full(7, 1e30))
    assert found.tolist() == [np.inf, np.inf, np.inf, 0.0, np.inf, 0.0, np.inf]


def test_tiny_numbers_may_underflow() -> None:
    q, k, v = (np.full((1, 2, 2), 1e-30) for _ in range(3))
    v[:] = 1e-39
    mask = np.ones((1, 2, 2), dtype=np.bool_)
    result = attend(q, k, v, mask)
    allowed = forward_budget(q, k, v, result, FLOAT32)
    assert error_ratio(np.zeros((1, 2, 2)), result.output, allowed.output).max() < 1
    assert error_ratio(np.zeros((1, 2)), result.max_logits, allowed.max_logits).max() < 1
    made = gradients(q, k, v, mask, v, result=result)
    budget = gradient_budget(q, k, v, v, result, made, FLOAT32)
    assert error_ratio(np.zeros((1, 2, 2)), made.dv, budget.dv).max() < 1
    assert budget.dv.max() < 1e-36


def test_a_probability_that_is_flushed_takes_its_product_along() -> None:
    q, k = np.ones((1, 1, 1)), np.array([[[0.0], [-87.4], [0.0]]])
    v, d_out = np.array([[[0.0], [100.0], [0.0]]]), np.full((1, 1, 1), 100.0)
    mask = np.array([[[True, True, False]]])
    result = attend(q, k, v, mask)
    assert 0 < result.probabilities[0, 0, 1] < FLOAT32.smallest
    made = gradients(q, k, v, mask, d_out, result=result)
    budget = gradient_budget(q, k, v, d_out, result, made, FLOAT32)
    # A machine that flushes it has 0 here, for a product of 1e4 times the probability.
    assert made.dk[0, 1, 0] > 100 * FLOAT32.smallest
    assert error_ratio(np.zeros((1, 3, 1)), made.dk, budget.dk)[0, 1, 0] < 1
    assert budget.dk[0, 2, 0] == 0  # nobody sees this key: nothing but 0 is right


def test_a_zero_budget_asks_for_the_exact_value() -> None:
    assert error_ratio([0.0, 1e-30], np.zeros(2), np.zeros(2)).tolist() == [0.0, np.inf]


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="must have one shape"):
        error_ratio(np.zeros(2), np.zeros(3), np.zeros(3))


def test_growth_of_sums_is_linear_then_a_square_root() -> None:
    u = U_FLOAT32
    assert accumulated(10, u) / u == pytest.approx(10, rel=1e-5)
    assert accumulated(40_000, u) / accumulated(10_000, u) == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("passes", [1, 3, 6])
def test_pass_products_are_within_the_error_of_one_product(passes: int) -> None:
    rng = np.random.default_rng(passes)
    a, b = rng.normal(size=(2, 20_000, 1, 1)).astype(np.float32)
    exact = a.astype(np.float64) * b
    found = Arithmetic(MXU_PASSES[passes]).matmul(a, b)
    relative = np.abs(found - exact) / np.abs(exact)
    # Adding up the partial products rounds as well.
    allowed = mxu_multiply_u(passes) + accumulated(passes, U_FLOAT32)
    assert 0.1 * allowed < relative.max() < allowed


def test_only_1_3_and_6_passes_exist() -> None:
    with pytest.raises(ValueError, match="passes must be 1, 3 or 6, got 2"):
        mxu_multiply_u(2)


def test_bfloat16_rounds_to_nearest_even_and_keeps_special_values() -> None:
    below, tie, above = 1.0, 1.0 + 2.0**-8, 1.0 + 2.0**-7
    assert to_bfloat16([tie, np.nextafter(np.float32(tie), 2)]).tolist() == [below, above]
    assert to_bfloat16(1.0 + 3 * 2.0**-8) == 1.0 + 2.0**-6
    assert to_bfloat16([np.inf, -np.inf]).tolist() == [np.inf, -np.inf]
    assert np.isnan(to_bfloat16(np.nan))
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    error = np.abs(to_bfloat16(values) - values) / np.abs(values)
    assert 0.9 * U_BFLOAT16 < error.max() <= U_BFLOAT16


def test_numpy_functions_are_as_accurate_as_the_profile_says() -> None:
    x = np.linspace(-80, 80, 200_001, dtype=np.float32)
    ulp = 2 * U_FLOAT32
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(np.exp(x) - exact) / exact).max() <= FLOAT32.exp_ulps * ulp
    small = x[x != 0] / 20
    exact = np.tanh(small.astype(np.float64))
    assert (np.abs(np.tanh(small) - exact) / np.abs(exact)).max() <= FLOAT32.tanh_ulps * ulp


def test_accuracy_is_a_multiple_of_the_baseline() -> None:
    expected = np.zeros(4)
    assert accuracy_ratio([2.0, -2.0, 2.0, np.nan], [1.0, 1.0, 1.0, 1.0], expected) == 2.0
    assert accuracy_ratio(expected, expected, expected) == 1.0
    assert accuracy_ratio(expected + 1, expected, expected) == np.inf


def test_float64_budgets_are_far_below_float32_ones() -> None:
    case = random_case(np.random.default_rng(7), bfloat16=False)
    result, made = case.exact()
    arrays = (case.q, case.k, case.v)
    given: dict[str, Any] = {name: case.options.get(name) for name in ("soft_cap", "sinks")}
    fine, coarse = (
        gradient_budget(*arrays, case.d_out, result, made, p, **given).dk
        for p in (FLOAT64, FLOAT32)
    )
    used = coarse > 1e-30
    assert (fine[used] < 1e-8 * coarse[used]).all()
