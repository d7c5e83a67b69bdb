"""The JSON form of a study; ``explain.schema.json`` beside this file is generated from it.

Bytes, tokens and blocks are whole numbers, shares lie between 0 and 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from conformance.findings.json_schema import Count, Keywords, Positive, document

#: Version of the form: it changes whenever a field changes its name or its meaning.
SCHEMA = 1
SCHEMA_FILE = Path(__file__).with_name("explain.schema.json")

Share = Annotated[float, Keywords(minimum=0, maximum=1)]
Layout = Literal["grid", "flat", "runs"]


class MaskForm(TypedDict):
    """The mask.

    Attributes:
      text: as on the command line.
      structured: everything follows from bounds, without reading entries.
      parts: the masks that it combines, from left to right.
    """

    text: str
    structured: bool
    parts: list[Annotated[dict[str, Any], Keywords(required=["kind"])]]


class ProblemForm(TypedDict):
    """What is asked about.

    Attributes:
      segments: there are segment ids.
      dynamic: the mask is known only at run time.
    """

    q_len: Positive
    kv_len: Positive
    block_q: Positive
    block_kv: Positive
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    dtype: str
    segments: bool
    dynamic: bool


class RemarkForm(TypedDict):
    """What some of the numbers mean."""

    kind: Literal["verdict", "good", "cost", "limit", "try"]
    text: str


class BlocksForm(TypedDict):
    """Blocks along q and kv, and by label."""

    q: Positive
    kv: Positive
    total: Positive
    empty: Count
    partial: Count
    full: Count


class PairsForm(TypedDict):
    """Pairs of a query and a key.

    Attributes:
      visible: null where only reading every entry would tell.
      computed: those of all blocks that run.
    """

    total: Positive
    visible: Count | None
    computed: Count


class FlashForm(TypedDict):
    """A kernel that visits every block.

    Attributes:
      steps: of one head.
      k_fetches: blocks of k over all heads, as many as of v.
    """

    steps: Positive
    k_fetches: Count
    kv_bytes: Count


class SmemArrayForm(TypedDict):
    """An array in scalar memory.

    Attributes:
      bytes: padded as the compiler does.
    """

    name: str
    shape: list[Count]
    dtype: Literal["int8", "int16", "int32"]
    bytes: Count


class SmemForm(TypedDict):
    """Scalar memory.

    Attributes:
      bytes: all, with what a kernel needs beside.
      fits: by name of the chip.
    """

    arrays: list[SmemArrayForm]
    bytes: Count
    fits: dict[str, bool]


class StackForm(TypedDict):
    """Mask blocks that are stored.

    Attributes:
      read_bytes: in the type in which the kernel reads them.
    """

    blocks: Count
    bool_bytes: Count
    read_bytes: Count


class AtMostForm(TypedDict):
    """Whether fetches are the most that there can be; otherwise they are exact."""

    k_fetches: bool
    mask_fetches: bool


class VmemForm(TypedDict):
    """Vector memory.

    Attributes:
      bytes: an estimate.
      verdict: by name of the chip.
    """

    buffers: dict[str, Count]
    bytes: Count
    verdict: dict[str, Literal["fits", "may not fit", "does not fit"]]


class ScheduleForm(TypedDict):
    """What a kernel does in one layout.

    Attributes:
      as_in: the library that has this layout.
      grid: of one head.
      steps: of one head.
      mask: where label-1 blocks get their mask from.
    """

    layout: Layout
    as_in: Literal["jax", "tokamax", "pallas_impl"]
    form: str
    grid: list[Positive]
    steps: Positive
    mask: Literal["stored", "computed", "none"]
    smem: SmemForm
    stored_blocks: StackForm


class ForwardForm(ScheduleForm):
    """What the forward kernel does in one layout.

    Attributes:
      k_fetches: over all heads; null where it depends on values at run time.
    """

    k_fetches: Count | None
    kv_bytes: Count | None
    mask_fetches: Count | None
    at_most: AtMostForm
    vmem: VmemForm


class PartialBlocksForm(TypedDict):
    """Blocks with label 1, and how many of them differ."""

    partial: Count
    different: Count
    bytes_before_dedup: Count
    bytes_after_dedup: Count


class SegmentsForm(TypedDict):
    """What segment ids hide.

    Attributes:
      unseen_blocks: blocks that run although the ids hide every pair; null if the ids are not known.
    """

    unseen_blocks: Count | None


class ChipForm(TypedDict):
    """Memory of a TPU.

    Attributes:
      vmem_default: what a kernel may use if it does not ask for more.
    """

    name: str
    smem: Count
    vmem: Count
    vmem_default: Count
    hbm: Count


class OptionLayoutForm(TypedDict):
    """A layout with other block sizes."""

    layout: Layout
    form: str
    steps: Count
    kv_bytes: Count | None
    smem_bytes: Count
    vmem_bytes: Count


class OptionForm(TypedDict):
    """Other block sizes."""

    block_q: Positive
    block_kv: Positive
    empty: Count
    partial: Count
    full: Count
    arithmetic_skipped: Share
    different_partial_blocks: Count | None
    layouts: list[OptionLayoutForm]


class StudyForm(TypedDict):
    """What splash-conformance explain predicts of a mask.

    Attributes:
      schema: version of this form.
      verdict: what the numbers mean; the first is the verdict.
      segments: null without segment ids.
    """

    schema: int
    command: Literal["explain"]
    mask: MaskForm
    problem: ProblemForm
    verdict: Annotated[list[RemarkForm], Keywords(minItems=1)]
    blocks: BlocksForm
    pairs: PairsForm
    arithmetic_skipped: Share
    flash: FlashForm
    forward: list[ForwardForm]
    dkv: list[ScheduleForm]
    partial_mask_blocks: PartialBlocksForm
    segments: SegmentsForm | None
    chips: list[ChipForm]
    block_sizes: list[OptionForm]


def schema() -> dict[str, Any]:
    """The schema of a study."""
    return document(StudyForm, "explain", SCHEMA, {})
