"""Attention in float64 NumPy, with a bound of the error that the kernels' arithmetic may make.

The bounds are first-order rounding analysis (Higham, *Accuracy and Stability of Numerical
Algorithms*, 2002, sections 3.1 and 3.5): a sum of n products in precision u errs by at most
n·u·Σ|products|; exp turns an absolute error of its argument into a relative one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

U32 = 2.0**-24
UBF = 2.0**-8
EXP = 8 * U32
"""Relative error granted to exp2, log2, tanh and division in float32."""


class Problem(NamedTuple):
    """q [H, S, D], k [Hk, T, D], v [Hk, T, Dv], do [H, S, Dv], mask bool[H or 1, S, T]."""

    q: Any
    k: Any
    v: Any
    do: Any
    mask: Any
    sinks: Any = None
    soft_cap: float | None = None
    stored: float = U32  # rounding of probabilities, dS and outputs


class Forward(NamedTuple):
    out: Any
    logsumexp: Any
    max_logits: Any
    out_error: Any
    logsumexp_error: Any
    p: Any
    slope: Any
    logit_error: Any


class Gradients(NamedTuple):
    values: dict[str, Any]
    errors: dict[str, Any]


def _heads(x: Any, heads: int) -> Any:
    return np.repeat(np.asarray(x, np.float64), heads // len(x), axis=0)


def _t(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def forward(pr: Problem) -> Forward:
    """Outputs and what the gradient needs; errors are absolute bounds."""
    heads = len(pr.q)
    q, k, v = np.asarray(pr.q, np.float64), _heads(pr.k, heads), _heads(pr.v, heads)
    d, n = q.shape[-1], k.shape[1]
    s = q @ _t(k)
    error = (d + 4) * U32 * (np.abs(q) @ _t(np.abs(k)))
    slope = np.ones_like(s)
    if pr.soft_cap is not None:
        t = np.tanh(s / pr.soft_cap)
        slope, s = 1 - t * t, pr.soft_cap * t
        error = error + EXP * pr.soft_cap
    error = error + 4 * U32 * np.abs(s)
    mask = np.broadcast_to(pr.mask, s.shape)
    s = np.where(mask, s, -np.inf)
    top = s.max(-1, keepdims=True)
    peak = top
    if pr.sinks is not None:
        sinks = np.asarray(pr.sinks, np.float64)[:, None, None]
        peak = np.maximum(peak, sinks)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    p = np.exp(s - peak)
    total = p.sum(-1, keepdims=True)
    if pr.sinks is not None:
        total = total + np.exp(sinks - peak)
    some = total > 0
    p = np.where(some, p / np.where(some, total, 1), 0)
    worst = np.where(mask, error, 0).max(-1, keepdims=True)
    relative = 2 * worst + (n + 8) * U32 + 4 * EXP
    out = p @ v
    out_error = (p @ np.abs(v)) * (2 * relative + pr.stored) + pr.stored * np.abs(out)
    with np.errstate(divide="ignore"):
        lse = np.where(some, peak + np.log(np.where(some, total, 1)), -np.inf)[..., 0]
    lse_error = (worst + relative)[..., 0] + EXP * (1 + np.abs(np.where(some[..., 0], lse, 0)))
    return Forward(out, lse, top[..., 0], out_error, lse_error, p, slope, error)


def gradients(pr: Problem, d_lse: Any = None) -> Gradients:
    """Gradients of sum(out · do) + sum(logsumexp · d_lse), and their error bounds."""
    f = forward(pr)
    heads, group = len(pr.q), len(pr.q) // len(pr.k)
    q, do = np.asarray(pr.q, np.float64), np.asarray(pr.do, np.float64)
    k, v = _heads(pr.k, heads), _heads(pr.v, heads)
    dv_dim = v.shape[-1]
    dp, dp_abs = do @ _t(v), np.abs(do) @ _t(np.abs(v))
    delta = (do * f.out).sum(-1, keepdims=True)
    e_delta = (dv_dim + 2) * U32 * (np.abs(do) * np.abs(f.out)).sum(-1, keepdims=True)
    e_delta += (np.abs(do) * f.out_error).sum(-1, keepdims=True)
    if d_lse is not None:
        delta = delta - d_lse[..., None]
        e_delta = e_delta + U32 * np.abs(delta)
    e_p = f.logit_error + f.logsumexp_error[..., None] + 2 * EXP
    ds = f.p * (dp - delta) * f.slope
    e_ds = f.p * (
        e_p * np.abs(dp - delta)
        + (dv_dim + 2) * U32 * dp_abs
        + e_delta
        + 4 * U32 * (np.abs(dp) + np.abs(delta))
    )
    if pr.soft_cap is not None:  # 1 - t² where t errs by its logit's error / cap
        e_ds += f.p * np.abs(dp - delta) * (2 * f.logit_error / pr.soft_cap + 2 * EXP)
    e_ds += pr.stored * np.abs(ds)

    def rows(x: Any) -> Any:
        return x.reshape(-1, group, *x.shape[1:]).sum(1)

    def product(a: Any, e: Any, b: Any) -> tuple[Any, Any]:
        terms = a.shape[-1] * group + 4
        return a @ b, e @ np.abs(b) + terms * U32 * (np.abs(a) @ np.abs(b))

    dq, e_dq = product(ds, e_ds, k)
    dk, e_dk = product(_t(ds), _t(e_ds), q)
    dv, e_dv = product(_t(f.p), _t(f.p * (e_p + pr.stored)), do)
    values = {"q": dq, "k": rows(dk), "v": rows(dv)}
    errors = {"q": e_dq, "k": rows(e_dk), "v": rows(e_dv)}
    errors = {n: e + pr.stored * np.abs(values[n]) for n, e in errors.items()}
    if pr.sinks is not None:
        with np.errstate(invalid="ignore"):
            share = np.exp(np.asarray(pr.sinks, np.float64)[:, None] - f.logsumexp)
        share = np.where(np.isneginf(f.logsumexp), 0, share)
        values["sinks"] = -(share * delta[..., 0]).sum(-1)
        size = share * (e_delta[..., 0] + np.abs(delta[..., 0]) * (f.logsumexp_error + 2 * EXP))
        terms = (share.shape[-1] + 4) * U32 * (share * np.abs(delta[..., 0])).sum(-1)
        errors["sinks"] = size.sum(-1) + terms
    return Gradients(values, errors)


def check(name: str, got: Any, want: Any, error: Any) -> None:
    """Fails unless non-finite patterns agree and every element is inside its bound."""
    got = np.asarray(got, np.float64)
    assert got.shape == want.shape, f"{name}: shape {got.shape}, expected {want.shape}"
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=name)
    excess = np.abs(got[finite] - want[finite]) - error[finite]
    assert np.all(np.isfinite(got[finite])), f"{name}: not finite where it should be"
    assert excess.size == 0 or excess.max() <= 0, (
        f"{name}: {np.count_nonzero(excess > 0)} of {excess.size} outside the bound, "
        f"worst by {excess.max():.3g} (largest bound {error[finite].max():.3g})"
    )


def arrays(
    heads: int, kv_heads: int, q_len: int, kv_len: int, dim: int, v_dim: int, seed: int = 0
) -> tuple[Any, Any, Any, Any]:
    """q, k, v, do in float32; logits have a spread of about 2."""
    rng = np.random.default_rng(seed)
    shapes = [
        (heads, q_len, dim),
        (kv_heads, kv_len, dim),
        (kv_heads, kv_len, v_dim),
        (heads, q_len, v_dim),
    ]
    q, k, v, do = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    return q * np.float32(2 * dim**-0.5), k, v, do
