"""The rule of ``data_next`` fetches each needed block exactly at its first use, and nothing else.

Positions in grid order are integers; ``own`` is the block of a position, ``next`` the first non-empty
position at or after one. Between two consecutive non-empty positions the named block changes at most
once, and exactly if the two need different blocks.
"""

from __future__ import annotations

import z3

from spec.proofs.prover import Lemma, proves

ACTIVE = z3.Function("active", z3.IntSort(), z3.BoolSort())
OWN = z3.Function("own", z3.IntSort(), z3.IntSort())
NEXT = z3.Function("next", z3.IntSort(), z3.IntSort())


def is_next(position: z3.ArithRef, bound: z3.ArithRef) -> z3.BoolRef:
    """The definition of ``next`` at one position; ``bound`` is the variable that it quantifies."""
    before = z3.And(position <= bound, bound < NEXT(position))
    return z3.And(
        NEXT(position) >= position,
        ACTIVE(NEXT(position)),
        z3.ForAll(bound, z3.Implies(before, z3.Not(ACTIVE(bound)))),
    )


def named(position: z3.ArithRef) -> z3.ArithRef:
    """``data_next`` at a position."""
    return OWN(NEXT(position))


@proves("DATA-1", "DATA-2", "FETCH-1", "FETCH-2")
def one_fetch_between_two_uses() -> list[Lemma]:
    """From a non-empty position p to the next non-empty one r, with nothing between them."""
    p, q, r, t, b = z3.Ints("p q r t b")
    between = z3.ForAll(t, z3.Implies(z3.And(p < t, t < r), z3.Not(ACTIVE(t))))
    consecutive = (p < r, ACTIVE(p), ACTIVE(r), between)
    inside = z3.And(p < q, q <= r)
    changes_at_q = named(q) != named(q - 1)
    return [
        Lemma("a running position names itself", named(p) == OWN(p), (ACTIVE(p), is_next(p, b))),
        Lemma(
            "everything after p names the block of r",
            named(q) == OWN(r),
            (*consecutive, inside, is_next(q, b), is_next(r, b)),
        ),
        Lemma(
            "the block changes right after p or not at all before r",
            z3.Implies(changes_at_q, q == p + 1),
            (*consecutive, inside, is_next(q, b), is_next(q - 1, b), is_next(r, b)),
        ),
        Lemma(
            "it changes exactly if p and r need different blocks",
            z3.Implies(q == p + 1, changes_at_q == (OWN(p) != OWN(r))),
            (*consecutive, inside, is_next(q, b), is_next(q - 1, b), is_next(p, b), is_next(r, b)),
        ),
    ]
