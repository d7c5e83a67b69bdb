"""Mutants: implementations with one known mistake each, which show that every check can fail.

A mutant is the reference with a small patch, or `pallas_impl` with a changed line. It names the clause that it
violates, the class of the bug, and the release in which such a bug was seen. If no mutant of a clause is killed by
its check, the tests fail. There is one module per chapter of the specification; those called ``kernels_*`` edit the
source of `pallas_impl`.
"""

from __future__ import annotations

from conformance.mutants.base import MUTANTS, Mutant, MutantAdapter, load_all

__all__ = ["MUTANTS", "Mutant", "MutantAdapter", "load_all"]
