"""The specification: normative chapters (Markdown) and the code that reads their clauses."""

from spec.clauses import Clause, all_clauses, clause, defines

__all__ = ["Clause", "all_clauses", "clause", "defines"]
