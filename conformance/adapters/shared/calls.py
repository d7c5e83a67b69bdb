"""Calls of the Pallas splash attention libraries: arrays to devices and back, compiled programs shared by problems.

Compiling a kernel takes about a hundred times as long as running it. The arrays of a mask are arguments of the compiled
program, so that all problems with equal shapes, types, options and mask function share one. A mask function is a part
of the kernel: each one is compiled for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from conformance.adapters.shared.device import ON_TPU, accepts
from conformance.contract.protocol import Forward, Gradients
from conformance.problems.inputs import Inputs

#: Compiles a quarter faster; the arrays are too small for faster code to matter. JAX before 0.5 takes no such options.
QUICK: dict[str, Any] = {}
if accepts(jax.jit, "compiler_options") and not ON_TPU:
    QUICK = {"compiler_options": {"xla_backend_optimization_level": 0}}
    if jax.__version_info__ >= (0, 7):  # one thread: every processor has a process of checks
        QUICK["compiler_options"]["xla_cpu_parallel_codegen_split_count"] = 1

#: Arrays of one call: q, k, v, segment ids (q, kv) or None, sinks or None.
Arrays = tuple[Any, Any, Any, Any, Any]


@dataclass(frozen=True)
class Kernel:
    """Everything about a kernel that is compiled into it.

    Attributes:
      make: builds the library's kernel out of its mask arrays and of these settings.
      settings: keyword arguments of ``make``, in alphabetical order.
      segment_ids: the library's class of segment ids.
      call: further keyword arguments of the call.
      residuals: whether the call returns residuals.
      ring: devices; 1 for a call without ring.
      axes: names and sizes of the device axes that the arrays of the mask are split over, out of ``head`` and
        ``q``, in the order of those arrays; empty on one device.
    """

    make: Callable[..., Any]
    settings: tuple[tuple[str, Any], ...]
    segment_ids: type
    call: tuple[tuple[str, Any], ...] = ()
    residuals: bool = False
    ring: int = 1
    axes: tuple[tuple[str, int], ...] = ()

    def attend(self, infos: Any, arrays: Arrays) -> tuple[Any, Any, Any]:
        """Output, logsumexp and max_logits; None for what is not returned."""
        q, k, v, segments, sinks = arrays
        settings = dict(self.settings)
        if settings["is_mqa"]:
            k, v = k[0], v[0]
        kernel = self.make(*infos, **settings)
        ids = None if segments is None else self.segment_ids(*segments)
        if self.ring == 1 and not self.axes:
            result = kernel(q, k, v, ids, **_given("sinks", sinks), **dict(self.call))
            return _parts(result)
        if isinstance(kernel, tuple):  # with its specs
            kernel, spec = kernel
        else:
            spec = self._spec_of(kernel)
        mesh, rows, in_specs = self._specs(k, ids)

        def one_device(kernel: Any, q: Any, k: Any, v: Any, ids: Any, sinks: Any) -> Any:
            return kernel(q, k, v, ids, **_given("sinks", sinks))

        run = _shard_map(one_device, mesh, (spec, *in_specs), rows)
        return _parts(run(kernel, q, k, v, ids, sinks))

    def _spec_of(self, kernel: Any) -> Any:
        """How the arrays of a kernel are split over the devices."""
        if self.ring > 1:
            return _spec_in_ring(kernel)
        mesh, spec = mesh_of(self.axes), jax.sharding.PartitionSpec
        whole = jax.sharding.NamedSharding(mesh, spec(*dict(self.axes)))
        return kernel.manual_sharding_spec(whole)

    def _specs(self, k: Any, ids: Any) -> tuple[Any, Any, tuple[Any, ...]]:
        """The devices, and how the output and q, k, v, segment ids and sinks are split over them.

        A ring has every array in shards along its sequence; other devices have queries split by heads and rows, keys
        and values by heads.
        """
        spec = jax.sharding.PartitionSpec
        if self.ring > 1:
            rows = spec(None, "ring")  # of arrays and of residuals
            keys = spec("ring", None) if k.ndim == 2 else rows
            ids_spec = None if ids is None else type(ids)(spec("ring"), spec("ring"))
            return mesh_of((("ring", self.ring),)), rows, (rows, keys, keys, ids_spec, spec())
        sizes = dict(self.axes)
        head = "head" if "head" in sizes else None
        shared = k.ndim == 2 or k.shape[0] % sizes.get("head", 1) != 0
        keys = spec() if shared else spec(head)
        ids_spec = None if ids is None else type(ids)(spec("q"), spec())
        rows = spec(head, "q")
        return mesh_of(self.axes), rows, (rows, keys, keys, ids_spec, spec(head))


def mesh_of(axes: tuple[tuple[str, int], ...]) -> Any:
    """A mesh of the first devices, for axes of given names and sizes."""
    sizes = [size for _, size in axes]
    devices = np.array(jax.devices()[: prod(sizes)]).reshape(sizes)
    return jax.sharding.Mesh(devices, [name for name, _ in axes])


def _shard_map(function: Any, mesh: Any, in_specs: Any, out_specs: Any) -> Any:
    """``jax.shard_map``, wherever the installed release has it."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(
            function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
    # Where newer releases have `jax.shard_map`, this module warns when it is imported.
    from jax.experimental.shard_map import shard_map

    return shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_rep=False)


def _spec_in_ring(kernel: Any) -> Any:
    """How the arrays of a kernel are split over a ring: along their entries, but mask blocks are everywhere."""
    if not accepts(kernel.manual_sharding_spec, "sharding"):
        return kernel.manual_sharding_spec()

    # Before 0.0.11 tokamax has no such spec for a ring.
    def spec(path: Any, array: Any) -> Any:
        del array
        everywhere = "partial_mask_blocks" in jax.tree_util.keystr(path)
        return jax.sharding.PartitionSpec(*([] if everywhere else ["ring"]))

    return jax.tree_util.tree_map_with_path(spec, kernel)


def _given(name: str, value: Any) -> dict[str, Any]:
    """A keyword argument that older releases do not have, only where it is used."""
    return {} if value is None else {name: value}


def _parts(result: Any) -> tuple[Any, Any, Any]:
    """Output, logsumexp and max_logits of what a library returns."""
    if not isinstance(result, tuple):
        return result, None, None
    output, residuals = result
    if isinstance(residuals, dict):
        return output, residuals["logsumexp"], residuals["max_logits"]
    return output, residuals[0], residuals[1] if len(residuals) > 1 else None


@cache
def _program(kernel: Kernel, kind: str) -> Any:
    """A compiled call of a kernel; JAX compiles it once for every set of shapes and types."""

    def forward(infos: Any, arrays: Arrays) -> Any:
        return kernel.attend(infos, arrays)

    def gradients(infos: Any, arrays: Arrays, d_out: Any, d_lse: Any) -> Any:
        q, k, v, segments, sinks = arrays

        def differentiable(q: Any, k: Any, v: Any, sinks: Any) -> Any:
            output, logsumexp, _ = kernel.attend(infos, (q, k, v, segments, sinks))
            return (output, logsumexp) if kernel.residuals else output

        cotangents = (d_out, d_lse) if kernel.residuals else d_out
        return jax.vjp(differentiable, q, k, v, sinks)[1](cotangents)

    kinds: dict[str, Any] = {
        "forward": forward,
        "batch": jax.vmap(forward, in_axes=(None, 0)),
        "gradients": gradients,
        "gradients of a batch": jax.vmap(gradients, in_axes=(None, 0, 0, None)),
    }
    return jax.jit(kinds[kind], **QUICK)


def to_arrays(inputs: Inputs, dtype: str) -> Arrays:
    """The arrays of a call in the type of its problem."""
    q, k, v = (np.asarray(a).astype(jnp.dtype(dtype)) for a in (inputs.q, inputs.k, inputs.v))
    return q, k, v, inputs.segment_ids, inputs.sinks


def _wide(array: Any) -> NDArray[Any]:
    """A floating NumPy array that NumPy can compute with; bfloat16 becomes float32, exactly."""
    found = np.asarray(array)
    return found if found.dtype.kind == "f" else found.astype(np.float32)


def _forward(result: tuple[Any, Any, Any]) -> Forward:
    output, logsumexp, max_logits = result
    dtype = str(output.dtype)
    if logsumexp is None:
        return Forward(_wide(output), dtype)
    largest = None if max_logits is None else _wide(max_logits)
    return Forward(_wide(output), dtype, _wide(logsumexp), largest, str(logsumexp.dtype))


def forward(kernel: Kernel, infos: Any, arrays: Arrays) -> Forward:
    """Attention."""
    return _forward(_program(kernel, "forward")(infos, arrays))


def forward_batch(kernel: Kernel, infos: Any, batch: Sequence[Arrays]) -> list[Forward]:
    """Attention of several elements under ``jax.vmap``, which share the arrays of the mask."""
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batch)
    found = _program(kernel, "batch")(infos, stacked)
    output, *residuals = found

    def element(n: int) -> Forward:
        logsumexp, largest = (None if a is None else a[n] for a in residuals)
        return _forward((output[n], logsumexp, largest))

    return [element(n) for n in range(len(batch))]


def gradients(
    kernel: Kernel,
    infos: Any,
    arrays: Arrays,
    d_out: NDArray[np.float32],
    d_logsumexp: NDArray[np.float32] | None = None,
) -> Gradients:
    """Gradients of ``sum(output * d_out)``, plus ``sum(logsumexp * d_logsumexp)`` if residuals are returned."""
    q = arrays[0]
    d_lse = None
    if kernel.residuals:
        d_lse = np.zeros(q.shape[:2], np.float32) if d_logsumexp is None else d_logsumexp
    found = _program(kernel, "gradients")(infos, arrays, d_out.astype(q.dtype), d_lse)
    return _gradients(found)


def gradients_batch(
    kernel: Kernel, infos: Any, batch: Sequence[Arrays], d_outs: Sequence[NDArray[np.float32]]
) -> list[Gradients]:
    """Gradients of several elements under ``jax.vmap``, which share the arrays of the mask."""
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batch)
    cotangents = np.stack([d_out.astype(batch[0][0].dtype) for d_out in d_outs])
    found = _program(kernel, "gradients of a batch")(infos, stacked, cotangents, None)
    return [
        _gradients([None if array is None else array[n] for array in found])
        for n in range(len(batch))
    ]


def _gradients(found: Sequence[Any]) -> Gradients:
    dq, dk, dv, dsinks = found
    types = (str(dq.dtype), str(dk.dtype), str(dv.dtype))
    made = Gradients(_wide(dq), _wide(dk), _wide(dv), dtypes=types)
    if dsinks is None:
        return made
    return replace(made, dsinks=_wide(dsinks), dtype_of_dsinks=str(dsinks.dtype))
