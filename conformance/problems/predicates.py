"""Named properties of problems: the vocabulary of expectation files and of reports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.problems.arrays import visible
from conformance.problems.features import FEATURES
from conformance.problems.mask_json import kind_of
from conformance.problems.problem import Problem
from reference.blocks import Int32, labels
from reference.mask_info import DIRECTIONS, Direction
from reference.masks import Bool, Causal

Predicate = Callable[[Problem], bool]
#: All features of problems, and what is said of problems in this module.
PREDICATES: dict[str, Predicate] = {name: item.holds for name, item in FEATURES.items()}


def predicate(function: Predicate) -> Predicate:
    """Registers a predicate under its function name."""
    PREDICATES[function.__name__] = function
    return function


def label_grids(problem: Problem) -> Int32:
    """Labels of every head at the forward block sizes, ``[heads, q blocks, kv blocks]``."""
    return np.stack([labels(m, problem.blocks.q, problem.blocks.kv) for m in problem.head_masks])


def _shard_parts(problem: Problem) -> list[Int32]:
    return np.split(label_grids(problem), problem.shards.q, axis=1)


@predicate
def several_shards(problem: Problem) -> bool:
    """The queries or the keys are sharded."""
    return problem.shards.q > 1 or problem.shards.kv > 1


@predicate
def shrunk(problem: Problem) -> bool:
    """Shrinking is asked for."""
    return problem.shrink


@predicate
def single_mask(problem: Problem) -> bool:
    """All heads have the same mask, however it is written."""
    return problem.single_mask or len({m.dense().tobytes() for m in problem.head_masks}) == 1


@predicate
def empty_q_shard(problem: Problem) -> bool:
    """Some q shard sees nothing at all, in every head."""
    return any(not part.any() for part in _shard_parts(problem))


@predicate
def empty_q_block(problem: Problem) -> bool:
    """Some head has a q block that sees nothing in its shard."""
    parts = np.split(label_grids(problem), problem.shards.kv, axis=2)
    return any(bool((part == 0).all(axis=2).any()) for part in parts)


@predicate
def empty_mask(problem: Problem) -> bool:
    """Some head sees nothing at all."""
    return bool((label_grids(problem) == 0).all(axis=(1, 2)).any())


def _has_partial_block(problem: Problem, direction: Direction) -> bool:
    """Whether a block of some head is partial at the block sizes of a direction."""
    sizes = problem.blocks.of(direction)
    return any((labels(mask, *sizes) == 1).any() for mask in set(problem.head_masks))


@predicate
def no_partial_block(problem: Problem) -> bool:
    """In some direction no block of any head is partial."""
    return not all(_has_partial_block(problem, direction) for direction in DIRECTIONS)


@predicate
def partial_blocks_backward_only(problem: Problem) -> bool:
    """No block of the forward kernel is partial in any head, but one of the kernel for dk and dv is."""
    return _has_partial_block(problem, "dkv") and not _has_partial_block(problem, "fwd")


@predicate
def unlimited_window(problem: Problem) -> bool:
    """Some mask contains a local mask without a limit on either side."""

    def found(obj: object) -> bool:
        if not isinstance(obj, dict):
            return False
        mine = obj.get("kind") == "local" and obj["left"] is None and obj["right"] is None
        return mine or any(found(part) for part in obj.values())

    return any(found(m) for m in problem.to_json()["masks"])


@predicate
def computed_full_mask(problem: Problem) -> bool:
    """The mask is one that kernels compute, and hides nothing."""
    computed = all(expr.computable for expr in problem.masks)
    return computed and all(bool(mask.dense().all()) for mask in set(problem.head_masks))


@predicate
def empty_row(problem: Problem) -> bool:
    """Some query sees nothing."""
    return any(bool((~mask.dense().any(axis=1)).any()) for mask in set(problem.head_masks))


def _inside_backward_block(problem: Problem, seen: Bool) -> bool:
    """Whether a q block without a pair, ``seen[H, q_len, kv_len]``, lies inside a block with one backward."""
    q = problem.blocks.q
    directions: tuple[Direction, ...] = ("dq", "dkv")
    rows = seen.any(axis=2)

    def by_block(size: int) -> Bool:
        return np.repeat(rows.reshape(len(rows), -1, size).any(axis=2), size, axis=1)

    sizes = {problem.blocks.of(direction)[0] for direction in directions}
    return any(bool((~by_block(q) & by_block(size)).any()) for size in sizes)


@predicate
def empty_q_block_in_backward_block(problem: Problem) -> bool:
    """A q block that sees nothing by its mask lies inside a backward block that sees something."""
    return _inside_backward_block(problem, np.stack([mask.dense() for mask in problem.head_masks]))


@predicate
def unseeing_q_block_in_backward_block(problem: Problem) -> bool:
    """The same of q blocks that see nothing by their mask and the segment ids together."""
    return _inside_backward_block(problem, visible(problem))


@predicate
def logits_below_any_sentinel(problem: Problem) -> bool:
    """All logits are below -0.7 times the largest float32."""
    return problem.regime == "float_edge"


@predicate
def base2_exponent(problem: Problem) -> bool:
    """Powers of two are taken: the default of an option ``use_base2_exp``."""
    return bool(problem.option("use_base2_exp", True))


@predicate
def natural_exponent(problem: Problem) -> bool:
    """The kernel is told to take powers of e."""
    return problem.option("use_base2_exp") is False


@predicate
def maximum_given(problem: Problem) -> bool:
    """The caller gives the number that is subtracted from all logits."""
    names = ("max_logit_const", "max_logit_value")
    return any(problem.option(name) is not None for name in names)


@predicate
def deferred_reciprocal(problem: Problem) -> bool:
    """The division by the denominator is left to the caller of the kernel."""
    return not problem.option("fuse_reciprocal", True)


@predicate
def diagonal_skip_off_the_diagonal(problem: Problem) -> bool:
    """Products above the diagonal of blocks are skipped by an option, and the mask's edge is elsewhere."""
    first = problem.masks[0]
    return bool(problem.option("diag_skip")) and isinstance(first, Causal) and first.offset != 0


def _ring_steps(problem: Problem) -> list[Int32]:
    """Labels of every device's queries with every shard of the keys, ``[heads, q blocks, kv blocks]``."""
    rows = np.split(label_grids(problem), problem.ring, axis=1)
    return [step for row in rows for step in np.split(row, problem.ring, axis=2)]


@predicate
def ring_step_unseeing(problem: Problem) -> bool:
    """A device of the ring sees nothing of some shard, by its mask."""
    return problem.ring > 1 and any(not step.any() for step in _ring_steps(problem))


@predicate
def ring_q_block_unseeing(problem: Problem) -> bool:
    """A q block sees nothing of a shard of which its device sees something."""
    if problem.ring == 1:
        return False
    return any(step.any() and not step.any(axis=2).all() for step in _ring_steps(problem))


def describe_labels(problem: Problem) -> str:
    """Which labels occur, as ``empty+partial+full``; for coverage figures."""
    names = ("empty", "partial", "full")
    present = np.unique(label_grids(problem))
    return "+".join(names[int(label)] for label in present)


def mask_kinds(problem: Problem) -> list[str]:
    """The kinds of the masks of a problem, without repetition."""
    return sorted({kind_of(expr) for expr in problem.masks})
