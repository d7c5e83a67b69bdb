"""How fast the reference is: as a ratio to jax in the same run, and in problems a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance import checks
from conformance.adapters.reference.adapter import ReferenceAdapter
from conformance.checks.registry import CHECKS
from conformance.contract.fence import Subject
from conformance.search.search import PROFILES, run_check
from reference.mask_info import compile_grid
from reference.masks import Causal, Mask

LENGTH, BLOCK = 8192, 128
#: Clarity comes first in the reference, but nobody should wait for it.
SLOWEST = 3.0
#: On one core, so 10 000 on two: a quick run tries some thousands of structural problems.
PROBLEMS_A_MINUTE = 5000


def best(call: Callable[[], object], times: int = 3) -> float:
    """Least processor time of several calls, in seconds: other work on the machine does not count."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def compile_causal() -> Any:
    return compile_grid([Mask(Causal(), LENGTH, LENGTH)], BLOCK, BLOCK)


def test_compiling_causal_8192_takes_at_most_three_times_as_long_as_jax() -> None:
    pytest.importorskip("jax", reason="the figure is a ratio to jax")
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as info

    mask = masks.MultiHeadMask([masks.CausalMask((LENGTH, LENGTH))])
    uncached = info._process_mask.__wrapped__
    theirs, _ = uncached(mask, (BLOCK, BLOCK), False)
    mine = compile_causal()
    assert np.array_equal(mine.block_mask, np.asarray(theirs.block_mask))
    ratio = best(compile_causal) / best(lambda: uncached(mask, (BLOCK, BLOCK), False))
    print(f"\nreference / jax = {ratio:.2f}")
    assert ratio <= SLOWEST


def test_structural_problems_a_minute() -> None:
    checks.load_all()
    adapter = ReferenceAdapter()
    subject = Subject(adapter, adapter.describe())
    start, tried = time.process_time(), 0
    for check in CHECKS.values():
        if check.domain.work == "structure" and not check.domain.only:
            outcome = run_check(check, subject, PROFILES["quick"], 0)
            assert outcome.status == "conforms", check.name
            tried += outcome.examples
            if time.process_time() - start > 2:
                break
    a_minute = 60 * tried / (time.process_time() - start)
    print(f"\n{a_minute:.0f} problems a minute and core")
    assert a_minute >= PROBLEMS_A_MINUTE


def test_compile_causal(benchmark: Any) -> None:
    found = benchmark.pedantic(compile_causal, rounds=3)
    assert found.block_mask.shape == (1, LENGTH // BLOCK, LENGTH // BLOCK)
