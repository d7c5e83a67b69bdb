"""Tables of what adapters declare and of what inputs bring out."""

from __future__ import annotations

from conformance.contract import protocol as adapter
from conformance.problems.regimes import REGIMES
from conformance.search import effort as profiles
from spec import all_clauses


def anchor(feature: str) -> str:
    """The place of a feature on its page."""
    return "feature-" + feature.replace(":", "-")


def features() -> str:
    """Every feature, what declaring it promises, and how many clauses then apply."""
    out = ["| feature | what it promises | clauses |", "|-|-|-|"]
    for name, promise in adapter.FEATURES.items():
        count = sum(name in item.features for item in all_clauses().values())
        out.append(f'| <code id="{anchor(name)}">{name}</code> | {promise} | {count or "—"} |')
    return "\n".join(out)


def feature_profiles() -> str:
    """What a whole declaration of some kind contains."""
    out = ["| profile | features |", "|-|-|"]
    for name, needed in adapter.PROFILES.items():
        links = ", ".join(f"[`{feature}`](#{anchor(feature)})" for feature in needed)
        out.append(f"| {name} | {links} |")
    return "\n".join(out)


def search_profiles() -> str:
    """How much a run tries."""
    out = [
        "| profile | structure | kernels | numbers, all features | numbers, one feature | every variant |",
        "|-|-|-|-|-|-|",
    ]
    for name, item in profiles.PROFILES.items():
        figures = (
            item.examples, item.heavy_examples, item.broad_examples, item.numeric_examples,
            "yes" if item.variants else "no",
        )  # fmt: skip
        out.append(f"| `{name}` | {' | '.join(map(str, figures))} |")
    return "\n".join(out)


def regimes() -> str:
    """Every regime, what is special about it, and which clauses it can falsify."""
    out = ["| regime | what is special | clauses |", "|-|-|-|"]
    for item in REGIMES.values():
        out.append(f"| `{item.name}` | {item.about} | {', '.join(item.clauses)} |")
    return "\n".join(out)
