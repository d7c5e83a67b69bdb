"""The features that a problem can have: one table for adapters, domains, coverage, known deviations and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from conformance.problems.arrays import seeing_rows
from conformance.problems.problem import Problem
from reference.mask_info import DIRECTIONS, Shards


@dataclass(frozen=True)
class Feature:
    """Something that a problem may have beyond one mask in blocks.

    Attributes:
      name: in domains, known deviations and pools of signatures.
      about: what a problem with the feature has.
      holds: whether a problem has it.
      declared: the feature that an adapter must declare to be given such a problem ("" if it need not declare any).
      compiled: compiled arrays depend on it; checks of masks and schedules choose it.
      computed: what a kernel computes depends on it; checks of numerical results choose it.
      label: in coverage figures ("" if it is not counted there).
    """

    name: str
    about: str
    holds: Callable[[Problem], bool]
    declared: str = ""
    compiled: bool = False
    computed: bool = False
    label: str = ""


def _other_blocks_backward(problem: Problem) -> bool:
    return len({problem.blocks.of(direction) for direction in DIRECTIONS}) > 1


def _blocks_in_parts(problem: Problem) -> bool:
    return bool(problem.blocks.kv_compute or problem.blocks.kv_dkv_compute)


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("per_head_masks", "The heads have more than one mask.",
                lambda p: not p.single_mask, "per_head_masks", compiled=True, computed=True, label="several masks"),
        Feature("gqa", "Several query heads share a key/value head, of which there are several.",
                lambda p: 1 < p.kv_heads < p.heads, "gqa", computed=True, label="grouped heads"),
        Feature("mqa", "All query heads share the one key/value head.",
                lambda p: p.kv_heads == 1 < p.heads, "mqa", computed=True, label="one kv head"),
        Feature("segment_ids", "The tokens have segment ids.",
                lambda p: p.segments is not None, "segment_ids", computed=True, label="segment ids"),
        Feature("sinks", "There are sinks.",
                lambda p: p.sinks is not None, "sinks", computed=True, label="sinks"),
        Feature("soft_cap", "The logits have a soft cap.",
                lambda p: p.soft_cap is not None, "soft_cap", computed=True, label="soft cap"),
        Feature("head_dim_v", "v has another head dimension than q and k.",
                lambda p: p.head_dim_v != p.head_dim, "head_dim_v", computed=True, label="other v head dim"),
        Feature("bfloat16", "q, k and v are bfloat16.",
                lambda p: p.dtype == "bfloat16", "bfloat16", computed=True),
        Feature("ring", "The keys travel around a ring of devices.",
                lambda p: p.ring > 1, "ring", computed=True, label="ring"),
        Feature("static", "The mask is known in advance.",
                lambda p: not p.dynamic, "static", compiled=True),
        Feature("dynamic", "The mask's values are known only at run time.",
                lambda p: p.dynamic, "dynamic_masks", compiled=True, computed=True, label="run-time mask"),
        Feature("shards", "Several devices have a part of the arrays each.",
                lambda p: p.shards != Shards(), "sharded", computed=True),
        Feature("shards:head", "The heads are sharded.",
                lambda p: p.shards.head > 1, "shards:head", compiled=True, label="head shards"),
        Feature("shards:q", "The queries are sharded.",
                lambda p: p.shards.q > 1, "shards:q", compiled=True, label="q shards"),
        Feature("shards:kv", "The keys are sharded.",
                lambda p: p.shards.kv > 1, "shards:kv", compiled=True, label="kv shards"),
        Feature("blocks", "Directions have block sizes of their own, or blocks are computed in parts.",
                lambda p: _other_blocks_backward(p) or _blocks_in_parts(p), computed=True),
        Feature("blocks:backward", "A backward direction has other block sizes than the forward one.",
                _other_blocks_backward, label="other backward blocks"),
        Feature("blocks:compute", "A block of keys is computed in parts.",
                _blocks_in_parts, label="compute blocks"),
        Feature("rectangular", "Blocks have another length along q than along kv.",
                lambda p: p.blocks.q != p.blocks.kv, compiled=True),
        Feature("layout:grid", "The grid layout is asked for.",
                lambda p: p.layout == "grid", "layout:grid", compiled=True, label="grid layout"),
        Feature("layout:flat", "The flat layout is asked for.",
                lambda p: p.layout == "flat", "layout:flat", compiled=True, label="flat layout"),
        Feature("unshrunk", "The grid is not shrunk.",
                lambda p: not p.shrink, compiled=True, label="unshrunk"),
        Feature("not_downcast", "Index arrays are not stored in the smallest type.",
                lambda p: not p.downcast, compiled=True, label="not downcast"),
        Feature("options", "Options of the implementation are given.",
                lambda p: bool(p.options), computed=True, label="options"),
        Feature("empty_rows", "Some query sees nothing, by its mask or by the segment ids.",
                lambda p: not bool(seeing_rows(p).all()), computed=True),
    )
}  # fmt: skip

#: Features on which compiled arrays depend, and those on which results depend.
COMPILED = frozenset(name for name, item in FEATURES.items() if item.compiled)
COMPUTED = frozenset(name for name, item in FEATURES.items() if item.computed)

#: Features that an adapter declares apart if problems have both of them.
TOGETHER: dict[tuple[str, str], str] = {("ring", "sinks"): "ring:sinks"}


def features_of(problem: Problem, among: Iterable[str] = FEATURES) -> frozenset[str]:
    """The names of the features that a problem has.

    Args:
      problem: any.
      among: names that are asked for.
    """
    return frozenset(name for name in among if FEATURES[name].holds(problem))


def declared_for(names: Set[str]) -> frozenset[str]:
    """What an adapter must declare to be given problems with some features."""
    pairs = {needed for pair, needed in TOGETHER.items() if names >= set(pair)}
    return frozenset({FEATURES[name].declared for name in names} | pairs) - {""}
