"""Orders of summation: each does what it says, and the arithmetic adds up in the order it is told."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference.arithmetic import Arithmetic
from reference.error_budget import FLOAT32, MXU_PASSES, U_FLOAT32, accumulated
from reference.gradients import row_dots, sink_gradient, sum_over_group
from reference.summation import (
    BACKWARDS,
    BLAS,
    FORWARDS,
    FUSED,
    MIXED,
    ONCE,
    PAIRWISE,
    SUMMATIONS,
    Real,
    Summation,
    add_rounding_once,
    blocked,
    summation_in_force,
    summation_order,
)

EVERY = (BLAS, *SUMMATIONS)
#: The smallest number beside which 1 is lost.
LARGE = 2.0**24


def order_id(order: Summation) -> str:
    return order.name


#: What is left of LARGE and seven times 1, less LARGE.
LEFT = [
    (FORWARDS, 0),
    (BACKWARDS, 8),  # LARGE + 7 is a tie
    (PAIRWISE, 6),  # LARGE + (1 + 1) + (2 + 2)
    (blocked(4), 4),
    (blocked(8), 0),
    (FUSED, 0),
    (ONCE, 8),
]


@pytest.mark.parametrize(("order", "left"), LEFT)
def test_orders_are_told_apart_by_what_they_lose(order: Summation, left: int) -> None:
    terms = np.array([[LARGE] + [1.0] * 7], dtype=np.float32)
    assert order.sum(terms, 1).tolist() == [LARGE + left]
    assert order.matmul(terms, np.ones((8, 3), dtype=np.float32)).tolist() == [[LARGE + left] * 3]


@pytest.mark.parametrize("shape", [(40, 1), (40, 2), (40, 7, 1), (128, 16, 33), (300, 64, 64)])
@pytest.mark.parametrize("step", [1, -1])
def test_forwards_and_backwards_add_one_term_after_another(
    shape: tuple[int, ...], step: int
) -> None:
    terms: Real = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    for turned in (terms, np.asfortranarray(terms)):
        for order, first in ((FORWARDS, step), (BACKWARDS, -step)):
            total = np.zeros(shape[1:], dtype=np.float32)
            for term in terms[::first]:
                total = total + term
            assert (order.sum(turned[::step], 0) == total).all()


def test_columns_of_a_mixed_product_have_different_orders() -> None:
    terms = np.array([[LARGE] + [1.0] * 7], dtype=np.float32)
    found = MIXED.matmul(terms, np.ones((8, 4), dtype=np.float32))
    assert found.tolist() == [[LARGE, LARGE, LARGE + 6, LARGE + 6]]


def test_fused_products_are_not_rounded() -> None:
    e = 2.0**-12
    a = np.array([[1, 1 + e]], dtype=np.float32)
    b = np.array([[-1 - 2 * e], [1 + e]], dtype=np.float32)
    for order, expected in ((FORWARDS, 0.0), (FUSED, e**2), (ONCE, e**2)):
        assert order.matmul(a, b).item() == expected


def rounded_once(value: Fraction) -> float:
    """The nearest float32, ties to even, by search among neighbours."""
    guess = np.float32(float(value))
    near = [
        guess,
        np.nextafter(guess, np.float32(np.inf)),
        np.nextafter(guess, -np.float32(np.inf)),
    ]
    even = [int(np.array(x).view(np.uint32)) & 1 for x in near]
    return float(
        min(zip(near, even, strict=True), key=lambda x: (abs(Fraction(float(x[0])) - value), x[1]))[
            0
        ]
    )


def test_a_fused_step_rounds_once_where_float64_would_round_twice() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=3000).astype(np.float32) for _ in range(3))
    # Ties of float32 that only a product far below decides, which float64 rounds away.
    a[:1000] = b[:1000] = 2.0**-30
    c[:1000] = 1.0
    a[:500] *= -1
    products = a.astype(np.float64) * b
    products[:1000] += np.where(np.arange(1000) % 2, 1, 3) * 2.0**-24
    expected = [
        rounded_once(Fraction(float(p)) + Fraction(float(t)))
        for p, t in zip(products, c, strict=True)
    ]
    assert add_rounding_once(products, c).tolist() == expected
    twice = (products + c).astype(np.float32)
    assert (twice != np.array(expected, dtype=np.float32)).sum() >= 400


def test_a_fused_step_keeps_infinities_nan_and_denormals() -> None:
    big, tiny = float(np.finfo(np.float32).max), 2.0**-149
    products = np.array([np.inf, -np.inf, np.nan, np.inf, big * 2, tiny, 0.0])
    totals = np.array([1, 1, 1, -np.inf, 0, tiny, -0.0], dtype=np.float32)
    found = add_rounding_once(products, totals)
    expected = np.array([np.inf, -np.inf, np.nan, np.nan, np.inf, 2 * tiny, 0.0])
    np.testing.assert_array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize("order", EVERY, ids=order_id)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_order_is_within_the_error_of_a_sum(order: Summation, dtype: type) -> None:
    rng = np.random.default_rng(1)
    u = U_FLOAT32 if dtype is np.float32 else 2.0**-53
    for m, k, n in ((3, 1, 2), (4, 7, 1), (1, 128, 1), (5, 130, 6)):
        a: Real = rng.normal(size=(2, m, k)).astype(dtype)
        b: Real = rng.normal(size=(2, k, n)).astype(dtype)
        exact = np.einsum("bmk,bkn->bmn", *(x.astype(np.longdouble) for x in (a, b)))
        size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        found = order.matmul(a, b)
        assert found.dtype == dtype
        assert (np.abs(found - exact) <= (accumulated(k, u) + u) * size).all()
        total = order.sum(a, 1)
        assert total.dtype == dtype
        assert total.shape == (2, k)
        allowed = accumulated(m, u) * np.abs(a).astype(np.float64).sum(axis=1)
        assert (np.abs(total - a.astype(np.longdouble).sum(axis=1)) <= allowed).all()
    assert not order.matmul(np.zeros((2, 0), dtype), np.zeros((0, 3), dtype)).any()


@pytest.mark.parametrize("order", EVERY, ids=order_id)
def test_poison_shows_in_every_order(order: Summation) -> None:
    a, b = np.zeros((2, 9), dtype=np.float32), np.ones((9, 2), dtype=np.float32)
    b[7, 1] = np.nan
    found = order.matmul(a, b)
    assert np.isnan(found).tolist() == [[False, True]] * 2


def test_the_order_in_force_is_taken_when_the_arithmetic_is_made() -> None:
    assert Arithmetic().summation is summation_in_force() is BLAS
    with summation_order(PAIRWISE):
        kept = Arithmetic(FLOAT32)
        with summation_order(FUSED):
            assert Arithmetic(FLOAT32).summation is FUSED
            assert Arithmetic(FLOAT32, ONCE).summation is ONCE
        assert summation_in_force() is PAIRWISE
    assert kept.summation is PAIRWISE
    assert summation_in_force() is BLAS
    with pytest.raises(KeyError), summation_order(ONCE):
        raise KeyError
    assert summation_in_force() is BLAS


def recorded(calls: list[str]) -> Summation:
    def fold(terms: Real) -> Real:
        calls.append("fold")
        return np.asarray(np.add.accumulate(terms, axis=0)[-1])

    return Summation("recorded", fold)


def test_every_product_and_sum_goes_through_the_order() -> None:
    calls: list[str] = []
    order, ones = recorded(calls), np.ones((2, 4, 4), dtype=np.float32)
    for profile, products in ((FLOAT32, 1), *((MXU_PASSES[n], n) for n in (1, 3, 6))):
        calls.clear()
        assert (Arithmetic(profile, order).matmul(ones, ones) == 4).all()
        assert len(calls) == products
    calls.clear()
    Arithmetic(FLOAT32, order).sum(ones, 1)
    sum_over_group(ones, 1, order)
    row_dots(ones, ones, None, order)
    sink_gradient(ones[0], ones[0], order)
    assert len(calls) == 4
