"""Pages of the API reference: which modules have one, and what stands on it."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

from conformance.checks import MODULES
from docs.generate import registry

ROOT = Path(__file__).parents[2]
FOLDER = "api"


#: What stands on the page of modules, by package.
PACKAGES = {
    "spec": "The clauses, read out of the chapters.",
    "reference": "The specification in plain NumPy: one function a clause, clarity over speed.",
    "conformance": "The suite: what adapters, your own tests and tools build on. One page a room.",
}

#: Rooms of `conformance` that have a page: those that others build on.
ROOMS = ("problems", "findings", "contract", "drawing", "checks", "search", "runs", "reports")

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


@functools.cache
def pages() -> dict[str, str]:
    """Every page by its path, in order."""
    found = {page_of(f"spec.{name}"): module_page(f"spec.{name}") for name in modules_of("spec")}
    for name in modules_of("reference"):
        found[page_of(f"reference.{name}")] = module_page(f"reference.{name}")
    for room in ROOMS:
        found[page_of(f"conformance.{room}")] = room_page(f"conformance.{room}")
    found[page_of(KERNELS)] = kernels_page()
    return found


def navigation() -> list[Any]:
    """The pages by package."""
    sections: list[Any] = []
    for package in PACKAGES:
        own = [path for path in pages() if path.startswith(f"{FOLDER}/{package}.")]
        names = [Path(path).stem.removeprefix(f"{package}.") for path in own]
        sections.append({package: [{name: path} for name, path in zip(names, own, strict=True)]})
    return [*sections, page_of(KERNELS)]


def modules_of(package: str) -> list[str]:
    """The documented modules of a package or room, in alphabetical order: checks have pages of their own."""
    folder = ROOT / package.replace(".", "/")
    names = sorted(path.stem for path in folder.glob("*.py"))
    return [name for name in names if name not in ("__init__", *MODULES)]


def page_of(name: str) -> str:
    """The page of a module or room."""
    return f"{FOLDER}/{name}.md"


def docstring(module: str) -> str:
    """The docstring of a module, without importing it."""
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def summary(module: str) -> str:
    """The first sentence of the docstring of a module."""
    return " ".join(docstring(module).split("\n\n", 1)[0].split())


def room_page(room: str) -> str:
    """The page of a room of `conformance`: what it is for, and everything public in its modules."""
    out = [f"# {room}", "", docstring(room)]
    for name in modules_of(room):
        out += _shown(f"{room}.{name}", heading_level=2)
    return "\n".join(out) + "\n"


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
    return _shown(f"{KERNELS}.{name}", heading_level=3)


def _shown(path: str, heading_level: int) -> list[str]:
    """An object with a heading of its own."""
    options = {
        "show_root_heading": "true",
        "show_root_toc_entry": "true",
        "show_root_full_path": "false",
        "heading_level": str(heading_level),
    }
    lines = [f"      {option}: {value}" for option, value in options.items()]
    return ["", f"::: {path}", "    options:", *lines]


def _exports(package: str) -> list[str]:
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError(f"{package} has no __all__")


def modules() -> str:
    """Every page of the API with the first sentence of what it shows."""
    out = []
    for package, about in PACKAGES.items():
        out += [f"## {package}", "", about, "", "| page | what it is |", "|-|-|"]
        for path in pages():
            name = Path(path).stem
            if name.startswith(f"{package}."):
                out.append(f"| [`{name}`]({name}.md) | {summary(name)} |")
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
    for package in (*PACKAGES, KERNELS):
        out += [f"### {package}", "", "| module | what it is |", "|-|-|"]
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1] != "__init__":
                name = ".".join(parts)
                out.append(f"| {_linked(name)} | {summary(name)} |")
        out.append("")
    return "\n".join(out)


def _linked(module: str) -> str:
    package, _, name = module.rpartition(".")
    if page_of(module) in pages():
        return f"[`{module}`]({page_of(module)})"
    if package.removeprefix("conformance.") in ROOMS and name in modules_of(package):
        return f"[`{module}`]({page_of(package)}#{module})"
    return f"`{module}`"
