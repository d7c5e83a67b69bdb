"""Segment ids on the command line: document lengths, ids from a file, or ids known only at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conformance.explain.language.expressions import Documents, Function
from conformance.explain.language.grammar import number
from reference.masks import Bool, Expr, Int

#: Ids that are known only when the program runs.
UNKNOWN = "any"


def segments(text: str, q_len: int, kv_len: int) -> Expr | None:
    """Parses segment ids into the mask of pairs with equal ids.

    Args:
      text: ``any``; one length, of all documents; several lengths that add up to the sequence; or a file of
        ids, ``[n]`` or ``[2, n]`` (queries, keys).
      q_len, kv_len: tokens.

    Returns:
      None if the ids are not known.

    Raises:
      ValueError: the text has another form, or does not fit the lengths.
    """
    if text == UNKNOWN:
        return None
    if text.endswith(".npy"):
        return _from_file(Path(text), q_len, kv_len)
    try:
        lengths = tuple(number(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise ValueError(
            f"expected {UNKNOWN}, a length, lengths with commas between them, or a file.npy: {error}"
        ) from error
    return documents(lengths, q_len, kv_len)


def documents(lengths: tuple[int | float, ...], q_len: int, kv_len: int) -> Documents:
    """Documents that fit the sequence.

    Raises:
      ValueError: a length is not a whole number of at least 1, or several do not add up to the sequence.
    """
    if not all(isinstance(length, int) for length in lengths):
        raise ValueError(f"lengths of documents must be whole numbers, got {list(lengths)}")
    made = Documents(tuple(int(length) for length in lengths))
    longest = max(q_len, kv_len)
    if len(lengths) > 1 and sum(made.lengths) != longest:
        raise ValueError(
            f"documents must add up to the {longest:,} tokens of the sequence, got {sum(made.lengths):,}"
        )
    return made


def _from_file(path: Path, q_len: int, kv_len: int) -> Expr:
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    ids = np.load(path, allow_pickle=False)
    if ids.dtype.kind not in "iu":
        raise ValueError(f"{path} must hold integers, got {ids.dtype}")
    pair = [ids, ids] if ids.ndim == 1 else list(ids)
    shapes = [part.shape for part in pair]
    if shapes != [(q_len,), (kv_len,)]:
        raise ValueError(
            f"{path} must hold ids [{q_len}] or [2, {q_len}], one for each token, got shape {ids.shape}"
        )
    return from_ids(pair[0], pair[1])


def from_ids(q: NDArray[np.integer], kv: NDArray[np.integer]) -> Expr:
    """The mask of pairs with equal ids; `Documents` if every id is one run of tokens."""
    starts = np.flatnonzero(np.diff(q, prepend=q[0] - 1))
    if np.array_equal(q, kv) and len(np.unique(q)) == len(starts):
        return Documents(tuple(np.diff(starts, append=len(q)).tolist()))

    def same(q_ids: Int, kv_ids: Int) -> Bool:
        return np.asarray(q[q_ids] == kv[kv_ids])

    return Function(same, "segment ids")
