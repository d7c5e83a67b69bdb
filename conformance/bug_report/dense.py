"""Attention and its gradients as a few lines of NumPy, with no more in them than a problem needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parts:
    """What the formulas must have.

    Attributes:
      cap, sinks: a soft cap, sinks.
      backward: gradients.
      lse: a gradient with respect to logsumexp arrives.
    """

    cap: bool = False
    sinks: bool = False
    backward: bool = False
    lse: bool = False


def attention(parts: Parts) -> str:
    """Source of ``attention(q, k, v, visible, …)``, and of ``gradients(…)`` if wanted; both in float64."""
    arguments = ["q", "k", "v", "visible"]
    arguments += ["soft_cap"] * parts.cap + ["sinks"] * parts.sinks
    lines = [
        f"def attention({', '.join(arguments)}):",
        "    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))",
        "    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))",
        "    s = q @ k.swapaxes(1, 2)",
    ]
    if parts.cap:
        lines.append("    s = soft_cap * np.tanh(s / soft_cap)")
    lines += [
        "    s = np.where(visible, s, -np.inf)",
        "    max_logits = s.max(-1)",
        "    top = max_logits[:, :, None]",
    ]
    if parts.sinks:
        lines += [
            "    sink = np.asarray(sinks, np.float64)[:, None, None]",
            "    top = np.maximum(top, sink)",
        ]
    lines += [
        "    top = np.where(top == -np.inf, 0, top)",
        "    e = np.exp(s - top)",
        "    total = e.sum(-1, keepdims=True)" + " + np.exp(sink - top)" * parts.sinks,
        "    p = e / np.where(total == 0, 1, total)",
        '    with np.errstate(divide="ignore"):',
        "        logsumexp = (np.log(total) + top)[:, :, 0]",
        "    return p @ v, logsumexp, max_logits, p, s",
    ]
    return "\n".join(lines) + "\n" + (_gradients(parts, arguments) if parts.backward else "")


def _gradients(parts: Parts, arguments: list[str]) -> str:
    more = ["d_out"] + ["d_logsumexp"] * parts.lse
    call = ", ".join(arguments)
    lines = [
        "",
        "",
        f"def gradients({', '.join([*arguments, *more])}):",
        f"    output, logsumexp, _, p, s = attention({call})",
        "    q, k, v, d_out = (np.asarray(x, np.float64) for x in (q, k, v, d_out))",
        "    wide_k, wide_v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))",
        "    di = (d_out * output).sum(-1, keepdims=True)",
        "    ds = p * (d_out @ wide_v.swapaxes(1, 2) - di)",
    ]
    if parts.lse:
        lines.append("    ds += p * np.asarray(d_logsumexp, np.float64)[:, :, None]")
    if parts.cap:
        lines += [
            "    inside = np.where(visible, s, 0) / soft_cap",
            "    ds = ds * (1 - inside**2)",
        ]
    lines += [
        "    dk, dv = ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ d_out",
        "    dk, dv = (x.reshape(len(k), -1, *x.shape[1:]).sum(1) for x in (dk, dv))",
    ]
    if parts.sinks:
        lines += [
            "    at_sink = np.exp(np.asarray(sinks, np.float64)[:, None] - logsumexp)",
            "    dsinks = -(at_sink * di[:, :, 0]).sum(-1)"
            if not parts.lse
            else "    dsinks = (at_sink * (np.asarray(d_logsumexp) - di[:, :, 0])).sum(-1)",
            "    return ds @ wide_k, dk, dv, dsinks",
        ]
    else:
        lines.append("    return ds @ wide_k, dk, dv")
    return "\n".join(lines) + "\n"
