"""Machine-checked proofs of clauses, by z3: unbounded statements that no number of examples can show.

Each proof is a function that returns its lemmas; `spec.proofs.prover.check` proves them one by one. z3 is
needed only here: ``pip install z3-solver``.
"""
