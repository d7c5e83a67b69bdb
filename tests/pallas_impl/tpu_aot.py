"""Compiling for a TPU that is not there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, Mesh, NamedSharding, SingleDeviceSharding


def topology(name: str) -> Any:
    return topologies.get_topology_desc(platform="tpu", topology_name=name)


def chip(name: str) -> Any:
    """A context in which what is traced is traced for one chip of a topology."""
    kind = topology(name).devices[0].device_kind
    device = AbstractDevice(device_kind=kind, num_cores=1, platform="tpu")
    return jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device))


def compile_for(name: str, fn: Callable[..., Any], *args: Any) -> Any:
    """Compiles fn(*args) (shapes and dtypes count) for one chip of a topology."""
    place = SingleDeviceSharding(topology(name).devices[0])
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), args)
    with chip(name):
        return jax.jit(fn).trace(*shapes).lower(lowering_platforms=("tpu",)).compile()


def compile_sharded(mesh: Mesh, fn: Callable[..., Any], args: Any, specs: Any) -> Any:
    """Compiles fn(*args) for a mesh of topology devices, args placed by partition specs."""
    shapes = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, s)),
        args,
        specs,
    )
    return jax.jit(fn).trace(*shapes).lower(lowering_platforms=("tpu",)).compile()


def mesh_of(name: str, count: int, axis: str) -> Mesh:
    return Mesh(np.array(topology(name).devices)[:count], (axis,))


def scoped_vmem(compiled: Any) -> dict[str, int]:
    """Bytes of vector memory that the compiler gave to each of our kernels."""
    found = {}
    for line in compiled.as_text().splitlines():
        if "tpu_custom_call" in line:
            name = re.search(r"splash_(fwd|bwd|dq|dkv)", line)
            size = re.search(r'used_scoped_memory_configs":\[[^\]]*"size":"(\d+)"', line)
            assert name is not None
            assert size is not None
            found[name[0]] = int(size[1])
    return found


def events(compiled: Any) -> list[tuple[str, str]]:
    """(start | done | kernel, name) of the scheduled entry computation, in order.

    A kernel inside a conditional counts at the place of the conditional.
    """
    text = compiled.as_text()
    assert "is_scheduled=true" in text.split("\n", 1)[0]
    found = []
    for line in text[text.index("\nENTRY") :].splitlines():
        name = re.match(r"\s*(?:ROOT )?%(\S+) = ", line)
        if name is None:
            continue
        done = re.search(r"collective-permute-done\([^%]*%([\w.\-]+)", line)
        if "collective-permute-start(" in line:
            found.append(("start", name[1]))
        elif done is not None:
            found.append(("done", done[1]))
        elif "tpu_custom_call" in line or " conditional(" in line:
            found.append(("kernel", name[1]))
    return found


def hidden(events: list[tuple[str, str]]) -> list[int]:
    """For each transfer, in order of its start, how many kernels run meanwhile."""
    counts = []
    for i, (kind, name) in enumerate(events):
        if kind == "start":
            end = events.index(("done", name))
            counts.append(sum(k == "kernel" for k, _ in events[i:end]))
    return counts
