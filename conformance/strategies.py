"""Hypothesis strategies for your own tests; see `conformance.drawing.strategies`."""

from conformance.drawing.strategies import Space, block_patterns, mask_strategies, masks, problems

__all__ = ["Space", "block_patterns", "mask_strategies", "masks", "problems"]
