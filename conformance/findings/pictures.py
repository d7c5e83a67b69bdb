"""Small pictures of a failing problem, as plain data for reports: labels of its blocks, and where results differ."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from conformance.findings.json_schema import Count, Keywords, Pair
from conformance.problems.predicates import label_grids
from conformance.problems.problem import Problem
from reference.blocks import EMPTY, FULL, PARTIAL
from reference.masks import Bool

#: Cells of a picture along either axis; larger ones are drawn with several blocks or elements a cell.
CELLS = 64
#: The same for masks, which every finding has.
MASK_CELLS = 32
#: Planes of a region that are kept: heads, for example.
PLANES = 4


#: A row of cells: labels, or shares in tenths.
Labels = Annotated[str, Keywords(pattern="^[012]+$")]
Shares = Annotated[str, Keywords(pattern="^[0-9]+$")]


class BlockMap(TypedDict):
    """The labels of a problem at the forward block sizes.

    Attributes:
      grids: one a distinct mask, in order of first appearance: a string of labels a row of blocks. A cell of several
        blocks is 0 or 2 if all of them are, otherwise 1.
      masks: for every grid, the share of the entries of a cell that is visible, as in `Region`; blocks end where cells
        do, as far as powers of two allow.
      heads: for every head, which grid it has.
      blocks: blocks along q and kv.
      cell: blocks of a cell, along q and kv.
      mask_cell: entries of a cell of ``masks``, along q and kv.
      block: tokens of a block, along q and kv.
    """

    grids: Annotated[list[list[Labels]], Keywords(minItems=1)]
    masks: Annotated[list[list[Shares]], Keywords(minItems=1)]
    heads: Annotated[list[Count], Keywords(minItems=1)]
    blocks: Pair
    cell: Pair
    mask_cell: Pair
    block: Pair


class Region(TypedDict):
    """Where an array differs from what it should be.

    Attributes:
      array: its name.
      shape: its shape.
      axes: what its axes are, as far as that is known.
      planes: the first planes of the last two axes in which something differs: ``at``, the index along the axes
        before, and ``rows``, a string a row of cells. A digit is the share of the elements of a cell that differ:
        0 for none, 9 for all.
      cell: elements of a cell, along the last two axes.
      left_out: further planes in which something differs.
      block: elements of a block, along the last two axes (0 where that axis has no blocks).
    """

    array: str
    shape: list[Count]
    axes: list[str]
    planes: list[Plane]
    cell: Pair
    left_out: Count
    block: Pair


class Plane(TypedDict):
    """Part of a `Region`."""

    at: list[Count]
    rows: list[Shares]


def block_map(problem: Problem) -> BlockMap:
    """The labels of a problem."""
    labels = label_grids(problem)
    distinct: dict[object, int] = {}
    heads = [
        distinct.setdefault(expr, len(distinct))
        for expr in (problem.masks * problem.heads)[: problem.heads]
    ]
    first = [heads.index(number) for number in range(len(distinct))]
    cell = [-(-size // CELLS) for size in labels.shape[1:]]
    mask_cell = [_power(size, MASK_CELLS) for size in (problem.q_len, problem.kv_len)]
    return BlockMap(
        grids=[_digits(_merged(labels[head], cell)) for head in first],
        masks=[_shares(problem.head_masks[head].dense(), mask_cell) for head in first],
        heads=heads,
        blocks=list(labels.shape[1:]),
        cell=cell,
        mask_cell=mask_cell,
        block=[problem.blocks.q, problem.blocks.kv],
    )


def _digits(grid: NDArray[np.int32]) -> list[str]:
    return ["".join(map(str, row)) for row in grid.tolist()]


def _merged(grid: NDArray[np.int32], cell: list[int]) -> NDArray[np.int32]:
    """The labels of cells of several blocks; blocks past the end are like the last."""
    cells = _cells(grid, cell, "edge")
    every, none = (cells == FULL).all(axis=(1, 3)), (cells == EMPTY).all(axis=(1, 3))
    return np.where(none, EMPTY, np.where(every, FULL, PARTIAL)).astype(np.int32)


def _cells(plane: NDArray[Any], cell: list[int], fill: Literal["edge", "constant"]) -> NDArray[Any]:
    """A plane cut into cells, ``[rows, cell rows, columns, cell columns]``."""
    extra = [(0, -size % part) for size, part in zip(plane.shape, cell, strict=True)]
    padded = np.pad(plane, extra, mode=fill)
    rows, columns = (size // part for size, part in zip(padded.shape, cell, strict=True))
    return padded.reshape(rows, cell[0], columns, cell[1])


def region(
    array: str,
    wrong: Bool,
    axes: tuple[str, ...] = (),
    block: tuple[int, int] = (0, 0),
) -> Region:
    """Where something is wrong.

    Args:
      array: what differs.
      wrong: bool of its shape, True where it does.
      axes: what its axes are.
      block: elements of a block along the last two axes; 0 where there are none.
    """
    shape = list(wrong.shape)
    planes = wrong.reshape((1,) * (2 - wrong.ndim) + wrong.shape)
    leading = planes.shape[:-2]
    cell = [_power(size, CELLS) for size in planes.shape[-2:]]
    touched = [at for at in np.ndindex(*leading) if planes[at].any()]
    return Region(
        array=array,
        shape=shape,
        axes=list(axes),
        planes=[Plane(at=list(at), rows=_shares(planes[at], cell)) for at in touched[:PLANES]],
        cell=cell,
        left_out=max(0, len(touched) - PLANES),
        block=list(block),
    )


def _power(size: int, cells: int) -> int:
    """The smallest power of two that cuts a length into few enough cells; blocks end at powers of two, mostly."""
    cell = 1
    while size > cells * cell:
        cell *= 2
    return cell


def _shares(plane: Bool, cell: list[int]) -> list[str]:
    """Tenths of every cell that are True, rounded so that only none is 0 and only all is 9."""
    differing = _cells(plane, cell, "constant").sum(axis=(1, 3))
    whole = _cells(np.ones_like(plane), cell, "constant").sum(axis=(1, 3))
    digits = np.where(differing == whole, 9, np.ceil(differing / whole * 8)).astype(np.int32)
    return _digits(np.where(differing == 0, 0, digits))
