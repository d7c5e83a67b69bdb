"""The guide to our kernels: its code runs as it is written, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "pages" / "guide" / "kernels.md"


def test_all_code_of_the_guide_runs() -> None:
    if len(jax.devices()) < 4:
        pytest.skip("needs 4 host devices")
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 7
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
