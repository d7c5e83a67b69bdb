"""Checks of the BWD clauses: gradients.

Wherever an implementation leaves rows that see nothing undefined, the loss is on the other rows only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from conformance.checks.budgets import arithmetic_of, budget_of_forward, exact_backward, rescales
from conformance.checks.check_forward_invariance import (
    batch_of,
    hidden_keys_changed,
    is_stored,
    skip_variants,
)
from conformance.checks.comparison import compare, gradients_match, same_bits
from conformance.checks.registry import Violation, expect, judges
from conformance.contract.fence import Crash, Subject
from conformance.contract.protocol import Forward, Gradients
from conformance.contract.remote.errors import Refused
from conformance.drawing.numeric_domain import NumericDomain
from conformance.drawing.signatures import MANY
from conformance.findings.expectation import Within
from conformance.findings.place import Place
from conformance.findings.values import number
from conformance.problems.arrays import Cotangent, d_out, inputs, rounded, seeing_rows, visible
from conformance.problems.problem import BlockSizes, Problem
from conformance.problems.regimes import bell
from reference.attention import attend
from reference.error_budget_backward import difference_budget
from reference.masks import Bool

GROUP = "numerics-backward"
ALONE = ("plain", "oblong", "long")
PLAIN = NumericDomain(signatures=ALONE, group=GROUP)
PLAIN_OR_MANY = NumericDomain(signatures=(*ALONE, *MANY), group=GROUP)


def with_trait(*traits: str, **more: Any) -> NumericDomain:
    """Problems with exactly these traits."""
    return NumericDomain(needs=frozenset(traits), group=GROUP, **more)


@judges("BWD-1", PLAIN_OR_MANY)
def check_dv(subject: Subject, problem: Problem) -> None:
    """dv of plain attention."""
    gradients_match(subject, problem, ("dv",))


def has_row_with_one_key(problem: Problem) -> bool:
    """Whether some row sees a single key."""
    return bool((visible(problem).sum(axis=2) == 1).any())


@judges("BWD-2", NumericDomain(signatures=ALONE, where=has_row_with_one_key, group=GROUP))
def check_logit_gradients(subject: Subject, problem: Problem) -> None:
    """dq where a row sees one key: 0, since ``dp`` and ``di`` are equal; and what it adds to dk."""
    single = visible(problem).sum(axis=2) == 1
    gradients_match(subject, problem, ("dq",), rows=single, given={"rows": "with one visible key"})
    gradients_match(subject, problem, ("dk",))


@judges("BWD-3", PLAIN_OR_MANY)
def check_dq(subject: Subject, problem: Problem) -> None:
    """dq of plain attention."""
    gradients_match(subject, problem, ("dq",))


@judges("BWD-4", PLAIN_OR_MANY)
def check_dk(subject: Subject, problem: Problem) -> None:
    """dk of plain attention."""
    gradients_match(subject, problem, ("dk",))


@judges("BWD-5", with_trait("sinks"))
def check_dsinks(subject: Subject, problem: Problem) -> None:
    """Gradients of the sinks."""
    gradients_match(subject, problem, ("dsinks",))


@judges("BWD-6", with_trait("soft_cap"))
def check_soft_cap_gradients(subject: Subject, problem: Problem) -> None:
    """dq and dk through the cap, dv beside it."""
    gradients_match(subject, problem)


@judges("BWD-7", with_trait("gqa"))
def check_grouped_gradients(subject: Subject, problem: Problem) -> None:
    """dk and dv are summed over the heads of a group."""
    gradients_match(subject, problem)


@judges("BWD-8", with_trait("mqa", allows={"options"}))
def check_gradients_of_one_kv_head(subject: Subject, problem: Problem) -> None:
    """dk and dv are summed over all heads."""
    gradients_match(subject, problem)


@judges("BWD-9", with_trait("segment_ids", signatures=("segments",)))
def check_segment_gradients(subject: Subject, problem: Problem) -> None:
    """All gradients with segment ids."""
    gradients_match(subject, problem)


def unseen_keys(problem: Problem) -> Bool:
    """Keys that no query sees, bool ``[kv_heads, kv_len]``."""
    group = problem.heads // problem.kv_heads
    seen = visible(problem).reshape(problem.kv_heads, group, problem.q_len, problem.kv_len)
    return ~np.asarray(seen.any(axis=(1, 2)))


def has_unseen_key(problem: Problem) -> bool:
    """Whether no query sees some key."""
    return bool(unseen_keys(problem).any())


@judges(
    "BWD-10",
    NumericDomain(
        allows={"empty_rows", "segment_ids", "options"}, signatures=(*ALONE, "segments"),
        where=has_unseen_key, group=GROUP,
    )
)  # fmt: skip
def check_unseen_keys_have_no_gradient(subject: Subject, problem: Problem) -> None:
    """dk and dv are exactly 0 where nobody looks."""
    found, rows = subject.backward(problem), unseen_keys(problem)
    for name in ("dk", "dv"):
        array = np.asarray(getattr(found, name))
        given = {"keys": "that no query sees"}
        same_bits(name, array, np.zeros_like(array), problem, rows=rows, given=given)


@judges(
    "BWD-11",
    NumericDomain(
        allows={"options"}, signatures=ALONE, regimes=("signed", "flat", "cancelling"),
        group=GROUP,
    )
)  # fmt: skip
def check_fused_and_split(subject: Subject, problem: Problem) -> None:
    """dq, dk and dv with every value of every option, the choice of kernel among them."""
    gradients_match(subject, problem)


def other_blocks(problem: Problem) -> list[BlockSizes]:
    """Block sizes that differ between directions, as far as they divide the lengths; keys in parts in one of them."""
    q, kv = problem.blocks.q, problem.blocks.kv
    wide_q = 2 * q if problem.q_len % (2 * q) == 0 else q
    wide_kv = 2 * kv if problem.kv_len % (2 * kv) == 0 else kv
    parted = 3 * kv if problem.kv_len % (3 * kv) == 0 else wide_kv
    return [
        BlockSizes(q, kv, q_dkv=wide_q, kv_dkv=kv, q_dq=q, kv_dq=wide_kv),
        BlockSizes(wide_q, parted, q_dkv=q, kv_dkv=parted, q_dq=wide_q, kv_dq=kv,
                   kv_compute=kv, kv_dkv_compute=kv),
        BlockSizes(q, kv, q_dkv=wide_q, kv_dkv=wide_kv, q_dq=wide_q, kv_dq=wide_kv),
    ]  # fmt: skip


@judges("BWD-12", NumericDomain(signatures=("long",), regimes=("rising",), group=GROUP))
def check_block_sizes_of_directions(subject: Subject, problem: Problem) -> None:
    """Different block sizes forward, in dkv and in dq."""
    for sizes in other_blocks(problem):
        given = {f"block_{name}": size for name, size in vars(sizes).items() if size}
        gradients_match(subject, problem.but(blocks=sizes), given=given)


@judges(
    "BWD-13",
    NumericDomain(
        {"empty_rows"}, {"sinks", "segment_ids", "blocks"}, group=GROUP,
    )
)  # fmt: skip
def check_empty_rows_contribute_nothing(subject: Subject, problem: Problem) -> None:
    """A loud loss on rows that see nothing."""
    gradients_match(subject, problem, kind="loud")


@judges("BWD-14", NumericDomain({"empty_rows"}, {"segment_ids", "blocks", "options"}, group=GROUP))
def check_loss_on_other_rows(subject: Subject, problem: Problem) -> None:
    """A loss on the rows that see something; dq of the other rows is not looked at."""
    gradients_match(subject, problem, kind="quiet", rows=seeing_rows(problem))


@judges("BWD-15", NumericDomain(allows={"sinks"}, signatures=("plain", "sinks"), group=GROUP))
def check_gradients_beside_residuals(subject: Subject, problem: Problem) -> None:
    """The call that returns residuals, differentiated."""
    gradients_match(subject, problem, with_residuals=True, given={"residuals": True})


@judges("BWD-16", NumericDomain(allows={"sinks"}, signatures=("plain", "sinks"), group=GROUP))
def check_loss_on_logsumexp(subject: Subject, problem: Problem) -> None:
    """A loss on output and logsumexp: refused, or right."""
    try:
        subject.backward(problem, with_lse=True)
    except (Crash, Refused):
        return
    gradients_match(subject, problem, with_lse=True, given={"loss": "on output and logsumexp"})


#: Change along the direction of a difference, relative to the size of the array: large against rounding, small
#: against the curvature, both of which are in the budget.
STEP = 2.0**-6


@judges(
    "BWD-17",
    NumericDomain(
        signatures=("plain",), regimes=("signed", "flat", "rising", "positive"), group=GROUP
    ),
)
def check_slope_of_own_output(subject: Subject, problem: Problem) -> None:
    """Differences of the implementation's own losses along a direction in q, in k and in v."""
    prepared, cotangent = subject.prepare(problem), d_out(problem).astype(np.float64)
    made, found = inputs(problem), subject.backward(problem)
    exact, profile = exact_backward(subject, problem), arithmetic_of(subject, problem).forward
    for name in ("q", "k", "v"):
        array = getattr(made, name).astype(np.float64)
        move = STEP * np.sqrt(np.mean(array**2)) * bell(problem.seed, f"move {name}", array.shape)
        moved: list[Any] = [{name: rounded(array + s * move, problem.dtype)} for s in (1, -1)]
        points = [replace(made, **arrays) for arrays in moved]
        answers: list[Forward] = [
            subject.call("forward", partial(prepared.forward, point)) for point in points
        ]
        outputs = [np.asarray(answer.output, dtype=np.float64) for answer in answers]
        results = [attend(p.q, p.k, p.v, visible(problem)) for p in points]
        budgets = [
            budget_of_forward(problem, p, r, profile, rescales(problem)).output
            for p, r in zip(points, results, strict=True)
        ]
        shift = getattr(points[0], name).astype(np.float64) - getattr(points[1], name)
        budget = difference_budget(
            (results[0].output, results[1].output),
            (budgets[0], budgets[1]),
            cotangent,
            getattr(exact.gradients, f"d{name}"),
            getattr(exact.budget, f"d{name}"),
            shift,
        )
        rise = float(((outputs[0] - outputs[1]) * cotangent).sum())
        slope = float((np.asarray(getattr(found, f"d{name}"), dtype=np.float64) * shift).sum())
        if not abs(rise - slope) <= budget:
            place = Place("output", "slope").under(along=name, of="two outputs", by=f"d{name}")
            raise Violation(place, Within(number(rise), number(budget)), slope)


@judges(
    "BWD-18",
    NumericDomain(signatures=("plain",), regimes=("signed", "flat", "tilted"), group=GROUP),
)
def check_linear_in_d_out(subject: Subject, problem: Problem) -> None:
    """d_out = 0 gives 0; that of 2 x - y is twice that of x less that of y."""
    zero = subject.backward(problem, "zero")
    for name in ("dq", "dk", "dv"):
        array = np.asarray(getattr(zero, name))
        same_bits(name, array, np.zeros_like(array), problem, given={"d_out": "0"})
    kinds: tuple[Cotangent, ...] = ("combined", "first", "second")
    found = [subject.backward(problem, kind) for kind in kinds]
    exact = [exact_backward(subject, problem, kind) for kind in kinds]
    for name in ("dq", "dk", "dv"):
        all_, x, y = (np.asarray(getattr(g, name), dtype=np.float64) for g in found)
        budgets = [getattr(e.budget, name) for e in exact]
        allowed = budgets[0] + 2 * budgets[1] + budgets[2]
        compare(name, all_, 2 * x - y, allowed, problem, given={"d_out": "2 x - y"})


@judges("BWD-19", with_trait("head_dim_v"))
def check_gradients_of_wide_values(subject: Subject, problem: Problem) -> None:
    """v wider or narrower than q and k."""
    gradients_match(subject, problem)


@judges("BWD-20", NumericDomain({"per_head_masks"}, {"gqa"}, group=GROUP))
def check_gradients_with_masks_of_heads(subject: Subject, problem: Problem) -> None:
    """Heads with different masks."""
    gradients_match(subject, problem)


@judges("BWD-21", NumericDomain(signatures=("plain",), group=GROUP))
def check_hidden_keys_do_not_change_dq(subject: Subject, problem: Problem) -> None:
    """Other keys and values where they are hidden: not a bit of dq changes."""
    changed, rows = hidden_keys_changed(problem)
    prepared = subject.prepare(problem)
    found: Gradients = subject.call("backward", lambda: prepared.backward(changed, d_out(problem)))
    before = subject.backward(problem)
    given = {"hidden_keys": "changed"}
    same_bits("dq", np.asarray(found.dq), np.asarray(before.dq), problem, rows=rows, given=given)


@judges("BWD-22", NumericDomain({"empty_rows"}, {"segment_ids", "blocks", "options"}, group=GROUP))
def check_dq_of_empty_rows(subject: Subject, problem: Problem) -> None:
    """dq is exactly 0 where a row sees nothing, whole q blocks included."""
    array, rows = np.asarray(subject.backward(problem, "loud").dq), ~seeing_rows(problem)
    given = {"rows": "that see nothing"}
    same_bits("dq", array, np.zeros_like(array), problem, rows=rows, given=given)


@judges("BWD-23", NumericDomain(signatures=ALONE, where=is_stored, group=GROUP))
def check_skipping_does_not_change_gradients(subject: Subject, problem: Problem) -> None:
    """Shrunk and not, in every layout."""
    for given, other in skip_variants(subject, problem):
        gradients_match(subject, other, given=given)


@judges("BWD-24", with_trait("sinks"))
def check_sink_in_probabilities(subject: Subject, problem: Problem) -> None:
    """dq, dk and dv with sinks."""
    gradients_match(subject, problem, ("dq", "dk", "dv"))


@judges(
    "BWD-25",
    NumericDomain(
        allows={"bfloat16", "head_dim_v", "sinks", "gqa", "soft_cap", "options"},
        signatures=("plain", "bfloat16", "wide_v", "sinks", "gqa-v-cap-sinks-bfloat16"), group=GROUP,
    )
)  # fmt: skip
def check_type_of_gradients(subject: Subject, problem: Problem) -> None:
    """Shape and type of the input; sinks are float32 whatever the other arrays are."""
    found, made = subject.backward(problem), inputs(problem)
    for name, dtype in zip(("q", "k", "v"), found.dtypes, strict=True):
        expect(
            Place(f"d{name}", "shape"),
            getattr(made, name).shape,
            np.shape(getattr(found, f"d{name}")),
        )
        expect(Place(f"d{name}", "dtype"), problem.dtype, dtype)
    if problem.sinks is not None:
        expect(Place("dsinks", "dtype"), "float32", found.dtype_of_dsinks)


@judges(
    "BWD-26",
    NumericDomain(
        allows={"segment_ids"}, signatures=("plain", "segments"), regimes=("signed",),
        group=GROUP,
    )
)  # fmt: skip
def check_gradients_of_a_batch(subject: Subject, problem: Problem) -> None:
    """Two elements with other arrays, and other segments, in one batch."""
    members = batch_of(problem)
    prepared = subject.prepare(problem)
    batch: list[Gradients] = subject.call(
        "backward_batch",
        lambda: prepared.backward_batch([inputs(p) for p in members], [d_out(p) for p in members]),
    )
    for n, (member, found) in enumerate(zip(members, batch, strict=True)):
        given = {"batch_element": n}
        gradients_match(subject, member, found=found, rows=seeing_rows(member), given=given)
