"""Mutants: implementations with one known mistake each, which show that every check can fail.

A mutant is the reference with a small patch, or `pallas_impl` with a changed line. It names the clause that it
violates, the class of the bug, and where such a bug has been seen in a release. A clause without a mutant that its
check kills fails the tests.
"""

from __future__ import annotations

from conformance.mutants.base import MUTANTS, Mutant, MutantAdapter, load_all

__all__ = ["MUTANTS", "Mutant", "MutantAdapter", "load_all"]
