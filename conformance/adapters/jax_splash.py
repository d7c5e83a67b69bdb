"""Adapter of ``jax.experimental.pallas.ops.tpu.splash_attention``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from conformance.adapter import Description
from conformance.adapters.pallas_common import (
    accepts,
    evaluate_mask_function,
    library_mask,
    plain,
    prefer_cpu,
)
from conformance.problem import Problem
from reference.mask_info import Direction, GridMaskInfo

prefer_cpu()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.experimental.pallas.ops.tpu.splash_attention import (  # noqa: E402
    splash_attention_mask as mask_lib,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (  # noqa: E402
    splash_attention_mask_info as info_lib,
)

#: What every release since 0.4.31 offers.
FEATURES = frozenset(
    {
        "masks", "mask:full", "mask:causal", "mask:local", "mask:and", "mask:or",
        "mask_info", "layout:grid", "static", "backward_info", "per_head_masks",
        "computable_masks", "stored_masks", "shards:q", "shards:head",
    }
)  # fmt: skip


def _process(direction: Direction) -> Any:
    return info_lib.process_mask_dkv if direction == "dkv" else info_lib.process_mask


def _process_dynamic(direction: Direction) -> Any:
    if direction == "dkv":
        return info_lib.process_dynamic_mask_dkv
    return info_lib.process_dynamic_mask


class PreparedJax:
    """One problem; every method does its own work when it is called."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def mask(self, head: int) -> Any:
        """The library's mask object of one head."""
        problem = self.problem
        expr = problem.masks[head if len(problem.masks) > 1 else 0]
        return library_mask(mask_lib, expr, problem.q_len, problem.kv_len)

    def dense_masks(self) -> jax.Array:
        """The values that a dynamic mask takes, bool ``[heads, q_len, kv_len]``."""
        return jnp.asarray(np.stack([mask.dense() for mask in self.problem.head_masks]))

    @cached_property
    def multi_head_mask(self) -> Any:
        """The masks of all heads in the library's form."""
        return mask_lib.MultiHeadMask([self.mask(head) for head in range(self.problem.heads)])

    def mask_info(self, direction: Direction) -> GridMaskInfo:
        """The arrays that the library compiles, for all shards."""
        problem = self.problem
        options: dict[str, Any] = {
            "downcast_smem_data": problem.downcast,
            "head_shards": problem.shards.head,
            "q_seq_shards": problem.shards.q,
            "shrink_grid": problem.shrink,
        }
        mask, process = (
            (self.dense_masks(), _process_dynamic(direction))
            if problem.dynamic
            else (self.multi_head_mask, _process(direction))
        )
        info, function = process(mask, problem.blocks.of(direction), **options)
        sequence = plain(info.q_sequence)
        computed = None
        if function is not None and sequence is not None:
            computed = evaluate_mask_function(function, sequence, problem.kv_len)
        return GridMaskInfo(
            direction=direction,
            block_mask=np.array(info.block_mask),
            data_next=np.array(info.data_next),
            mask_next=plain(info.mask_next),
            partial_mask_blocks=plain(info.partial_mask_blocks),
            q_sequence=sequence,
            computed_mask=computed,
        )


def _features() -> frozenset[str]:
    """`FEATURES` and what the installed release has on top."""
    found = set(FEATURES)
    if hasattr(mask_lib, "ChunkedCausalMask"):
        found.add("mask:chunked_causal")
    if hasattr(info_lib, "process_dynamic_mask"):
        found.add("dynamic_masks")
    if accepts(info_lib.process_mask, "shrink_grid"):
        found.add("shrink")
    if accepts(info_lib.process_mask, "downcast_smem_data"):
        found.add("downcast")
    return frozenset(found)


class JaxAdapter:
    """The splash attention that ships with JAX."""

    def describe(self) -> Description:
        """What the installed release offers."""
        return Description(
            name="jax",
            version=jax.__version__,
            features=_features(),
            directions=("fwd", "dq", "dkv"),
            kernel_block_multiples=(128, 128),
        )

    def prepare(self, problem: Problem) -> PreparedJax:
        """The problem, with nothing computed yet."""
        return PreparedJax(problem)


def make() -> JaxAdapter:
    """The adapter."""
    return JaxAdapter()
