"""Pictures of failing problems as SVG: labels of blocks, and where results differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from conformance.findings.pictures import BlockMap, Plane, Region

#: Pixels that a picture takes, and the least and most pixels of a cell.
WIDTH, SMALLEST, LARGEST = 192, 3, 192
#: The same for where results differ: a single element need not be that large.
LARGEST_REGION = 32

LABEL_NAMES = ("empty", "partial", "full")


def _which_heads(blocks: BlockMap, number: int) -> str:
    """The heads that a picture is about, if not of all."""
    heads = [head for head, own in enumerate(blocks["heads"]) if own == number]
    which = f"{'head' if len(heads) == 1 else 'heads'} {ranges(heads)}: "
    return which if len(blocks["grids"]) > 1 else ""


def block_pictures(blocks: BlockMap) -> list[tuple[str, Markup]]:
    """A caption and a picture of the labels for every distinct mask of a problem."""
    result = []
    for number, rows in enumerate(blocks["grids"]):
        size = f"{blocks['blocks'][0]} × {blocks['blocks'][1]} blocks"
        caption = f"{_which_heads(blocks, number)}{size}, q ↓ kv →"
        if blocks["cell"] != [1, 1]:
            caption += f", {blocks['cell'][0]} × {blocks['cell'][1]} to a cell"
        counts = [sum(row.count(str(label)) for row in rows) for label in range(3)]
        title = ", ".join(f"{n} {name}" for n, name in zip(counts, LABEL_NAMES, strict=True) if n)
        result.append((caption, _picture(rows, "b", "12", f"{caption}: {title}", (1, 1))))
    return result


def mask_pictures(blocks: BlockMap) -> list[tuple[str, Markup]]:
    """A caption and a picture of the entries for every distinct mask of a problem."""
    result = []
    rows_a_block, columns_a_block = (
        size // cell for size, cell in zip(blocks["block"], blocks["mask_cell"], strict=True)
    )
    for number, rows in enumerate(blocks["masks"]):
        sizes = (n * size for n, size in zip(blocks["blocks"], blocks["block"], strict=True))
        caption = f"{_which_heads(blocks, number)}{' × '.join(map(str, sizes))} tokens"
        lines = (rows_a_block, columns_a_block)
        result.append((caption, _picture(rows, "m", "123456789", f"mask, {caption}", lines)))
    return result


def region_pictures(region: Region) -> list[tuple[str, Markup]]:
    """A caption and a picture for every plane of a region."""
    result = []
    lines = [
        block // cell if block else 0
        for block, cell in zip(region["block"], region["cell"], strict=True)
    ]
    for plane in region["planes"]:
        caption = _plane_caption(region, plane)
        at = (lines[0], lines[1])
        picture = _picture(plane["rows"], "d", "123456789", caption, at, LARGEST_REGION)
        result.append((caption, picture))
    return result


def _plane_caption(region: Region, plane: Plane) -> str:
    """What a plane shows, e.g. ``output, head 0: row ↓ dimension →``."""
    axes = region["axes"] or [f"axis {n}" for n in range(len(region["shape"]))]
    at = ", ".join(f"{axis} {n}" for axis, n in zip(axes, plane["at"], strict=False))
    shown = axes[-2:]
    directions = f"{shown[0]} ↓ {shown[1]} →" if len(shown) == 2 else f"{''.join(shown)} →"
    sizes = " × ".join(map(str, region["shape"][-2:]))
    return f"{region['array']}{', ' + at if at else ''}: {directions} ({sizes})"


def _picture(
    rows: Sequence[str],
    prefix: str,
    letters: str,
    title: str,
    lines: tuple[int, int],
    largest: int = LARGEST,
) -> Markup:
    """Rows of digits as rectangles; digit ``n`` has the class ``prefix + n``, 0 is left out.

    Args:
      rows: strings of one length.
      prefix: of the classes.
      letters: the digits that are drawn.
      title: what screen readers say.
      lines: cells between two horizontal and between two vertical lines; 0 for none.
      largest: most pixels of a cell.
    """
    height, width = len(rows), len(rows[0])
    pixels = max(SMALLEST, min(largest, WIDTH // max(height, width)))
    shapes = [
        Markup('<path class="{}" d="{}"/>').format(prefix + letter, path)
        for letter in letters
        if (path := _runs(rows, letter))
    ]
    grid = _lines(height, width, lines) if pixels > SMALLEST or max(lines) > 1 else ""
    return Markup(
        '<svg class="picture" role="img" width="{w}" height="{h}" viewBox="0 0 {cw} {ch}" '
        'shape-rendering="crispEdges"><title>{title}</title>'
        '<rect class="{prefix}0" width="{cw}" height="{ch}"/>{shapes}'
        '<path class="lines" d="{grid}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(
        w=width * pixels, h=height * pixels, cw=width, ch=height, title=escape(title), prefix=prefix,
        shapes=Markup("").join(shapes), grid=grid,
    )  # fmt: skip


def _runs(rows: Sequence[str], letter: str) -> str:
    """A path of one rectangle for every horizontal run of a digit: few shapes, however many cells."""
    parts = []
    for y, row in enumerate(rows):
        x = row.find(letter)
        while x >= 0:
            end = x
            while end < len(row) and row[end] == letter:
                end += 1
            parts.append(f"M{x} {y}h{end - x}v1h{x - end}z")
            x = row.find(letter, end)
    return "".join(parts)


def _lines(height: int, width: int, lines: tuple[int, int]) -> str:
    down, across = lines
    horizontal = range(down, height, down) if down else ()
    vertical = range(across, width, across) if across else ()
    return "".join([f"M0 {y}h{width}" for y in horizontal] + [f"M{x} 0v{height}" for x in vertical])


def ranges(numbers: Iterable[int]) -> str:
    """Numbers with neighbours joined, e.g. ``0–3, 7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] + 1 == number:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in parts)
