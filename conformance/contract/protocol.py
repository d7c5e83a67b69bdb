"""The adapter protocol: how an implementation is made testable.

An adapter is any object with two methods::

    describe() -> Description
    prepare(problem) -> an object with the methods of the features that were declared

A feature that is not declared is reported as *n/a*. A declared feature that fails is a violation. An implementation
may refuse single problems: a ``NotImplementedError`` with a message, raised by its own code, is neither a pass nor a
failure.
`prepare` does what a user would do before the first call: compile the mask, build the kernel. The object that it
returns has those methods of `Prepared` that the declared features need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from conformance.problems.inputs import Inputs
from conformance.problems.problem import Problem
from reference.error_budget import BFLOAT16_STORED, FLOAT32, ArithmeticProfile
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction, GridMaskInfo
from reference.masks import Bool
from reference.schedule import Schedule
from reference.sharding import Shard

#: Every feature that an adapter can declare, and what it promises.
FEATURES: dict[str, str] = {
    "masks": "prepared.mask(head) can be sliced, compared and hashed",
    "mask:full": "full masks are handed to the implementation as such",
    "mask:causal": "causal masks are handed over as such",
    "mask:local": "local masks are handed over as such",
    "mask:chunked_causal": "chunked causal masks are handed over as such",
    "mask:and": "intersections of masks are handed over as such",
    "mask:or": "unions of masks are handed over as such",
    "mask_function": "prepared.mask_at(head, q_ids, kv_ids) evaluates masks at any positions, as kernels do",
    "mask_function:kernel": "prepared.mask_at(…, kernel=True) does so inside a kernel",
    "mask_bounds": "prepared.mask_bounds(…) tells whether any pair, and whether every pair, of a rectangle is visible",
    "mask_intervals": "prepared.mask_intervals(head, q_ids) returns the visible key positions as intervals",
    "mask_info": "prepared.mask_info(direction) returns the compiled arrays",
    "layout:grid": "the arrays have the two-dimensional layout",
    "layout:flat": "the arrays have the flat layout",
    "static": "masks that are known when the kernel is built",
    "dynamic_masks": "masks whose values are known only at run time",
    "traced_masks": "prepared.forward(…, traced_mask=True): the mask is an argument of the compiled program",
    "backward_info": "compiled arrays and schedules of the backward directions in `directions`",
    "per_head_masks": "every head may have its own mask",
    "computable_masks": "causal, local and chunked causal masks are computed in the kernel",
    "stored_masks": "partial blocks are stored in memory and fetched",
    "downcast": "index arrays have the smallest integer type that fits",
    "shrink": "the grid is shrunk",
    "shards:q": "the query sequence can be sharded",
    "shards:head": "the heads can be sharded",
    "shards:kv": "the key sequence can be sharded",
    "schedule": "prepared.schedule(direction, shard) returns the steps that the kernel takes",
    "forward": "prepared.forward(inputs) returns the attention output",
    "backward": "prepared.backward(inputs, d_out) returns the gradients",
    "residuals": "forward returns logsumexp",
    "residuals:max_logits": "forward returns max_logits",
    "residuals:gradients": "prepared.backward(…, with_residuals=True): gradients of a call that returns residuals",
    "residuals:cotangent": "prepared.backward(…, d_logsumexp=…) differentiates a loss on logsumexp, or refuses it",
    "segment_ids": "segment ids",
    "soft_cap": "a soft cap on the logits",
    "sinks": "attention sinks, with their gradient if backward is declared",
    "gqa": "several query heads share a key/value head",
    "mqa": "all query heads share one key/value head",
    "head_dim_v": "v may have another head dimension than q and k",
    "bfloat16": "bfloat16 arrays",
    "empty_rows:zero": "rows that see no key have output 0 and contribute nothing to any gradient",
    "vmap": "prepared.forward_batch(list of inputs) runs them as one batch",
    "vmap:backward": "prepared.backward_batch(list of inputs, list of d_out) computes gradients of a batch",
    "fused_backward": "dq, dk and dv come from one kernel (an option chooses, if split_backward is declared too)",
    "split_backward": "dq comes from a kernel of its own",
    "edit_mask_info": "prepared.forward(inputs, edit=…) runs on edited MaskInfo arrays",
    "uninitialised": "prepared.forward(…, uninitialised=True): memory starts as NaN, reads out of bounds raise",
    "sharded": "forward and backward run on problem.shards devices, each with its part of the arrays",
    "ring": "forward and backward over problem.ring devices",
    "ring:sinks": "sinks in the ring; an adapter without this feature must refuse them there",
}

#: The features that each profile requires; `smoke` says which profiles a declaration completes.
PROFILES: dict[str, tuple[str, ...]] = {
    "mask-info": ("masks", "mask_info", "static"),
    "inference": ("masks", "mask_info", "static", "schedule", "forward", "segment_ids", "gqa"),
    "training": (
        "masks", "mask_info", "static", "schedule", "backward_info", "forward", "backward",
        "residuals", "segment_ids", "gqa",
    ),
    "ring": ("forward", "backward", "ring", "segment_ids", "gqa"),
}  # fmt: skip


@dataclass(frozen=True)
class Forward:
    """What a forward call returned.

    Attributes:
      output: float ``[heads, q_len, head_dim_v]``, converted from `dtype` without rounding.
      dtype: the type that the implementation returned, such as ``"bfloat16"``.
      logsumexp, max_logits: float ``[heads, q_len]``; None if the call returned none.
      residual_dtype: the type of the residuals.
    """

    output: NDArray[np.floating[Any]]
    dtype: str
    logsumexp: NDArray[np.floating[Any]] | None = None
    max_logits: NDArray[np.floating[Any]] | None = None
    residual_dtype: str = "float32"


@dataclass(frozen=True)
class Gradients:
    """What a backward call returned.

    Attributes:
      dq, dk, dv: float, in the shapes of q, k and v, converted from `dtypes` without rounding.
      dsinks: float ``[heads]``; None without sinks.
      dtypes: the types that the implementation returned for dq, dk and dv.
      dtype_of_dsinks: the type that it returned for dsinks.
    """

    dq: NDArray[np.floating[Any]]
    dk: NDArray[np.floating[Any]]
    dv: NDArray[np.floating[Any]]
    dsinks: NDArray[np.floating[Any]] | None = None
    dtypes: tuple[str, str, str] = ("float32", "float32", "float32")
    dtype_of_dsinks: str = "float32"


@dataclass(frozen=True)
class Arithmetic:
    """How an implementation rounds, for one type of arrays. Budgets follow from it; nobody declares a tolerance.

    Attributes:
      forward, backward: profiles of `reference.error_budget`.
    """

    forward: ArithmeticProfile
    backward: ArithmeticProfile


#: Only what the types force: float32 sums; probabilities of bfloat16 arrays are stored in bfloat16.
DEFAULT_ARITHMETIC: Mapping[str, Arithmetic] = {
    "float32": Arithmetic(FLOAT32, FLOAT32),
    "bfloat16": Arithmetic(BFLOAT16_STORED, BFLOAT16_STORED),
}


@dataclass(frozen=True)
class Description:
    """What an adapter declares about its implementation.

    Attributes:
      name: short name, as on the command line.
      version: version of the implementation under test.
      features: names from `FEATURES`.
      directions: the directions that `Prepared.mask_info` and `Prepared.schedule` support.
      info_block_multiples: block sizes (q, kv) must be multiples of these to compile a mask.
      kernel_block_multiples: block sizes (q, kv) must be multiples of these to run a kernel.
      options: values of each option of the kernels, the default first; the suite tries every value.
      arithmetic: how it rounds, by the type of the arrays. The object that `prepare` returns may have a
        method ``arithmetic()`` that overrides it for the options of its problem.
      head_dims: head dimensions that the kernels support.
      empty_logsumexp: documented logsumexp of rows that see no key; None for ``-inf``.
      ring_sizes: numbers of devices that a ring can have.
    """

    name: str
    version: str
    features: frozenset[str]
    directions: tuple[Direction, ...] = ("fwd",)
    info_block_multiples: tuple[int, int] = (1, 1)
    kernel_block_multiples: tuple[int, int] = (1, 1)
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    arithmetic: Mapping[str, Arithmetic] = field(default_factory=lambda: DEFAULT_ARITHMETIC)
    head_dims: tuple[int, ...] = (64, 96, 128, 192)
    empty_logsumexp: float | None = None
    ring_sizes: tuple[int, ...] = (2, 4, 8)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", frozenset(self.features))
        unknown = self.features - FEATURES.keys()
        if unknown:
            raise ValueError(
                f"features {sorted(unknown)} are unknown; the known ones are {sorted(FEATURES)}"
            )

    def offers(self, *features: str) -> bool:
        """Whether all of these features are declared."""
        return set(features) <= self.features


#: Changes compiled arrays, for clauses about what a kernel must ignore.
Edit = Callable[["GridMaskInfo | FlatMaskInfo"], "GridMaskInfo | FlatMaskInfo"]


class MaskObject(Protocol):
    """A mask object of the implementation."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: tuple[slice, slice]) -> Bool: ...


class Prepared(Protocol):
    """What `Adapter.prepare` returns. The suite calls a method only if its feature was declared."""

    def mask(self, head: int) -> MaskObject:
        """Returns the implementation's own mask object of one head (feature ``masks``)."""

    def mask_at(
        self,
        head: int,
        q_ids: NDArray[np.int32],
        kv_ids: NDArray[np.int32],
        *,
        kernel: bool = False,
    ) -> Bool | None:
        """Evaluates the mask function of one head at pairs of positions (feature ``mask_function``).

        Args:
          head: whose mask.
          q_ids, kv_ids: int32 positions, two-dimensional, that broadcast against each other.
          kernel: evaluate it inside a kernel (feature ``mask_function:kernel``).

        Returns:
          bool, broadcasts to the pairs; None if kernels do not compute this mask.
        """

    def mask_bounds(
        self,
        head: int,
        q_lo: NDArray[np.int32],
        q_hi: NDArray[np.int32],
        kv_lo: NDArray[np.int32],
        kv_hi: NDArray[np.int32],
    ) -> tuple[Bool, Bool] | None:
        """Tells whether any pair, and whether every pair, of rectangles is visible (feature ``mask_bounds``).

        Args:
          head: whose mask.
          q_lo, q_hi, kv_lo, kv_hi: inclusive int32 bounds that broadcast, one element per rectangle.

        Returns:
          Two bool arrays that broadcast to the rectangles; None if this mask cannot tell.
        """

    def mask_intervals(
        self, head: int, q_ids: NDArray[np.int32]
    ) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]] | None:
        """Returns the key positions that queries see, as intervals (feature ``mask_intervals``).

        Returns:
          Inclusive bounds ``lo`` and ``hi``, with an axis of intervals before the axes of ``q_ids``; an interval
          with ``lo > hi`` is empty. None if this mask cannot tell.
        """

    def mask_info(self, direction: Direction) -> GridMaskInfo | FlatMaskInfo:
        """Returns the compiled arrays of all shards (feature ``mask_info``)."""

    def schedule(self, direction: Direction, shard: Shard) -> Schedule:
        """Returns the steps that the kernel takes on one shard (feature ``schedule``)."""

    def forward(
        self,
        inputs: Inputs,
        *,
        residuals: bool = False,
        edit: Edit | None = None,
        uninitialised: bool = False,
        traced_mask: bool = False,
    ) -> Forward:
        """Computes attention (feature ``forward``), over ``problem.ring`` devices if that is above 1.

        Args:
          inputs: the arrays.
          residuals: also return logsumexp, and max_logits where declared.
          edit: applied to the compiled forward arrays before the call (feature ``edit_mask_info``).
          uninitialised: memory starts as NaN (feature ``uninitialised``).
          traced_mask: the values of a run-time mask are an argument of the compiled program (feature
            ``traced_masks``).
        """

    def forward_batch(self, batch: Sequence[Inputs]) -> list[Forward]:
        """Computes attention for several inputs as one batch (feature ``vmap``)."""

    def backward(
        self,
        inputs: Inputs,
        d_out: NDArray[np.float32],
        *,
        with_residuals: bool = False,
        d_logsumexp: NDArray[np.float32] | None = None,
    ) -> Gradients:
        """Computes the gradients of ``sum(output * d_out)`` (feature ``backward``).

        Args:
          inputs: the arrays.
          d_out: float32 ``[heads, q_len, head_dim_v]``; ``problem.dtype`` represents its values exactly.
          with_residuals: differentiate the call that also returns residuals, with cotangents of 0 for them
            (feature ``residuals:gradients``).
          d_logsumexp: float32 ``[heads, q_len]``: adds ``sum(logsumexp * d_logsumexp)`` to the loss, or raises
            (feature ``residuals:cotangent``).
        """

    def backward_batch(
        self, batch: Sequence[Inputs], d_outs: Sequence[NDArray[np.float32]]
    ) -> list[Gradients]:
        """Computes the gradients for several inputs as one batch (feature ``vmap:backward``)."""


class Adapter(Protocol):
    """An implementation under test."""

    def describe(self) -> Description:
        """Returns the name, the version and the declared features. Called once."""

    def prepare(self, problem: Problem) -> Any:
        """Makes the implementation ready for one problem.

        Returns:
          An object with those methods of `Prepared` that the declared features need; not typed as such, because
          few implementations have all of them.
        """


class AdapterError(Exception):
    """An adapter cannot be loaded or used; the message says what to do."""
