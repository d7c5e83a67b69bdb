"""Problems, under the import path that adapters use; see `conformance.problems`."""

from conformance.problems.mask_json import Blocks, Random, expr_from_json, expr_to_json
from conformance.problems.problem import DTYPES, LAYOUTS, BlockSizes, Problem

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "BlockSizes",
    "Blocks",
    "Problem",
    "Random",
    "expr_from_json",
    "expr_to_json",
]
