"""Attention with a gradient: the kernels tied together by ``jax.custom_vjp``."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from pallas_impl.backward_dkv import BackwardOperands, dkv
from pallas_impl.backward_dq import dq
from pallas_impl.config import FLOAT32_MAX, LOG2E, KernelConfig
from pallas_impl.forward import ForwardResult, forward
from pallas_impl.memory_budget import MemoryBudgetError, fits_fused
from pallas_impl.plan import AttentionPlan

NOTHING_VISIBLE = 0.7 * FLOAT32_MAX
"""Base-2 logsumexp given to rows with nothing visible: exp2(x - this) is 0 for every logit."""


class Residuals(NamedTuple):
    """Statistics of the softmax, float32[heads, q_len], in natural-log units (RES-1 to RES-9).

    Attributes:
      logsumexp: log of the sum of exp(logit) over visible keys, plus exp(sink) if there are
        sinks; -inf in rows where there is nothing.
      max_logits: the largest visible logit, after the soft cap; -inf where nothing is visible.
    """

    logsumexp: jax.Array
    max_logits: jax.Array


def _run(cfg: KernelConfig, plan: AttentionPlan, args: Any, logsumexp: bool) -> ForwardResult:
    q, k, v, segment_ids, sinks = args
    return forward(
        cfg,
        plan.forward,
        q,
        k,
        v,
        segment_ids,
        sinks,
        logsumexp=logsumexp,
        max_logits=cfg.save_residuals,
    )


def _result(cfg: KernelConfig, got: ForwardResult) -> Any:
    if not cfg.save_residuals:
        return got.out
    assert got.logsumexp is not None
    assert got.max_logits is not None
    return got.out, Residuals(got.logsumexp, got.max_logits)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(
    cfg: KernelConfig,
    plan: AttentionPlan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: Any,
    sinks: jax.Array | None,
) -> Any:
    """Attention of q [H, S, D] to k [H_kv, T, D], v [H_kv, T, Dv]; out [H, S, Dv].

    With ``cfg.save_residuals`` returns (out, Residuals).  A gradient may flow into
    ``logsumexp`` (BWD-16); ``max_logits`` is treated as constant.
    """
    return _result(cfg, _run(cfg, plan, (q, k, v, segment_ids, sinks), cfg.save_residuals))


@jax.custom_jvp
def first_derivative_only(arrays: Any) -> Any:
    """The arrays themselves: a second derivative is refused with a text, not deep inside a kernel."""
    return arrays


@first_derivative_only.defjvp
def _refuse_second_derivative(primals: Any, tangents: Any) -> Any:
    raise NotImplementedError(
        "splash attention has first derivatives only: its backward kernels cannot be "
        "differentiated. Use dense attention where second derivatives are needed"
    )


def _forward_rule(
    cfg: KernelConfig,
    plan: AttentionPlan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: Any,
    sinks: jax.Array | None,
) -> tuple[Any, Any]:
    q, k, v = first_derivative_only((q, k, v))
    got = _run(cfg, plan, (q, k, v, segment_ids, sinks), True)
    name = cfg.residual_checkpoint_name
    if name is not None:
        got = got._replace(
            out=checkpoint_name(got.out, name), logsumexp=checkpoint_name(got.logsumexp, name)
        )
    kept = (plan, q, k, v, segment_ids, sinks, got.out, got.logsumexp)
    return _result(cfg, got), kept


def statistics(logsumexp: jax.Array, delta: jax.Array) -> jax.Array:
    """Stacks what the backward kernels need for each query: float32[H, 2, q_len]."""
    base2 = jnp.where(jnp.isneginf(logsumexp), NOTHING_VISIBLE, logsumexp * LOG2E)
    return jnp.stack([base2, delta], axis=1)


def sinks_gradient(sinks: jax.Array, logsumexp: jax.Array, delta: jax.Array) -> jax.Array:
    """d loss / d sinks [H] = -sum over queries of exp(sink - logsumexp) · δ (BWD-5)."""
    share = jnp.exp(sinks.astype(jnp.float32)[:, None] - logsumexp)
    share = jnp.where(jnp.isneginf(logsumexp), 0.0, share)
    return -jnp.sum(share * delta, axis=-1).astype(sinks.dtype)


def backward(
    cfg: KernelConfig, plan: AttentionPlan, args: BackwardOperands, dtype: Any = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(dq, dk, dv) of one attention call, of ``dtype`` or each of its input's.

    Raises:
      MemoryBudgetError: a kernel does not fit; the fused one is only insisted on if
        ``use_fused_bwd_kernel`` is true.
    """
    fused = cfg.block_sizes.use_fused_bwd_kernel
    if fused or (fused is None and fits_fused(args.q.shape, args.q.shape[0] // args.k.shape[0])):
        try:
            dq_out, dk, dv = dkv(cfg, plan.dkv, args, fused=True, dtype=dtype)
        except MemoryBudgetError:
            if fused:
                raise
        else:
            assert dq_out is not None
            return dq_out.astype(dtype or args.q.dtype), dk, dv
    _, dk, dv = dkv(cfg, plan.dkv, args, fused=False, dtype=dtype)
    assert plan.dq is not None
    return dq(cfg, plan.dq, args, dtype=dtype), dk, dv


def _backward_rule(cfg: KernelConfig, kept: Any, cotangent: Any) -> Any:
    plan, q, k, v, segment_ids, sinks, out, logsumexp = kept
    do = cotangent[0] if cfg.save_residuals else cotangent
    do = first_derivative_only(do)
    delta = jnp.sum(do.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    if cfg.save_residuals:
        delta = delta - cotangent[1].logsumexp
    stats = statistics(logsumexp, delta)
    args = BackwardOperands(q, k, v, do.astype(q.dtype), stats, segment_ids)
    grads = backward(cfg, plan, args)
    d_sinks = None if sinks is None else sinks_gradient(sinks, logsumexp, delta)
    return None, *grads, None, d_sinks


attention.defvjp(_forward_rule, _backward_rule)
