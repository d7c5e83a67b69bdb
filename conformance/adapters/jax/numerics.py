"""What the splash attention of JAX computes: forward, residuals and gradients, in interpret mode or on a TPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from conformance.adapters.shared.calls import Kernel
from conformance.adapters.shared.device import (
    INTERPRETS_MEMORY,
    accepts,
    float32_profile,
    interpret,
)
from conformance.adapters.shared.mask_arrays import (
    as_operands,
    grid_info,
    mask_compiler,
    with_arrays_of,
)
from conformance.adapters.shared.prepared import KernelSpec, PreparedProblem
from conformance.contract.library import import_module, is_fork
from conformance.contract.protocol import Arithmetic
from reference.error_budget import BFLOAT16, BFLOAT16_STORED, U_BFLOAT16
from reference.mask_info import Direction

kernel_lib = import_module("jax", "splash_attention_kernel")
mask_lib = import_module("jax", "splash_attention_mask")
info_lib = import_module("jax", "splash_attention_mask_info")

#: Whether arrays say that they come from a run-time mask; releases before 0.6 do not split such arrays.
MARKS_DYNAMIC = "is_dynamic_mask" in info_lib.MaskInfo._fields

#: What numerical features every release has. Rows that see nothing are undefined: the documentation
#: of ``SegmentIds`` says that a mask must not have any. Gradients of a call that returns residuals
#: are refused.
NUMERIC_FEATURES = frozenset(
    {
        "forward", "backward", "residuals", "residuals:cotangent", "segment_ids", "soft_cap", "gqa",
        "mqa", "head_dim_v", "bfloat16", "vmap", "vmap:backward", "split_backward", "fused_backward",
        "edit_mask_info", "uninitialised", "sharded",
    }
)  # fmt: skip

#: Values of the implementation options, the default first. ``layouts`` is that of q, k and v in memory.
NUMERIC_OPTIONS: dict[str, tuple[Any, ...]] = {
    "layouts": ("head_dim_minor", "seq_minor"),
    "mask_value": (kernel_lib.DEFAULT_MASK_VALUE,),
    "residual_checkpoint_name": (None, "kept"),
}


#: Head dimensions that some release has kernels for.
HEAD_DIMS = (64, 96, 128, 192, 256)


def has_kernel(head_dim: int, head_dim_v: int) -> bool:
    """Whether the installed release has a kernel for these head dimensions; earlier ones need whole lanes.

    What is not offered is refused. Any other error is a mistake, and is left to the checks to report.
    """
    mask = mask_lib.MultiHeadMask([mask_lib.FullMask((128, 128))])
    sizes = kernel_lib.BlockSizes(block_q=128, block_kv=128, block_kv_compute=128)
    q, v = (jax.ShapeDtypeStruct((1, 128, dim), np.float32) for dim in (head_dim, head_dim_v))
    try:
        kernel = kernel_lib.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
        jax.eval_shape(kernel, q, q, v)
    except (NotImplementedError, ValueError):
        return False
    except Exception:
        return True
    return True


def head_dims() -> tuple[int, ...]:
    """Those of `HEAD_DIMS` that the installed release has kernels for."""
    return tuple(dim for dim in HEAD_DIMS if has_kernel(dim, dim))


def numeric_features() -> frozenset[str]:
    """`NUMERIC_FEATURES` as far as the installed release has them, and what it has on top."""
    if not accepts(kernel_lib._make_splash_attention, "interpret"):
        return frozenset()  # before 0.4.31 nothing but a TPU of its time can run a kernel
    found = set(NUMERIC_FEATURES)
    if hasattr(info_lib, "process_dynamic_mask"):
        found.add("traced_masks")
    if accepts(kernel_lib._splash_attention_forward, "sinks"):
        found.add("sinks")
    if not has_kernel(128, 256):
        found.discard("head_dim_v")
    if not INTERPRETS_MEMORY:
        found.discard("uninitialised")
    return frozenset(found)


def dynamic_kernel(mask: Any, *, is_mqa: bool, **settings: Any) -> Any:
    """The kernel of a mask whose values are known only at run time."""
    make = kernel_lib.make_splash_mqa if is_mqa else kernel_lib.make_splash_mha
    return make(mask, **settings)


def marked_kernel(*infos: Any, **settings: Any) -> Any:
    """The kernel of arrays that say nothing about it themselves: they come from a run-time mask."""
    arrays = (marked(info, True) for info in infos)
    return kernel_lib.SplashAttentionKernel(*arrays, **settings)


def _without_mark(info: Any) -> Any:
    """Arrays that can be arguments of a program: the mark of a run-time mask is not one."""
    return None if info is None else jax.tree.map(np.asarray, marked(info, None))


def marked(info: Any, mark: bool | None) -> Any:
    """The arrays with or without the mark of a run-time mask, where the release has one."""
    if info is None or not MARKS_DYNAMIC:
        return info
    return info._replace(is_dynamic_mask=mark)


class JaxNumerics(PreparedProblem):
    """One problem; every method does its own work when it is called."""

    library = "jax"
    mask_lib = mask_lib
    segment_ids = kernel_lib.SegmentIds

    def fused(self, direction: Direction) -> bool:
        """Whether the kernel of a direction also computes dq.

        The fused kernel is the one of ``dkv``, with its block sizes; ``dq`` stands for the kernel
        that computes dq alone.
        """
        return direction == "dkv" and bool(self.problem.option("use_fused_bwd_kernel", False))

    def block_sizes(self, direction: Direction) -> Any:
        """Block sizes of the kernel; those of the backward kernels only if they are wanted."""
        blocks = self.problem.blocks
        sizes: dict[str, Any] = {
            "block_q": blocks.q,
            "block_kv": blocks.kv,
            "block_kv_compute": blocks.kv_compute,
        }
        if direction != "fwd":
            q, kv = blocks.of("dkv")
            sizes |= {
                "block_q_dkv": q,
                "block_kv_dkv": kv,
                "block_kv_dkv_compute": blocks.kv_dkv_compute,
                "use_fused_bwd_kernel": self.fused(direction),
            }
            if not self.fused(direction):
                sizes["block_q_dq"], sizes["block_kv_dq"] = blocks.of("dq")
        return kernel_lib.BlockSizes(**sizes)

    def kernel_arguments(self, direction: Direction) -> dict[str, Any]:
        """How the library is asked for the kernel of a direction, but for the mask."""
        problem = self.problem
        return {
            "block_sizes": self.block_sizes(direction),
            "downcast_smem_data": problem.downcast,
            "head_shards": problem.shards.head,
            "q_seq_shards": problem.shards.q,
        }

    def kernel(self, direction: Direction, mask: Any = None) -> Any:
        """The library's kernel for all shards; ``mask`` holds the values of a dynamic mask."""
        made = self.multi_head_mask if mask is None else mask
        return dynamic_kernel(made, is_mqa=self.mqa, **self.kernel_arguments(direction))

    def numeric_arguments(self, spec: KernelSpec) -> dict[str, Any]:
        """How the library is asked for a kernel that is run."""
        problem = self.problem
        arguments = self.kernel_arguments(spec.direction)
        if problem.option("layouts") == "seq_minor":
            layout = kernel_lib.QKVLayout.SEQ_MINOR
            sizes = replace(
                arguments["block_sizes"], q_layout=layout, k_layout=layout, v_layout=layout
            )
            arguments["block_sizes"] = sizes
        return arguments | {
            "is_mqa": self.mqa,
            "save_residuals": spec.residuals,
            "mask_value": problem.option("mask_value", kernel_lib.DEFAULT_MASK_VALUE),
            "attn_logits_soft_cap": problem.soft_cap,
            "residual_checkpoint_name": problem.option("residual_checkpoint_name"),
            "interpret": interpret(spec.uninitialised),
        }

    def make_kernel(self, spec: KernelSpec) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel and the arrays of its mask."""
        arguments, dynamic = self.numeric_arguments(spec), self.problem.dynamic
        if spec.traced_mask:
            kernel = self.kernel_of(dynamic_kernel, arguments, spec.residuals)
            return kernel, (self.run_time_mask(),)
        mask = jnp.asarray(self.run_time_mask()) if dynamic else self.multi_head_mask
        infos, settings = dynamic_kernel(mask, **arguments).tree_flatten()
        settings["mask_function"] = self.shared_function(settings["mask_function"])
        if not self.problem.shrink and not dynamic:
            infos = [
                None if info is None else self._unshrunk(name)
                for info, name in zip(infos, ("fwd", "dq", "dkv"), strict=True)
            ]
        if spec.edit is not None:
            edited = with_arrays_of(infos[0], spec.edit(grid_info("fwd", infos[0])))
            infos = [edited, *infos[1:]]
            if edited.q_sequence is None:
                settings["mask_function"] = None
        if dynamic:
            kernel = self.kernel_of(marked_kernel, settings, spec.residuals)
            return kernel, tuple(_without_mark(info) for info in infos)
        make = kernel_lib.SplashAttentionKernel
        kernel = self.kernel_of(make, settings, spec.residuals)
        return kernel, tuple(as_operands(info, spec.may_pad) for info in infos)

    def _unshrunk(self, direction: Any) -> Any:
        """The arrays of a direction as the library compiles them without shrinking."""
        info, _ = mask_compiler(info_lib, direction)(
            self.multi_head_mask,
            self.problem.blocks.of(direction),
            downcast_smem_data=self.problem.downcast,
            shrink_grid=False,
        )
        return info

    def arithmetic(self) -> Arithmetic:
        """Probabilities stay in float32 forward; backward they are rounded to the type of the arrays.

        The fused backward kernel stores one partial dq a kv block, in the type of q. What a fork rounds forward
        is not known: it may do what most kernels do, and round probabilities too.
        """
        exact = float32_profile()
        if self.problem.dtype == "float32":
            return Arithmetic(exact, exact)
        stored = BFLOAT16_STORED if is_fork("jax") else BFLOAT16
        forward = replace(stored, multiply_u=exact.multiply_u)
        backward = BFLOAT16_STORED
        if self.fused("dkv"):
            backward = replace(backward, partial_u=U_BFLOAT16)
        return Arithmetic(forward, backward)
