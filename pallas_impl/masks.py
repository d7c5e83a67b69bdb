"""The mask family: full, causal, local, chunked causal, dense, and/or, one mask per head.

Definitions, for query position q and kv position kv:

- `FullMask`: everything;
- `CausalMask(offset)`: `q + offset >= kv`;
- `LocalMask((left, right), offset)`: `q + offset - left <= kv <= q + offset + right`;
- `ChunkedCausalMask(c)`: `q // c == kv // c` and `q >= kv`;
- `DenseMask(array)`: `array[q, kv]`;
- `a & b`, `a | b`: elementwise; computable inside the kernel if both operands are.

`q_len` and `kv_len` are independent of each other everywhere. Clauses MASK-1 to MASK-21.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pallas_impl.computable import ComputableAnd, ComputableMask, ComputableOr, MaskFunction
from pallas_impl.intervals import Intervals
from pallas_impl.mask_base import (
    AndMask,
    BoolArray,
    Index,
    Mask,
    OrMask,
    check_shape,
    normalize_index,
)
from pallas_impl.structured import CausalMask, ChunkedCausalMask, FullMask, LocalMask

__all__ = [
    "AndMask",
    "CausalMask",
    "ChunkedCausalMask",
    "ComputableAnd",
    "ComputableMask",
    "ComputableOr",
    "DenseMask",
    "FullMask",
    "Intervals",
    "LocalMask",
    "Mask",
    "MaskFunction",
    "MultiHeadMask",
    "NumpyMask",
    "OrMask",
    "as_mask",
]


class DenseMask(Mask):
    """A mask given by its entries. Keeps its own copy, one bit an entry.

    Args:
      array: bool[q_len, kv_len].

    Raises:
      TypeError: `array` is not boolean (REJECT-4).
      ValueError: `array` does not have two axes of at least one element (REJECT-3).
    """

    def __init__(self, array: ArrayLike) -> None:
        given = np.asarray(array)
        if given.dtype != np.bool_:
            raise TypeError(f"array: a dense mask must be bool, got {given.dtype}")
        self._shape = check_shape(given.shape)
        # bytes: immutable for certain, and it remembers its hash.
        self._bits = np.packbits(given, axis=1).tobytes()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def packed(self) -> NDArray[np.uint8]:
        """uint8[q_len, ceil(kv_len / 8)], each row's bits, most significant first; read-only."""
        return np.frombuffer(self._bits, dtype=np.uint8).reshape(self._shape[0], -1)

    def parameters(self) -> object:
        return self._bits

    def __getitem__(self, index: Index, /) -> BoolArray:
        q_item, kv_item = normalize_index(index, 2)
        return np.asarray(unpack_bits(self.packed[q_item], self._shape[1])[..., kv_item])


NumpyMask = DenseMask


class MultiHeadMask(Mask):
    """One mask for each head.

    Args:
      masks: one (q_len, kv_len) mask for each head, all of one shape.

    Raises:
      TypeError: an element is not a mask.
      ValueError: no mask, masks of different shapes (REJECT-5), or nested `MultiHeadMask`.
    """

    masks: tuple[Mask, ...]

    def __init__(self, masks: Sequence[Mask]) -> None:
        heads = tuple(masks)
        if not heads:
            raise ValueError("masks: at least one head is needed")
        for head, mask in enumerate(heads):
            if not isinstance(mask, Mask):
                raise TypeError(f"masks[{head}]: expected a mask, got {type(mask).__name__}")
            if len(mask.shape) != 2:
                raise ValueError(f"masks[{head}]: expected (q_len, kv_len), got {mask.shape}")
            if mask.shape != heads[0].shape:
                raise ValueError(f"masks[{head}]: shape {mask.shape} is not {heads[0].shape}")
        self.masks = heads

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.masks), *self.masks[0].shape)

    def parameters(self) -> object:
        return self.masks

    def __getitem__(self, index: Index, /) -> BoolArray:
        head_item, q_item, kv_item = normalize_index(index, 3)
        if isinstance(head_item, int):
            return self.masks[head_item][q_item, kv_item]
        chosen = self.masks[head_item]
        if not chosen:
            window = self.masks[0][q_item, kv_item]
            return np.zeros((0, *window.shape), dtype=np.bool_)
        return np.stack([mask[q_item, kv_item] for mask in chosen])

    def __and__(self, other: Mask) -> Mask:
        return MultiHeadMask([a & b for a, b in self._pairs(other)])

    def __or__(self, other: Mask) -> Mask:
        return MultiHeadMask([a | b for a, b in self._pairs(other)])

    def _pairs(self, other: Mask) -> list[tuple[Mask, Mask]]:
        if not isinstance(other, MultiHeadMask) or other.shape != self.shape:
            raise ValueError(f"other: and/or need a mask per head of shape {self.shape}")
        return list(zip(self.masks, other.masks, strict=True))


def as_mask(mask: Mask | ArrayLike) -> Mask:
    """Returns `mask` itself, or a dense mask of an array bool[q, kv] or bool[heads, q, kv].

    Raises:
      TypeError: the array is not boolean.
      ValueError: the array has neither two nor three axes, or an empty one.
    """
    if isinstance(mask, Mask):
        return mask
    _refuse_objects(mask)
    array = np.asarray(mask)
    if array.ndim not in (2, 3):
        raise ValueError(
            f"mask must have shape [q_len, kv_len] or [heads, q_len, kv_len], got {array.shape}"
        )
    if array.ndim == 3:
        return MultiHeadMask([DenseMask(head) for head in array])
    return DenseMask(array)


def _refuse_objects(mask: object) -> None:
    """Refuses what NumPy would wrap in an array of objects, and says what to write.

    Raises:
      TypeError: a list of masks, None, or a mask object of another library.
    """
    if isinstance(mask, list | tuple) and any(isinstance(item, Mask) for item in mask):
        raise TypeError(
            f"mask must be a Mask or a boolean array, got a {type(mask).__name__} of masks: "
            "write MultiHeadMask(masks) for one mask a head"
        )
    if isinstance(mask, np.ndarray | np.generic | list | tuple) or hasattr(mask, "__array__"):
        return
    kind = type(mask)
    name = "None" if mask is None else f"{kind.__module__}.{kind.__qualname__}"
    hint = ""
    if hasattr(mask, "shape") and hasattr(mask, "__getitem__"):
        hint = "; build the mask from pallas_impl's classes, or pass its entries, mask[:, :]"
    raise TypeError(f"mask must be a pallas_impl.Mask or a boolean array, got {name}{hint}")


def heads_of(mask: Mask) -> tuple[Mask, ...]:
    """The (q_len, kv_len) masks that `mask` has one of for each head."""
    return mask.masks if isinstance(mask, MultiHeadMask) else (mask,)


def unpack_bits(bits: NDArray[np.uint8], size: int) -> BoolArray:
    """The first `size` bits of each row of `bits`, most significant first, as bool[..., size]."""
    return np.unpackbits(bits, axis=-1, count=size).view(np.bool_)
