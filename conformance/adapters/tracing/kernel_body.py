"""Runs the body of a Pallas kernel for all grid steps at once, without its tiles.

Scalars are worked out in NumPy, one entry a step; what comes from tiles is unknown. Branches on
known scalars narrow the set of executing steps: one pass tells what every step does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from conformance.adapters.tracing.jaxpr import (
    CALLS,
    bind_vectorised,
    open_program,
    program_of,
    shape_of,
    split_scan,
)
from conformance.adapters.tracing.memory import Active, Ref, place_of
from conformance.adapters.tracing.primitives import (
    LIMIT,
    Array,
    Shape,
    Value,
    constant,
    evaluate,
    footprint,
    join_sources,
)
from reference.masks import Bool

#: Primitives that move data outside the pipeline of blocks.
COPIES = frozenset({"dma_start", "dma_wait"})

#: Matrix products: what makes a step one that computes.
PRODUCTS = frozenset({"dot_general", "conv_general_dilated", "matmul_acc_lhs"})

#: Iterations up to which a loop is followed one by one.
MAX_ITERATIONS = 64


@dataclass(frozen=True)
class _Execution:
    """An equation with its operands, the steps that execute it, and which of its results are used."""

    equation: Any
    inputs: list[Any]
    active: Active
    used: list[bool]


class KernelEvaluator:
    """Runs programs whose memories are `Ref`s.

    Attributes:
      steps: number of grid steps.
      computes, may_compute: bool ``[steps]``, the step certainly, or possibly, executes a matrix
        product.
      products: steps that may execute a matrix product computed from a memory, by its name.
      manual_copies: the program copies data by itself, outside the pipeline.
      consumed: shared by the memories of the kernel, see `Ref`.
    """

    def __init__(self, grid: Sequence[int]) -> None:
        self.grid = tuple(grid)
        self.steps = int(np.prod(self.grid, dtype=np.int64))
        self.ids = [i.ravel().astype(np.int32) for i in np.indices(self.grid)]
        self.computes = np.zeros(self.steps, dtype=np.bool_)
        self.may_compute = np.zeros(self.steps, dtype=np.bool_)
        self.products: dict[str, Bool] = {}
        self.manual_copies = False
        self.consumed: dict[str, Bool] = {}
        self._scoped = 0
        self._rules: dict[str, Callable[[_Execution], list[Value]]] = {
            "get": self._get, "masked_load": self._masked_load, "swap": self._swap,
            "masked_swap": self._masked_swap, "addupdate": self._add, "cond": self._cond,
            "scan": self._scan, "while": self._while, "run_scoped": self._run_scoped,
            "program_id": self._program_id, "num_programs": self._num_programs,
        }  # fmt: skip

    def everywhere(self) -> Active:
        """All steps."""
        every = np.ones(self.steps, dtype=np.bool_)
        return Active(every, every)

    def run(self, program: Any, consts: Sequence[Any], args: Sequence[Any], active: Active) -> Any:
        """Runs a program.

        Args:
          program: its equations.
          consts: constants, bound to ``constvars``: `Value`, `Ref` or plain arrays.
          args: bound to ``invars``.
          active: the steps that execute it.

        Returns:
          The values of its results.
        """
        env: dict[Any, Any] = {}
        for variable, entry in zip(program.constvars, consts, strict=True):
            env[variable] = entry if isinstance(entry, (Value, Ref)) else _constant(entry)
        env.update(zip(program.invars, args, strict=True))

        def read(atom: Any) -> Any:
            return _constant(atom.val) if hasattr(atom, "val") else env[atom]

        needed = {id(a) for a in program.outvars}
        needed |= {id(a) for equation in program.eqns for a in equation.invars}
        for equation in program.eqns:
            inputs = [read(atom) for atom in equation.invars]
            used = [id(variable) in needed for variable in equation.outvars]
            outputs = self._equation(equation, inputs, active, used)
            env.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in program.outvars]

    def _equation(
        self, equation: Any, inputs: list[Any], active: Active, used: list[bool]
    ) -> list[Value]:
        name = equation.primitive.name
        if name in self._rules:
            return self._rules[name](_Execution(equation, inputs, active, used))
        inner = program_of(equation.params) if name in CALLS else None
        if inner is not None:
            result: list[Value] = self.run(*inner, inputs, active)
            return result
        if name in PRODUCTS:
            self.computes |= active.must
            self.may_compute |= active.may
            for source, steps in join_sources(inputs).items():
                known = self.products.get(source, np.zeros_like(active.may))
                self.products[source] = known | (steps & active.may)
            return self._unknown(equation, inputs)
        self.manual_copies |= name in COPIES
        if any(isinstance(entry, Ref) for entry in inputs):
            return self._foreign(equation, inputs, active)
        return self._arithmetic(equation, inputs)

    def _arithmetic(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """A primitive without side effects, worked out if its operands are known and small."""
        name, params = equation.primitive.name, equation.params
        avals = [variable.aval for variable in equation.outvars]
        if name == "select_n":
            chosen = self._choose(inputs, avals[0].shape)
            if chosen is not None:
                return [chosen]
        arrays = [entry.data for entry in inputs if entry.data is not None]
        shapes = [entry.shape for entry in inputs]
        if len(arrays) < len(inputs) or not _plain(avals):
            return self._unknown(equation, inputs)
        sources = join_sources(inputs)
        if len(avals) == 1 and footprint(name, arrays, shapes, avals[0].shape) <= LIMIT:
            out = evaluate(name, params, arrays, shapes, avals[0].shape)
            if out is not None:
                return [Value(avals[0].shape, out.astype(avals[0].dtype, copy=False), sources)]
        largest = max(
            int(np.prod(shape)) for shape in [*shapes, *(aval.shape for aval in avals), ()]
        )
        steps = max([1, *(array.shape[0] for array in arrays)])
        if steps * largest > LIMIT or not arrays:
            return self._unknown(equation, inputs)
        outs = bind_vectorised(equation, arrays, shapes)
        return [Value(aval.shape, out, sources) for aval, out in zip(avals, outs, strict=True)]

    def _choose(self, inputs: list[Value], shape: Shape) -> Value | None:
        """A selection by a known scalar: of the sources, only those of the chosen case count."""
        which, *cases = inputs
        if which.data is None or which.data.size != which.data.shape[0]:
            return None
        if all(case.data is not None for case in cases):
            return None
        index = which.data.reshape(-1).astype(np.int64)
        parts = [Value((), None, which.sources)]
        for number, case in enumerate(cases):
            kept = {name: steps & (index == number) for name, steps in case.sources.items()}
            parts.append(Value((), None, kept))
        return Value(shape, None, join_sources(parts))

    def _unknown(self, equation: Any, inputs: Sequence[Any]) -> list[Value]:
        sources = join_sources([entry for entry in inputs if isinstance(entry, Value)])
        return [Value(shape_of(variable), None, sources) for variable in equation.outvars]

    def _foreign(self, equation: Any, inputs: list[Any], active: Active) -> list[Value]:
        """A primitive of unknown meaning that is handed memories: it may read and write them."""
        unsure, read = active.unsure(), []
        for ref in (entry for entry in inputs if isinstance(entry, Ref)):
            anywhere = place_of(ref.shape, [None], ref.shape)
            read.append(ref.load(anywhere, unsure))
        for ref in (entry for entry in inputs if isinstance(entry, Ref)):
            anywhere = place_of(ref.shape, [None], ref.shape)
            ref.store(Value(ref.shape, None, join_sources(read)), anywhere, unsure)
        values = [entry for entry in inputs if isinstance(entry, Value)]
        return self._unknown(equation, [*values, *read])

    def _get(self, at: _Execution) -> list[Value]:
        ref, *flat = at.inputs
        transforms = jax.tree_util.tree_unflatten(at.equation.params["tree"], flat)
        place = place_of(ref.shape, transforms, shape_of(at.equation.outvars[0]))
        return [ref.load(place, at.active, used=at.used[0])]

    def _masked_load(self, at: _Execution) -> list[Value]:
        ref, transforms, mask, other = jax.tree_util.tree_unflatten(
            at.equation.params["args_tree"], at.inputs
        )
        place = place_of(ref.shape, transforms, shape_of(at.equation.outvars[0]))
        read = ref.load(place, at.active, used=at.used[0])
        if mask is None:
            return [read]
        return self._unknown(at.equation, [read, *(e for e in (mask, other) if e is not None)])

    def _swap(self, at: _Execution) -> list[Value]:
        ref, value, *flat = at.inputs
        transforms = jax.tree_util.tree_unflatten(at.equation.params["tree"], flat)
        place = place_of(ref.shape, transforms, shape_of(at.equation.outvars[0]))
        before = ref.load(place, at.active, used=at.used[0])
        ref.store(value, place, at.active)
        return [before]

    def _masked_swap(self, at: _Execution) -> list[Value]:
        ref, transforms, value, mask = jax.tree_util.tree_unflatten(
            at.equation.params["args_tree"], at.inputs
        )
        place = place_of(ref.shape, transforms, shape_of(at.equation.outvars[0]))
        before = ref.load(place, at.active, used=at.used[0])
        if mask is not None:  # which entries it replaces is not known
            place.sizes = None
            value = Value(value.shape, None, join_sources([value, mask]))
        ref.store(value, place, at.active)
        return [before]

    def _add(self, at: _Execution) -> list[Value]:
        ref, value, *flat = at.inputs
        transforms = jax.tree_util.tree_unflatten(at.equation.params["tree"], flat)
        ref.store(value, place_of(ref.shape, transforms, value.shape), at.active, adds=True)
        return []

    def _program_id(self, at: _Execution) -> list[Value]:
        return [Value((), self.ids[at.equation.params["axis"]])]

    def _num_programs(self, at: _Execution) -> list[Value]:
        return [constant(np.int32(self.grid[at.equation.params["axis"]]))]

    def _cond(self, at: _Execution) -> list[Value]:
        which, *args = at.inputs
        branches = at.equation.params["branches"]
        results, index = [], None
        if which.data is not None:
            index = np.clip(which.data.reshape(-1).astype(np.int64), 0, len(branches) - 1)
        for number, branch in enumerate(branches):
            part = at.active.unsure() if index is None else at.active.where(index == number)
            program, consts = open_program(branch)
            if part.may.any():
                results.append((number, self.run(program, consts, args, part)))
        if index is None or not results:
            unknown = [which, *(value for _, values in results for value in values)]
            return self._unknown(at.equation, unknown)
        first = results[0][1]
        if len(results) == 1:
            return list(first)
        return [self._merge(index, which, results, out) for out in range(len(first))]

    def _merge(
        self, index: Array, which: Value, results: Sequence[tuple[int, Sequence[Value]]], out: int
    ) -> Value:
        """One result of a branch, taken at every step from the case that it chose."""
        cases = [(number, values[out]) for number, values in results]
        shape = cases[0][1].shape
        kept = [Value((), None, which.sources)]
        kept += [
            Value((), None, {name: steps & (index == number) for name, steps in v.sources.items()})
            for number, v in cases
        ]
        data: Array | None = None
        if all(value.data is not None for _, value in cases):
            at = index.reshape(-1, *[1] * len(shape))
            for number, value in cases:
                assert value.data is not None
                data = value.data if data is None else np.where(at == number, value.data, data)
        return Value(shape, data, join_sources(kept))

    def _scan(self, at: _Execution) -> list[Value]:
        params = at.equation.params
        consts, carry, slices = split_scan(params, at.inputs)
        program, closed = open_program(params["jaxpr"])
        length = params["length"]
        order = range(length - 1, -1, -1) if params["reverse"] else range(length)
        exact = length <= MAX_ITERATIONS
        outputs: list[Value] = []
        for number in order if exact else range(2):
            parts = [_item(part, number if exact else None) for part in slices]
            outputs = self.run(program, closed, [*consts, *carry, *parts], at.active)
            carry = outputs[: len(carry)]
            if not exact:
                carry = [_forget(value) for value in carry]
        stacked = [
            Value(shape_of(variable), None, value.sources)
            for variable, value in zip(
                at.equation.outvars[len(carry) :], outputs[len(carry) :], strict=False
            )
        ]
        missing = self._unknown(at.equation, at.inputs)[len(carry) + len(stacked) :]
        return [*carry, *stacked, *missing]

    def _while(self, at: _Execution) -> list[Value]:
        params, active = at.equation.params, at.active
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        test_consts, body_consts = at.inputs[:first], at.inputs[first:second]
        carry = at.inputs[second:]
        test, body = open_program(params["cond_jaxpr"]), open_program(params["body_jaxpr"])
        for _ in range(MAX_ITERATIONS):
            (go,) = self.run(*test, [*test_consts, *carry], active)
            if go.data is None:
                break
            active = active.where(go.data.reshape(-1))
            if not active.may.any():
                return carry
            after = self.run(*body, [*body_consts, *carry], active)
            index = np.broadcast_to(go.data.reshape(-1).astype(np.int64), (self.steps,))
            pairs = [(0, carry), (1, after)]
            carry = [
                old if isinstance(old, Ref) else self._merge(index, go, pairs, place)
                for place, old in enumerate(carry)
            ]
        # An unknown number of times: once for the effects, once for what they carry.
        for _ in range(2):
            carry = [_forget(value) for value in carry]
            carry = self.run(*body, [*body_consts, *carry], active.unsure())
        return [_forget(value) for value in carry]

    def _run_scoped(self, at: _Execution) -> list[Value]:
        program, closed = open_program(at.equation.params["jaxpr"])
        refs = []
        for variable in program.invars:
            self._scoped += 1
            name = f"scoped[{self._scoped}]"
            refs.append(Ref(name, shape_of(variable), self.steps, self.consumed))
        result: list[Value] = self.run(program, at.inputs or closed, refs, at.active)
        return result


def _plain(avals: Sequence[Any]) -> bool:
    return all(isinstance(getattr(aval, "dtype", None), np.dtype) for aval in avals)


def _constant(entry: Any) -> Value:
    array = np.asarray(entry)
    return constant(array) if array.size <= LIMIT else Value(array.shape)


def _forget(entry: Any) -> Any:
    return entry if isinstance(entry, Ref) else Value(entry.shape, None, entry.sources)


def _item(entry: Value, number: int | None) -> Value:
    """One slice of a scanned operand."""
    shape = entry.shape[1:]
    if entry.data is None or number is None:
        return Value(shape, None, entry.sources)
    place = 0 if entry.data.shape[1] == 1 else number
    return Value(shape, entry.data[:, place], entry.sources)
