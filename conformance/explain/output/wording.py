"""Numbers, and the problem in question, as people read them."""

from __future__ import annotations

from conformance.explain.costs.study import Question


def size(nbytes: int) -> str:
    """Bytes in a readable unit: 4.0 MiB."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << power:
            value = nbytes / (1 << power)
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
    return f"{nbytes} B"


def beside(nbytes: int, limit: int) -> str:
    """Bytes as `size` writes them, or in KiB if rounding would hide that they exceed ``limit``."""
    if nbytes > limit and size(nbytes) == size(limit):
        return f"{-(-nbytes // 1024):,} KiB"
    return size(nbytes)


def share(part: float) -> str:
    """A share in per cent, never rounded to 0 or 100."""
    if 0 < part < 0.0005:
        return "under 0.1 %"
    if 0.9995 < part < 1:
        return "over 99.9 %"
    return f"{100 * part:.0f} %" if part in (0, 1) else f"{100 * part:.1f} %"


def count(number: int, what: str, plural: str = "") -> str:
    """A number of things."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def blocks(block_q: int, block_kv: int) -> str:
    """A block size: 128×128."""
    return f"{block_q}×{block_kv}"


def listing(parts: list[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def problem_facts(question: Question) -> list[str]:
    """The problem in a few short phrases, lengths first."""
    heads = count(question.heads.q, "head")
    if question.heads.kv != question.heads.q:
        heads += f" ({question.heads.kv} kv)"
    facts = [
        f"{question.q_len:,} × {question.kv_len:,} tokens",
        heads,
        f"head_dim {question.head_dim}",
        question.dtype,
    ]
    return facts + ["segment ids"] * question.segmented + ["run-time mask"] * question.dynamic
