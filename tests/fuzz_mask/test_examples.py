"""The masks in ``examples/masks`` are right, and are given to the libraries that they are written for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.adapter import load
from conformance.commands.fuzz_mask import implementation_of
from conformance.contract.load import Loader
from conformance.fuzz_mask.outcome import StageName
from tests.commands.command_line import Run
from tests.fuzz_mask.harness import FEW, KERNELS, judged

FOLDER = Path(__file__).parents[2] / "examples" / "masks"

#: File, class, oracle, implementation.
EXAMPLES = [
    ("document.py", "DocumentMask", "same_document", "pallas_impl"),
    ("prefix_lm.py", "PrefixLMMask", "declared", "pallas_impl"),
    ("dilated_window.py", "DilatedWindowMask", "declared", "pallas_impl"),
    ("load_balanced.py", "LoadBalancedCausalMask", "declared", "pallas_impl"),
    ("longformer.py", "LongformerMask", "declared", "pallas_impl"),
    ("compressed_prefix.py", "CompressedPrefixMask", "declared", "pallas_impl"),
    ("jax_prefix_lm.py", "PrefixLMMask", "declared", "jax"),
    ("jax_document.py", "DocumentMask", "same_document", "jax"),
]
NAMES = [name for name, *_ in EXAMPLES]


def example(file: str, name: str, oracle: str) -> tuple[Any, Any]:
    """The module of an example, and its oracle."""
    loader = Loader()
    _, module = loader.load(f"{FOLDER / file}:{name}")
    return module, loader.load(f"{FOLDER / file}:{oracle}")[0]


def test_every_example_is_tried() -> None:
    assert sorted(NAMES) == sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize(("file", "name", "oracle", "impl"), EXAMPLES, ids=NAMES)
def test_example_is_right_and_compiles(file: str, name: str, oracle: str, impl: str) -> None:
    module, declared = example(file, name, oracle)
    assert implementation_of(getattr(module, name)) == impl
    stages: tuple[StageName, ...] = ("class", "compiled")
    run = judged(module, name, declared, stages=stages, effort=FEW, adapter=load(impl))
    assert (run.exit_code, run.faults) == (0, [])
    assert [run.stages[stage].status for stage in stages] == ["conforms", "conforms"]


@pytest.mark.parametrize("impl", ["pallas_impl", "jax"])
def test_masks_are_computed_as_they_say(impl: str) -> None:
    file, name, oracle, _ = next(item for item in EXAMPLES[1:] if item[3] == impl)
    module, declared = example(file, name, oracle)
    run = judged(module, name, declared, stages=("class", "compiled", "kernels", "attention"),
                 effort=KERNELS, adapter=load(impl))  # fmt: skip
    assert (run.exit_code, run.faults) == (0, [])
    assert {stage.status for stage in run.stages.values()} == {"conforms"}
    assert run.stages["attention"].clauses.keys() >= {"FWD-1", "BWD-1", "BWD-3", "BWD-4"}
    assert run.stages["class"].clauses["MASK-19"] == "conforms"


@pytest.mark.deep
@pytest.mark.parametrize(("file", "name", "oracle", "impl"), EXAMPLES, ids=NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_example_conforms(
    said: Run, file: str, name: str, oracle: str, impl: str, seed: int
) -> None:
    target, declared = f"{FOLDER / file}:{name}", f"{FOLDER / file}:{oracle}"
    found = said("fuzz-mask", target, "--oracle", declared, "--seed", str(seed))
    assert found.code == 0, found.out
    assert f" on {impl} " in found.out
