"""Mask classes with one mistake each, and what finds it in which smallest mask."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask
from numpy.typing import NDArray

from pallas_impl import ComputableMask, Intervals, Mask


class Causal:
    """Right: a duck-typed causal mask, which the others spoil."""

    def __init__(self, shape: tuple[int, int], offset: int = 0) -> None:
        self.shape = shape
        self.offset = offset

    def ids(self, index: Any) -> tuple[Any, Any]:
        rows, columns = (np.arange(n)[part] for n, part in zip(self.shape, index, strict=True))
        return rows[:, None], columns[None, :]

    def __getitem__(self, index: Any) -> Any:
        q_ids, kv_ids = self.ids(index)
        return kv_ids <= q_ids + self.offset

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (self.shape, self.offset) == (other.shape, other.offset)

    def __hash__(self) -> int:
        return hash((type(self), self.shape, self.offset))


class Integers(Causal):
    """0 and 1 instead of booleans."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index).astype(np.int32)


class IgnoresStart(Causal):
    """Every slice looks as if it began at 0."""

    def __getitem__(self, index: Any) -> Any:
        rows, columns = (range(n)[part] for n, part in zip(self.shape, index, strict=True))
        return super().__getitem__((slice(0, len(rows)), slice(0, len(columns))))


class SquareOnly(Causal):
    """Counts the keys with the number of queries."""

    def ids(self, index: Any) -> tuple[Any, Any]:
        rows, columns = (np.arange(self.shape[0])[part] for part in index)
        return rows[:, None], columns[None, :]


class WrongOnRectangles(Causal):
    """Aligned to the end: on squares the same as aligned to the beginning."""

    def __getitem__(self, index: Any) -> Any:
        q_ids, kv_ids = self.ids(index)
        return kv_ids <= q_ids + self.offset + self.shape[1] - self.shape[0]


class LosesAnAxis(Causal):
    """A slice of one row has one axis."""

    def __getitem__(self, index: Any) -> Any:
        return (
            super().__getitem__(index).squeeze(0)
            if self._one(index)
            else super().__getitem__(index)
        )

    def _one(self, index: Any) -> bool:
        return len(range(self.shape[0])[index[0]]) == 1 and self.shape[0] > 1


class SwapsShape(Causal):
    """(kv_len, q_len)."""

    def __init__(self, shape: tuple[int, int], offset: int = 0) -> None:
        super().__init__(shape[::-1], offset)


class Forgetful(Causal):
    """Answers differently when it is asked often."""

    asked = 0

    def __getitem__(self, index: Any) -> Any:
        self.asked += 1
        return super().__getitem__(index) & (self.asked < 5)


class Noise(Causal):
    """Random without a seed."""

    def __init__(self, shape: tuple[int, int], offset: int = 0) -> None:
        super().__init__(shape, offset)
        self.noise = np.random.default_rng().random(shape) < 0.5

    def __getitem__(self, index: Any) -> Any:
        return self.noise[index]


class NoEquality(Mask):
    """Right, but every instance is another key."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, index: Any) -> Any:
        q_ids, kv_ids = np.ogrid[: self._shape[0], : self._shape[1]]
        return (kv_ids <= q_ids)[index]


@dataclasses.dataclass
class Unhashable:
    """A dataclass that compares, and so has no hash."""

    shape: tuple[int, int]

    def __getitem__(self, index: Any) -> Any:
        return np.ones(self.shape, dtype=np.bool_)[index]


@dataclasses.dataclass(frozen=True)
class ComparesArrays:
    """A dataclass that compares arrays, which have no truth value."""

    ids: NDArray[np.int32]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.ids), len(self.ids)

    def __getitem__(self, index: Any) -> Any:
        return (self.ids[:, None] == self.ids[None, :])[index]

    def __hash__(self) -> int:
        return hash(self.ids.tobytes())


class HashOfIdentity(Causal):
    """Equal masks have different hashes."""

    def __hash__(self) -> int:
        return id(self)


class ForgetsOffset(Causal):
    """Masks with different offsets are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForgetsOffset) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)


class SameBytes:
    """Hashes and compares bytes, whatever lengths they come from."""

    def __init__(self, q_ids: NDArray[np.int32], kv_ids: NDArray[np.int32]) -> None:
        self.ids = np.array(q_ids), np.array(kv_ids)
        self.shape = len(q_ids), len(kv_ids)

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index
        return self.ids[0][rows, None] == self.ids[1][None, columns]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameBytes) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def key(self) -> bytes:
        return self.ids[0].tobytes() + self.ids[1].tobytes()


class ForgetsShape(Causal):
    """Masks of different shapes are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForgetsShape) and self.offset == other.offset

    def __hash__(self) -> int:
        return hash(self.offset)


class ComparesAnything(Causal):
    """Fails when it is compared with something else."""

    def __eq__(self, other: Any) -> bool:
        return bool(self.shape == other.shape and self.offset == other.offset)

    def __hash__(self) -> int:
        return hash((self.shape, self.offset))


class Prefix(ComputableMask):
    """Right: a prefix-LM mask, which the others spoil."""

    def __init__(
        self, shape: tuple[int, int], prefix: int, q_sequence: NDArray[np.int32] | None = None
    ) -> None:
        if prefix < 0:
            raise ValueError("prefix: must not be negative")
        super().__init__(shape, q_sequence=q_sequence)
        self.prefix = prefix

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return (kv_ids <= q_ids) | (kv_ids < self.prefix)

    def parameters(self) -> object:
        return self.prefix


class FunctionDiffers(Prefix):
    """The function and the entries are written twice, and differ."""

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index
        q_ids, kv_ids = (self.positions(axis, part) for axis, part in enumerate((rows, columns)))
        return (kv_ids <= q_ids[:, None]) | (kv_ids <= self.prefix)


class FirstColumn(Prefix):
    """Takes the queries from the first column of a tile, where they are as long as they run along the rows."""

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        return (kv_ids <= q_ids[..., :, :1]) | (kv_ids < self.prefix)


class CapturesAnArray(Prefix):
    """Looks positions up in an array."""

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        table = np.arange(1024)
        if isinstance(q_ids, np.ndarray):
            return super().visible(table[q_ids], table[kv_ids])
        import jax.numpy as jnp

        return super().visible(jnp.asarray(table)[q_ids], jnp.asarray(table)[kv_ids])


class AsksForValues(Prefix):
    """A Python condition on positions."""

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        if self.prefix and kv_ids.max() < self.prefix:
            return (q_ids | kv_ids) >= 0
        return super().visible(q_ids, kv_ids)


class NotOnATpu(Prefix):
    """Uses an operation that kernels do not have on a TPU."""

    def visible(self, q_ids: Any, kv_ids: Any) -> Any:
        if isinstance(q_ids, np.ndarray):
            return super().visible(q_ids, kv_ids)
        import jax.numpy as jnp

        return super().visible(q_ids, jnp.sort(jnp.sort(kv_ids, axis=-1), axis=-2))


class LooseBounds(Prefix):
    """Bounds that are safe, and not exact."""

    def block_bounds(self, q_lo: Any, q_hi: Any, kv_lo: Any, kv_hi: Any) -> Any:
        every = (kv_hi <= q_lo) | (kv_hi < self.prefix)
        return (kv_lo <= q_hi + 1) | (kv_lo < self.prefix), every


class OverlappingIntervals(Prefix):
    """The prefix and the past overlap."""

    def kv_intervals(self, q_ids: Any) -> Intervals:
        zero = np.zeros_like(q_ids, dtype=np.int64)
        return Intervals(
            np.stack([zero, zero]), np.stack([q_ids.astype(np.int64), zero + self.prefix - 1])
        )


class Positions(splash_attention_mask._ComputableMask):
    """Right: a causal mask of jax, whose rows can be moved."""

    def __init__(self, shape: tuple[int, int], offset: int = 0) -> None:
        self.offset = offset
        super().__init__(shape, lambda q_ids, kv_ids: kv_ids <= q_ids + offset)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def key(self) -> tuple[Any, ...]:
        return self.shape, self.offset, self.q_sequence.tobytes()


class IgnoresPositions(Positions):
    """Reads rows where they are, wherever they stand."""

    def __getitem__(self, index: Any) -> Any:
        q_ids, kv_ids = (np.arange(n)[part] for n, part in zip(self.shape, index, strict=True))
        return self.mask_function(q_ids[:, None], kv_ids[None, :])


class ForgetsPositions(Positions):
    """Masks whose rows stand elsewhere are equal."""

    def key(self) -> tuple[Any, ...]:
        return self.shape, self.offset


class FixedPositions(Causal):
    """Of no library, so that nobody need move its rows."""

    def __init__(self, shape: tuple[int, int], offset: int = 0) -> None:
        super().__init__(shape, offset)
        self.q_sequence = np.arange(shape[0], dtype=np.int32)

    def mask_function(self, q_ids: Any, kv_ids: Any) -> Any:
        return kv_ids <= q_ids + self.offset


class WidePositions(Positions):
    """Positions of a type that kernels do not take."""

    def __init__(self, shape: tuple[int, int], offset: int = 0) -> None:
        super().__init__(shape, offset)
        self.q_sequence = np.arange(shape[0])


class WrongConstructor(Causal):
    """Divides by an argument that may be 0."""

    def __init__(self, shape: tuple[int, int], parts: int) -> None:
        super().__init__(shape, shape[1] // parts)


class Picky(Causal):
    """Accepts what nobody would guess."""

    def __init__(self, shape: tuple[int, int], key: int) -> None:
        if key != 4711:
            raise ValueError(f"key: must be 4711, got {key}")
        super().__init__(shape)


class Opaque(Causal):
    """Takes what no annotation explains."""

    def __init__(self, shape: tuple[int, int], rule: Any) -> None:
        super().__init__(shape)
        self.rule = rule


def declared(q_ids: Any, kv_ids: Any, offset: int) -> Any:
    """What `Causal` and the classes that spoil it should mean."""
    return kv_ids <= q_ids + offset
