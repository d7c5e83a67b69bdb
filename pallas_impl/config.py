"""Static settings that the kernels of one attention call share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pallas_impl.block_sizes import BlockSizes

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)
FLOAT32_MAX = float(np.finfo(np.float32).max)
MASK_VALUE = -0.7 * FLOAT32_MAX
"""Logit of a hidden key: finite, so that differences of two are not NaN."""
MAX_FLOOR = 0.5 * MASK_VALUE
"""Where running maxima start: a hidden key gets exp2(MASK_VALUE - MAX_FLOOR) = 0 exactly, so a
row with nothing visible keeps a zero sum however many hidden keys its blocks hold."""

MaskFunction = Callable[[Any, Any], Any]


@dataclasses.dataclass(frozen=True)
class KernelConfig:
    """What is known when the kernel object is made.

    Attributes:
      block_sizes: tile sizes.
      mask_function: (q ids, kv ids) -> bool, for a mask computed in the kernel; else None.
      soft_cap: logits become cap · tanh(logits / cap) before the mask; None leaves them.
      save_residuals: return logsumexp and max_logits beside the output.
      residual_checkpoint_name: name given to what the backward pass keeps, for
        ``jax.checkpoint`` policies.
      interpret: passed to ``pallas_call``: False, True or ``pltpu.InterpretParams``.
    """

    block_sizes: BlockSizes
    mask_function: MaskFunction | None = None
    soft_cap: float | None = None
    save_residuals: bool = False
    residual_checkpoint_name: str | None = None
    interpret: Any = False
