"""Shrinking a row of the grid keeps its schedule: the same blocks, each once, in the same order.

A row of any length is a function from columns to labels. Its non-empty columns are counted by ``rank``:
``rank(0) = 0``, ``rank(j + 1) = rank(j) + 1`` if column j is not empty, else ``rank(j)``. Shrinking puts
column j at place ``rank(j)``.
"""

from __future__ import annotations

import z3

from spec.proofs.prover import Lemma, proves

LABEL = z3.Function("label", z3.IntSort(), z3.IntSort())
RANK = z3.Function("rank", z3.IntSort(), z3.IntSort())


def counted(column: z3.ArithRef) -> z3.BoolRef:
    """The definition of rank at one column."""
    step = z3.If(LABEL(column) > 0, 1, 0)
    return RANK(column + 1) == RANK(column) + step


@proves("SHRINK-2", "SHRINK-3")
def kept_columns_keep_their_order() -> list[Lemma]:
    """Induction over columns: ranks grow from one non-empty column to the next, without a gap."""
    i, j, k, place = z3.Ints("i j k place")
    monotone_at = z3.ForAll(i, z3.Implies(z3.And(0 <= i, i < j, LABEL(i) > 0), RANK(i) < RANK(j)))
    monotone_after = z3.ForAll(
        i, z3.Implies(z3.And(0 <= i, i < j + 1, LABEL(i) > 0), RANK(i) < RANK(j + 1))
    )

    def filled(column: z3.ArithRef) -> z3.BoolRef:
        """Every place below the rank of a column holds a non-empty column before it."""
        held = z3.Exists(k, z3.And(0 <= k, k < column, LABEL(k) > 0, RANK(k) == place))
        return z3.ForAll(place, z3.Implies(z3.And(0 <= place, place < RANK(column)), held))

    start = (RANK(z3.IntVal(0)) == 0,)
    given = (j >= 0, counted(j), RANK(j) >= 0)
    return [
        Lemma("ranks grow: first column", z3.Implies(j == 0, monotone_at), start),
        Lemma("ranks grow: next column", monotone_after, (*given, monotone_at)),
        Lemma("ranks stay non-negative", RANK(j + 1) >= 0, given),
        Lemma("no gap: first column", z3.Implies(j == 0, filled(j)), start),
        Lemma("no gap: next column", filled(j + 1), (*given, filled(j))),
    ]


@proves("SHRINK-1")
def the_width_is_the_number_of_kept_columns() -> list[Lemma]:
    """The places used are exactly 0 to rank(n) - 1, so the longest row needs its count and no more."""
    j, n = z3.Ints("j n")
    grows = z3.ForAll(
        j, z3.Implies(z3.And(0 <= j, j < n, LABEL(j) > 0), z3.And(0 <= RANK(j), RANK(j) < RANK(n)))
    )
    used = z3.Implies(z3.And(0 <= j, j < n, LABEL(j) > 0), RANK(j) <= RANK(n) - 1)
    return [Lemma("every kept column has a place below the count", used, (grows,))]
