"""The parser of bundle dumps, on dumps made here."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.bundles import Counts, parse, total

LOOP, AFTER_INIT, AFTER_BODY, AFTER_FINISH = range(4)


def _dump(path: Path, length: int, slots: dict[int, str], regions: dict[int, int]) -> str:
    """A dump of ``length`` bundles; ``regions`` gives the address at which each one starts."""
    starts = {address: f"/* Start region {region} */" for region, address in regions.items()}
    lines = [
        f"  0x{a:x}   :  > {{ {slots.get(a, '%p1 = snop 0')} }} {starts.get(a, '')}"
        for a in range(length)
    ]
    file = path / "kernel-70-final_bundles.txt"
    file.write_text("= header\n" + "\n".join(lines))
    return str(file)


def _jump(region: int) -> str:
    return f"%9 = sbr.rel (!%p8) target = $region{region}"


def _kernel(path: Path, extra: dict[int, str]) -> str:
    """A loop over [1, 41): bundles [7, 10) initialise, [16, 26) compute, [31, 35) finish."""
    slots = {
        2: _jump(AFTER_INIT),
        11: _jump(AFTER_BODY),
        17: "%1 = vmatmul.bf16 %v2  ;;  %3 = vld [vmem:%s1]",
        20: "%4 = vmatmul.bf16 %v2  ;;  %5 = vadd.f32 %v1, %v2  ;;  %6 = vadd.f32 %v3, %v4",
        21: "%7 = vpow2.f32 %v1  ;;  %8 = vst [vmem:[#allocation_spill]] %v5",
        26: _jump(AFTER_FINISH),
        36: _jump(LOOP),
    } | extra
    return _dump(path, 45, slots, {LOOP: 1, AFTER_INIT: 10, AFTER_BODY: 26, AFTER_FINISH: 35})


def test_parts_of_a_kernel(tmp_path: Path) -> None:
    kernel = parse(_kernel(tmp_path, {}))
    assert (kernel.init, kernel.bodies, kernel.finish) == (3, [(10, [])], 4)
    assert kernel.step == 40 - 3 - 10 - 4
    assert total(kernel, Counts(steps=5, rows=2, bodies={(0, 0): 4})) == 5 * 23 + 2 * 7 + 4 * 10


def test_units_of_a_body(tmp_path: Path) -> None:
    (units,) = parse(_kernel(tmp_path, {})).units
    expected = {"matrix": (2, 1), "load": (1, 1), "vector": (2, 2), "transcendental": (1, 1)}
    assert {name: units.used[name] for name in expected} == expected
    assert units.spills == 1


def test_a_segment_that_copies_belongs_to_every_step(tmp_path: Path) -> None:
    kernel = parse(_kernel(tmp_path, {8: "%2 = dma.hbm_to_vmem [thread:$0] %s1"}))
    assert (kernel.step, kernel.init) == (23 + 3, 0)
