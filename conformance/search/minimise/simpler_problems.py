"""Problems that are simpler than a given one, for whoever has to understand why it fails.

Hypothesis simplifies what it drew, which is structure. Here problems are changed as such: blocks, heads
and devices are taken out, features left away, masks redrawn, and arrays replaced by ones with few values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.contract.protocol import Description
from conformance.problems.arrays import expanded
from conformance.problems.features import features_of
from conformance.problems.problem import BlockSizes, Problem
from conformance.problems.regimes import BARE, REGIMES, SIMPLE
from conformance.search.minimise.simpler_masks import complexity, crop, scale, simpler_masks
from reference.mask_info import DIRECTIONS, Shards
from reference.masks import Mask

Candidates = Iterator[Problem]
Pass = Callable[[Problem, Description], Candidates]


def size(problem: Problem) -> tuple[int, ...]:
    """What must fall from one problem to the next: devices, blocks, heads, tokens, features, then the rest."""
    q, kv = problem.grid()
    shards, blocks = problem.shards, problem.blocks
    known = len(SIMPLE) + (not problem.regime.startswith(BARE))
    if problem.regime in SIMPLE:
        known = SIMPLE.index(problem.regime)
    return (
        problem.ring * shards.head * shards.q * shards.kv,
        q * kv,
        problem.heads,
        problem.kv_heads,
        problem.q_len * problem.kv_len,
        len(features_of(problem, REMOVED_BY)) + len(problem.options),
        sum(value is not None for value in vars(blocks).values()),
        len(problem.masks),
        sum(complexity(mask) for mask in problem.masks),
        problem.head_dim,
        known,
        sum(abs(i) for runs in problem.segments or () for i, _ in runs),
        len(problem.dumps()),
    )


def without_options(problem: Problem, description: Description) -> Candidates:
    """No options, then one less; or an option at its default."""
    if problem.options:
        yield problem.but(options=())
    for name, value in problem.options:
        yield problem.but(options=tuple(item for item in problem.options if item[0] != name))
        default = description.options.get(name, (value,))[0]
        if value != default:
            changed = tuple((n, default if n == name else v) for n, v in problem.options)
            yield problem.but(options=changed)


#: Features that can be left away, with the fields that do so.
REMOVED_BY: dict[str, Callable[[Problem], dict[str, Any]]] = {
    "segment_ids": lambda problem: {"segments": None},
    "sinks": lambda problem: {"sinks": None},
    "soft_cap": lambda problem: {"soft_cap": None},
    "bfloat16": lambda problem: {"dtype": "float32"},
    "dynamic": lambda problem: {"dynamic": False},
    "unshrunk": lambda problem: {"shrink": True},
    "not_downcast": lambda problem: {"downcast": True},
    "layout:grid": lambda problem: {"layout": None},
    "layout:flat": lambda problem: {"layout": None},
    "head_dim_v": lambda problem: {"head_dim_v": problem.head_dim},
}


def without_features(problem: Problem, description: Description) -> Candidates:
    """Each feature left away."""
    changes: list[dict[str, Any]] = [
        {"segments": None, "sinks": None, "soft_cap": None, "dtype": "float32"},
        *(change(problem) for change in REMOVED_BY.values()),
    ]
    plain = Problem.head_dim  # what problems have whose arrays nobody looks at
    for dim in sorted(description.head_dims):
        if dim < problem.head_dim != plain:
            other = dim if problem.head_dim_v == problem.head_dim else problem.head_dim_v
            changes.append({"head_dim": dim, "head_dim_v": other})
    if problem.sinks is not None:
        changes.append({"sinks": (0.0,) * problem.heads})
    for change in changes:
        yield problem.but(**change)


def simpler_segments(problem: Problem, description: Description) -> Candidates:
    """Neighbouring runs of segment ids joined, and small ids."""
    del description
    if problem.segments is None:
        return
    for side in (0, 1):
        runs = problem.segments[side]
        for n in range(len(runs) - 1):
            for kept in (runs[n][0], runs[n + 1][0]):
                joined = (kept, runs[n][1] + runs[n + 1][1])
                changed = (*runs[:n], joined, *runs[n + 2 :])
                both = (
                    (changed, problem.segments[1]) if side == 0 else (problem.segments[0], changed)
                )
                yield problem.but(segments=both)
    ids = sorted({i for runs in problem.segments for i, _ in runs})
    small = {old: new for new, old in enumerate(ids)}
    q, kv = (tuple((small[i], n) for i, n in runs) for runs in problem.segments)
    yield problem.but(segments=(q, kv))


def fewer_devices(problem: Problem, description: Description) -> Candidates:
    """Smaller rings, no shards."""
    yield problem.but(shards=Shards())
    for name in ("head", "q", "kv"):
        yield problem.but(shards=replace(problem.shards, **{name: 1}))
    for ring in sorted(description.ring_sizes):
        if ring < problem.ring:
            yield problem.but(ring=ring)
            if problem.q_len % problem.ring == problem.kv_len % problem.ring == 0:
                kept = (np.arange(n // problem.ring * ring) for n in _lengths(problem))
                yield _cropped(problem.but(ring=ring), *kept)


def fewer_heads(problem: Problem, description: Description) -> Candidates:
    """One head, smaller groups, then one head less; one mask for all; fewer key/value heads."""
    del description
    heads, group = problem.heads, problem.heads // problem.kv_heads
    for mask in dict.fromkeys(problem.masks):
        yield problem.but(masks=(mask,))
    single = ((head,) for head in range(heads))
    smaller_groups = (
        tuple(head for head in range(heads) if head % group < members)
        for members in range(1, group)
    )
    for chosen in dict.fromkeys((*single, *smaller_groups, *_all_but_one(heads))):
        if not chosen or len(chosen) == heads:
            continue
        masks = (
            problem.masks if len(problem.masks) == 1 else tuple(problem.masks[h] for h in chosen)
        )
        sinks = None if problem.sinks is None else tuple(problem.sinks[h] for h in chosen)
        for kv_heads in sorted({1, max(1, len(chosen) // group), problem.kv_heads, len(chosen)}):
            if len(chosen) % kv_heads == 0:
                same = len(set(masks)) == 1
                yield problem.but(
                    heads=len(chosen),
                    kv_heads=kv_heads,
                    masks=masks[:1] if same else masks,
                    sinks=sinks,
                )
    for kv_heads in range(1, problem.kv_heads):
        if heads % kv_heads == 0:
            yield problem.but(kv_heads=kv_heads)


def _all_but_one(number: int) -> Iterator[tuple[int, ...]]:
    for left in range(number):
        yield tuple(n for n in range(number) if n != left)


def _lengths(problem: Problem) -> tuple[int, int]:
    return problem.q_len, problem.kv_len


def _cropped(problem: Problem, rows: NDArray[Any], columns: NDArray[Any]) -> Problem:
    """The problem on some rows and columns only; one that cannot be keeps its segment ids of the rest."""
    masks = tuple(crop(mask, _lengths(problem), rows, columns) for mask in problem.masks)
    segments = problem.segments
    if segments is not None:
        q, kv = (
            _runs(expanded(runs)[kept])
            for runs, kept in zip(segments, (rows, columns), strict=True)
        )
        segments = (q, kv)
    return problem.but(q_len=len(rows), kv_len=len(columns), masks=masks, segments=segments)


def _runs(ids: NDArray[np.int32]) -> tuple[tuple[int, int], ...]:
    """Segment ids as runs of equal ones."""
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    lengths = np.diff([*starts, len(ids)])
    return tuple((int(ids[s]), int(n)) for s, n in zip(starts, lengths, strict=True))


def fewer_blocks(problem: Problem, description: Description) -> Candidates:
    """A half of the blocks along either axis, then all but one."""
    del description
    shards, blocks = problem.shards, problem.blocks
    for axis, parts in ((0, shards.q), (1, shards.kv)):
        sizes = [blocks.of(direction)[axis] for direction in DIRECTIONS]
        sizes += [n for n in (blocks.kv_compute, blocks.kv_dkv_compute) if n and axis]
        unit = math.lcm(*sizes)
        length = _lengths(problem)[axis]
        count = length // unit
        if unit > length or length % unit or count < 2:
            continue
        step = max(parts, problem.ring)
        for chosen in _subsets(count, step):
            kept = (np.asarray(chosen)[:, None] * unit + np.arange(unit)).ravel()
            whole = [np.arange(n) for n in _lengths(problem)]
            whole[axis] = kept
            yield _cropped(problem, *whole)


def _subsets(count: int, step: int) -> Iterator[list[int]]:
    """Smaller sets of 0…count-1, in sizes that ``step`` divides: single ones, halves, all but a few."""
    if count > step:
        for start in range(0, count, step):
            yield list(range(start, min(start + step, count)))
    half = count // 2
    if half % step == 0 and half > step:
        yield list(range(half))
        yield list(range(count - half, count))
    if count - step > 0 and step == 1:
        for left in range(count):
            yield [n for n in range(count) if n != left]


def smaller_blocks(problem: Problem, description: Description) -> Candidates:
    """The same number of smaller blocks; one block size for all directions."""
    del description
    blocks = problem.blocks
    yield problem.but(blocks=BlockSizes(blocks.q, blocks.kv))
    for name, value in vars(blocks).items():
        if name not in ("q", "kv") and value is not None:
            changed: dict[str, Any] = {name: None}
            yield problem.but(blocks=replace(blocks, **changed))
    for axis, names in (
        (0, ("q", "q_dkv", "q_dq")),
        (1, ("kv", "kv_dkv", "kv_dq", "kv_compute", "kv_dkv_compute")),
    ):
        old = getattr(blocks, names[0])
        for new in _smaller(old):
            values = {name: getattr(blocks, name) for name in names}
            sizes: dict[str, Any] = {
                name: None if v is None else v * new // old for name, v in values.items()
            }
            if any(v == 0 or (values[n] * new) % old for n, v in sizes.items() if v is not None):
                continue
            yield from _rescaled(problem, replace(blocks, **sizes), axis, new / old)


def _smaller(number: int) -> list[int]:
    """Sizes below a number: 1, 2, those of kernels, and halves."""
    halves = [number // 2**n for n in range(1, number.bit_length())]
    return sorted({n for n in (1, 2, 3, 8, 128, *halves) if n < number})


def _rescaled(problem: Problem, blocks: BlockSizes, axis: int, ratio: float) -> Candidates:
    ratios = (ratio, 1.0) if axis == 0 else (1.0, ratio)
    masks = [scale(mask, _lengths(problem), *ratios) for mask in problem.masks]
    lengths = list(_lengths(problem))
    lengths[axis] = round(lengths[axis] * ratio)
    segments = problem.segments
    if segments is not None:
        at = (np.arange(lengths[axis]) / ratio).astype(np.int64)
        runs = _runs(expanded(segments[axis])[at])
        segments = (runs, segments[1]) if axis == 0 else (segments[0], runs)
    if None not in masks:
        yield problem.but(
            q_len=lengths[0],
            kv_len=lengths[1],
            masks=tuple(m for m in masks if m is not None),
            blocks=blocks,
            segments=segments,
        )


def simpler_mask(problem: Problem, description: Description) -> Candidates:
    """One of the masks simpler."""
    del description
    sizes = problem.blocks.of("fwd")
    for mask in dict.fromkeys(problem.masks):
        for simpler in simpler_masks(mask, _lengths(problem), sizes):
            changed = tuple(simpler if one == mask else one for one in problem.masks)
            yield problem.but(masks=changed if len(set(changed)) > 1 else changed[:1])


def simpler_arrays(problem: Problem, description: Description) -> Candidates:
    """Arrays of few values, and seed 0."""
    del description
    for regime in SIMPLE:
        if regime == problem.regime:
            break
        yield problem.but(regime=regime, seed=0)
    if BARE + problem.regime in REGIMES:
        yield problem.but(regime=BARE + problem.regime)
    yield problem.but(seed=0)


#: In this order until none of them finds anything simpler.
PASSES: tuple[Pass, ...] = (
    without_options, without_features, fewer_devices, fewer_heads, fewer_blocks, smaller_blocks,
    simpler_mask, simpler_segments, simpler_arrays,
)  # fmt: skip


def is_whole(problem: Problem) -> bool:
    """Whether a problem is valid, with masks of its own shape."""
    try:
        problem.check()
        for mask in problem.masks:
            Mask(mask, problem.q_len, problem.kv_len)
    except ValueError:
        return False
    return problem.q_len % problem.ring == 0 and problem.kv_len % problem.ring == 0
