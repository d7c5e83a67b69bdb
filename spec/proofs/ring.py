"""Combining partial results of attention: any order, any grouping, empty shards, the joint softmax.

A partial result over some keys is ``(seen, m, l, o)``: whether any key was visible, the largest logit,
``l = sum exp(s - m)`` and ``o = sum exp(s - m) v`` for one component of v. The exponential is any function
E with ``E(0) = 1``, ``E(x + y) = E(x) E(y)`` and ``E(x) > 0``: nothing else about it is used, so the proofs
hold for every base. The functional equation is given as the instances that a proof needs.

A result *means* the pair ``(E(m) l, E(m) o)``, the sums of ``exp(s)`` and ``exp(s) v`` without any shift.
Combination adds meanings and takes the larger maximum; order and grouping follow from that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3

from spec.proofs.prover import Lemma, proves

E = z3.Function("E", z3.RealSort(), z3.RealSort())


@dataclass(frozen=True)
class Partial:
    """A partial result in symbols."""

    seen: Any
    m: Any
    l: Any  # noqa: E741  (the name of the field in every paper)
    o: Any


def partial(name: str) -> Partial:
    """An arbitrary partial result."""
    return Partial(z3.Bool(f"seen_{name}"), *z3.Reals(f"m_{name} l_{name} o_{name}"))


def well_formed(p: Partial) -> Any:
    """An empty result has the sums 0; what its maximum holds does not matter."""
    return z3.Implies(z3.Not(p.seen), z3.And(p.l == 0, p.o == 0))


EMPTY = Partial(z3.BoolVal(False), z3.Real("m_of_nothing"), z3.RealVal(0), z3.RealVal(0))


def combine(a: Partial, b: Partial) -> Partial:
    """Both results rescaled to the larger maximum and added; an empty one is left out."""
    larger = z3.If(a.m >= b.m, a.m, b.m)
    m = z3.If(z3.And(a.seen, b.seen), larger, z3.If(a.seen, a.m, b.m))

    def scaled(part: Partial, value: Any) -> Any:
        return z3.If(part.seen, E(part.m - m) * value, z3.RealVal(0))

    return Partial(
        z3.Or(a.seen, b.seen), m, scaled(a, a.l) + scaled(b, b.l), scaled(a, a.o) + scaled(b, b.o)
    )


def functional_equation(*pairs: tuple[Any, Any]) -> list[Any]:
    """Instances of E(x) E(y) = E(x + y) and of E > 0."""
    facts = [E(z3.RealVal(0)) == 1]
    for x, y in pairs:
        facts += [E(x) * E(y) == E(x + y), E(x) > 0, E(y) > 0]
    return facts


def meaning(p: Partial, value: Any) -> Any:
    """E(m) times a sum, 0 for an empty result."""
    return z3.If(p.seen, E(p.m) * value, z3.RealVal(0))


@proves("RING-4")
def combination_adds_meanings() -> list[Lemma]:
    """The meaning of a combination is the sum of meanings, its maximum the larger one."""
    a, b = partial("a"), partial("b")
    both = combine(a, b)
    facts = functional_equation((both.m, a.m - both.m), (both.m, b.m - both.m))
    given = (well_formed(a), well_formed(b), *facts)
    return [
        Lemma("weights add", meaning(both, both.l) == meaning(a, a.l) + meaning(b, b.l), given),
        Lemma(
            "weighted values add", meaning(both, both.o) == meaning(a, a.o) + meaning(b, b.o), given
        ),
        Lemma(
            "the maximum is the larger of those seen",
            z3.And(
                z3.Implies(a.seen, both.m >= a.m),
                z3.Implies(b.seen, both.m >= b.m),
                z3.Implies(
                    both.seen, z3.Or(z3.And(a.seen, both.m == a.m), z3.And(b.seen, both.m == b.m))
                ),
            ),
        ),
        Lemma("a combination is well formed", well_formed(both), given),
    ]


def same(p: Partial, q: Partial) -> Any:
    """Equal as results: both empty, or equal in every part."""
    parts = z3.And(p.m == q.m, p.l == q.l, p.o == q.o)
    return z3.And(p.seen == q.seen, z3.Implies(p.seen, parts))


@proves("RING-5")
def order_and_grouping_do_not_matter() -> list[Lemma]:
    """Commutative directly; associative because meaning and maximum determine a result."""
    a, b, c = partial("a"), partial("b"), partial("c")
    p, q = partial("p"), partial("q")
    left, right = combine(combine(a, b), c), combine(a, combine(b, c))
    determined = z3.Implies(
        z3.And(
            p.seen,
            q.seen,
            p.m == q.m,
            meaning(p, p.l) == meaning(q, q.l),
            meaning(p, p.o) == meaning(q, q.o),
        ),
        z3.And(p.l == q.l, p.o == q.o),
    )
    return [
        Lemma("commutative", same(combine(a, b), combine(b, a)), (well_formed(a), well_formed(b))),
        Lemma(
            "grouping leaves the maximum",
            z3.And(left.seen == right.seen, z3.Implies(left.seen, left.m == right.m)),
        ),
        Lemma("meaning and maximum determine a result", determined, (E(p.m) > 0,)),
    ]


@proves("RING-6", "RING-8")
def nothing_is_the_identity() -> list[Lemma]:
    """An empty shard on either side changes nothing, whatever its maximum holds."""
    a = partial("a")
    given = (well_formed(a), E(z3.RealVal(0)) == 1)
    return [
        Lemma("right identity", same(combine(a, EMPTY), a), given),
        Lemma("left identity", same(combine(EMPTY, a), a), given),
        Lemma("nothing and nothing", z3.Not(combine(EMPTY, EMPTY).seen)),
    ]


@proves("RING-1", "RING-7")
def the_ring_computes_the_joint_softmax() -> list[Lemma]:
    """By induction over the keys: one key means its own weight, combination adds weights.

    With ``W = sum exp(s)`` and ``V = sum exp(s) v`` over all visible keys the final division gives
    ``o / l = V / W``, which is attention over all of them.
    """
    s, v, weights, values = z3.Reals("s v W V")
    one = Partial(z3.BoolVal(True), s, z3.RealVal(1), v)
    p = partial("p")
    means = z3.And(p.seen, E(p.m) * p.l == weights, E(p.m) * p.o == values, E(p.m) > 0, p.l > 0)
    return [
        Lemma("one key means its weight", meaning(one, one.l) == E(s)),
        Lemma("one key means its weighted value", meaning(one, one.o) == E(s) * v),
        Lemma("one division gives the mean", p.o * weights == values * p.l, (means,)),
    ]
