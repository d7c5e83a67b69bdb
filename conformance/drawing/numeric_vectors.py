"""Fixed numerical problems that every run tries first, each with the class of bugs that it looks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.contract.protocol import Description
from conformance.drawing.domain import Vector
from conformance.drawing.ingredients import SEGMENTS, simple_masks
from conformance.drawing.signatures import signature, unit
from conformance.problems.mask_json import Blocks, Random
from conformance.problems.problem import Problem
from reference.masks import Expr

INF = float("inf")


@dataclass(frozen=True)
class NumericVector(Vector):
    """A fixed numerical problem.

    Attributes:
      signature: name of a signature.
      masks: a name of `simple_masks`, ``noise`` (every pair at random), or rows of block letters separated by
        spaces; one for all heads or one a head.
      regime, seed: of the arrays.
      segments: name of a pattern of `SEGMENTS` ("" for none).
      sinks: one a head; None for none.
      options: the passes that repeat the problem for every value of every option but the defaults.
      given: values of options, as far as an implementation has them.
      passes: which kernels try it: ``f`` forward, ``r`` with residuals, ``b`` backward; every mask may need
        kernels of its own.
    """

    signature: str
    masks: tuple[str, ...]
    regime: str = "signed"
    segments: str = ""
    sinks: tuple[float, ...] | None = None
    options: str = ""
    seed: int = 0
    given: tuple[tuple[str, Any], ...] = ()
    passes: str = "frb"

    def build(self, description: Description) -> Problem:
        """The problem for an implementation."""
        item, (q, kv) = signature(self.signature), unit(description)
        simple = simple_masks(q, kv) | {"noise": Random(0.8, seed=7)}
        masks: list[Expr] = [
            simple[text] if text in simple else Blocks(tuple(text.split()), q, kv)
            for text in self.masks
        ]
        lengths = item.grid[0] * q, item.grid[1] * kv
        return item.build(
            description,
            tuple(masks),
            regime=self.regime,
            seed=self.seed,
            segments=SEGMENTS[self.segments](*lengths) if self.segments else None,
            sinks=self.sinks,
            options=tuple(
                sorted((n, v) for n, v in self.given if v in description.options.get(n, ()))
            ),
        )


def _v(name: str, bug_class: str, where: str, *masks: str, **more: object) -> NumericVector:
    return NumericVector(name, bug_class, where, masks, **more)  # type: ignore[arg-type]


VECTORS: tuple[NumericVector, ...] = (
    # Plain attention.
    _v("plain-causal", "leak past the causal edge", "plain", "causal", regime="tilted"),
    _v("plain-causal-signed", "gradients", "plain", "causal", options="r"),
    _v("plain-full-flat", "a key too few or too many", "plain", "full", regime="flat"),
    _v("long-rising", "accumulator not rescaled", "long", "causal", regime="rising"),
    _v("long-falling", "later blocks not scaled down", "long", "causal", regime="falling", passes="f"),
    _v("long-signed", "gradients over several steps", "long", "causal", options="b", passes="b"),
    _v("plain-low", "maximum starts at 0", "plain", "causal", regime="low"),
    _v("plain-window", "window edges", "plain", "window", regime="flat", passes="f"),
    _v("plain-stored", "wrong mask block", "plain", "rs ta", regime="flat", passes="fb"),
    _v("plain-full-and-partial", "mask block of a full block", "plain", "2r s2", regime="flat", passes="f"),
    _v("plain-inside", "labels from corners or edges", "plain", "k2 2l", regime="flat", passes="f"),
    _v("plain-full-and-empty", "wrong mask block", "plain", "2a 02", regime="flat", passes="f"),
    _v("plain-empty-column", "keys that nobody sees", "plain", "20 a0"),
    _v("oblong-empty-column", "keys that nobody sees", "oblong", "20a r02", regime="flat"),
    _v("oblong-corners", "block edges", "oblong", "2bc d0e", regime="flat", passes="f"),
    _v("single-key", "logit gradient of a row with one key", "plain", "b0 0c", regime="signed"),
    _v("leading-hidden", "forgets what was masked at first", "plain", "22 02", regime="leading", passes="f"),
    _v("positive", "sums of low precision", "plain", "full", regime="positive"),
    _v("cancelling", "products of low precision", "plain", "causal", regime="cancelling"),
    _v("representable", "products of low precision", "plain", "full", regime="representable"),
    _v("huge", "exponential overflows", "long", "causal", regime="huge", options="f"),
    _v("huge-stored", "exponential overflows", "plain", "r2 at", regime="huge", passes="f"),
    _v("sentinel", "logits below a stand-in for hidden pairs", "plain", "causal", regime="sentinel"),
    _v("float-edge", "logits below a stand-in for hidden pairs", "long", "causal", regime="float_edge", options="f"),
    _v("many-kv-blocks", "an index of a block in 8 bits", "many-kv", "noise", regime="flat", passes="fb"),
    _v("many-q-blocks", "an index of a block in 8 bits", "many-q", "noise", regime="flat", passes="fb"),
    # Rows that see nothing.
    _v("empty-rows", "rows that see nothing", "plain", "i2 ja", regime="leading", passes="fr"),
    _v("late-causal", "rows that see nothing", "plain", "late_causal", passes="f"),
    _v("empty-first-q-block", "q block that sees nothing", "plain", "00 2a", passes="frb"),
    _v("empty-last-q-block", "q block that sees nothing", "plain", "a0 00", passes="f"),
    _v("empty-last-q-block-large-dkv", "empty rows inside a larger backward block", "large_backward", "a0 00"),
    _v("empty-first-q-block-large-dkv", "empty rows inside a larger backward block", "large_both", "00 2a", passes="b"),
    _v("empty-rows-large-forward", "empty rows inside a larger block", "large_forward", "02 j0", passes="fb"),
    _v("segments-empty-rows", "rows that see nothing", "segments", "causal", segments="disjoint_tail"),
    _v("segments-empty-block", "q block that sees nothing", "segments", "full", segments="foreign_block"),
    _v("segments-empty-block-large", "empty rows inside a larger block", "segments-blocks", "2a 22",
       segments="foreign_block"),
    _v("sinks-empty-rows", "rows that see only a sink", "sinks", "00 2a", sinks=(0.5, -1.0)),
    # Heads.
    _v("gqa", "wrong head map", "gqa", "causal"),
    _v("gqa-flat", "wrong head map", "gqa", "full", regime="flat"),
    _v("mqa", "wrong head map", "mqa", "causal", given=(("mqa", True),)),
    _v("two-masks", "mask of another head", "plain", "causal", "full", regime="flat", passes="f"),
    _v("two-masks-stored", "mask of another head", "plain", "2r a2", "s0 t2", regime="tilted", passes="fb"),
    _v("gqa-masks", "mask of another head", "gqa", "causal", "full", "2r a2", "causal", "2r a2", "full", passes="f"),
    # Segment ids.
    _v("segments", "compared with <=", "segments", "full", regime="flat", segments="ascending"),
    _v("segments-descending", "compared with >=", "segments", "causal", regime="flat", segments="descending"),
    _v("segments-repeating", "compared in order", "segments", "full", segments="repeating", passes="fr"),
    _v("segments-padding", "id 0 means padding", "segments", "2a 22", segments="padding", passes="f"),
    _v("segments-negative", "negative ids mean padding", "segments", "full", segments="negative", passes="f"),
    _v("segments-unlike", "a block judged by its last id", "segments", "full", regime="flat", segments="unlike",
       passes="fb"),
    _v("segments-tilted", "hidden keys leak", "segments", "full", regime="tilted", segments="ascending", passes="f"),
    # Soft cap.
    _v("cap", "cap after the mask", "cap", "causal", regime="flat"),
    _v("cap-signed", "derivative of the cap", "cap", "2a r2"),
    _v("cap-low", "cap of large logits", "cap", "causal", regime="low"),
    # Sinks.
    _v("sinks", "sink as a key", "sinks", "causal", sinks=(0.5, 2.0)),
    _v("sinks-flat", "sink as a key", "sinks", "full", regime="flat", sinks=(3.0, 1.0)),
    _v("sinks-large", "exp(sink) overflows", "sinks", "causal", sinks=(200.0, 1e4)),
    _v("sinks-small", "sink far below", "sinks", "causal", sinks=(-200.0, -INF)),
    _v("sinks-over-low", "sink far above", "sinks", "full", regime="low", sinks=(0.0, -290.0)),
    # Types and dimensions.
    _v("bfloat16", "rounding of the output", "bfloat16", "causal"),
    _v("bfloat16-flat", "rounding of the output", "bfloat16", "full", regime="flat"),
    _v("wide-v", "width of v", "wide_v", "causal"),
    *(_v(f"head-dim-{d}", "padded lanes", f"head_dim_{d}", "causal") for d in (64, 96, 128, 192)),
    # Block sizes.
    _v("large-backward", "other block sizes backward", "large_backward", "causal", regime="flat"),
    _v("large-forward", "other block sizes, keys in parts", "large_forward", "2a r2", regime="rising"),
    _v("large-both", "other block sizes backward", "large_both", "causal"),
    # Pairs of features.
    _v("mixed-a", "pairs of features", "gqa-segments-cap-sinks", "causal",
       segments="repeating", sinks=(0.5, -1.0, 3.0, 0.0)),
    _v("mixed-b", "pairs of features", "gqa-v-cap-sinks-bfloat16", "2a r2", sinks=(0.5, -1.0, 3.0, -INF),
       given=(("use_fused_bwd_kernel", False),)),
    _v("mixed-c", "pairs of features", "mqa-v-segments-bfloat16", "causal", segments="descending"),
    _v("mixed-d", "pairs of features", "mqa-cap-sinks", "causal", "full", sinks=(200.0, 0.5), given=(("mqa", True),)),
    _v("parts", "keys in parts, blocks out of place", "mqa-segments-cap-parts", "pairs", segments="ascending",
       given=(("layouts", "seq_minor"), ("scaled_q", "by_caller")), passes="fb"),
    _v("parts-fused", "keys in parts, blocks out of place", "mqa-segments-cap-parts", "pairs", segments="ascending",
       given=(("layouts", "seq_minor"), ("scaled_q", "by_caller"), ("use_fused_bwd_kernel", True)), passes="b"),
    _v("segments-sinks", "pairs of features", "segments-sinks", "full", segments="padding", sinks=(1.0, -20.0),
       given=(("max_logit_const", 10.0),), passes="fr"),
    # Run-time masks, and several devices.
    _v("dynamic", "mask known at run time", "dynamic", "2a r2"),
    _v("dynamic-empty", "mask known at run time", "dynamic", "20 a0", regime="flat"),
    _v("dynamic-full", "mask known at run time", "dynamic", "full", regime="flat", passes="f"),
    _v("shards-causal", "rows of another device", "shards-q", "causal", regime="flat"),
    _v("shards-stored", "arrays of another device", "shards-q", "200000 r20000 0s2000 2a22t2 02r222 220222",
       regime="flat", passes="f"),
    _v("shards-heads", "heads of another device", "shards-head", "causal", "full", "2r a2", "s0 t2", regime="tilted",
       passes="f"),
    _v("shards-head", "heads of another device", "shards-head", "causal", passes="b"),
    _v("shards-segments", "segment ids of another device", "shards-segments", "full", segments="repeating",
       passes="f"),
    _v("shards-sinks", "sinks at every device", "shards-sinks", "causal", sinks=(0.5, 2.0), passes="b"),
    _v("shards-dynamic", "mask known at run time", "shards-dynamic", "20 r2 0a 22"),
    # The ring.
    _v("ring-causal", "mask of a step", "ring2", "causal", regime="tilted"),
    _v("ring-rising", "combination without rescaling", "ring2", "full", regime="rising", options="frb"),
    _v("ring-falling", "combination without rescaling", "ring2", "full", regime="falling", passes="fr"),
    _v("ring-low", "maximum starts at 0", "ring2", "causal", regime="low", passes="fr"),
    _v("ring-flat", "a shard too few or too many", "ring4", "causal", regime="flat", passes="fr"),
    _v("ring-blocks", "shard of another step", "ring4", "2000 0r00 00a0 0002", regime="flat"),
    _v("ring-window", "shards that see nothing", "ring4", "window", regime="low", passes="fr"),
    _v("ring-sparse", "shards that see nothing", "ring4", "02r0 a000 0020 s00t", regime="flat"),
    _v("ring-unseen-shard", "a shard that nobody sees", "ring2", "20 a0", regime="flat"),
    _v("ring-rows", "rows that see nothing in a shard", "ring2", "jd ei", regime="leading"),
    _v("ring-empty-device", "a device that sees nothing", "ring2", "00 2a"),
    _v("ring-inside", "blocks of a shard", "ring2-long", "2a00 r2a0 0s22 t00d", passes="fr"),
    _v("ring-8", "more devices", "ring8", "causal", regime="flat", passes="fr"),
    _v("ring-segments", "segment ids of another shard", "ring2-segments", "full", regime="flat", segments="repeating"),
    _v("ring-segments-causal", "segment ids of another shard", "ring2-segments", "causal", segments="descending",
       passes="fr"),
    _v("ring-mqa", "head map", "ring2-mqa", "causal"),
    _v("ring-v", "width of v", "ring2-v", "causal"),
    _v("ring-cap", "cap after the mask", "ring2-cap", "causal"),
    _v("ring-sinks", "sink at every step", "ring2-sinks", "causal", sinks=(0.5, 3.0)),
    _v("ring-bfloat16", "sums of low precision", "ring2-bfloat16", "causal"),
    _v("ring-blocks-large", "other block sizes backward", "ring2-blocks", "causal"),
    _v("ring-partial-backward", "arrays of another direction", "ring2-blocks", "2202 2220 2202 2220", passes="b",
       given=(("use_base2_exp", False),)),
)  # fmt: skip
