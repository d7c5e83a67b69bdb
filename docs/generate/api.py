"""Pages of the API reference: which modules have one, and what stands on it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from docs.generate import registry

ROOT = Path(__file__).parents[2]
FOLDER = "api"


@dataclass(frozen=True)
class Package:
    """A package with its documented modules.

    Attributes:
      name: of the package.
      about: one sentence.
      modules: those that have a page, in order.
    """

    name: str
    about: str
    modules: tuple[str, ...]


def _all_of(package: str) -> tuple[str, ...]:
    return tuple(sorted(p.stem for p in (ROOT / package).glob("*.py") if p.stem != "__init__"))


PACKAGES: tuple[Package, ...] = (
    Package("spec", "The clauses, read out of the chapters.", ("clauses",)),
    Package(
        "reference",
        "The specification in plain NumPy: one function a clause, clarity over speed.",
        _all_of("reference"),
    ),
    Package(
        "conformance",
        "The suite: what adapters, one's own tests and tools build on.",
        (
            "adapter", "problem", "mask_json", "strategies", "numeric_strategies", "vectors",
            "numeric_vectors", "regimes", "compare", "judge", "violation", "verdict", "domain",
            "numeric_domain", "predicates", "search", "subject", "smoke", "expectation", "replay",
            "report", "plugin",
        ),
    ),
)  # fmt: skip

#: Documented as one page, from what the package exports.
KERNELS = "pallas_impl"

#: What is exported, in the order in which one meets it; what is not named here follows.
SECTIONS = {
    "Attention": ("make_splash_mha", "make_splash_mqa", "SplashAttentionKernel", "BlockSizes"),
    "Masks": ("CausalMask", "LocalMask", "ChunkedCausalMask", "FullMask", "DenseMask", "NumpyMask"),
    "Masks of your own": ("Mask", "ComputableMask", "Intervals", "MultiHeadMask", "AndMask"),
    "Ring attention": ("make_ring_attention", "RingAttentionKernel", "zigzag_order"),
    "The mask compiler": ("compile_mask", "compile_flat", "compile_dynamic_mask", "MaskInfo"),
}


def page_of(module: str) -> str:
    """The page of a module."""
    return f"{FOLDER}/{module}.md"


def summary(module: str) -> str:
    """First sentence of the docstring of a module, without importing it."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n", 1)[0].split())


def module_page(module: str) -> str:
    """The page of one module: its docstring and everything public in it.

    A private object that executes a clause is public here, since the clause links to it.
    """
    prefix = module + "."
    private = sorted(
        name.removeprefix(prefix)
        for name in registry.clauses_defined_by()
        if name.startswith(prefix + "_")
    )
    kept = "|".join(re.escape(name[1:]) + "$" for name in private)
    out = [f"# {module}", "", f"::: {module}"]
    if private:
        out += ["    options:", f'      filters: ["!^_(?!{kept})"]']
    return "\n".join(out) + "\n"


def kernels_page() -> str:
    """The page of our own kernels: everything that is exported, read from the sources (JAX is not needed for it)."""
    left = _exports(KERNELS)
    out = [f"# {KERNELS}", "", summary(KERNELS)]
    for title, names in SECTIONS.items():
        out += ["", f"## {title}"]
        for name in names:
            left.remove(name)
            out += _exported(name)
    out += ["", "## Further"]
    for name in left:
        out += _exported(name)
    return "\n".join(out) + "\n"


def _exported(name: str) -> list[str]:
    options = {
        "show_root_heading": "true",
        "show_root_toc_entry": "true",
        "show_root_full_path": "false",
        "heading_level": "3",
    }
    lines = [f"      {option}: {value}" for option, value in options.items()]
    return ["", f"::: {KERNELS}.{name}", "    options:", *lines]


def _exports(package: str) -> list[str]:
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError(f"{package} has no __all__")


def modules() -> str:
    """Every documented module by package."""
    out = []
    for package in PACKAGES:
        out += [f"## {package.name}", "", package.about, "", "| module | what it is |", "|-|-|"]
        for name in package.modules:
            module = f"{package.name}.{name}"
            out.append(f"| [`{module}`]({module}.md) | {summary(module)} |")
        out.append("")
    out += [
        f"## {KERNELS}",
        "",
        f"{summary(KERNELS)} What is exported is on [one page]({KERNELS}.md).",
    ]
    return "\n".join(out)


def all_modules() -> str:
    """Every module of every package with its first sentence, those without a page too."""
    out = []
    for package in ("spec", "reference", "conformance", KERNELS):
        out += [f"### {package}", "", "| module | what it is |", "|-|-|"]
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "templates" not in parts and parts[-1] != "__init__":
                name = ".".join(parts)
                out.append(f"| {_linked(name)} | {summary(name)} |")
        out.append("")
    return "\n".join(out)


def _linked(module: str) -> str:
    package, _, name = module.partition(".")
    documented = any(item.name == package and name in item.modules for item in PACKAGES)
    return f"[`{module}`]({FOLDER}/{module}.md)" if documented else f"`{module}`"
