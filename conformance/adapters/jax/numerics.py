"""What the splash attention of JAX computes: forward, residuals and gradients, in interpret mode or on a TPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from conformance.adapters.shared import arrays as pallas_arrays
from conformance.adapters.shared.arrays import Kernel, padded_stack, shared_function, to_arrays
from conformance.adapters.shared.common import (
    INTERPRETS_MEMORY,
    accepts,
    float32_profile,
    interpret,
    library_mask,
)
from conformance.adapters.shared.mask_function import MaskFunctions
from conformance.contract.library import import_module, is_fork
from conformance.contract.protocol import Arithmetic, Edit, Forward, Gradients
from conformance.problems.arrays import Inputs
from conformance.problems.problem import Problem
from reference.error_budget import BFLOAT16, BFLOAT16_STORED, U_BFLOAT16
from reference.mask_info import Direction, GridMaskInfo, Shards
from reference.masks import Bool

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


class JaxNumerics(MaskFunctions):
    """One problem; every method does its own work when it is called."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def mask(self, head: int) -> Any:
        """The library's mask object of one head."""
        problem = self.problem
        expr = problem.masks[head if len(problem.masks) > 1 else 0]
        return library_mask(mask_lib, expr, problem.q_len, problem.kv_len)

    def dense_masks(self) -> Bool:
        """The values that a dynamic mask takes, ``[heads, q_len, kv_len]``."""
        return np.stack([mask.dense() for mask in self.problem.head_masks])

    @cached_property
    def multi_head_mask(self) -> Any:
        """The masks of all heads in the library's form."""
        return mask_lib.MultiHeadMask([self.mask(head) for head in range(self.problem.heads)])

    def fused(self, direction: Direction) -> bool:
        """Whether the kernel of a direction also computes dq.

        The fused kernel is the one of ``dkv``, with its block sizes; ``dq`` stands for the kernel
        that computes dq alone.
        """
        return direction == "dkv" and bool(self.problem.option("use_fused_bwd_kernel", False))

    @property
    def mqa(self) -> bool:
        """Whether the kernel for a single key/value head is used."""
        return bool(self.problem.option("mqa", False)) and self.problem.kv_heads == 1

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Device axes of the call; the library wants both if there is one."""
        shards = self.problem.shards
        return (("head", shards.head), ("q", shards.q)) if shards != Shards() else ()

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

    def numeric_arguments(
        self, direction: Direction, residuals: bool, uninitialised: bool
    ) -> dict[str, Any]:
        """How the library is asked for a kernel that is run."""
        problem = self.problem
        arguments = self.kernel_arguments(direction)
        if problem.option("layouts") == "seq_minor":
            layout = kernel_lib.QKVLayout.SEQ_MINOR
            sizes = replace(
                arguments["block_sizes"], q_layout=layout, k_layout=layout, v_layout=layout
            )
            arguments["block_sizes"] = sizes
        return arguments | {
            "is_mqa": self.mqa,
            "save_residuals": residuals,
            "mask_value": problem.option("mask_value", kernel_lib.DEFAULT_MASK_VALUE),
            "attn_logits_soft_cap": problem.soft_cap,
            "residual_checkpoint_name": problem.option("residual_checkpoint_name"),
            "interpret": interpret(uninitialised),
        }

    def numeric_kernel(
        self,
        direction: Direction,
        *,
        residuals: bool = False,
        uninitialised: bool = False,
        edit: Edit | None = None,
        traced_mask: bool = False,
    ) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel and the arrays of its mask.

        Args:
          direction: ``fwd``, or ``dkv`` for all that a gradient needs.
          residuals: the call returns residuals.
          uninitialised: memory starts as NaN.
          edit: applied to the forward arrays.
          traced_mask: the program makes the kernel out of the values of a run-time mask.
        """
        arguments = self.numeric_arguments(direction, residuals, uninitialised)
        if traced_mask:
            settings = tuple(sorted(arguments.items()))
            made = Kernel(
                dynamic_kernel, settings, kernel_lib.SegmentIds, residuals=residuals, axes=self.axes
            )
            return made, (self.dense_masks(),)
        dynamic = self.problem.dynamic
        mask = jnp.asarray(self.dense_masks()) if dynamic else self.multi_head_mask
        infos, kwargs = dynamic_kernel(mask, **arguments).tree_flatten()
        kwargs["mask_function"] = shared_function(kwargs["mask_function"], "jax", self.problem)
        if not self.problem.shrink and not dynamic:
            infos = [
                None if info is None else self._unshrunk(name)
                for info, name in zip(infos, ("fwd", "dq", "dkv"), strict=True)
            ]
        if edit is not None:
            edited = edit(self._as_grid(infos[0]))
            assert isinstance(edited, GridMaskInfo)
            infos = [self._as_library(infos[0], edited), *infos[1:]]
            if edited.q_sequence is None:
                kwargs["mask_function"] = None
        padded = edit is None and not uninitialised
        if dynamic:
            arrays = tuple(_without_mark(info) for info in infos)
        else:
            arrays = tuple(
                None if info is None else self._as_arrays(info, padded) for info in infos
            )
        settings = tuple(sorted(kwargs.items()))
        made = Kernel(
            marked_kernel if dynamic else kernel_lib.SplashAttentionKernel,
            settings,
            kernel_lib.SegmentIds,
            residuals=residuals,
            axes=self.axes,
        )
        return made, arrays

    def _unshrunk(self, direction: Any) -> Any:
        """The arrays of a direction as the library compiles them without shrinking."""
        process = info_lib.process_mask_dkv if direction == "dkv" else info_lib.process_mask
        info, _ = process(
            self.multi_head_mask,
            self.problem.blocks.of(direction),
            downcast_smem_data=self.problem.downcast,
            shrink_grid=False,
        )
        return info

    def _as_arrays(self, info: Any, padded: bool) -> Any:
        info = jax.tree.map(np.asarray, info)
        if not padded:
            return info
        return info._replace(partial_mask_blocks=padded_stack(info.partial_mask_blocks, True))

    def _as_grid(self, info: Any) -> GridMaskInfo:
        arrays = jax.tree.map(np.asarray, info)
        return GridMaskInfo(
            direction="fwd",
            block_mask=arrays.block_mask,
            data_next=arrays.data_next,
            mask_next=arrays.mask_next,
            partial_mask_blocks=arrays.partial_mask_blocks,
            q_sequence=arrays.q_sequence,
            computed_mask=None,
        )

    def _as_library(self, before: Any, info: GridMaskInfo) -> Any:
        return before._replace(
            data_next=info.data_next,
            mask_next=info.mask_next,
            block_mask=info.block_mask,
            partial_mask_blocks=info.partial_mask_blocks,
            q_sequence=info.q_sequence,
        )

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

    def forward(
        self,
        inputs: Inputs,
        *,
        residuals: bool = False,
        edit: Edit | None = None,
        uninitialised: bool = False,
        traced_mask: bool = False,
    ) -> Forward:
        """See `Prepared.forward`."""
        kernel, infos = self.numeric_kernel(
            "fwd",
            residuals=residuals,
            edit=edit,
            uninitialised=uninitialised,
            traced_mask=traced_mask,
        )
        return pallas_arrays.forward(kernel, infos, to_arrays(inputs, self.problem.dtype))

    def forward_batch(self, batch: Sequence[Inputs]) -> list[Forward]:
        """See `Prepared.forward_batch`."""
        kernel, infos = self.numeric_kernel("fwd")
        arrays = [to_arrays(inputs, self.problem.dtype) for inputs in batch]
        return pallas_arrays.forward_batch(kernel, infos, arrays)

    def backward(
        self,
        inputs: Inputs,
        d_out: NDArray[np.float32],
        *,
        with_residuals: bool = False,
        d_logsumexp: NDArray[np.float32] | None = None,
    ) -> Gradients:
        """See `Prepared.backward`."""
        residuals = with_residuals or d_logsumexp is not None
        kernel, infos = self.numeric_kernel("dkv", residuals=residuals)
        arrays = to_arrays(inputs, self.problem.dtype)
        return pallas_arrays.gradients(kernel, infos, arrays, d_out, d_logsumexp)

    def backward_batch(
        self, batch: Sequence[Inputs], d_outs: Sequence[NDArray[np.float32]]
    ) -> list[Gradients]:
        """See `Prepared.backward_batch`."""
        kernel, infos = self.numeric_kernel("dkv")
        arrays = [to_arrays(inputs, self.problem.dtype) for inputs in batch]
        return pallas_arrays.gradients_batch(kernel, infos, arrays, d_outs)
