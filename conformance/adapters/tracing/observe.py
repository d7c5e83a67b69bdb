"""Observes the Pallas calls of a function: traces it, evaluates the index maps, and follows the bodies of its kernels.

Nothing is executed. Everything that a kernel does is read from its program, at every step of its grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from conformance.adapters.tracing.find_calls import FoundCall, find_calls
from conformance.adapters.tracing.jaxpr import open_program
from conformance.adapters.tracing.kernel_body import KernelEvaluator
from conformance.adapters.tracing.kernel_trace import BlockTrace, KernelTrace, TraceError
from conformance.adapters.tracing.memory import Ref
from conformance.adapters.tracing.primitives import LIMIT, Array, Value, take_box


def trace_program(
    fn: Callable[..., Any], *args: Any
) -> tuple[list[KernelTrace], list[Array | None]]:
    """Observes every Pallas call of ``fn(*args)``, in program order.

    Args:
      fn: a function of arrays. Gradients are observed through a function that calls `jax.vjp`.
      args: arrays, or `jax.ShapeDtypeStruct` where the values do not decide what the kernel does.

    Returns:
      The kernels, and the results of the function; None for those that need a kernel to be run.

    Raises:
      TraceError: a grid size, scalar operand or block index depends on values that are not there.
    """
    calls, results = find_calls(fn, *args)
    return [_trace(call) for call in calls], [result.get() for result in results]


def trace_kernels(fn: Callable[..., Any], *args: Any) -> list[KernelTrace]:
    """The kernels of `trace_program`."""
    return [_trace(call) for call in find_calls(fn, *args)[0]]


def evaluate_program(fn: Callable[..., Any], *args: Any) -> Any:
    """``fn(*args)`` as a compiled program would compute it, without compiling one.

    For programs of small arrays whose shapes vary, such as mask compilers, this saves all of XLA's
    compilation time.

    Raises:
      TraceError: a result needs a kernel to be run, or data that is not there.
    """
    structure: list[Any] = []

    def flat(*inner: Any) -> list[Any]:
        leaves, tree = jax.tree_util.tree_flatten(fn(*inner))
        structure.append(tree)
        return list(leaves)

    results = [result.get() for result in find_calls(flat, *args)[1]]
    if any(result is None for result in results):
        raise TraceError("a result depends on values not given")
    return jax.tree_util.tree_unflatten(structure[-1], results)


def _trace(call: FoundCall) -> KernelTrace:
    params = call.equation.params
    mapping = params["grid_mapping"]
    name = _kernel_name(params)
    dynamic = mapping.num_dynamic_grid_bounds
    grid = _grid(name, mapping.grid, call.operands[:dynamic])
    scalars = [operand.get() for operand in call.operands[dynamic:][: mapping.num_index_operands]]
    inputs = call.operands[dynamic + mapping.num_index_operands :]
    program, consts = open_program(params["jaxpr"])
    names = _parameter_names(program, mapping)
    evaluator = KernelEvaluator(grid)
    maps = mapping.block_mappings
    memories = _scalar_refs(program, names, scalars, evaluator)
    blocks = tuple(
        _block(evaluator, memories, names[len(scalars) + place], block)
        for place, block in enumerate(maps)
    )
    count = mapping.num_inputs
    known = {
        names[len(scalars) + place]: _scalar_block(
            program.invars[len(scalars) + place], blocks[place], inputs[place]
        )
        for place in range(count)
    }
    evaluator, refs = _run(grid, program, consts, names, known | _known(memories))
    return KernelTrace(
        name=name,
        grid=grid,
        operands=blocks[:count],
        outputs=blocks[count:],
        scratch=tuple(names[len(scalars) + len(maps) :]),
        aliases={
            blocks[source - len(scalars)].name: blocks[count + target].name
            for source, target in params.get("input_output_aliases") or ()
        },
        accesses={ref.name: ref.accesses() for ref in refs},
        computes=evaluator.computes,
        may_compute=evaluator.may_compute,
        products=evaluator.products,
        manual_copies=evaluator.manual_copies,
    )


def _kernel_name(params: Mapping[str, Any]) -> str:
    name = params.get("name") or getattr(params.get("name_and_src_info"), "name", None)
    return str(name or "kernel")


def _grid(name: str, sizes: Sequence[Any], bounds: Sequence[Any]) -> tuple[int, ...]:
    later = iter(bounds)
    grid = []
    for axis, size in enumerate(sizes):
        if isinstance(size, (int, np.integer)):
            grid.append(int(size))
            continue
        bound = next(later).get()
        if bound is None:
            raise TraceError(f"{name}: the size of grid axis {axis} depends on values not given")
        grid.append(int(bound))
    return tuple(grid)


def _parameter_names(program: Any, mapping: Any) -> list[str]:
    """Names of the kernel's parameters: scalars, operands, outputs, scratch."""
    count = len(program.invars)
    info = getattr(program, "debug_info", None)
    names = list(getattr(info, "arg_names", None) or ())
    if len(names) == count and all(names) and len(set(names)) == count:
        return [str(name) for name in names]
    scalars = [f"scalar[{k}]" for k in range(mapping.num_index_operands)]
    blocks = [str(block.origin) for block in mapping.block_mappings]
    rest = count - len(scalars) - len(blocks)
    return [*scalars, *blocks, *(f"scratch[{k}]" for k in range(rest))]


def _scalar_refs(
    program: Any,
    names: Sequence[str],
    scalars: Sequence[Array | None],
    evaluator: KernelEvaluator,
) -> list[Ref]:
    refs = []
    for variable, name, scalar in zip(program.invars, names, scalars, strict=False):
        known = None if scalar is None else scalar[None]
        shape = tuple(variable.aval.shape)
        refs.append(Ref(name, shape, evaluator.steps, evaluator.consumed, known))
    return refs


def _known(refs: Sequence[Ref]) -> dict[str, Array | None]:
    return {ref.name: ref.known for ref in refs}


def _block(evaluator: KernelEvaluator, scalars: Sequence[Ref], name: str, block: Any) -> BlockTrace:
    """Evaluates the index map of one operand or output at every step."""
    program, consts = open_program(block.index_map_jaxpr)
    ids = [Value((), i) for i in evaluator.ids]
    results = evaluator.run(program, consts, [*ids, *scalars], evaluator.everywhere())
    array = getattr(block, "array_aval", None) or block.array_shape_dtype
    index = np.zeros((evaluator.steps, len(array.shape)), dtype=np.int32)
    sizes = []
    for axis, (entry, result) in enumerate(zip(block.block_shape, results, strict=False)):
        if result.data is None:
            raise TraceError(
                f"the block index of {name!r} along axis {axis} depends on values not given"
            )
        size, in_entries = _block_size(entry, block)
        sizes.append(size)
        index[:, axis] = result.data // size if in_entries else result.data
    return BlockTrace(name, str(block.origin), tuple(sizes), tuple(array.shape), index)


def _block_size(entry: Any, block: Any) -> tuple[int, bool]:
    """Entries of a block along one axis, and whether its index counts entries, not blocks."""
    in_entries = type(entry).__name__ in ("Element", "BoundedSlice")
    in_entries |= type(getattr(block, "indexing_mode", None)).__name__ == "Unblocked"
    size = entry if isinstance(entry, int) else getattr(entry, "block_size", None)
    return (1 if size is None else int(size)), in_entries and size is not None


def _scalar_block(variable: Any, block: BlockTrace, operand: Any) -> Array | None:
    """Contents of an operand in scalar memory at every step; None for tiles."""
    space = str(getattr(variable.aval, "memory_space", "")).lower()
    if not space.endswith("smem"):
        return None
    array = operand.get()
    if array is None:
        return None
    kept = variable.aval.shape
    changes = (block.index != block.index[:1]).any()
    index = block.index if changes else block.index[:1]
    if len(index) * int(np.prod(block.block_shape)) > LIMIT:
        return None
    starts = [index[:, axis] * size for axis, size in enumerate(block.block_shape)]
    taken = take_box(array[None], array.shape, starts, [(size, 1) for size in block.block_shape])
    return taken.reshape(len(index), *kept)


def _run(
    grid: Sequence[int],
    program: Any,
    consts: Sequence[Any],
    names: Sequence[str],
    known: dict[str, Array | None],
) -> tuple[KernelEvaluator, list[Ref]]:
    """Runs the body; again without the contents of memories that turn out to be written."""
    while True:
        evaluator = KernelEvaluator(grid)
        refs = [
            Ref(
                name,
                tuple(variable.aval.shape),
                evaluator.steps,
                evaluator.consumed,
                known.get(name),
            )
            for name, variable in zip(names, program.invars, strict=True)
        ]
        evaluator.run(program, consts, refs, evaluator.everywhere())
        changed = [ref.name for ref in refs if ref.written_known]
        if not changed:
            return evaluator, refs
        known = {name: None if name in changed else array for name, array in known.items()}
