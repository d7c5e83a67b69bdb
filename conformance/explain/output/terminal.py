"""A study in the terminal: verdict, block map, tables."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.explain.blocks.shades import Shades, shades
from conformance.explain.costs.layouts import LAYOUTS, Schedule, final_schedule
from conformance.explain.costs.memory import CHIPS, smem_bytes, smem_total, vmem_bytes, vmem_verdict
from conformance.explain.costs.study import Study
from conformance.explain.output.advice import Remark
from conformance.explain.output.wording import beside, blocks, count, problem_facts, share, size

#: Most cells of the map.
MAP_ROWS, MAP_COLUMNS = 32, 48
#: Longest line of text.
TEXT_WIDTH = 108

OWN_LIMIT = "* raises its limit to what it needs, up to the whole memory of the chip"
SIGNS = {"verdict": " ", "good": "+", "cost": "-", "limit": "!", "try": ">"}
STYLES = {"verdict": "bold", "good": "green", "cost": "yellow", "limit": "bold red", "try": "cyan"}
EMPTY_STYLE, PARTIAL_STYLE, FULL_STYLE, MIXED_STYLE = "bright_black", "yellow", "blue", "cyan"


def print_study(found: Study, said: list[Remark], console: Console, *, quiet: bool = False) -> None:
    """Prints everything.

    Args:
      found, said: the study and its remarks.
      console: where.
      quiet: leave out the map and the tables.
    """
    console.print(_title(found))
    console.print()
    for remark in said:
        console.print(_remark(remark, console.width), no_wrap=True)
    if quiet:
        return
    console.print()
    for row in block_map(found, console.width):
        console.print(row, no_wrap=True, overflow="crop")
    console.print()
    for title, table, below in (
        ("Steps and fetches, forward", _steps(found), ""),
        (f"Scalar memory, as the compiler pads it ({_limits()})", _scalar(found), ""),
        (
            "Vector memory, forward: an estimate, and what a kernel may use by default",
            _vector(found),
            OWN_LIMIT,
        ),
        ("Other block sizes", _sizes(found), ""),
    ):
        console.print(title, style="bold", highlight=False)
        console.print(table)
        if below:
            console.print(below)
        console.print()
    for line in _stored(found):
        console.print(line, highlight=False)


def _limits() -> str:
    """Scalar memory by generation, in one line."""
    by_size: dict[int, list[str]] = {}
    for chip in CHIPS:
        by_size.setdefault(chip.smem, []).append(chip.name)
    return "; ".join(
        f"{size(smem)} per core on {', '.join(names)}" for smem, names in by_size.items()
    )


def _title(found: Study) -> Text:
    question = found.question
    tokens, *others = problem_facts(question)
    parts = [tokens, f"blocks {blocks(question.block_q, question.block_kv)}", *others]
    return Text(question.text, style="bold").append(" · " + " · ".join(parts), style="not bold")


def _remark(remark: Remark, width: int) -> Text:
    lines = textwrap.wrap(remark.text, min(width, TEXT_WIDTH) - 3)
    text = Text().append(f"{SIGNS[remark.kind]} ", STYLES[remark.kind])
    return text.append("\n  ".join(lines), style="" if remark.kind != "verdict" else "bold")


def block_map(found: Study, width: int) -> list[Text]:
    """The map, two characters a cell, and its legend."""
    columns = max(8, min(MAP_COLUMNS, (width - 2) // 2))
    small = shades(found.compiled.labels, MAP_ROWS, columns)
    lines = []
    for row in range(small.empty.shape[0]):
        line = Text("  ")
        for column in range(small.empty.shape[1]):
            glyph, style = _cell(small, row, column)
            line.append(glyph * 2, style)
        lines.append(line)
    return [*lines, _legend(found, small)]


def _cell(small: Shades, row: int, column: int) -> tuple[str, str]:
    empty, full = small.empty[row, column], small.full[row, column]
    if empty == 1:
        return "·", EMPTY_STYLE
    if full == 1:
        return "█", FULL_STYLE
    if small.exact:
        return "▒", PARTIAL_STYLE
    return "░▒▓"[min(2, int(3 * (1 - empty)))], MIXED_STYLE if empty else PARTIAL_STYLE


def _legend(found: Study, small: Shades) -> Text:
    counts = found.counts
    labels = (
        ("··", EMPTY_STYLE, "empty", counts.empty),
        ("▒▒", PARTIAL_STYLE, "partial", counts.partial),
        ("██", FULL_STYLE, "full", counts.full),
    )
    text = Text("\n")
    if not small.exact:
        q, kv = found.compiled.labels.shape
        rows, columns = small.empty.shape
        text.append(
            f"  {q:,} × {kv:,} blocks on {rows} × {columns} cells: ·· no block of the cell runs, ░░ ▒▒ ▓▓ some do, "
            "██ all do, unmasked\n"
        )
    for glyph, style, name, number in labels:
        text.append("  ")
        if small.exact:
            text.append(glyph, style).append(" ")
        text.append(f"{name} {number:,} ({share(number / counts.total)})")
    return text.append("   queries downwards, keys to the right", "dim")


def _name(schedule: Schedule) -> str:
    if schedule.layout == "grid" and "before" in schedule.form:
        return schedule.form
    return f"{schedule.form} ({LAYOUTS[schedule.layout]})"


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _steps(found: Study) -> Table:
    table = _table(
        "",
        "grid of a head",
        "steps per head",
        "k and v fetched",
        "of flash",
        "mask blocks fetched",
    )
    rows, columns = found.compiled.labels.shape
    total = size(found.kv_bytes(found.flash))
    table.add_row(
        "flash attention", f"{rows:,} × {columns:,}", f"{found.counts.total:,}", total, "100 %", "0"
    )
    for schedule in found.forward:
        grid = " × ".join(f"{side:,}" for side in schedule.grid)
        fetched = schedule.k_fetches
        if fetched is None:
            table.add_row(_name(schedule), grid, f"{schedule.steps:,}", *["at run time"] * 3)
            continue
        table.add_row(
            _name(schedule),
            grid,
            f"{schedule.steps:,}",
            "≤ " * schedule.k_at_most + size(found.kv_bytes(fetched)),
            "≤ " * schedule.k_at_most + share(fetched / found.flash),
            "≤ " * schedule.mask_at_most + f"{schedule.mask_fetches:,}",
        )
    return table


def _scalar(found: Study) -> Table:
    table = _table("", "shape", "type", "forward", "dkv")
    table.columns[1].justify = table.columns[2].justify = "left"
    for layout, library in LAYOUTS.items():
        forward, dkv = (
            final_schedule(schedules, layout) for schedules in (found.forward, found.dkv)
        )
        table.add_row(
            Text(f"{forward.form} ({library})", "bold"), "", "", _total(forward), _total(dkv)
        )
        backward = {array.name: array for array in dkv.arrays}
        for array in forward.arrays:
            other = backward.get(array.name)
            table.add_row(
                f"  {array.name}",
                "×".join(f"{side}" for side in array.shape),
                array.dtype,
                size(smem_bytes(array)),
                size(smem_bytes(other)) if other else "",
            )
    return table


def _total(schedule: Schedule) -> Text:
    total = smem_total(schedule)
    fits = all(total <= chip.smem for chip in CHIPS)
    number = beside(total, min(chip.smem for chip in CHIPS))
    return Text(f"{number} {'fits' if fits else 'TOO MUCH'}", "green" if fits else "bold red")


def _vector(found: Study) -> Table:
    heads = [f"{chip.name} {size(chip.vmem_default)}" for chip in CHIPS]
    table = _table("", "needs", *heads)
    marks = {
        "fits": Text("fits", "green"),
        "may not fit": Text("may not fit", "yellow"),
        "does not fit": Text("TOO MUCH", "bold red"),
    }
    shape = found.question.shape
    for layout, library in LAYOUTS.items():
        schedule = final_schedule(found.forward, layout)
        verdicts = [marks[vmem_verdict(schedule, shape, chip)] for chip in CHIPS]
        note = " *" if layout == "runs" else ""
        table.add_row(library + note, size(vmem_bytes(schedule, shape)), *verdicts)
    return table


def _stored(found: Study) -> list[str]:
    partial, distinct, area = found.counts.partial, found.compiled.distinct, found.area
    if not partial:
        return []
    before, after = size(partial * area), size(distinct * area)
    lines = [
        f"Partial mask blocks, as booleans: {partial:,} take {before}, {count(distinct, 'distinct one')} {after}."
    ]
    for layout, library in LAYOUTS.items():
        schedule = final_schedule(found.forward, layout)
        stack = found.stack(schedule)
        how = (
            f"reads {size(stack.read)} of them"
            if stack.blocks
            else "computes the mask, nothing is stored"
        )
        lines.append(f"  {library:<12} {how}")
    return lines


def _sizes(found: Study) -> Table:
    table = _table(
        "",
        "skipped",
        "partial",
        "steps, grid",
        "steps, flat",
        "k and v, grid",
        "scalar, grid",
        "vector, grid",
    )
    question = found.question
    for option in found.options:
        grid, flat = (final_schedule(option.schedules, layout) for layout in ("grid", "flat"))
        own = (option.block_q, option.block_kv) == (question.block_q, question.block_kv)
        fetched = "" if grid.k_fetches is None else size(option.bytes_of(question, grid.k_fetches))
        table.add_row(
            blocks(option.block_q, option.block_kv) + (" ←" if own else ""),
            share(option.counts.skipped),
            f"{option.counts.partial:,}",
            f"{grid.steps:,}",
            f"{flat.steps:,}",
            fetched,
            size(smem_total(grid)),
            size(vmem_bytes(grid, option.shape(question))),
            style="bold" if own else "",
        )
    return table
