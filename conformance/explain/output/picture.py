"""The block map as a picture, by matplotlib (the extra ``plots``)."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conformance.explain.blocks.shades import Shades, shades
from conformance.explain.costs.study import Study
from conformance.explain.output.advice import Remark
from conformance.explain.output.wording import blocks, share

#: Most cells along a side.
CELLS = 1024
#: Colours of labels 0, 1 and 2, as on pages.
COLOURS = ("#eef1f5", "#9ec5f5", "#1d5fb8")


def _rgb(small: Shades) -> NDArray[np.float64]:
    """The mean colour of the blocks of every cell, ``[rows, columns, 3]``."""
    parts = (small.empty, 1 - small.empty - small.full, small.full)
    mixed = np.zeros((*small.empty.shape, 3))
    for part, colour in zip(parts, COLOURS, strict=True):
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        mixed += part[..., None] * np.array(channels)
    return np.clip(mixed, 0, 1)


def write_picture(found: Study, said: list[Remark], path: Path) -> None:
    """Writes the block map with a legend and the verdict.

    Raises:
      OSError: the file cannot be written.
      ValueError: matplotlib cannot write files of that kind.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    question, counts = found.question, found.counts
    rows, columns = found.compiled.labels.shape
    figure = Figure(figsize=(7, 8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(
        _rgb(shades(found.compiled.labels, CELLS, CELLS)),
        extent=(0, columns, rows, 0),
        interpolation="nearest",
        aspect="equal" if max(rows, columns) <= 4 * min(rows, columns) else "auto",
    )
    if max(rows, columns) <= 64:
        axes.set_xticks(np.arange(columns + 1), minor=True)
        axes.set_yticks(np.arange(rows + 1), minor=True)
        axes.grid(which="minor", color="white", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
    axes.set_xlabel(f"kv block ({question.block_kv:,} tokens each)")
    axes.set_ylabel(f"q block ({question.block_q:,} tokens each)")
    figure.suptitle(
        f"{question.text}\n{question.q_len:,} × {question.kv_len:,} tokens, "
        f"blocks {blocks(question.block_q, question.block_kv)}",
        parse_math=False,
    )
    axes.set_title("\n".join(textwrap.wrap(said[0].text, 92)), fontsize=8, parse_math=False)
    names = (("empty", counts.empty), ("partial", counts.partial), ("full", counts.full))
    figure.legend(
        handles=[
            Patch(facecolor=c, edgecolor="#888888", label=f"{n} {k:,} ({share(k / counts.total)})")
            for c, (n, k) in zip(COLOURS, names, strict=True)
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(path)
