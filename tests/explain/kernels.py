"""jax's and tokamax's forward kernels over arrays of given shapes, for the TPU compiler to look at.

The libraries' own mask compilers look at every entry; at hundreds of thousands of tokens that takes hours.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from conformance.explain.costs.layouts import Schedule
from conformance.explain.costs.study import Study


def array(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def _causal(q_ids: Any, kv_ids: Any) -> Any:
    return q_ids >= kv_ids


def _scalars(schedule: Schedule) -> dict[str, Any]:
    return {a.name: array(a.shape, a.dtype) for a in schedule.arrays}


def operands(found: Study) -> tuple[Any, Any, Any]:
    """q, k and v."""
    question = found.question
    q = array((question.heads.q, question.q_len, question.head_dim), question.dtype)
    k = array((question.heads.kv, question.kv_len, question.head_dim), question.dtype)
    return q, k, k


def jax_info(found: Study, schedule: Schedule) -> Any:
    """The arrays that jax hands to its forward kernel."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as lib

    question, stack = found.question, found.stack(schedule)
    block = (question.block_q, question.block_kv)
    return lib.MaskInfo(
        **{"mask_next": None} | _scalars(schedule),
        partial_mask_blocks=array((stack.blocks, *block), bool) if schedule.stored else None,
        q_sequence=array((question.q_len,), "int32") if schedule.computed else None,
    )


def jax_forward(found: Study, schedule: Schedule) -> Any:
    """``f(info, q, k, v)``: jax's forward kernel."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as lib

    question = found.question
    sizes = lib.BlockSizes(
        block_q=question.block_q, block_kv=question.block_kv, block_kv_compute=question.block_kv
    )

    def forward(info: Any, q: Any, k: Any, v: Any) -> Any:
        kernel = lib.SplashAttentionKernel(
            info,
            None,
            None,
            block_sizes=sizes,
            is_mqa=False,
            save_residuals=False,
            mask_value=lib.DEFAULT_MASK_VALUE,
            attn_logits_soft_cap=None,
            residual_checkpoint_name=None,
            mask_function=_causal if schedule.computed else None,
            interpret=False,
        )
        return kernel(q, k, v)

    return forward


def tokamax_info(found: Study, schedule: Schedule) -> Any:
    """The arrays that tokamax hands to its forward kernel."""
    from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_mask_info as lib

    question, stack = found.question, found.stack(schedule)
    block = (question.block_q, question.block_kv)
    scalars = _scalars(schedule)
    del scalars["bounds_start"], scalars["bounds_end"]  # the kernel's own
    return lib.MaskInfo(
        **{"mask_next": None} | scalars,
        num_active_blocks=array((1,), "int32"),
        partial_mask_blocks=array((stack.blocks, *block), "int8") if schedule.stored else None,
        q_sequence=array((question.q_len,), "int32") if schedule.computed else None,
    )


def tokamax_forward(found: Study, schedule: Schedule) -> Any:
    """``f(info, q, k, v)``: tokamax's forward kernel."""
    from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel as lib

    config = lib.SplashConfig(block_q=found.question.block_q, block_kv=found.question.block_kv)

    def forward(info: Any, q: Any, k: Any, v: Any) -> Any:
        return lib._splash_attention_forward(
            info,
            q,
            k,
            v,
            None,
            None,
            mask_value=-0.7 * float(jnp.finfo("float32").max),
            is_mqa=False,
            config=config,
            mask_function=_causal if schedule.computed else None,
            fwd_mask_sparsity=1.0,
            save_residuals=False,
        )

    return forward
