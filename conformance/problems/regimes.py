"""Arrays of a problem, from its regime and seed: the same on every machine.

A *regime* is a family of inputs that brings out one kind of mistake: ordinary random numbers hide most of them.
Every value comes from a hash of its position (no state, no floating-point library function), is a float32, and is
exact in the type of the problem. What a regime can falsify is written beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from conformance.problems.arrays import Inputs
from conformance.problems.problem import Problem
from conformance.problems.ranges import (
    backward_sizes,
    forward_sizes,
    overflowing,
    underflowing,
)
from reference.arithmetic import to_bfloat16
from reference.attention import visible_pairs
from reference.error_budget import FLOAT32, ArithmeticProfile
from reference.masks import Bool
from spec import clause

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

#: Gradients of the loss with respect to the output:
#: ``quiet`` is 0 in rows that see nothing, ``loud`` is large there, ``zero`` is 0 everywhere, ``early`` is 0 but in the
#: first quarter of the rows (one device of a ring), and ``combined`` is ``2 first - second``, exactly.
Cotangent = Literal["quiet", "loud", "zero", "early", "first", "second", "combined"]

#: What ``loud`` multiplies cotangents by.
LOUD = 2.0**20
#: The largest magnitude of `bell`, in rows that ``loud`` multiplies.
LARGEST_COTANGENT = 4 * LOUD

_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def hashed(seed: int, stream: str, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """64 random bits for every place: splitmix64 of the place's number, with a key of seed and stream."""
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
    """Values -1, 0 and 1 in no visible order, by a formula of one line."""
    n = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(1000003 * salt)
    with np.errstate(over="ignore"):
        third = n * n * np.uint64(2654435761) // np.uint64(65536) % np.uint64(3)
    return third.reshape(shape).astype(np.float64) - 1


@dataclass(frozen=True)
class Shapes:
    """What a regime needs to know of a problem."""

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
    "nearly equal probabilities; v spells the position of its key in -1 and 1, so that one key more or less shows",
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
    "the maximum stands at the beginning: later blocks must be scaled down",
    "FWD-12", "RES-4", "RING-4", "RING-5",
)  # fmt: skip
def _falling(shapes: Shapes) -> Arrays:
    place = 1 - _place(shapes)
    return *levelled(shapes, 1.5 * np.floor(8 * place) + place, 0.5), shapes.values()


@regime(
    "tilted",
    "logits grow with the position up to 64: behind a causal edge the hidden keys are the heaviest",
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
    "the first half of the keys has logits of 100, the second of -100: rows that are masked at first must forget it",
    "FWD-2", "FWD-18", "RING-15",
)  # fmt: skip
def _leading(shapes: Shapes) -> Arrays:
    level = np.where(_place(shapes) < 0.5, 100.0, -100.0)
    return *levelled(shapes, level, 0.5), shapes.values()


@regime(
    "positive",
    "positive values, so that sums grow and never cancel: shows sums of low precision",
    "NUM-2", "NUM-3",
)  # fmt: skip
def _positive(shapes: Shapes) -> Arrays:
    return *shapes.noise(0.5), np.abs(shapes.values()) + 0.5


@regime(
    "cancelling",
    "logits of a few units as differences of large terms: shows products of low precision",
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
    """Registers a regime of levels alone."""
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


def rounded(array: Float64, dtype: str) -> Float32:
    """The nearest values of the type of a problem, as float32."""
    return to_bfloat16(array) if dtype == "bfloat16" else array.astype(np.float32)


def expanded(runs: tuple[tuple[int, int], ...]) -> NDArray[np.int32]:
    """Segment ids of every token, from (id, length) runs."""
    return np.repeat([i for i, _ in runs], [n for _, n in runs]).astype(np.int32)


@lru_cache(maxsize=64)
def inputs(problem: Problem) -> Inputs:
    """The arrays of a problem. They must not be changed.

    Raises:
      ValueError: the regime is unknown, or its numbers are none that every float32 arithmetic can work with.
    """
    if problem.regime not in REGIMES:
        raise ValueError(f"regime {problem.regime!r} is unknown, expected one of {sorted(REGIMES)}")
    shapes = Shapes(
        problem.seed,
        (problem.heads, problem.q_len, problem.head_dim),
        (problem.kv_heads, problem.kv_len, problem.head_dim),
        (problem.kv_heads, problem.kv_len, problem.head_dim_v),
    )
    q, k, v = (rounded(x, problem.dtype) for x in REGIMES[problem.regime].make(shapes))
    segments = problem.segments
    made = Inputs(
        q,
        k,
        v,
        None if segments is None else (expanded(segments[0]), expanded(segments[1])),
        None if problem.sinks is None else np.array(problem.sinks, dtype=np.float32),
    )
    if underflowing(q, k) or underflowing(v):
        raise ValueError(f"regime {problem.regime!r} has products that may be flushed to 0")
    too_large = overflowing(forward_sizes(made, FLOAT32, problem.soft_cap))
    if too_large is not None:
        raise ValueError(f"regime {problem.regime!r} can overflow float32: {too_large}")
    for array in (q, k, v):
        array.flags.writeable = False
    return made


def overflows(problem: Problem, forward: ArithmeticProfile) -> bool:
    """Whether a right forward pass of the given arithmetic may overflow, in some order of summation."""
    sizes = forward_sizes(inputs(problem), forward, problem.soft_cap)
    return overflowing(sizes) is not None


def overflows_backward(problem: Problem, backward: ArithmeticProfile = FLOAT32) -> bool:
    """Whether a right backward pass of the given arithmetic may overflow, for some kind of cotangent."""
    sizes = backward_sizes(inputs(problem), LARGEST_COTANGENT, backward, problem.soft_cap)
    return overflowing(sizes) is not None


@lru_cache(maxsize=64)
def visible(problem: Problem) -> Bool:
    """Mask AND segment ids, bool ``[H, q_len, kv_len]``."""
    masks = {mask: mask.dense() for mask in set(problem.head_masks)}
    dense = np.stack([masks[mask] for mask in problem.head_masks])
    shape = (problem.heads, problem.q_len, problem.kv_len)
    segments = problem.segments
    ids = None if segments is None else (expanded(segments[0]), expanded(segments[1]))
    return visible_pairs(dense, ids, shape)


def seeing_rows(problem: Problem) -> Bool:
    """Rows that see a key, bool ``[H, q_len]``."""
    return np.asarray(visible(problem).any(axis=2))


@lru_cache(maxsize=64)
def d_out(problem: Problem, kind: Cotangent = "quiet") -> Float32:
    """The gradient with respect to the output, float32 ``[H, q_len, head_dim_v]``, exact in the problem's type.

    ``first``, ``second`` and ``combined`` are multiples of 1/4 below 3, so that ``combined`` is exact.
    """
    shape = (problem.heads, problem.q_len, problem.head_dim_v)
    if kind == "combined":
        return 2 * d_out(problem, "first") - d_out(problem, "second")
    if kind in ("first", "second"):
        small = (hashed(problem.seed, kind, shape) % np.uint64(7)).astype(np.float64)
        made = (small - 3.0) / 4
    elif problem.regime in ("zeros", "counting"):
        made = np.ones(shape)
    elif problem.regime == "few":
        made = few(4, shape)
    elif problem.regime == "flat":
        made = signs(problem.seed, "d_out", shape)
    else:
        made = bell(problem.seed, "d_out", shape)
    unseeing = ~seeing_rows(problem)
    if kind == "loud":
        made[unseeing] *= LOUD
    else:
        made[unseeing] = 0.0
    if kind == "zero":
        made[:] = 0.0
    if kind == "early":
        made[:, problem.q_len // 4 :] = 0.0
    return rounded(made, problem.dtype)


def d_logsumexp(problem: Problem) -> Float32:
    """A gradient with respect to logsumexp, float32 ``[H, q_len]``; 0 in rows that see nothing."""
    if problem.regime in SIMPLE:
        return seeing_rows(problem).astype(np.float32)
    return np.ascontiguousarray(d_out(problem, "first")[:, :, 0])
