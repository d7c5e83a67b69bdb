"""Builders of mutants of the Pallas kernels.

The other mutants are the reference with one wrong stage. These are `pallas_impl` with changed source text: mistakes
of kernel authors in index maps, scratch memory, branches and word formats, which the reference does not have.
"""

from __future__ import annotations

from typing import Any

from conformance.mutants.base import Mutant
from conformance.mutants.edited_kernels import SourceEdit

#: Every kernel mutant's name begins like this.
PREFIX = "kernel-"


def in_module(module: str, *replacements: tuple[str, str]) -> tuple[SourceEdit, ...]:
    """Edits of one module.

    Args:
      module: of `pallas_impl`.
      replacements: (text that occurs in it exactly once, its replacement), in order.
    """
    return tuple(SourceEdit(module, old, new) for old, new in replacements)


def kernel_mutant(
    name: str,
    clause: str,
    bug_class: str,
    vector: str,
    *edits: SourceEdit,
    seen_in: str = "",
    options: tuple[tuple[str, Any], ...] = (),
) -> Mutant:
    """A mutant of `pallas_impl`.

    Args:
      name: without `PREFIX`.
      clause, bug_class, seen_in: as in `Mutant`.
      vector: name of a fixed problem that shows the mistake.
      edits: of the sources.
      options: selects the problem that shows it, if the fixed problem is repeated for several options.
    """
    return Mutant(
        PREFIX + name,
        clause,
        bug_class,
        seen_in,
        edits=edits,
        vector=vector,
        options=options,
    )
