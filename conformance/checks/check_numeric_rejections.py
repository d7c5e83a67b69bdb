"""Checks of the numerical REJECT clauses: arrays that do not belong to the mask.

The check is handed a valid problem and spoils one of its arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.checks.comparison import forward_matches, gradients_match
from conformance.checks.registry import bad_argument, judges, reject, result_unless_refused
from conformance.contract.fence import Subject
from conformance.contract.protocol import Forward, Gradients
from conformance.drawing.numeric_domain import NumericDomain
from conformance.problems.arrays import d_out, inputs
from conformance.problems.problem import BlockSizes, Problem

Array = NDArray[Any]

PLAIN = NumericDomain(signatures=("plain",), regimes=("signed",))
GQA = NumericDomain({"gqa"}, signatures=("gqa",), regimes=("signed",))


def call_with(subject: Subject, problem: Problem, **arrays: Any) -> Callable[[], Forward]:
    """A forward call with some arrays replaced, prepared anew."""

    def call() -> Forward:
        found: Forward = subject.adapter.prepare(problem).forward(
            replace(inputs(problem), **arrays)
        )
        np.asarray(found.output)  # a lazy result is computed here
        return found

    return call


def _half(array: Array, axis: int) -> Array:
    return np.ascontiguousarray(np.take(array, np.arange(array.shape[axis] // 2), axis=axis))


def _double(array: Array, axis: int) -> Array:
    return np.concatenate([array, array], axis=axis)


@judges("REJECT-9", PLAIN)
def check_length_of_queries(subject: Subject, problem: Problem) -> None:
    """q with half and with twice the rows of the mask."""
    for change in (_half, _double):
        q = change(inputs(problem).q, 1)
        where = bad_argument("q", q_len=q.shape[1], mask_rows=problem.q_len)
        spoil = call_with(subject, problem, q=q)
        reject(where, ("q_len", "q_seq", "q shape", "query", "q must", "mask", "q_sequence"), spoil)


@judges("REJECT-10", PLAIN)
def check_length_of_keys(subject: Subject, problem: Problem) -> None:
    """k and v with half and with twice the columns of the mask."""
    made = inputs(problem)
    for change in (_half, _double):
        k, v = change(made.k, 1), change(made.v, 1)
        where = bad_argument("k and v", kv_len=k.shape[1], mask_columns=problem.kv_len)
        spoil = call_with(subject, problem, k=k, v=v)
        reject(where, ("kv_len", "kv_seq", "k must", "key", "mask", "kv shape"), spoil)


@judges("REJECT-10", PLAIN)
def check_keys_and_values_of_two_lengths(subject: Subject, problem: Problem) -> None:
    """k with all columns of the mask, v with half of them."""
    made = inputs(problem)
    where = bad_argument("v", length_of_k=problem.kv_len, length_of_v=problem.kv_len // 2)
    spoil = call_with(subject, problem, v=_half(made.v, 1))
    reject(where, ("k and v", "v must", "value", "v shape", "kv_len", "'v'", "v.shape"), spoil)


@judges("REJECT-11", PLAIN, features=("per_head_masks",))
def check_number_of_heads(subject: Subject, problem: Problem) -> None:
    """Twice as many query heads as the mask has."""
    where = bad_argument("heads", heads_of_q=2 * problem.heads, masks=problem.heads)
    twice = {name: _double(getattr(inputs(problem), name), 0) for name in ("q", "k", "v")}
    spoil = call_with(subject, problem, **twice)
    reject(where, ("head",), spoil)


@judges("REJECT-12", GQA)
def check_kv_heads_that_do_not_divide(subject: Subject, problem: Problem) -> None:
    """Four key/value heads for six query heads."""
    made, count = inputs(problem), 2 * problem.kv_heads
    k, v = (_double(array, 0) for array in (made.k, made.v))
    where = bad_argument("kv heads", kv_heads=count, heads=problem.heads)
    reject(where, ("head",), call_with(subject, problem, k=k, v=v))


@judges("REJECT-13", NumericDomain({"segment_ids"}, signatures=("segments",), regimes=("signed",)))
def check_length_of_segment_ids(subject: Subject, problem: Problem) -> None:
    """Segment ids of half the length, of the queries and of the keys."""
    segment_ids = inputs(problem).segment_ids
    assert segment_ids is not None
    q, kv = segment_ids
    for name, ids in (("q", (_half(q, 0), kv)), ("kv", (q, _half(kv, 0)))):
        where = bad_argument("segment ids", segment_ids=f"of {name}, of half the length")
        reject(where, ("segment",), call_with(subject, problem, segment_ids=ids))


@judges("REJECT-14", NumericDomain({"sinks"}, signatures=("sinks",), regimes=("signed",)))
def check_shape_of_sinks(subject: Subject, problem: Problem) -> None:
    """A sink too many, and a single one."""
    for count in (problem.heads + 1, 1):
        sinks = np.zeros(count, dtype=np.float32)
        spoil = call_with(subject, problem, sinks=sinks)
        reject(bad_argument("sinks", sinks=count, heads=problem.heads), ("sink",), spoil)


@judges("REJECT-15", PLAIN)
def check_head_dimensions_that_differ(subject: Subject, problem: Problem) -> None:
    """q with another head dimension than k."""
    dim = problem.head_dim
    where = bad_argument("head_dim", head_dim_of_q=2 * dim, head_dim_of_k=dim)
    spoil = call_with(subject, problem, q=_double(inputs(problem).q, 2))
    reject(where, ("head_dim", "head dim", "head size"), spoil)


@judges("REJECT-16", PLAIN)
def check_block_sizes_of_any_integer_type(subject: Subject, problem: Problem) -> None:
    """Block sizes as NumPy integers are accepted and mean the same."""
    for kind in (np.int32, np.int64):
        sizes: Any = {
            n: None if size is None else kind(size) for n, size in vars(problem.blocks).items()
        }
        prepared = subject.fresh(problem.but(blocks=BlockSizes(**sizes)))
        found: Forward = subject.call("forward", partial(prepared.forward, inputs(problem)))
        forward_matches(
            subject, problem, found=found, given={"block_sizes": f"of type {kind.__name__}"}
        )


@judges(
    "REJECT-17",
    NumericDomain(signatures=("plain",), regimes=("signed",), offers_option="mask_value"),
)
def check_mask_value_that_is_not_finite(subject: Subject, problem: Problem) -> None:
    """-inf, inf and NaN in place of hidden logits."""
    for value in (-np.inf, np.inf, np.nan):
        other = problem.but(options=(("mask_value", value),))
        reject(
            bad_argument("mask_value", mask_value=value),
            ("mask_value", "mask value"),
            call_with(subject, other),
        )


@judges("REJECT-18", NumericDomain({"soft_cap"}, signatures=("cap",), regimes=("signed",)))
def check_soft_cap_that_is_not_positive(subject: Subject, problem: Problem) -> None:
    """Caps of 0, below, infinity and NaN."""
    for cap in (0.0, -5.0, np.inf, np.nan):
        other = problem.but(soft_cap=float(cap))
        names = ("soft_cap", "soft cap", "softcap", "logits_soft_cap")
        reject(bad_argument("soft_cap", soft_cap=cap), names, call_with(subject, other))


@judges("REJECT-19", NumericDomain(signatures=("oblong",), regimes=("flat",)))
def check_part_that_does_not_divide_its_block(subject: Subject, problem: Problem) -> None:
    """One block of three units of keys, computed two units at a time, forward and backward."""
    q, unit = problem.blocks.q, problem.kv_len // 3
    whole, part = 3 * unit, 2 * unit
    names = ("compute", "bkv", "block_kv")
    sizes = BlockSizes(q, whole, kv_compute=part)
    other = problem.but(blocks=sizes)
    where = bad_argument("block_kv_compute", block_kv=whole, block_kv_compute=part)
    found = result_unless_refused(where, names, call_with(subject, other))
    if found is not None:
        other = problem.but(blocks=BlockSizes(q, whole))
        forward_matches(subject, other, found=found, given=where.given)
    if not subject.description.offers("backward"):
        return
    sizes = BlockSizes(q, unit, q_dkv=q, kv_dkv=whole, kv_dkv_compute=part)
    other = problem.but(blocks=sizes)
    where = bad_argument("block_kv_dkv_compute", block_kv_dkv=whole, block_kv_dkv_compute=part)
    slopes = result_unless_refused(where, names, partial(_gradients_anew, subject, other))
    if slopes is not None:
        other = problem.but(blocks=replace(sizes, kv_dkv_compute=None))
        gradients_match(subject, other, found=slopes, given=where.given)


def _gradients_anew(subject: Subject, problem: Problem) -> Gradients:
    found: Gradients = subject.adapter.prepare(problem).backward(inputs(problem), d_out(problem))
    np.asarray(found.dk)  # a lazy result is computed here
    return found
