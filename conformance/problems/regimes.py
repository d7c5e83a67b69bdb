"""Arrays of a problem, from its regime and seed: the same on every machine.

A *regime* is a family of inputs designed to expose one kind of mistake: ordinary random numbers hide most mistakes.
Every value comes from a hash of its position (no state, no floating-point library function), is a float32, and is
exact in the type of the problem. What a regime can falsify is written beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spec import clause

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def hashed(seed: int, stream: str, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """64 random bits for every element: splitmix64 of its index, with a key of seed and stream."""
    digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
    key = np.uint64(int.from_bytes(digest[:8], "little"))
    with np.errstate(over="ignore"):
        x = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return np.asarray(x ^ (x >> np.uint64(31))).reshape(shape)


def bell(seed: int, stream: str, shape: tuple[int, ...]) -> Float64:
    """Roughly normal numbers of variance 1: sums of four 16-bit integers, so exact integer arithmetic."""
    bits = hashed(seed, stream, shape)
    parts = [(bits >> np.uint64(16 * n)) & np.uint64(0xFFFF) for n in range(4)]
    total = sum(part.astype(np.int64) for part in parts)
    return (np.asarray(total, dtype=np.float64) - 131070.0) / 37837.0


def signs(seed: int, stream: str, shape: tuple[int, ...]) -> Float64:
    """Random -1 and 1."""
    return np.where(hashed(seed, stream, shape) >> np.uint64(63), 1.0, -1.0)


def few(salt: int, shape: tuple[int, ...]) -> Float64:
    """Values -1, 0 and 1 without a visible pattern, from a one-line formula."""
    n = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(1000003 * salt)
    with np.errstate(over="ignore"):
        third = n * n * np.uint64(2654435761) // np.uint64(65536) % np.uint64(3)
    return third.reshape(shape).astype(np.float64) - 1


@dataclass(frozen=True)
class Shapes:
    """What a regime needs to know about a problem."""

    seed: int
    q: tuple[int, int, int]
    k: tuple[int, int, int]
    v: tuple[int, int, int]

    def noise(self, size: float) -> tuple[Float64, Float64]:
        """q and k whose logits have the standard deviation ``size``."""
        each = np.sqrt(size / np.sqrt(self.q[2]))
        return bell(self.seed, "q", self.q) * each, bell(self.seed, "k", self.k) * each

    def values(self) -> Float64:
        """Random v of variance 1."""
        return bell(self.seed, "v", self.v)


Arrays = tuple[Float64, Float64, Float64]


@dataclass(frozen=True)
class Regime:
    """A named family of inputs.

    Attributes:
      name: as in problems.
      about: what is special.
      clauses: what it can falsify and ordinary inputs cannot, or hardly.
      make: q, k and v in float64, before they are rounded to the type of the problem.
    """

    name: str
    about: str
    clauses: tuple[str, ...]
    make: Callable[[Shapes], Arrays]


REGIMES: dict[str, Regime] = {}


def regime(name: str, about: str, *clauses: str) -> Callable[[Callable[[Shapes], Arrays]], None]:
    """Registers a generator.

    Raises:
      KeyError: an unknown clause.
    """
    for item in clauses:
        clause(item)

    def register(make: Callable[[Shapes], Arrays]) -> None:
        REGIMES[name] = Regime(name, about, clauses, make)

    return register


def levelled(shapes: Shapes, level: Float64, noise: float) -> tuple[Float64, Float64]:
    """q and k with the logit ``level[j]`` for key j, plus noise of the given size."""
    q, k = shapes.noise(noise)
    q[:, :, 0], k[:, :, 0] = 1.0, level
    return q, k


def _place(shapes: Shapes) -> Float64:
    """Position of every key, from 0 to below 1."""
    return np.arange(shapes.k[1]) / shapes.k[1]


@regime(
    "signed",
    "values of both signs, logits of a few units",
    "FWD-1", "FWD-3", "FWD-15", "RES-1", "BWD-1", "BWD-2", "BWD-3", "BWD-4", "BWD-17",
)  # fmt: skip
def _signed(shapes: Shapes) -> Arrays:
    return *shapes.noise(2.0), shapes.values()


@regime(
    "flat",
    "nearly equal probabilities; v encodes the position of its key in -1 and 1, so that one extra or missing key shows",
    "FWD-1", "FWD-5", "FWD-6", "FWD-12", "FWD-13", "FWD-20", "RING-2", "RING-3", "BWD-2",
)  # fmt: skip
def _flat(shapes: Shapes) -> Arrays:
    q, k = shapes.noise(2.0)
    head = 1.0 + np.arange(shapes.v[0])[:, None, None] / 4
    return q * 2.0**-8, k, signs(shapes.seed, "v", shapes.v) * head


@regime(
    "rising",
    "the running maximum rises from block to block, and every block still counts",
    "FWD-1", "FWD-12", "RES-4", "RING-4", "RING-5", "RING-7", "RING-16",
)  # fmt: skip
def _rising(shapes: Shapes) -> Arrays:
    place = _place(shapes)
    return *levelled(shapes, 1.5 * np.floor(8 * place) + place, 0.5), shapes.values()


@regime(
    "falling",
    "the largest logits come first: later blocks must be scaled down",
    "FWD-12", "RES-4", "RING-4", "RING-5",
)  # fmt: skip
def _falling(shapes: Shapes) -> Arrays:
    place = 1 - _place(shapes)
    return *levelled(shapes, 1.5 * np.floor(8 * place) + place, 0.5), shapes.values()


@regime(
    "tilted",
    "logits grow with the position up to 64: the keys behind a causal edge have the largest logits",
    "FWD-2", "RES-1", "RES-3", "RING-3",
)  # fmt: skip
def _tilted(shapes: Shapes) -> Arrays:
    return *levelled(shapes, 64.0 * _place(shapes), 0.5), shapes.values()


@regime(
    "low",
    "all logits near -300: a running maximum that starts at 0 instead of -inf loses everything",
    "FWD-1", "RES-1", "RES-3",
)  # fmt: skip
def _low(shapes: Shapes) -> Arrays:
    return *levelled(shapes, np.full(shapes.k[1], -300.0), 1.0), shapes.values()


@regime(
    "leading",
    "the first half of the keys has logits of 100, the second of -100: rows that hide the first must not scale by it",
    "FWD-2", "FWD-18", "RING-15",
)  # fmt: skip
def _leading(shapes: Shapes) -> Arrays:
    level = np.where(_place(shapes) < 0.5, 100.0, -100.0)
    return *levelled(shapes, level, 0.5), shapes.values()


@regime(
    "positive",
    "positive values, so sums grow and never cancel: exposes sums of low precision",
    "NUM-2", "NUM-3",
)  # fmt: skip
def _positive(shapes: Shapes) -> Arrays:
    return *shapes.noise(0.5), np.abs(shapes.values()) + 0.5


@regime(
    "cancelling",
    "logits of a few units as differences of large terms: exposes products of low precision",
    "NUM-3", "NUM-4",
)  # fmt: skip
def _cancelling(shapes: Shapes) -> Arrays:
    q, k = bell(shapes.seed, "q", shapes.q), bell(shapes.seed, "k", shapes.k)
    half = shapes.q[2] // 2
    q[:, :, half:] = q[:, :, :half]
    k[:, :, half:] = k[:, :, half:] / 8 - k[:, :, :half]
    return q, k, shapes.values()


@regime(
    "representable",
    "few significant bits: products are exact even where a matrix unit multiplies bfloat16",
    "NUM-2", "NUM-3",
)  # fmt: skip
def _representable(shapes: Shapes) -> Arrays:
    bits = hashed(shapes.seed, "q", shapes.q), hashed(shapes.seed, "k", shapes.k)
    q, k = ((x % np.uint64(3)).astype(np.float64) - 1.0 for x in bits)
    v = (hashed(shapes.seed, "v", shapes.v) % np.uint64(31)).astype(np.float64) / 8 - 2.0
    return q / 4, k, v


@regime(
    "huge",
    "logits of -10000, 0 and 10000 with noise: an exponential without the maximum overflows",
    "FWD-23", "RES-1", "NUM-1", "BWD-3",
)  # fmt: skip
def _huge(shapes: Shapes) -> Arrays:
    step = (hashed(shapes.seed, "level", (shapes.k[1],)) % np.uint64(3)).astype(np.float64)
    return *levelled(shapes, 1e4 * (step - 1), 1.0), shapes.values()


def _one_product(shapes: Shapes, of_q: float, of_k: float) -> Arrays:
    q, k = np.zeros(shapes.q), np.zeros(shapes.k)
    q[:, :, 0], k[:, :, 0] = of_q, of_k
    return q, k, few(3, shapes.v)


@regime(
    "sentinel",
    "all logits are -2**112, below stand-ins for a hidden pair such as -1e30; they are one exact product each",
    "FWD-24",
)
def _sentinel(shapes: Shapes) -> Arrays:
    return _one_product(shapes, 2.0**55, -(2.0**57))


@regime(
    "float_edge",
    "all logits are -1.5 * 2**127, below -0.7 times the largest float32; they are one exact product each",
    "FWD-24",
)
def _float_edge(shapes: Shapes) -> Arrays:
    return _one_product(shapes, 2.0**63, -1.5 * 2.0**64)


@regime("level", "all logits are 0: what a regime with equal logits has as output", "FWD-24")
def _level(shapes: Shapes) -> Arrays:
    return _one_product(shapes, 0.0, 0.0)


#: Regimes of few different values, the simplest first: for failures that somebody has to understand.
SIMPLE = ("zeros", "counting", "few")


@regime("zeros", "all logits are 0 and all values 1: whatever is not 1 shows", "FWD-1", "BWD-1")
def _zeros(shapes: Shapes) -> Arrays:
    return np.zeros(shapes.q), np.zeros(shapes.k), np.ones(shapes.v)


@regime("counting", "all logits are 0, and v counts its keys in eighths", "FWD-1", "BWD-1")
def _counting(shapes: Shapes) -> Arrays:
    keys = (np.arange(shapes.v[1]) % 8 / 8)[:, None]
    return np.zeros(shapes.q), np.zeros(shapes.k), np.broadcast_to(keys, shapes.v)


@regime("few", "values of -1, 0 and 1, logits of a few units", "FWD-1", "BWD-1")
def _few(shapes: Shapes) -> Arrays:
    return few(1, shapes.q) / 4, few(2, shapes.k), few(3, shapes.v)


#: What the names of regimes begin with that have the levels of another, without its noise.
BARE = "bare "


def _bare(name: str) -> None:
    """Registers a regime that is defined by its levels."""
    other = REGIMES[name]

    def make(shapes: Shapes) -> Arrays:
        q, k, _ = other.make(shapes)
        q[:, :, 1:], k[:, :, 1:] = 0.0, 0.0
        k[:, :, 0] = np.floor(k[:, :, 0])
        return q, k, few(3, shapes.v)

    about = f"{other.about}; in whole numbers, without noise, v of -1, 0 and 1"
    REGIMES[BARE + name] = Regime(BARE + name, about, other.clauses, make)


for _name in ("rising", "falling", "tilted", "low", "leading", "huge"):
    _bare(_name)
