"""What the splash attention of tokamax computes: forward, residuals, gradients and the ring.

In interpret mode, or compiled on a TPU. The ring runs under ``jax.shard_map``, on the devices that
the host has or pretends to have.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np

from conformance.adapters.shared.calls import Arrays, Kernel, mesh_of
from conformance.adapters.shared.device import float32_profile, interpret
from conformance.adapters.shared.mask_arrays import as_operands, with_arrays_of
from conformance.adapters.shared.prepared import KernelSpec, PreparedProblem
from conformance.adapters.tokamax import ring as tokamax_ring
from conformance.contract.library import import_module, is_fork
from conformance.contract.protocol import Arithmetic, Edit, Gradients
from conformance.problems.inputs import Inputs
from reference.error_budget import BFLOAT16, BFLOAT16_STORED, U_BFLOAT16, mxu_multiply_u
from reference.flat import FlatMaskInfo
from reference.mask_info import Direction
from reference.masks import Bool, Causal
from reference.sharding import Shard

kernel_lib = import_module("tokamax", "splash_attention_kernel")
mask_lib = import_module("tokamax", "splash_attention_mask")

try:
    base_lib = import_module("tokamax", "base")
except ImportError:  # before 0.0.10 the kernels' module holds what they share
    base_lib = kernel_lib

DEFAULT_MASK_VALUE: float = base_lib.DEFAULT_MASK_VALUE

#: What the installed release can configure.
CONFIGURABLE = frozenset(field.name for field in fields(kernel_lib.SplashConfig))

#: What is offered. Rows that see nothing are undefined: the documentation of ``SegmentIds`` says that
#: a mask must not have any. The ring refuses sinks.
NUMERIC_FEATURES = frozenset(
    {
        "forward", "backward", "residuals", "residuals:max_logits", "residuals:gradients",
        "residuals:cotangent", "segment_ids", "soft_cap", "sinks", "gqa", "mqa", "head_dim_v",
        "bfloat16", "vmap", "vmap:backward", "fused_backward", "edit_mask_info", "uninitialised",
        "ring", "sharded", "traced_masks",
    }
)  # fmt: skip

#: A maximum given by the caller: logits of moderate size neither overflow nor vanish under it.
MAXIMUM = 10.0

#: Values of the implementation options, the default first.
#:
#: ``layouts`` is that of q, k and v in memory. ``diag_skip`` skips products above the diagonal of causal
#: blocks, ``scaled_q`` chooses who multiplies q by log2(e) and whether dk is made from the product. Values
#: that the library refuses for a problem leave the option at its default, such as stacked heads where
#: a group has an odd number of them. Dropout is random and not offered; the scheduler option chooses no arithmetic.
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "use_base2_exp": (True, False),
    "fuse_reciprocal": (True, False),
    "max_logit_const": (None, MAXIMUM),
    "max_logit_value": (None, MAXIMUM),
    "num_stacked_q_heads": (1, 2),
    "layouts": ("head_dim_minor", "seq_minor"),
    "diag_skip": (False, True),
    "scaled_q": ("by_kernel", "reused", "by_caller"),
    "residual_checkpoint_name": (None, "kept"),
    "mask_value": (DEFAULT_MASK_VALUE,),
}

#: Fields of the configuration that an option of another name sets.
_FIELDS = {
    "max_logit_value": "max_logit_const",
    "layouts": "q_layout",
    "diag_skip": "qk_diag_skip",
    "scaled_q": "dkv_reuse_scaled_q",
    "mask_value": "block_q",
}

NUMERIC_OPTIONS = {
    name: values for name, values in _OPTIONS.items() if _FIELDS.get(name, name) in CONFIGURABLE
}


def dynamic_kernel(mask: Any, **settings: Any) -> Any:
    """The kernel of a mask whose values are known only at run time."""
    return kernel_lib._make_dynamic_splash_attention(mask, **settings)


def dynamic_kernel_on_devices(mask: Any, *, devices: int, **settings: Any) -> Any:
    """The same on several devices along the queries, with the specs of its arrays."""
    spec = jax.sharding.PartitionSpec("q")
    mesh = mesh_of((("q", devices),))
    return dynamic_kernel(mask, mesh=mesh, mask_spec=spec, **settings)


class TokamaxNumerics(PreparedProblem):
    """One problem; every method does its own work when it is called."""

    library = "tokamax"
    mask_lib = mask_lib
    segment_ids = base_lib.SegmentIds

    def run_time_mask(self, shard: Shard | None = None) -> Bool:
        """The values that a run-time mask takes, ``[q_len, kv_len]``: one for all heads, a device has its part."""
        shards, dense = self.problem.shards, self.problem.head_masks[0].dense()
        if shard is None:
            return dense
        rows = np.split(dense, shards.q, axis=0)[shard.q]
        return np.split(rows, shards.kv, axis=1)[shard.kv]

    @property
    def local_kv_len(self) -> int:
        """Keys that one device is given at a time: in the ring its own part."""
        return self.problem.kv_len // self.problem.shards.kv

    @property
    def reduction_steps(self) -> int | None:
        """Slots that dq is summed up in; one a kv block if None."""
        steps: int | None = self.problem.option("dq_reduction_steps")
        return steps

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Device axes of the call: queries only."""
        shards = self.problem.shards.q
        return (("q", shards),) if shards > 1 and self.problem.ring == 1 else ()

    @property
    def base2(self) -> bool:
        """Whether the kernel takes powers of two."""
        default = self.problem.ring == 1 or tokamax_ring.takes_base2()
        return bool(self.problem.option("use_base2_exp", default))

    @property
    def scaled_q(self) -> str:
        """Who multiplies q by log2(e); only the kernel does without powers of two."""
        chosen: str = self.problem.option("scaled_q", "by_kernel")
        return chosen if self.base2 else "by_kernel"

    @property
    def max_logit_value(self) -> float | None:
        """A maximum handed to the call, which the ring does not have."""
        value: float | None = self.problem.option("max_logit_value")
        return value if self.problem.ring == 1 else None

    def config(self, direction: Direction) -> Any:
        """Configuration of the kernel; backward block sizes only if they are wanted."""
        blocks = self.problem.blocks
        sizes: dict[str, Any] = {
            "block_q": blocks.q,
            "block_kv": blocks.kv,
            "block_kv_compute": blocks.kv_compute,
        }
        if direction == "dkv":
            q, kv = blocks.of("dkv")
            sizes |= {
                "block_q_dkv": q,
                "block_kv_dkv": kv,
                "block_kv_dkv_compute": blocks.kv_dkv_compute,
                "dq_reduction_steps": self.reduction_steps,
            }
        return kernel_lib.SplashConfig(**sizes)

    def numeric_config(self, spec: KernelSpec) -> Any:
        """Configuration of a kernel that is run."""
        problem, plain = self.problem, self.config(spec.direction)
        minor = kernel_lib.QKVLayout.HEAD_DIM_MINOR
        if problem.option("layouts") == "seq_minor":
            minor = kernel_lib.QKVLayout.SEQ_MINOR
        skip = bool(problem.option("diag_skip", False)) and self._may_skip(plain)
        wanted = {
            "attn_logits_soft_cap": problem.soft_cap,
            "use_base2_exp": self.base2,
            "fuse_reciprocal": problem.option("fuse_reciprocal", True),
            "max_logit_const": problem.option("max_logit_const"),
            "num_stacked_q_heads": self._stacked_heads(),
            "q_layout": minor,
            "k_layout": minor,
            "v_layout": minor,
            "qk_diag_skip": skip,
            "sv_diag_skip": skip,
            "dkv_reuse_scaled_q": self.scaled_q == "reused",
            "q_prescaled_log2e": self.scaled_q == "by_caller",
            "residual_checkpoint_name": problem.option("residual_checkpoint_name"),
            "interpret": interpret(spec.uninitialised),
        }
        return replace(plain, **{k: v for k, v in wanted.items() if k in CONFIGURABLE})

    def _may_skip(self, config: Any) -> bool:
        """Whether the library accepts skipping above the diagonal: causal, square blocks, no ring."""
        backward = (config.block_q_dkv, config.block_kv_dkv, config.block_kv_dkv_compute)
        return (
            isinstance(self.problem.masks[0], Causal)
            and self.problem.ring == 1
            and not self.problem.dynamic
            and config.block_q == config.block_kv == config.block_kv_compute
            and len(set(backward)) == 1
        )

    def _stacked_heads(self) -> int:
        """Heads handled at a time, where the library accepts them."""
        problem = self.problem
        wanted: int = problem.option("num_stacked_q_heads", 1)
        group = problem.heads // problem.kv_heads
        refused = problem.sinks is not None or self.max_logit_value is not None
        return 1 if refused or group % wanted else wanted

    def make_kernel(self, spec: KernelSpec) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel and the arrays of its mask; a run-time mask is an argument of every program.

        The ring takes the option to return residuals, and returns none.
        """
        problem = self.problem
        arguments: dict[str, Any] = {
            "config": self.numeric_config(spec),
            "is_mqa": self.mqa,
            "save_residuals": spec.residuals,
            "mask_value": problem.option("mask_value", DEFAULT_MASK_VALUE),
            "downcast_smem_data": problem.downcast,
        }
        value = self.max_logit_value
        handed = () if value is None else (("max_logit_value", np.float32(value)),)
        if problem.dynamic:
            make: Any = dynamic_kernel
            if self.axes:
                make, arguments["devices"] = dynamic_kernel_on_devices, problem.shards.q
            kernel = self.kernel_of(make, arguments, spec.residuals, handed)
            return kernel, (self.run_time_mask(),)
        if problem.ring > 1:
            dense = problem.head_masks[0].dense()
            made = tokamax_ring.make(self.mask(0), dense, problem.ring, arguments)
            make, settings = tokamax_ring.kernel, tokamax_ring.settings(made)
        else:
            made = kernel_lib._make_splash_attention(
                self.mask(0), q_seq_shards=problem.shards.q, **arguments
            )
            make, settings = kernel_lib.SplashAttentionKernel, dict(made.kwargs)
        settings["mask_function"] = self.shared_function(settings["mask_function"])
        # Only an estimate of the cost, by which equal kernels would differ.
        settings |= {name: 1.0 for name in settings if name.endswith("_mask_sparsity")}
        infos = [made.fwd_mask_info, made.dkv_mask_info]
        if spec.edit is not None:
            infos[0] = self._edited(infos[0], spec.edit)
            if infos[0].q_sequence is None:
                settings["mask_function"] = None
        kernel = self.kernel_of(make, settings, spec.residuals, handed)
        return kernel, tuple(as_operands(info, spec.may_pad) for info in infos)

    def mask_info(self, direction: Direction) -> FlatMaskInfo:
        """The arrays that the library compiles."""
        raise NotImplementedError

    def _edited(self, before: Any, edit: Edit) -> Any:
        """Forward arrays after a change; those that the library leaves out are written out."""
        info = edit(self.mask_info("fwd"))
        stack = info.partial_mask_blocks
        stored = None if stack is None else stack.astype(np.int8)
        return with_arrays_of(before, info)._replace(partial_mask_blocks=stored)

    def arithmetic(self) -> Arithmetic:
        """Depends on the type of the arrays and on the options.

        Probabilities stay in float32 forward; backward they are rounded to the type of the arrays, but not
        in the ring, whose gradients arrive in float32. One partial dq a kv block is stored in the type of q.
        For powers of two q is multiplied by log2(e) in its own type: for bfloat16 the factor and
        the product are rounded, which acts like a rounding of either operand of the product with k. What a fork
        rounds forward is not known: it may do what most kernels do, and round probabilities too.
        """
        problem, exact = self.problem, float32_profile()
        maximum = problem.option("max_logit_const") or self.max_logit_value
        common: dict[str, Any] = {"base2": self.base2, "constant_maximum": maximum}
        if problem.dtype == "float32":
            profile = replace(exact, **common)
            return Arithmetic(profile, profile)
        multiply_u = mxu_multiply_u(1) if self.base2 else exact.multiply_u
        forward = BFLOAT16_STORED if is_fork("tokamax") else BFLOAT16
        backward = BFLOAT16 if problem.ring > 1 else BFLOAT16_STORED
        return Arithmetic(
            replace(forward, multiply_u=multiply_u, **common),
            replace(backward, multiply_u=multiply_u, partial_u=U_BFLOAT16, **common),
        )

    def arrays_of(self, inputs: Inputs) -> Arrays:
        """The arrays of a call, with the q that the caller scales where that is who scales."""
        q, k, v, segments, sinks = super().arrays_of(inputs)
        if self.scaled_q == "by_caller":
            q = (inputs.q * np.float64(kernel_lib.LOG2E)).astype(q.dtype)
        return q, k, v, segments, sinks

    def gradients_of_inputs(self, gradients: Gradients) -> Gradients:
        """The gradients of the inputs: dq of the q that was scaled is scaled too."""
        if self.scaled_q != "by_caller":
            return gradients
        return replace(gradients, dq=gradients.dq * np.float32(kernel_lib.LOG2E))
