"""What was seen of one Pallas call: the blocks in memory at every step, and what its body does to them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from conformance.adapters.tracing.memory import Accesses
from conformance.adapters.tracing.primitives import Shape
from reference.blocks import Int32
from reference.masks import Bool


class TraceError(Exception):
    """A kernel cannot be observed; the message says why."""


@dataclass(frozen=True)
class BlockTrace:
    """One operand or output of a kernel.

    Attributes:
      name: of the kernel's parameter; ``origin`` if JAX does not tell.
      origin: place among the arguments or results of the call, such as ``args[3]``.
      block_shape: entries along every axis of the array; 1 for axes that the kernel does not see.
      array_shape: of the whole array.
      index: block in memory at every step, int32 ``[steps, rank]``, counted in blocks.
    """

    name: str
    origin: str
    block_shape: Shape
    array_shape: Shape
    index: Int32

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of blocks along every axis."""
        return tuple(
            -(-size // block)
            for size, block in zip(self.array_shape, self.block_shape, strict=True)
        )

    @property
    def strays(self) -> Iterator[str]:
        """A sentence for every axis along which some step names a block that does not exist."""
        for axis, count in enumerate(self.blocks):
            index = self.index[:, axis]
            for step in np.flatnonzero((index < 0) | (index >= count))[:1]:
                yield f"{self.name}, axis {axis}: block {index[step]} of {count} at step {step}"


@dataclass(frozen=True)
class KernelTrace:
    """One Pallas call.

    Attributes:
      name: of the kernel.
      grid: steps along every axis, the last fastest.
      operands, outputs: blocks that the pipeline moves.
      scratch: names of the scratch memories.
      aliases: output by the operand whose memory it shares, by name: it starts with the contents
        of the operand, and can be read back through it.
      accesses: what the steps do to every memory, by name.
      computes: bool ``[steps]``, the step executes a matrix product.
      may_compute: the same, counting branches on data that the trace does not have.
      products: the steps whose matrix products may be computed from a memory, by its name.
      manual_copies: the kernel copies data outside the pipeline.
    """

    name: str
    grid: tuple[int, ...]
    operands: tuple[BlockTrace, ...]
    outputs: tuple[BlockTrace, ...]
    scratch: tuple[str, ...]
    aliases: Mapping[str, str]
    accesses: Mapping[str, Accesses]
    computes: Bool
    may_compute: Bool
    products: Mapping[str, Bool]
    manual_copies: bool

    def __len__(self) -> int:
        return len(self.computes)

    def block(self, name: str) -> BlockTrace:
        """The operand or output of that name or origin.

        Raises:
          KeyError: there is none; the message lists those that exist.
        """
        for block in (*self.operands, *self.outputs):
            if name in (block.name, block.origin):
                return block
        names = [block.name for block in (*self.operands, *self.outputs)]
        raise KeyError(f"kernel {self.name!r} has no block {name!r}, only {names}")

    def has_operand(self, name: str) -> bool:
        """Whether there is an operand of that name."""
        return any(block.name == name for block in self.operands)

    def named_after(self, kernel: Callable[..., Any], last_input: str) -> KernelTrace:
        """The same trace with blocks named after the parameters of the kernel function.

        Newer releases of JAX tell the names themselves; then the trace is returned as it is.

        Args:
          kernel: the function given to ``pallas_call``, with one parameter an operand, also for
            those that may be absent.
          last_input: its last parameter that is not an output.
        """
        parameters = list(inspect.signature(kernel).parameters)
        outputs = parameters.index(last_input) + 1
        names: dict[str, str] = {}
        for block in (*self.operands, *self.outputs):
            found = re.match(r"(\w+)\[(\d+)\]", block.origin)
            if block.name == block.origin and found:
                start = outputs if found[1] == "outputs" else 0
                names[block.name] = parameters[start + int(found[2])]
        return self.renamed(names)

    def named_in_order(self, operands: Sequence[str], outputs: Sequence[str]) -> KernelTrace:
        """The same trace with blocks named by their place, for kernels that take ``*args``.

        Args:
          operands: names of the first operands; further ones keep theirs.
          outputs: the same for the outputs.
        """
        pairs = [
            *zip(self.operands, operands, strict=False),
            *zip(self.outputs, outputs, strict=False),
        ]
        return self.renamed({block.name: name for block, name in pairs})

    def renamed(self, names: Mapping[str, str]) -> KernelTrace:
        """The same trace with some memories named otherwise.

        Args:
          names: new name by the present one.
        """

        def named(blocks: Sequence[BlockTrace]) -> tuple[BlockTrace, ...]:
            return tuple(replace(b, name=names.get(b.name, b.name)) for b in blocks)

        def renamed(found: Accesses) -> Accesses:
            return replace(found, sources={names.get(name, name) for name in found.sources})

        return replace(
            self,
            operands=named(self.operands),
            outputs=named(self.outputs),
            aliases={names.get(a, a): names.get(b, b) for a, b in self.aliases.items()},
            accesses={names.get(n, n): renamed(found) for n, found in self.accesses.items()},
            products={names.get(n, n): steps for n, steps in self.products.items()},
        )

    def feeding(self, output: str) -> set[str]:
        """The output and every scratch memory that what is stored in it was computed from."""
        keep = {*self.scratch, *(block.name for block in self.outputs)}
        reached, todo = {output}, [output]
        while todo:
            for source in self.accesses[todo.pop()].sources & keep - reached:
                reached.add(source)
                todo.append(source)
        return reached

    @cached_property
    def accumulators(self) -> dict[str, tuple[str, ...]]:
        """For every output the memories in which it is summed up: scratch, or the output itself.

        An output without any such memory is not summed up over several steps.
        """
        return {
            output.name: tuple(
                sorted(n for n in self.feeding(output.name) if self.accesses[n].accumulates.any())
            )
            for output in self.outputs
        }

    def initialises(self, output: str) -> Bool:
        """Steps at which everything that an output is summed up in is reset, bool ``[steps]``.

        A reset that comes after the step has read the memory prepares the step after it. Where no
        block takes more than one step, nothing is carried from step to step: such a step replaces
        the output as a whole, or resets what feeds it before it uses it: scratch memory, or outputs
        that serve as such.
        """
        carried = self.accumulators[output]
        if carried:
            return self._reset_together(carried)
        feeding = sorted(
            name for name in self.feeding(output) - {output} if self.accesses[name].resets.any()
        )
        whole = self._reset_together((output,))
        return whole | self._reset_together(feeding) if feeding else whole

    def _reset_together(self, names: Sequence[str]) -> Bool:
        """Steps that begin with all of some memories reset."""
        result = np.ones(len(self), dtype=np.bool_)
        for name in names:
            found = self.accesses[name]
            reset = found.resets.copy()
            reset[1:] |= found.late_resets[:-1]
            result &= reset
        return result
