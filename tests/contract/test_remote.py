"""Adapters in other interpreters: what is sent, what must be old-fashioned, and that verdicts are the same."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import conformance
from conformance import checks
from conformance.adapter import AdapterError, load
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS
from conformance.contract import library
from conformance.contract.fence import Subject
from conformance.contract.remote import start, wire
from conformance.contract.remote.host import ForeignAdapter, ForeignMask, close
from conformance.contract.remote.process import Limits, private_copy
from conformance.findings.violation import Violation
from conformance.problem import BlockSizes, Problem
from conformance.problems.mask_json import Blocks
from conformance.search.search import Profile, run_check
from reference.mask_info import GridMaskInfo, Shards
from reference.masks import Causal, ChunkedCausal, Dense
from reference.sharding import Shard
from tests.commands.command_line import Run

checks.load_all()
HOME = Path(conformance.__file__).parents[1]
FEW = Profile(
    examples=4, heavy_examples=2, broad_examples=1, numeric_examples=0, shrinks=4, variants=False
)
PROBLEM = Problem(4, 4, (Blocks(("a2", "0r"), 2, 2),), BlockSizes(2, 2), head_dim=8, head_dim_v=8)

# What adapters import must run on Python 3.9.


def file_of(module: str) -> Path | None:
    """The file of one of our modules."""
    path = HOME / Path(*module.split("."))
    found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return (
        found[0] if found and module.split(".")[0] in ("conformance", "reference", "spec") else None
    )


def imported(module: str) -> Iterator[str]:
    """The names that a module imports, and the packages that it stands in."""
    parts = module.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts)))
    file = file_of(module)
    assert file is not None
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def shipped() -> list[str]:
    """Every module that an adapter of another interpreter needs."""
    todo = ["conformance.contract.remote.start", "conformance.contract.remote.worker"]
    # Our own kernels run where this suite runs, and need its Python.
    adapters = (HOME / "conformance" / "adapters").rglob("[!_]*.py")
    names = [".".join(path.relative_to(HOME).with_suffix("").parts) for path in adapters]
    todo += [name for name in names if "pallas_impl" not in name]
    found: set[str] = set()
    while todo:
        module = todo.pop()
        if module not in found and file_of(module) is not None:
            found.add(module)
            todo += imported(module)
    return sorted(found)


#: Calls and keywords that Python 3.9 does not have (``zip(strict=)`` is provided for our modules).
TOO_NEW_NAMES = {
    "pairwise",
    "bit_count",
    "TypeAlias",
    "ParamSpec",
    "Self",
    "assert_never",
    "tomllib",
}
TOO_NEW_KEYWORDS = {"slots", "kw_only"}


def too_new(tree: ast.Module) -> Iterator[str]:
    """What Python 3.9 can read but not run."""

    def united(node: ast.AST) -> bool:
        return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.BitOr) for n in ast.walk(node))

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = getattr(node.func, "id", "")
            if function in ("isinstance", "issubclass") and united(node.args[1]):
                yield f"line {node.lineno}: {function} with a union"
            if function == "dataclass":
                yield from (
                    f"line {node.lineno}: {k.arg}"
                    for k in node.keywords
                    if k.arg in TOO_NEW_KEYWORDS
                )
        names = {getattr(node, "attr", ""), getattr(node, "id", "")}
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {name.name for name in node.names}
        if names & TOO_NEW_NAMES:
            yield f"line {getattr(node, 'lineno', 0)}: {names & TOO_NEW_NAMES}"
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and united(statement.value):
            yield f"line {statement.lineno}: an alias of a union"


@pytest.mark.parametrize("module", shipped())
def test_modules_of_adapters_are_old_fashioned(module: str) -> None:
    file = file_of(module)
    assert file is not None
    text = file.read_text(encoding="utf-8")
    assert list(too_new(ast.parse(text, feature_version=(3, 9)))) == []


def test_what_is_too_new_is_noticed() -> None:
    text = (
        "A = int | str\nisinstance(1, int | str)\n"
        "@dataclass(frozen=True, slots=True)\nclass C:\n    x: int | str\n"
        "itertools.pairwise([])\n"
    )
    assert len(list(too_new(ast.parse(text)))) == 4
    with pytest.raises(SyntaxError):
        ast.parse("match 1:\n    case 1:\n        pass\n", feature_version=(3, 9))


def test_zip_is_strict_where_it_is_asked_to_be() -> None:
    zipped: Any = start.strict_zip
    assert list(zipped([1, 2], "ab", strict=True)) == [(1, "a"), (2, "b")]
    assert list(zipped([1, 2], "a")) == [(1, "a")]
    assert list(zipped()) == []
    pairs: list[tuple[Any, Any]] = [([1], "ab"), ("ab", [1]), ([], [1])]
    for short in pairs:
        with pytest.raises(ValueError, match="different lengths"):
            list(zipped(*short, strict=True))


# What is sent.


def through(value: Any, folder: Path) -> Any:
    return wire.loads(wire.dumps(value, str(folder)))


NAN = np.array([0x7FC00001, 0xFFC00000, 0x7F800000, 0x80000000], np.uint32).view(np.float32)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int8).reshape(2, 3),
        np.arange(6, dtype=">i4").reshape(2, 3)[:, ::2],
        np.zeros((0, 3), np.bool_),
        np.array(7, dtype=np.uint16),
        NAN,
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(100_000, dtype=np.float64),
    ],
)
def test_arrays_arrive_bit_for_bit(array: np.ndarray, tmp_path: Path) -> None:
    found = through(array, tmp_path)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable
    assert list(tmp_path.iterdir()) == []


def test_large_arrays_are_files(tmp_path: Path) -> None:
    line = wire.dumps(
        [np.zeros(wire.INLINE + 1, np.uint8), np.zeros(wire.INLINE, np.uint8)], str(tmp_path)
    )
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == wire.INLINE + 1
    assert [len(array) for array in wire.loads(line)] == [wire.INLINE + 1, wire.INLINE]


def test_bfloat16_travels_as_bits(tmp_path: Path) -> None:
    types = pytest.importorskip("ml_dtypes", reason="comes with jax")
    array = np.array([1.0, -0.0, 3.140625, np.inf, np.nan], dtype=types.bfloat16)
    found = through(array, tmp_path)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, array.astype(np.float32))
    assert np.signbit(found[1])
    small = through(np.zeros(2, dtype=types.int4), tmp_path)
    assert str(small).startswith("array of int4")


@pytest.mark.parametrize(
    "value",
    [
        None, True, -3, 2**70, "§", 0.1, float("inf"), (1, ("a", None)), [1, [2]], {"a": 1, (2, 3): {}},
        frozenset({1, 2}), slice(1, None, 2), np.int32(5), np.float64(0.1), Shard(1, 2, 0), Shards(q=2),
        (Causal(-3),), PROBLEM, BlockSizes(1, 2),
    ],
)  # fmt: skip
def test_plain_data_arrives_as_it_was(value: Any, tmp_path: Path) -> None:
    found = through(value, tmp_path)
    assert found == value
    assert type(found) is type(value)


def test_spoiled_problems_travel(tmp_path: Path) -> None:
    chunked: Any = object.__new__(ChunkedCausal)
    object.__setattr__(chunked, "chunk_size", -4)
    ranked: Any = object.__new__(Dense)
    object.__setattr__(ranked, "array", np.ones((1, 4, 4), np.float32))
    for expr in (chunked, ranked):
        found = through(PROBLEM.but(masks=(expr,)), tmp_path).masks[0]
        assert type(found) is type(expr)
        np.testing.assert_array_equal(*(next(iter(vars(e).values())) for e in (found, expr)))


def test_other_objects_arrive_as_what_they_are_called(tmp_path: Path) -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    found = through([object(), Silent(), np.array([None]), b"x"], tmp_path)
    assert [item.type_name for item in found] == ["object", "Silent", "array of object", "bytes"]
    assert "raises RuntimeError" in str(found[1])


@pytest.mark.parametrize(
    "line", ["", "{", '{"a": 1}', '{"$": "data", "class": "os:system", "fields": {}}',
             '{"$": "data", "class": "conformance.commands.cli:main", "fields": {}}', '{"$": "tuple"}']
)  # fmt: skip
def test_other_lines_are_no_messages(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (any)
        wire.loads(line)


# Other interpreters.


def wrapper(folder: Path, *options: str) -> str:
    """An interpreter at another path: what the suite has, seen as somebody else's."""
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" {" ".join(options)} "$@"\n', encoding="utf-8"
    )
    path.chmod(0o755)
    return str(path)


def old_interpreter() -> str:
    """The oldest interpreter with NumPy that can be found; skips the test if there is none."""
    named = os.environ.get("SPLASH_CONFORMANCE_OLD_PYTHON")
    found = [named] if named else [shutil.which(f"python3.{minor}") for minor in (9, 10, 11)]
    for python in filter(None, found):
        done = subprocess.run(
            [python, "-c", "import numpy, sys; assert sys.version_info < (3, 12)"],
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return python
    pytest.skip(
        "no Python below 3.12 with NumPy on the path; SPLASH_CONFORMANCE_OLD_PYTHON may name one"
    )


@pytest.fixture(params=["copy", "old"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return wrapper(tmp_path) if request.param == "copy" else old_interpreter()


def test_verdicts_are_those_of_this_process(python: str) -> None:
    adapter, here = ForeignAdapter("reference", python, Limits()), ReferenceAdapter()
    there = Subject(adapter, adapter.describe())
    assert there.description == here.describe()
    assert adapter.environment["numpy"]
    # Masks, arrays, schedules, run-time masks, refusals of spoiled input, edited arrays, gradients, the ring.
    for clause in ("MASK-12", "MASK-14", "MASK-15", "CONV-3", "DATA-3", "FLAT-4", "SCHED-1", "DYNAMIC-1",
                   "REJECT-3", "REJECT-4", "REJECT-7", "REJECT-16", "FWD-21", "BWD-24", "RING-1"):  # fmt: skip
        for check in (check for check in CHECKS.values() if check.clause_id == clause):
            found = run_check(check, there, FEW, seed=0)
            right = run_check(check, Subject(here, here.describe()), FEW, seed=0)
            assert found.status == right.status == "conforms", (clause, found)
            assert found.examples == right.examples
    close(adapter)


def test_arrays_are_those_of_this_process(tmp_path: Path) -> None:
    adapter = ForeignAdapter("reference", wrapper(tmp_path), Limits())
    far, near = adapter.prepare(PROBLEM), ReferenceAdapter().prepare(PROBLEM)
    there, here = far.mask_info("dkv"), near.mask_info("dkv")
    assert isinstance(there, GridMaskInfo)
    assert isinstance(here, GridMaskInfo)
    for name, array in vars(here).items():
        np.testing.assert_array_equal(getattr(there, name), array)
        assert getattr(getattr(there, name), "dtype", None) == getattr(array, "dtype", None)
    # Masks stay there: sliced, compared and hashed where they are.
    mask, same = far.mask(0), adapter.prepare(PROBLEM).mask(0)
    other = adapter.prepare(PROBLEM.but(masks=(Causal(),))).mask(0)
    assert isinstance(mask, ForeignMask)
    assert mask.shape == (4, 4)
    np.testing.assert_array_equal(mask[1:3, :2], near.mask(0)[1:3, :2])
    assert mask == same
    assert hash(mask) == hash(same)
    assert mask != other
    assert mask != 1
    with pytest.raises(AttributeError, match="no method nothing"):
        far.nothing()
    # The worker may be gone: what it held is made again.
    adapter.stop()
    np.testing.assert_array_equal(mask[:, :], near.mask(0).dense())
    assert mask == same
    close(adapter)


def test_errors_keep_name_message_and_place(tmp_path: Path) -> None:
    adapter = ForeignAdapter("reference", None, Limits())
    bad = PROBLEM.but(blocks=BlockSizes(3, 2))
    with pytest.raises(Exception, match="block_q=3 must divide q_len=4") as caught:
        adapter.prepare(bad)
    assert type(caught.value).__name__ == "ValueError"
    close(adapter)


def test_an_edit_that_fails_is_our_own_error() -> None:
    adapter = ForeignAdapter("reference", None, Limits())
    prepared = adapter.prepare(PROBLEM)

    def edit(info: Any) -> Any:
        raise ZeroDivisionError

    from conformance.problems.arrays import inputs

    with pytest.raises(ZeroDivisionError):
        prepared.forward(inputs(PROBLEM), edit=edit)
    assert prepared.forward(inputs(PROBLEM)).output.shape == (1, 4, 8)
    close(adapter)


def test_an_answer_with_another_key_is_for_another_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = ForeignAdapter("reference", None, Limits())
    prepared = adapter.prepare(PROBLEM)
    monkeypatch.setattr(prepared, "target", {**prepared.target, "key": "another"})
    with pytest.raises(Violation, match="the problem that mask_info answers for"):
        prepared.mask_info("fwd")
    close(adapter)


def test_the_private_copy_holds_our_packages_only(tmp_path: Path) -> None:
    root = private_copy(tmp_path)
    assert sorted(path.name for path in root.iterdir()) == ["conformance", "reference", "spec"]
    assert not list(root.rglob("__pycache__"))
    adapter = ForeignAdapter("reference", wrapper(tmp_path), Limits())
    adapter.describe()
    assert (adapter._folder / "packages" / "conformance").is_dir()
    close(adapter)


def test_an_interpreter_without_numpy_is_an_error_in_one_line(said: Run, tmp_path: Path) -> None:
    found = said("run", "reference", "--python", wrapper(tmp_path, "-S", "-E"))
    assert found.code == 2
    assert found.err.count("\n") == 1
    assert "Python 3.9 and NumPy 1.22, or later, are needed" in found.err
    assert "numpy" in found.err


def test_other_errors_of_interpreters_are_clear(said: Run, tmp_path: Path) -> None:
    found = said("run", "reference", "--python", str(tmp_path / "nothing"))
    assert found.code == 2
    assert "nothing: no such interpreter or virtual environment" in found.err
    text = tmp_path / "text"
    text.write_text("no program", encoding="utf-8")
    text.chmod(0o755)
    assert "cannot be run" in said("run", "reference", "--python", str(text)).err
    found = said("run", "nope", "--python", wrapper(tmp_path))
    assert found.code == 2
    assert "unknown implementation 'nope'" in found.err
    found = said("run", "./mine.py:broken", "--isolate")
    assert found.code == 2
    assert "ValueError: not today" in found.err
    found = said("run", "./mine.py:Listing", "--isolate")
    assert found.code == 2
    assert "must return a Description" in found.err


def test_the_command_line_runs_other_interpreters(said: Run, tmp_path: Path) -> None:
    python = wrapper(tmp_path)
    options = ("--python", python, "--clause", "LABEL-3", "-n", "1", "--json", "r.json")
    found = said("run", "./mine.py:Wrong", *options)
    assert found.code == 1
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert report["foreign_environment"]["python"] == ".".join(map(str, sys.version_info[:3]))
    (line,) = [text for text in found.out.split("\n") if "replay:" in text]
    arguments = line.split()[2:]
    assert arguments[-1] == f"--python={python}"
    assert said(*arguments).code == 1
    assert said("smoke", "./mine.py:Wrong", f"--python={python}").code == 0


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_jax_runs_apart() -> None:
    adapter = ForeignAdapter("jax", None, Limits())
    subject = Subject(adapter, adapter.describe())
    assert adapter.environment["jax"] == subject.description.version
    problem = Problem(256, 256, (Causal(),), BlockSizes(128, 128))
    assert subject.mask_info(problem, "fwd").block_mask.shape[1:] == (2, 2)
    assert len(subject.schedule(problem, "fwd", Shard()).work()) == 3
    close(adapter)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_forks_are_judged_by_the_adapter_of_their_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = library.PACKAGES["jax"]
    fork = tmp_path / "framework" / "attention"
    fork.mkdir(parents=True)
    for name in ("", "_kernel", "_mask", "_mask_info"):
        spec = importlib.util.find_spec(f"{theirs}.splash_attention{name}" if name else theirs)
        assert spec is not None
        assert spec.origin is not None
        text = Path(spec.origin).read_text(encoding="utf-8")
        text = text.replace(theirs, "framework.attention")
        if name == "_mask":  # the fork hides the diagonal
            assert text.count("q_ids + self.offset >= kv_ids") == 1
            text = text.replace("q_ids + self.offset >= kv_ids", "q_ids + self.offset > kv_ids")
        (fork / Path(spec.origin).name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    adapter = ForeignAdapter("jax=framework.attention", None, Limits())
    subject = Subject(adapter, adapter.describe())
    assert (subject.description.name, subject.description.version) == (
        "framework.attention",
        "unknown",
    )
    check = next(check for check in CHECKS.values() if check.clause_id == "COMPUTE-2")
    assert run_check(check, subject, FEW, seed=0).status == "violates"
    close(adapter)
    missing = ForeignAdapter("jax=framework.nothing", None, Limits())
    with pytest.raises(AdapterError, match=r"framework\.nothing"):
        missing.describe()
    close(missing)


def test_only_libraries_have_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_loaded", {"jax": library.PACKAGES["jax"]})
    with pytest.raises(AdapterError, match="only jax, tokamax can be given a package"):
        load("reference=mine")
    with pytest.raises(AdapterError, match="use --isolate"):
        load("jax=mine")
    assert library.judged_package("jax") == library.PACKAGES["jax"]
