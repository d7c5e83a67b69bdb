"""The proofs hold, prove from assumptions that can hold, and a broken lemma is refuted."""

from __future__ import annotations

import pytest

z3 = pytest.importorskip("z3", reason="z3-solver is not installed; it is needed for proofs only")

from spec.proofs import downcast, prefetch, ring, shrink  # noqa: E402
from spec.proofs.prover import PROOFS, Lemma, Refuted, check, consistent  # noqa: E402

ALL = sorted({proof for proofs in PROOFS.values() for proof in proofs}, key=lambda p: p.__name__)
LEMMAS = [lemma for proof in ALL for lemma in proof()]


@pytest.mark.parametrize("lemma", LEMMAS, ids=lambda lemma: lemma.name)
def test_lemma_is_proved(lemma: Lemma) -> None:
    assert consistent(lemma)
    check(lemma)


def test_every_promised_statement_has_a_proof() -> None:
    for clause_id in ("RING-4", "RING-5", "RING-6", "DOWNCAST-2", "SHRINK-2", "DATA-2"):
        assert PROOFS[clause_id], clause_id


def refuted(lemma: Lemma) -> str:
    with pytest.raises(Refuted, match="counterexample") as error:
        check(lemma)
    return str(error.value)


def test_combination_without_rescaling_is_refuted() -> None:
    a, b = ring.partial("a"), ring.partial("b")
    both = ring.combine(a, b)
    wrong = ring.Partial(both.seen, both.m, a.l + b.l, a.o + b.o)
    adds = ring.meaning(wrong, wrong.l) == ring.meaning(a, a.l) + ring.meaning(b, b.l)
    facts = ring.functional_equation((both.m, a.m - both.m), (both.m, b.m - both.m))
    given = (a.seen, b.seen, ring.well_formed(a), ring.well_formed(b), *facts)
    refuted(Lemma("weights add without rescaling", adds, given))


def test_an_empty_shard_that_keeps_a_sum_is_not_the_identity() -> None:
    a = ring.partial("a")
    stale = ring.Partial(z3.BoolVal(True), z3.Real("m_e"), z3.Real("l_e"), z3.Real("o_e"))
    given = (a.seen, z3.Real("l_e") == 1, ring.E(z3.RealVal(0)) == 1)
    refuted(Lemma("identity", ring.same(ring.combine(a, stale), a), given))


def test_a_limit_one_too_high_is_refuted() -> None:
    lemma = downcast.small_types_hold_small_values()[0]
    value, largest = z3.BitVecs("value largest", 32)
    wrong = Lemma("int8 holds 128", lemma.goal, (value >= 0, value <= largest, largest <= 128))
    assert "value = 128" in refuted(wrong)


def test_ranks_that_count_empty_columns_leave_gaps() -> None:
    j, place, k = z3.Ints("j place k")
    every = shrink.RANK(j + 1) == shrink.RANK(j) + 1
    held = z3.Exists(k, z3.And(0 <= k, k <= j, shrink.LABEL(k) > 0, shrink.RANK(k) == place))
    filled = z3.Implies(z3.And(0 <= place, place < shrink.RANK(j + 1)), held)
    given = (j == 0, shrink.RANK(j) == 0, every, shrink.LABEL(j) == 0)
    refuted(Lemma("no gap", filled, given))


def test_naming_the_block_before_is_refuted() -> None:
    p, b = z3.Ints("p b")
    late = prefetch.OWN(prefetch.NEXT(p - 1)) == prefetch.OWN(p)
    given = (prefetch.ACTIVE(p), prefetch.ACTIVE(p - 1), prefetch.is_next(p, b))
    refuted(Lemma("one position late", late, (*given, prefetch.NEXT(p - 1) == p - 1)))
