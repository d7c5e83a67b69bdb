"""The adapters that come with the suite, by name; imports nothing, for the help pages."""

from __future__ import annotations

#: Shipped adapters: module and what must be installed.
SHIPPED: dict[str, tuple[str, str]] = {
    "pallas_impl": (
        "conformance.adapters.pallas_impl.adapter",
        "pip install 'splash-conformance[jax]'",
    ),
    "reference": ("conformance.adapters.reference.adapter", ""),
    "jax": ("conformance.adapters.jax.adapter", "pip install 'splash-conformance[jax]'"),
    "tokamax": (
        "conformance.adapters.tokamax.adapter",
        "pip install 'splash-conformance[tokamax]'",
    ),
}

#: What releases of the libraries import without asking for it, by module: the distribution that has it.
UNASKED = {"absl": "absl-py"}

#: The implementation that is judged if none is named: this project's own.
DEFAULT_IMPL = "pallas_impl"
