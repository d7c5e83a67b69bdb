"""A small mask and its compiled arrays, drawn: the pictures of the page on MaskInfo."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from reference.blocks import Int32
from reference.flat import compile_flat
from reference.mask_info import GridMaskInfo, compile_grid
from reference.masks import Bool, Dense, Local, Mask

TOKENS, BLOCK, WINDOW = 16, 4, 8
#: A window of nine tokens; stored block by block, not computed in the kernel.
MASK = Mask(Dense(Mask(Local(WINDOW, 0), TOKENS, TOKENS).dense()), TOKENS, TOKENS)


def compiled(*, shrink: bool) -> GridMaskInfo:
    """The arrays of the forward kernel."""
    return compile_grid([MASK], BLOCK, BLOCK, shrink=shrink)


def mask() -> str:
    """The mask with its blocks."""
    labels = compiled(shrink=False).block_mask[0]
    colours = np.repeat(np.repeat(labels, BLOCK, axis=0), BLOCK, axis=1)
    caption = f"{TOKENS} × {TOKENS} tokens in blocks of {BLOCK} × {BLOCK}: queries downwards, keys to the right"
    legend = " ".join(
        f'<span class="swatch b{label}"></span> {what}'
        for label, what in enumerate(("empty", "partial", "full"))
    )
    picture = _squares(MASK.dense(), caption, colours)
    return f'<div class="pictures">{picture}</div>\n<p class="legend">Blocks: {legend}</p>'


def grid() -> str:
    """Labels, `data_next` and `mask_next` before shrinking."""
    return _arrays(compiled(shrink=False))


def shrunk() -> str:
    """The same after shrinking."""
    return _arrays(compiled(shrink=True))


def _arrays(info: GridMaskInfo) -> str:
    labels = info.block_mask[0]
    assert info.mask_next is not None
    named = {"block_mask": labels, "data_next": info.data_next[0], "mask_next": info.mask_next[0]}
    tables = (_table(name, array, labels) for name, array in named.items())
    return f'<div class="pictures">{"".join(tables)}</div>'


def stored() -> str:
    """The stack of stored blocks."""
    stack = compiled(shrink=False).partial_mask_blocks
    assert stack is not None
    figures = (_squares(block, f"partial_mask_blocks[{n}]") for n, block in enumerate(stack))
    return f'<div class="pictures">{"".join(figures)}</div>'


def flat() -> str:
    """The flat layout of the same mask."""
    info = compile_flat(MASK, BLOCK, BLOCK)
    assert info.mask_next is not None
    rows = {
        "active_rows": info.active_rows,
        "active_cols": info.active_cols,
        "block_mask": info.block_mask,
        "mask_next": info.mask_next,
    }
    out = ["| step | " + " | ".join(map(str, range(len(info.active_rows)))) + " |"]
    out.append("|-" * (len(info.active_rows) + 1) + "|")
    out += [f"| `{name}` | {' | '.join(map(str, array))} |" for name, array in rows.items()]
    return "\n".join(out)


def _table(name: str, array: Int32, labels: Int32) -> str:
    """An array as a table whose cells have the colours of their labels."""
    head = "".join(f'<th scope="col">{n}</th>' for n in range(array.shape[1]))
    body = "".join(
        f'<tr><th scope="row">{i}</th>{_cells(values, labels[i])}</tr>'
        for i, values in enumerate(array)
    )
    return (
        f'<figure><table class="array"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"<figcaption><code>{name}</code></figcaption></figure>"
    )


def _cells(values: Sequence[int] | Int32, labels: Sequence[int] | Int32) -> str:
    pairs = zip(values, labels, strict=True)
    return "".join(f'<td class="b{label}">{value}</td>' for value, label in pairs)


def _squares(values: Bool, caption: str, colours: Int32 | None = None) -> str:
    """A boolean array as squares, filled where True, with lines between blocks."""
    rows, columns = values.shape
    squares = []
    for i, j in np.argwhere(values):
        kind = "m9" if colours is None else f"b{colours[i, j]}"
        squares.append(f'<rect class="{kind}" x="{j}" y="{i}" width="1" height="1"/>')
    lines = "".join(
        f"M0 {n}h{columns}M{n} 0v{rows}" for n in range(BLOCK, max(rows, columns), BLOCK)
    )
    pixels = 12 if rows > BLOCK else 18
    return (
        f'<figure><svg class="picture" role="img" width="{columns * pixels}" height="{rows * pixels}" '
        f'viewBox="0 0 {columns} {rows}" shape-rendering="crispEdges"><title>{escape(caption)}</title>'
        f'<rect class="b0" width="{columns}" height="{rows}"/>{"".join(squares)}'
        f'<path class="lines" d="{lines}" vector-effect="non-scaling-stroke"/></svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
