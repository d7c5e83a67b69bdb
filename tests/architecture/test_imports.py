"""Imports go one way: between the packages of the project, between the rooms of `conformance`, and between modules.

An import counts wherever it stands: at the top of a module, inside a function, or for type checkers only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Every package may import itself and those before it.
PACKAGES = ("spec", "reference", "conformance")

#: The rooms of `conformance`; each may import itself and those above it. Rooms on one line are siblings: none imports
#: another.
ROOMS: tuple[tuple[str, ...], ...] = (
    ("problems",),
    ("findings",),
    ("contract",),
    ("adapters",),
    ("drawing",),
    ("checks",),
    ("search",),
    ("runs",),
    ("reports",),
    ("mutants",),
    ("compare", "explain", "fuzz_mask", "bug_report"),
    ("commands",),
)

#: Modules outside of any room: import paths that users' adapters rely on, and the one that finds our packages.
FACES = {"adapter", "problem", "strategies", "plugin"}
PATHS = "packages"

#: Who may import an implementation: its adapter, and the tests.
IMPLEMENTATIONS = {"pallas_impl", "jax", "tokamax", "jaxlib"}


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[tuple[str, str | None, int]]:
    """Module, name and line of every import, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from ((node.module, alias.name, node.lineno) for alias in node.names)


def room_rank(room: str) -> int:
    return next(number for number, rooms in enumerate(ROOMS) if room in rooms)


def may_import_room(room: str, other: str) -> bool:
    return other in (room, PATHS) or (
        any(other in rooms for rooms in ROOMS) and room_rank(other) < room_rank(room)
    )


@pytest.mark.parametrize("package", [*PACKAGES, "pallas_impl"])
def test_packages_import_only_those_before_them(package: str) -> None:
    ours = {*PACKAGES, "pallas_impl"}
    allowed = {package} | (
        set(PACKAGES[: PACKAGES.index(package)]) if package in PACKAGES else set()
    )
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in files(package)
        for module, _, line in imported(path)
        if module.split(".")[0] in ours - allowed
        and not name_of(path).startswith("conformance.adapters.")
    ]
    assert wrong == []


def test_only_adapters_import_implementations() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for package in PACKAGES
        for path in files(package)
        for module, _, line in imported(path)
        if module.split(".")[0] in IMPLEMENTATIONS
        and not name_of(path).startswith("conformance.adapters.")
    ]
    assert wrong == []


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in (ROOT / "conformance").glob("*/__init__.py")}
    assert folders == {room for rooms in ROOMS for room in rooms}
    loose = {path.stem for path in (ROOT / "conformance").glob("*.py")}
    assert loose == {"__init__", PATHS, *FACES}


@pytest.mark.parametrize("room", [room for rooms in ROOMS for room in rooms])
def test_rooms_import_only_those_above_them(room: str) -> None:
    wrong = []
    for path in files(f"conformance/{room}"):
        for module, name, line in imported(path):
            package, _, rest = module.partition(".")
            if package != "conformance":
                continue
            other = rest.split(".")[0] or str(name)
            if not may_import_room(room, other):
                wrong.append(f"{name_of(path)}:{line} imports {module}")
    assert wrong == []


def test_no_module_takes_part_in_a_cycle() -> None:
    paths = {
        name_of(path): path for package in (*PACKAGES, "pallas_impl") for path in files(package)
    }
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        needed = {
            f"{module}.{part}" if f"{module}.{part}" in paths else module
            for module, part, _ in imported(path)
        }
        graph[name] = {other for other in needed if other in paths} - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_the_rules_notice_what_they_forbid() -> None:
    assert may_import_room("checks", "problems")
    assert not may_import_room("problems", "checks")
    assert not may_import_room("compare", "explain")
    assert not may_import_room("runs", "adapter")
