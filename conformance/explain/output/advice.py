"""What the figures of a study mean, and what would cost less. Every suggestion has been computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from conformance.explain.blocks.reorder import SORTABLE, best_share
from conformance.explain.blocks.survey import prepared
from conformance.explain.costs.layouts import LAYOUTS, Schedule, final_schedule
from conformance.explain.costs.memory import (
    CHIPS,
    MIB,
    Shape,
    smem_bytes,
    smem_total,
    vmem_bytes,
    vmem_verdict,
)
from conformance.explain.costs.sizes import LANES, SUBLANES
from conformance.explain.costs.study import Option, Stack, Study
from conformance.explain.language.expressions import is_structured
from conformance.explain.output.wording import beside, blocks, count, listing, share, size
from reference.masks import Dense

Kind = Literal["verdict", "good", "cost", "limit", "try"]

#: The smallest difference worth mentioning, as a share of all blocks.
NOTABLE = 0.03


class Remark(NamedTuple):
    """One conclusion from the figures.

    Attributes:
      kind: ``verdict`` (the first), ``good``, ``cost``, ``limit`` (something does not fit) or ``try``.
      text: a sentence or two.
    """

    kind: Kind
    text: str


def remarks(found: Study) -> list[Remark]:
    """All remarks, the verdict first."""
    said = [_verdict(found)]
    said += _multiples(found)
    said += _grid(found)
    said += _fetches(found)
    said += _stored(found)
    said += _segments(found)
    said += _scalar_memory(found)
    said += _vector_memory(found)
    said += _block_sizes(found)
    said += _order(found)
    return said


def _verdict(found: Study) -> Remark:
    counts, question = found.counts, found.question
    cut = f"at {blocks(question.block_q, question.block_kv)}"
    if counts.running == 0:
        return Remark(
            "verdict", "Nothing is visible: no block runs, and every output row is empty."
        )
    if counts.full == counts.total:
        return Remark(
            "verdict",
            "This mask hides nothing: every block is full, and the kernel does what flash attention does.",
        )
    if counts.partial == counts.total:
        return Remark(
            "verdict",
            f"This mask gains nothing {cut}: every block is partial. No arithmetic is skipped, the grid does not "
            "shrink, and every block has to be masked.",
        )
    if counts.empty == 0:
        return Remark(
            "verdict",
            f"Nothing is skipped {cut}: no block is empty. {share(counts.full / counts.total)} of the blocks are "
            "full and need no masking.",
        )
    text = (
        f"Skips {share(counts.skipped)} of the arithmetic {cut}: {counts.empty:,} of {counts.total:,} blocks "
        f"{'is' if counts.empty == 1 else 'are'} empty."
    )
    if found.pairs is not None:
        hidden = 1 - found.pairs / (question.q_len * question.kv_len)
        text += f" {share(hidden)} of the pairs are hidden, and no block size skips more than that."
    return Remark("verdict", text)


def _multiples(found: Study) -> list[Remark]:
    """Warns about block sizes that TPU kernels do not accept."""
    question = found.question
    if question.block_kv % LANES == 0 and question.block_q % SUBLANES == 0:
        return []
    text = (
        f"TPU kernels take blocks of {LANES}, {2 * LANES}, … tokens: the figures at "
        f"{blocks(question.block_q, question.block_kv)} are only illustrative."
    )
    longest = max(question.q_len, question.kv_len)
    if longest % LANES:
        text += (
            f" A sequence of {longest:,} tokens has to be padded to {longest + -longest % LANES:,}."
        )
    return [Remark("limit", text)]


def _grid(found: Study) -> list[Remark]:
    if found.question.dynamic:
        return [
            Remark(
                "cost", "A run-time mask cannot shrink the grid: the kernel visits every position."
            )
        ]
    if found.counts.empty == 0:
        return []
    before, after = (schedule for schedule in found.forward if schedule.layout == "grid")
    flat = final_schedule(found.forward, "flat")
    if after.steps < before.steps:
        text = (
            f"The grid shrinks from {before.grid[1]:,} to {count(after.grid[1], 'column')}: {after.steps:,} instead "
            f"of {before.steps:,} steps per head."
        )
        return [Remark("good", text)]
    return [
        Remark(
            "cost",
            f"The grid does not shrink: the longest row needs all {before.grid[1]:,} columns, so the grid still "
            f"takes {before.steps:,} steps per head. A flat list takes {flat.steps:,}.",
        )
    ]


def _fetches(found: Study) -> list[Remark]:
    grid = final_schedule(found.forward, "grid")
    if grid.k_fetches is None or found.counts.empty == 0:
        return []
    saved = 1 - grid.k_fetches / found.flash
    if saved < NOTABLE:
        return []
    return [
        Remark(
            "good",
            f"k and v: the kernel fetches {size(found.kv_bytes(grid.k_fetches))}, flash attention would fetch "
            f"{size(found.kv_bytes(found.flash))} ({share(saved)} less).",
        )
    ]


def _stored(found: Study) -> list[Remark]:
    grid, ours = final_schedule(found.forward, "grid"), final_schedule(found.forward, "runs")
    if not grid.stored:
        return []
    stack = found.stack(grid)
    if found.question.dynamic:
        text = (
            f"A run-time mask is stored whole: {size(stack.stored)} of booleans, and jax passes them to the kernel as "
            f"int32, {size(stack.read)}."
        )
        return [Remark("cost", text), *_main_memory(stack)]
    text = (
        f"{count(found.compiled.distinct, 'distinct partial block')} of {found.counts.partial:,} "
        f"{'is' if found.compiled.distinct == 1 else 'are'} stored: {size(stack.stored)} of booleans, which jax "
        f"passes to the kernel as int32 ({size(stack.read)})."
    )
    if found.counts.partial == found.counts.total:
        text += " Flash attention would never touch them."
    said = [Remark("cost", text), *_main_memory(stack)]
    if not ours.stored:
        said.append(
            Remark(
                "good",
                "pallas_impl computes this combination of masks in the kernel and stores nothing.",
            )
        )
    elif stack.read >= MIB:
        able = "" if is_structured(found.question.expr) else ", if you can"
        said.append(
            Remark(
                "try",
                f"Write this mask as a function of positions{able}: pallas_impl computes a ComputableMask in the "
                "kernel and stores nothing.",
            )
        )
    return said


def _main_memory(stack: Stack) -> list[Remark]:
    short = [chip.name for chip in CHIPS if stack.read > chip.hbm]
    if not short:
        return []
    return [Remark("limit", f"The int32 copy alone exceeds the main memory of {listing(short)}.")]


def _segments(found: Study) -> list[Remark]:
    if not found.unseen:
        return []
    part = found.unseen / found.counts.total
    return [
        Remark(
            "try",
            f"Segment ids hide every pair of {found.unseen:,} blocks that still run ({share(part)} of all): jax and "
            "pallas_impl schedule blocks by the mask alone, tokamax by segment ids too. If the documents are known in "
            "advance, put them into the mask: MASK & documents:…",
        )
    ]


def _scalar_memory(found: Study) -> list[Remark]:
    said = []
    kernels = {"forward": found.forward, "dkv": found.dkv}
    limit = max(chip.smem for chip in CHIPS)
    fitting = [name for name in LAYOUTS if _fits_smem(kernels.values(), name)]
    for name, library in LAYOUTS.items():
        for kernel, schedules in kernels.items():
            schedule = final_schedule(schedules, name)
            total = smem_total(schedule)
            if total <= limit:
                continue
            largest = max(schedule.arrays, key=smem_bytes)
            text = (
                f"{library} cannot run the {kernel} kernel on any TPU: its arrays need {beside(total, limit)} of "
                f"scalar memory, which has {size(limit)}; {largest.name} takes {size(smem_bytes(largest))}."
            )
            larger = [
                option
                for option in found.options
                if smem_total(final_schedule(option.schedules, name)) <= limit
                and option.block_q * option.block_kv > found.area
            ]
            if larger:
                text += f" It would fit at {blocks(larger[0].block_q, larger[0].block_kv)}."
            said.append(Remark("limit", text))
            break
    if said and fitting:
        said.append(Remark("good", f"The arrays of {listing([LAYOUTS[n] for n in fitting])} fit."))
    return said


def _fits_smem(kernels: Iterable[list[Schedule]], name: str) -> bool:
    limit = max(chip.smem for chip in CHIPS)
    return all(smem_total(final_schedule(schedules, name)) <= limit for schedules in kernels)


def _vector_memory(found: Study) -> list[Remark]:
    said = []
    for name, library in LAYOUTS.items():
        schedule, shape = final_schedule(found.forward, name), found.question.shape
        short = [
            chip.name for chip in CHIPS if vmem_verdict(schedule, shape, chip) == "does not fit"
        ]
        if short:
            said.append(
                Remark(
                    "limit",
                    f"The forward kernel of {library} needs about {size(vmem_bytes(schedule, shape))} of vector "
                    f"memory, more than it may use on {listing(short)}: use smaller blocks, or raise the limit where "
                    "the chip has more.",
                )
            )
    return said


def _block_sizes(found: Study) -> list[Remark]:
    question = found.question
    others = [
        option
        for option in found.options
        if (option.block_q, option.block_kv) != (question.block_q, question.block_kv)
    ]
    smaller = [o for o in others if o.block_q * o.block_kv < found.area]
    larger = [o for o in others if o.block_q * o.block_kv > found.area]
    said = []
    skips = found.counts.skipped
    better = [o for o in smaller if o.counts.skipped >= skips + NOTABLE]
    if better:
        best = max(better, key=lambda o: o.counts.skipped)
        said.append(
            Remark(
                "try",
                f"Blocks of {blocks(best.block_q, best.block_kv)} would skip {share(best.counts.skipped)} instead of "
                f"{share(skips)}, in {final_schedule(best.schedules, 'flat').steps:,} steps per head.",
            )
        )
    elif smaller and found.counts.partial == found.counts.total:
        tried = listing([blocks(o.block_q, o.block_kv) for o in smaller])
        said.append(
            Remark("try", f"Smaller blocks do not help: {tried} skip next to nothing either.")
        )
    nearly = [o for o in larger if o.counts.skipped >= skips - NOTABLE and _fits_as_well(o, found)]
    if nearly and found.counts.running:
        said.append(_nearly(found, max(nearly, key=lambda o: o.block_q * o.block_kv)))
    return said


def _fitting_v5e(schedules: list[Schedule], shape: Shape) -> set[str]:
    """The layouts that certainly fit v5e, where kernels may use the least memory."""
    v5e = next(chip for chip in CHIPS if chip.name == "v5e")
    made = {name: final_schedule(schedules, name) for name in LAYOUTS}
    return {
        name
        for name, schedule in made.items()
        if smem_total(schedule) <= v5e.smem and vmem_verdict(schedule, shape, v5e) == "fits"
    }


def _fits_as_well(option: Option, found: Study) -> bool:
    """Whether a block size fits at least one layout, and every layout that fits now."""
    now = _fitting_v5e(found.forward, found.question.shape)
    then = _fitting_v5e(option.schedules, option.shape(found.question))
    return bool(then) and now <= then


def _nearly(found: Study, option: Option) -> Remark:
    own, other = final_schedule(found.forward, "flat"), final_schedule(option.schedules, "flat")
    steps = f"{other.steps:,} instead of {own.steps:,} steps per head"
    skipped = option.counts.skipped
    text = f"Blocks of {blocks(option.block_q, option.block_kv)} "
    if skipped == 0:
        text += f"take {steps}"
    else:
        as_much = "as much" if skipped == found.counts.skipped else "nearly as much"
        text += f"skip {as_much} ({share(skipped)}) in {steps}"
    now, then = (
        found.kv_bytes(own.k_fetches or 0),
        option.bytes_of(found.question, other.k_fetches or 0),
    )
    if then < now:
        text += f", and fetch {size(then)} of k and v instead of {size(now)}"
    return Remark("try", text + ".")


def _order(found: Study) -> list[Remark]:
    question = found.question
    if is_structured(question.expr) or question.q_len * question.kv_len > SORTABLE:
        return []
    stored = prepared(question.expr, question.q_len, question.kv_len)
    computed = found.counts.running * found.area
    if not isinstance(stored, Dense) or 2 * (found.pairs or 0) > computed:
        return []
    best = best_share(stored.array, question.block_q, question.block_kv)
    if best < found.counts.skipped + NOTABLE:
        text = "Sorting the tokens does not help: no order that was tried gathers the hidden pairs in whole blocks."
    else:
        text = (
            f"Sorting the tokens so that similar rows and columns are adjacent would skip {share(best)} instead of "
            f"{share(found.counts.skipped)} (keys may be in any order; the rows of the result are permuted back)."
        )
    return [Remark("try", text)]
