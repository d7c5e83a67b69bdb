"""The checks of a class itself: the ordinary checks of masks, and a few that apply to user classes only.

The mask of an implementation is compared with the mask expression of the problem. A user's class has no expression:
it must give a mask in the first place, its mask function must agree with its entries, and only an oracle knows what
the mask should mean.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from conformance import checks
from conformance.checks.registry import CHECKS, expect, expect_array
from conformance.contract.fence import Crash, advising
from conformance.contract.forms import form_of
from conformance.findings.expectation import OfForm, Presence
from conformance.findings.place import Place
from conformance.findings.violation import Violation
from conformance.fuzz_mask.arguments.names import sizes_of_pair
from conformance.fuzz_mask.case import Case, Judge, NotAsked, Pair
from conformance.fuzz_mask.class_subject import ClassSubject

#: Parameters that always mean the length of an axis.
AXES = {"q_len": 0, "q_seq_len": 0, "kv_len": 1, "kv_seq_len": 1}


def check_shape(case: Case) -> None:
    """The shape is the pair that was asked for."""
    shape = case.shape
    for name, asked in case.arguments.values.items():
        found: Any = AXES.get(name)
        if found is not None:
            found = shape[found]
        elif sizes_of_pair(name) and isinstance(asked, tuple | list):
            found, asked = shape, tuple(asked)
        if found is not None:
            expect(f"shape {shape} of a mask that was made with {name}", asked, found)


def check_whole(case: Case) -> None:
    """The whole mask can be read, and has its shape."""
    _ = case.whole


def check_arrays_of_numpy(case: Case) -> None:
    """Slices are NumPy arrays, because compilers read them block by block."""
    found = case.read_all()
    if not isinstance(found, np.ndarray):
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        with advising():
            said = f"{kind}, which takes long to read block by block"
            raise Violation(
                "mask[0:{}, 0:{}]".format(*case.shape), OfForm(("a NumPy array",)), said
            )


def check_positions(case: Case) -> None:
    """A mask function comes with an int32 position for every row."""
    _ = case.function
    for name, length in zip(("q_sequence", "kv_sequence"), case.shape, strict=True):
        given = case.attribute(name)
        if given is None and name == "kv_sequence":
            continue
        if given is None:
            raise Violation(name, Presence(True), Presence(False))
        found = np.asarray(given)
        if found.shape != (length,) or found.dtype != np.int32:
            wanted = OfForm((f"int32 array of shape ({length},)",))
            raise Violation(name, wanted, form_of(found))


def check_function_agrees(case: Case) -> None:
    """The mask function at the positions of rows and columns gives the entries of the mask."""
    _ = case.function
    q, kv = case.positions
    found = case.subject.prepare(case.problem).mask_at(0, q[:, None], kv[None, :])
    place = Place("mask_function at the positions of the mask")
    expect_array(place, case.whole, np.broadcast_to(found, case.shape))


def check_rows_that_are_moved(case: Case) -> None:
    """After a change of ``q_sequence`` the mask has the rows of the new positions."""
    q, kv = case.positions
    for ids in (q[::-1], np.random.default_rng(len(q)).permutation(q)):
        moved = with_positions(case, ids)
        if moved is None:
            raise NotAsked
        where = "mask[0:{}, 0:{}] after q_sequence = {}".format(*case.shape, ids.tolist())
        found = case.subject.call(where, partial(case.read_all, moved))
        pairs = moved.q_sequence[:, None], kv[None, :]
        expected = case.subject.call(where, partial(moved.mask_function, *pairs))
        expected = np.broadcast_to(np.asarray(expected), case.shape)
        judge_moved(case, partial(expect_array, Place(where), expected, found))


def judge_moved(case: Case, judge: Callable[[], None]) -> None:
    """Judges a mask whose rows were moved by setting ``q_sequence``, as the libraries of jax and tokamax do.

    Other classes need not support this: what goes wrong there is advice.
    """
    classes = type(case.mask).__mro__
    if any(base.__module__.endswith("splash_attention_mask") for base in classes):
        judge()
    else:
        with advising():
            judge()


def with_positions(case: Case, positions: Any) -> Any:
    """A copy of a computable mask with other positions of its rows; None where they cannot be set.

    Raises:
      NotAsked: the class has no mask function.
    """
    _ = case.function
    try:
        moved = copy.copy(case.mask)
        moved.q_sequence = np.asarray(positions, dtype=np.int32)
    except Exception:
        return None
    if moved is case.mask or not np.array_equal(moved.q_sequence, positions):
        return None
    return moved


class _Other:
    """A mask of no library."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape


def check_masks_of_other_classes(case: Case) -> None:
    """Comparing with something else is False, not an error."""
    for other in (None, 0, _Other(case.shape)):
        what = f"mask == {'an object of another class' if isinstance(other, _Other) else other}"
        with advising():
            equal = case.subject.call(what, lambda other=other: bool(case.mask == other))  # type: ignore[misc]
        expect(what, False, equal)


def check_masks_with_moved_rows(case: Case) -> None:
    """A copy whose rows are moved is not equal to the mask, if its entries differ."""
    q, _ = case.positions
    moved = with_positions(case, q[::-1]) if len(q) > 1 else None
    if moved is None:
        raise NotAsked
    if np.array_equal(case.read_all(moved), case.whole):
        return
    where = "mask == the same mask after q_sequence = q_sequence[::-1], whose entries differ"
    equal = case.subject.call(where, lambda: bool(case.mask == moved))
    judge_moved(case, partial(expect, where, False, equal))


READABLE = ("check_shape", "check_whole")
PLAIN = (*READABLE, "check_values_are_booleans")
AGREES = (*PLAIN, "check_positions", "check_function_agrees")

#: Builds kernels.
IN_KERNEL = "check_mask_function_inside_a_kernel"

#: Checks of the class itself, in an order in which prerequisites come first: the checks that must pass before, the
#: clause, and the function; None stands for the ordinary check of that name.
OF_ONE_MASK: dict[str, tuple[tuple[str, ...], str, Callable[[Case], None] | None]] = {
    "check_shape": ((), "CONV-1", check_shape),
    "check_whole": (("check_shape",), "MASK-12", check_whole),
    "check_values_are_booleans": (READABLE, "MASK-16", None),
    "check_arrays_of_numpy": (PLAIN, "MASK-16", check_arrays_of_numpy),
    "check_reading_again": (READABLE, "MASK-17", None),
    "check_slices": ((*PLAIN, "check_reading_again"), "MASK-12", None),
    "check_empty_and_single_slices": ((*PLAIN, "check_slices"), "MASK-13", None),
    "check_positions": (("check_shape",), "COMPUTE-3", check_positions),
    "check_function_agrees": ((*PLAIN, "check_positions"), "COMPUTE-2", check_function_agrees),
    "check_mask_function_is_asked_pair_by_pair": (AGREES, "MASK-18", None),
    IN_KERNEL: ((*AGREES, "check_mask_function_is_asked_pair_by_pair"), "MASK-19", None),
    "check_rows_that_are_moved": (AGREES, "COMPUTE-3", check_rows_that_are_moved),
    "check_rectangles": (AGREES, "MASK-20", None),
    "check_intervals": (AGREES, "MASK-21", None),
    "check_equal_masks": (READABLE, "MASK-14", None),
    "check_masks_of_other_classes": (
        (*READABLE, "check_equal_masks"), "MASK-15", check_masks_of_other_classes,
    ),
    "check_masks_with_moved_rows": (
        (*AGREES, "check_equal_masks"), "MASK-15", check_masks_with_moved_rows,
    ),
}  # fmt: skip

DECLARED_MEANING = "check_declared_meaning"


def judges_of_class(subject: ClassSubject) -> dict[str, Judge]:
    """The judges of one mask."""
    checks.load_all()
    made = {}
    for name, (after, clause, function) in OF_ONE_MASK.items():
        if function is None:
            check = CHECKS[name]
            if check.missing(subject):
                continue

            def function(case: Case, name: str = name) -> None:
                if name == "check_equal_masks" and case.arguments.ready is not None:
                    raise NotAsked  # there is only one object
                CHECKS[name].function(subject, case.problem)

        made[name] = Judge(clause, function, after, name)
    return made


def judges_of_pairs(subject: ClassSubject) -> dict[str, Judge]:
    """The judge of two masks."""
    checks.load_all()
    check = CHECKS["check_different_masks"]
    equal = judges_of_class(subject)["check_equal_masks"]

    def check_different_masks(pair: Pair) -> None:
        if pair.first.expr == pair.second.expr:
            raise NotAsked
        for case in (pair.first, pair.second):
            try:
                _ = case.whole
                equal.function(case)
            except NotAsked:
                continue
            except (Violation, Crash) as wrong:
                if not wrong.advice:
                    raise NotAsked from None  # one mask is wrong already
        check.function(subject, pair.problem)

    return {check.name: Judge(check.clause_id, check_different_masks, (), check.name)}


def judge_of_oracle(oracle: Any, name: str) -> Judge:
    """The judge that compares a mask with a predicate of its author.

    Args:
      oracle: ``(q_ids, kv_ids, **parameters) -> bool``; it is given the parameters that it names.
      name: its name in the report.
    """

    def check_declared_meaning(case: Case) -> None:
        parameters = case.source.complete(case.arguments)
        wanted = _accepted(oracle, parameters)
        q_ids, kv_ids = (np.arange(length, dtype=np.int32) for length in case.shape)
        # The predicate is asked about positions that the caller chose, unless it takes them as a parameter.
        if parameters.get("q_sequence") is not None and "q_sequence" not in wanted:
            q_ids = case.positions[0]
        if parameters.get("kv_sequence") is not None and "kv_sequence" not in wanted:
            kv_ids = case.positions[1]
        try:
            found = np.asarray(oracle(q_ids[:, None], kv_ids[None, :], **wanted))
            declared = np.broadcast_to(found, case.shape)
        except (KeyboardInterrupt, MemoryError):
            raise
        except Exception as error:
            raise OracleError(error, case.expr.text) from error
        if declared.dtype != np.bool_:
            raise OracleError(TypeError(f"it returned {declared.dtype}, not bool"), case.expr.text)
        expect_array(Place(f"mask against {name}"), np.array(declared), case.whole)

    return Judge("", check_declared_meaning, PLAIN, DECLARED_MEANING)


class OracleError(Exception):
    """The predicate of the author fails.

    Attributes:
      error: what it raised.
      call: the mask that it was asked about.
    """

    def __init__(self, error: Exception, call: str) -> None:
        self.error = error
        self.call = call
        super().__init__(f"{type(error).__name__}: {error}")


def _accepted(oracle: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a predicate names, all of them if it has ``**``."""
    own = inspect.signature(oracle).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in own):
        return parameters
    names = {p.name for p in own}
    return {name: value for name, value in parameters.items() if name in names}
