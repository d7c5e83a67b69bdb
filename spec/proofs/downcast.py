"""Storing index arrays in a smaller type changes no value."""

from __future__ import annotations

import z3

from spec.proofs.prover import Lemma, proves


@proves("DOWNCAST-2", "DOWNCAST-3")
def small_types_hold_small_values() -> list[Lemma]:
    """For every 32-bit value of an array whose largest value fits the type: cut and widened again
    it is the same; one above the limit it is not."""
    value, largest = z3.BitVecs("value largest", 32)
    lemmas = []
    for bits in (8, 16):
        limit = z3.BitVecVal(2 ** (bits - 1) - 1, 32)
        restored = z3.SignExt(32 - bits, z3.Extract(bits - 1, 0, value))
        given = (value >= 0, value <= largest, largest <= limit)
        lemmas.append(Lemma(f"int{bits} holds every value up to {limit}", restored == value, given))
        over = (value == limit + 1,)
        lemmas.append(Lemma(f"int{bits} does not hold {limit} + 1", restored != value, over))
    return lemmas
