"""Assembles one ``pallas_call`` from a schedule and named operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_impl.block_sizes import LANES
from pallas_impl.config import KernelConfig
from pallas_impl.memory_budget import VmemItem, check_budget
from pallas_impl.schedule import Meta, Schedule
from pallas_impl.steps import Reader, by_members, grid_ids, grid_of

SUBLANES = 8


class Where(NamedTuple):
    """Position in the grid, for index maps: ``head`` is the first grid dimension."""

    reader: Reader
    head: Any

    @property
    def row(self) -> Any:
        return self.reader.row()

    def block(self, slot: int) -> tuple[Any, Any]:
        """(query head, column) of the block that a slot holds."""
        return self.reader.block(slot)


class Running(NamedTuple):
    """What the body of a kernel gets."""

    refs: dict[str, Any]
    reader: Reader
    step: Meta
    head: Any
    ids: tuple[Any, Any, Any]


Index = Callable[[Where], tuple[Any, ...]]
Body = Callable[[Running], None]


@dataclasses.dataclass
class KernelCall:
    """Collects operands by name, then runs the kernel.

    ``heads`` is the first grid dimension; ``group`` the query heads that share one of them in
    the dkv kernel (the innermost dimension), 1 elsewhere.
    """

    name: str
    cfg: KernelConfig
    schedule: Schedule
    heads: int
    group: int = 1
    prefetch: dict[str, Any] = dataclasses.field(default_factory=dict)
    inputs: dict[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    outputs: dict[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    scratch: dict[str, tuple[tuple[int, ...], Any]] = dataclasses.field(default_factory=dict)
    vmem: list[VmemItem] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.per_head = self.schedule.words.shape[0] > 1
        if self.per_head and self.group > 1:
            self.schedule = by_members(self.schedule, self.group)
        for name, array in self.schedule.arrays().items():
            self.prefetch[name] = jnp.ravel(jnp.asarray(array))

    def _reader(self, refs: dict[str, Any], ids: tuple[Any, ...]) -> tuple[Reader, Any]:
        layout = self.schedule.layout
        head, *rest = grid_ids(layout, ids, self.group)
        a, b, c = rest
        return Reader(layout, refs, self.per_head, head, (a, b, c), self.group), head

    def _spec(self, block: tuple[int | None, ...], index: Index) -> Any:
        def index_map(*args: Any) -> tuple[Any, ...]:
            names = tuple(self.prefetch)  # complete by now, whatever was added later
            ndim = len(args) - len(names)
            refs = dict(zip(names, args[ndim:], strict=True))
            return index(Where(*self._reader(refs, args[:ndim])))

        return pl.BlockSpec(block, index_map)

    def _buffered(self, name: str, block: tuple[int | None, ...], dtype: Any, copies: int) -> None:
        shape = tuple(1 if b is None else b for b in block)
        self.vmem.append(VmemItem(name, shape, jnp.dtype(dtype), copies))

    def input(self, name: str, array: Any, block: tuple[int | None, ...], index: Index) -> None:
        """Adds a pipelined input."""
        self.inputs[name] = (array, self._spec(block, index))
        self._buffered(name, block, array.dtype, 2)

    def scalars(self, name: str, array: Any) -> None:
        """Adds an input that stays whole in scalar memory."""
        self.inputs[name] = (array, pl.BlockSpec(memory_space=pltpu.SMEM))

    def output(self, name: str, like: Any, block: tuple[int | None, ...], index: Index) -> None:
        """Adds a pipelined output of the shape and dtype of ``like``."""
        self.outputs[name] = (like, self._spec(block, index))
        only = all(n == (b or 1) for n, b in zip(like.shape, block, strict=True))
        self._buffered(name, block, like.dtype, 1 if only else 2)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: Any = jnp.float32) -> None:
        """Adds scratch memory."""
        self.scratch[name] = (shape, dtype)
        self.vmem.append(VmemItem(name, shape, jnp.dtype(dtype), 1))

    def working_set(
        self, rows: int, columns: int, *, pieces: int, products: tuple[int, ...] = ()
    ) -> None:
        """Accounts for what the compiler keeps in vector memory by itself.

        Args:
          rows, columns: of the logits tile, which is float32.
          pieces: copies of it in bfloat16 that float32 operands need, whose products are sums of
            products of such pieces.
          products: widths of the matmul results that wait to be added, [rows, width].
        """
        self.vmem.append(VmemItem("logits tiles", (rows, columns), jnp.dtype(jnp.float32), 1))
        for width in products:
            self.vmem.append(VmemItem("products", (rows, width), jnp.dtype(jnp.float32), 1))
        first, _ = next(iter(self.inputs.values()))  # q or k
        if first.dtype == jnp.float32:
            tile = VmemItem("pieces", (rows, columns), jnp.dtype(jnp.bfloat16), pieces)
            self.vmem.append(tile)

    def run(self, body: Body) -> dict[str, jax.Array]:
        """Calls the kernel; returns its outputs by name.

        Raises:
          MemoryBudgetError: the operands cannot fit in SMEM or VMEM of a TPU.
        """
        layout = self.schedule.layout
        grid = grid_of(layout, self.heads, self.group)
        names = (*self.prefetch, *self.inputs, *self.outputs, *self.scratch)
        limit = check_budget(self.name, self.prefetch, self.vmem)

        def kernel(*args: Any) -> None:
            refs = dict(zip(names, args, strict=True))
            ids = tuple(pl.program_id(i) for i in range(len(grid)))
            reader, head = self._reader(refs, ids)
            rest = (reader.bin, reader.step, reader.member)
            body(Running(refs, reader, reader.step_info(), head, rest))

        semantics: list[Any] = ["parallel", *["arbitrary"] * (len(grid) - 1)]
        results = pl.pallas_call(
            kernel,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=len(self.prefetch),
                grid=grid,
                in_specs=[spec for _, spec in self.inputs.values()],
                out_specs=[spec for _, spec in self.outputs.values()],
                scratch_shapes=[pltpu.VMEM(s, d) for s, d in self.scratch.values()],
            ),
            out_shape=[
                jax.ShapeDtypeStruct(like.shape, like.dtype) for like, _ in self.outputs.values()
            ],
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=tuple(semantics),
                vmem_limit_bytes=limit,
                # Every index comes from a schedule that was checked when it was built.
                disable_bounds_checks=True,
                disable_semaphore_checks=True,
            ),
            interpret=self.cfg.interpret,
            name=self.name,
        )(*self.prefetch.values(), *(x for x, _ in self.inputs.values()))
        return dict(zip(self.outputs, results, strict=True))


def as_rows(ids: jax.Array) -> jax.Array:
    """[n] -> [8, n]: along lanes, as a tile needs it."""
    return jnp.broadcast_to(ids[None, :], (SUBLANES, ids.shape[0]))


def as_columns(ids: jax.Array) -> jax.Array:
    """[n] -> [n, 128]: along sublanes, equal in all lanes."""
    return jnp.broadcast_to(ids[:, None], (ids.shape[0], LANES))
