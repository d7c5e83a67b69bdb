"""Options that put a constant in place of the running maximum, and what is promised of them (UNDEF-10)."""

from __future__ import annotations

from conformance.checks.budgets import arithmetic_of
from conformance.contract.fence import Subject
from conformance.drawing.numeric_domain import EXTREME, MODERATE
from conformance.problems.problem import Problem


def may_be_far(subject: Subject, problem: Problem) -> bool:
    """Whether an option of a problem gives a maximum that its logits, or its sinks, may be far from.

    Nothing is promised of such a problem (UNDEF-10): exponentials overflow, or all of them vanish.

    Args:
      subject: the implementation, which says what an option does.
      problem: with regime and options.

    Raises:
      Crash: the implementation cannot say what its arithmetic is.
    """
    if not problem.options:
        return False
    far = any(abs(sink) > EXTREME for sink in problem.sinks or ())
    if not far and problem.regime in MODERATE:
        return False
    return arithmetic_of(subject, problem).forward.constant_maximum is not None
