"""Problems of which nothing is promised in the arithmetic that an implementation declares.

Options that put a constant in place of the running maximum (UNDEF-10), and numbers that are no float32 any more.
"""

from __future__ import annotations

from conformance.checks.budgets import arithmetic_of
from conformance.contract.fence import Subject
from conformance.drawing.numeric_domain import EXTREME, MODERATE
from conformance.problems.arrays import overflows, overflows_backward
from conformance.problems.problem import Problem
from conformance.problems.ranges import WIDEST


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


def beyond_float32(subject: Subject, problem: Problem, *, backward: bool) -> bool:
    """Whether a right implementation of the declared arithmetic may overflow, in some order of summation.

    Logits near the largest float32 times log2(e) are no float32 numbers, for instance.

    Args:
      subject: the implementation, which says what its arithmetic is.
      problem: with regime and options.
      backward: whether gradients are looked at.

    Raises:
      Crash: the implementation cannot say what its arithmetic is.
    """
    wide = overflows(problem, WIDEST), backward and overflows_backward(problem, WIDEST)
    if not any(wide):
        return False  # in no arithmetic: nobody need be asked
    declared = arithmetic_of(subject, problem)
    return overflows(problem, declared.forward) or (
        backward and overflows_backward(problem, declared.backward)
    )
