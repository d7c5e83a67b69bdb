"""The libraries' own mask objects for the masks of problems."""

from __future__ import annotations

from typing import Any

from conformance.adapters.shared.user_masks import as_library_mask
from conformance.problems.user_mask import UserMask
from reference.masks import And, Bool, Causal, ChunkedCausal, Dense, Expr, Full, Local, Mask, Or


def read_only(array: Bool) -> Bool:
    """An array as JAX hands them out: a mask class that writes into what it was given raises."""
    view = array.view()
    view.flags.writeable = False
    return view


def library_mask(lib: Any, expr: Expr, q_len: int, kv_len: int) -> Any:
    """The library's own mask object for an expression.

    Args:
      lib: the module with the library's mask classes.
      expr: what to express; kinds for which the library has no class become its dense mask.
      q_len, kv_len: tokens.
    """
    shape = (q_len, kv_len)
    if isinstance(expr, UserMask):
        return as_library_mask(lib, expr.instance)
    if isinstance(expr, Full):
        return lib.FullMask(shape)
    if isinstance(expr, Causal):
        return lib.CausalMask(shape, offset=expr.offset)
    if isinstance(expr, Local):
        return lib.LocalMask(shape, (expr.left, expr.right), offset=expr.offset)
    if isinstance(expr, ChunkedCausal) and hasattr(lib, "ChunkedCausalMask"):
        return lib.ChunkedCausalMask(shape, chunk_size=expr.chunk_size)
    if isinstance(expr, Dense):
        return lib.NumpyMask(read_only(expr.array))
    if isinstance(expr, (And, Or)):
        left = library_mask(lib, expr.left, q_len, kv_len)
        right = library_mask(lib, expr.right, q_len, kv_len)
        return left & right if isinstance(expr, And) else left | right
    return lib.NumpyMask(read_only(Mask(expr, q_len, kv_len).dense()))
