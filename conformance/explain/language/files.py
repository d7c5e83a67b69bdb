"""Masks from files: a stored array, or something in a Python file."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np

from conformance.contract.load import Loader, LoadError, suggest_file
from conformance.explain.language.expressions import Claimed, ClaimedRows, Function, ReadOff
from reference.masks import Bool, Dense, Expr, Mask

#: A user mask with more entries is not read by slices.
READABLE = 1 << 31
#: Entries read at a time.
STRIP = 1 << 22


def from_array_file(path: Path) -> Expr:
    """Reads a boolean array ``[q_len, kv_len]``; numbers must be 0 or 1.

    Raises:
      ValueError: the file does not exist, or holds something else.
    """
    if not path.is_file():
        raise ValueError(f"no such file: {path}{suggest_file(path)}")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} is not an array that NumPy can read: {error}") from error
    return _dense(array, str(path))


def _dense(array: Any, name: str) -> Dense:
    if array.ndim == 3 and len(array) == 1:
        array = array[0]
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be an array (q_len, kv_len), got shape {array.shape}")
    if array.dtype != np.bool_:
        if array.dtype.kind not in "iuf" or not bool(((array == 0) | (array == 1)).all()):
            raise ValueError(f"{name} must hold booleans, or 0 and 1 only, got {array.dtype}")
        array = array != 0
    return Dense(np.asarray(array))


def from_python_file(path: Path, call: str, q_len: int | None, kv_len: int | None) -> Expr:
    """Loads a mask from a Python file: a mask expression, an object with slices, a function of positions, or an array.

    Args:
      path: the file.
      call: ``NAME``, or ``NAME(…)`` with literals; ``q_len``, ``kv_len`` and ``shape`` stand for the lengths.
      q_len, kv_len: tokens, None if they are not known.

    Raises:
      ValueError: it cannot be loaded, or is not a mask.
    """
    name, *rest = call.split("(", 1)
    try:
        made, _ = Loader().load(f"{path}:{name}")
    except LoadError as error:
        raise ValueError(error.summary) from error
    if rest:
        ordered, by_name = _arguments(call, q_len, kv_len)
        try:
            made = made(*ordered, **by_name)
        except Exception as error:
            raise ValueError(f"{call} raised {type(error).__name__}: {error}") from error
    return as_expr(made, f"{path.name}:{call}")


def _arguments(
    call: str, q_len: int | None, kv_len: int | None
) -> tuple[list[Any], dict[str, Any]]:
    lengths = {"q_len": q_len, "kv_len": kv_len, "seq": q_len, "shape": (q_len, kv_len)}

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Name) and node.id in lengths:
            if q_len is None:
                raise ValueError(f"{node.id} is not known without --seq")
            return lengths[node.id]
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(value(part) for part in node.elts)
        try:
            return ast.literal_eval(node)
        except ValueError:
            known = ", ".join(lengths)
            raise ValueError(
                f"arguments must be literals or one of {known}, got {ast.unparse(node)!r}"
            ) from None

    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{call} is not a call: {error.msg}") from error
    assert isinstance(tree, ast.Call)
    return [value(node) for node in tree.args], {
        str(node.arg): value(node.value) for node in tree.keywords
    }


def as_expr(made: Any, name: str) -> Expr:
    """Converts a user's mask to a mask expression.

    Raises:
      ValueError: the type is not supported.
    """
    if isinstance(made, Mask):
        made = made.expr
    if isinstance(made, Expr):
        return made
    if isinstance(made, np.ndarray):
        return _dense(made, name)
    shape = getattr(made, "shape", None)
    if shape is not None and hasattr(made, "__getitem__"):
        claimed = _claimed(made, name) if int(np.prod(shape)) > READABLE else None
        if claimed is not None:
            return claimed
        values = _read(made, tuple(np.atleast_1d(shape).tolist()), name)
        # How masks of jax, tokamax and pallas_impl say that kernels can compute them.
        return ReadOff(values) if hasattr(made, "mask_function") else Dense(values)
    if isinstance(made, type):
        raise ValueError(f"{name} is a class: write {name}(…)")
    if callable(made):
        return Function(made, name)
    raise ValueError(
        f"{name} must be a mask expression, an object with shape and mask[q slice, kv slice], a function of "
        f"(q_ids, kv_ids), or an array; got {type(made).__name__}"
    )


def _claimed(mask: Any, name: str) -> Expr | None:
    """A mask with ``block_bounds``; None without them, or if its positions are not 0, 1, 2, …"""
    if not (hasattr(mask, "visible") and hasattr(mask, "block_bounds")):
        return None
    for axis, length in zip(("q", "kv"), mask.shape, strict=True):
        positions = getattr(mask, f"{axis}_sequence", None)
        if positions is not None and not np.array_equal(positions, np.arange(length)):
            return None
    corner = np.zeros(1, dtype=np.int32)
    if mask.block_bounds(corner, corner, corner, corner) is None:
        return None
    rows = getattr(mask, "kv_intervals", None)
    return Claimed(mask, name) if rows is None or rows(corner) is None else ClaimedRows(mask, name)


def _read(mask: Any, shape: tuple[int, ...], name: str) -> Bool:
    if len(shape) != 2:
        raise ValueError(f"{name} must have a shape (q_len, kv_len), got {shape}")
    q_len, kv_len = shape
    if q_len * kv_len > READABLE:
        raise ValueError(
            f"{name} has {q_len * kv_len:,} entries, too many to read by slices; use a function of "
            "(q_ids, kv_ids) or a mask with block_bounds"
        )
    array = np.empty(shape, dtype=np.bool_)
    rows = max(1, STRIP // kv_len)
    for start in range(0, q_len, rows):
        stop = min(start + rows, q_len)
        try:
            part = np.asarray(mask[start:stop, 0:kv_len])
        except Exception as error:
            raise ValueError(
                f"{name}[{start}:{stop}, 0:{kv_len}] raised {type(error).__name__}: {error}"
            ) from error
        if part.dtype != np.bool_ or part.shape != (stop - start, kv_len):
            raise ValueError(
                f"{name}[{start}:{stop}, 0:{kv_len}] must be boolean of shape {(stop - start, kv_len)}, got "
                f"{part.dtype} of shape {part.shape}"
            )
        array[start:stop] = part
    return array
