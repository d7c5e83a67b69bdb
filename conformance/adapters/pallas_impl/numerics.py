"""What `pallas_impl` computes: forward, residuals, gradients and the ring, in interpret mode or on a TPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from numpy.typing import NDArray

from conformance.adapters.shared.calls import Kernel
from conformance.adapters.shared.device import ON_TPU, interpret
from conformance.adapters.shared.mask_arrays import grid_info, padded_stack
from conformance.adapters.shared.mask_function import Ids, MaskFunction
from conformance.adapters.shared.prepared import KernelSpec, PreparedProblem
from conformance.contract.protocol import Arithmetic, Edit, Forward
from conformance.problems.inputs import Inputs
from conformance.problems.problem import Problem
from pallas_impl import compile_mask, masks
from pallas_impl.api import SplashAttentionKernel, make_splash_mha, make_splash_mqa
from pallas_impl.block_sizes import BlockSizes
from pallas_impl.in_kernel import evaluate
from pallas_impl.plan import AttentionPlan
from pallas_impl.ring import make_ring_attention
from pallas_impl.schedule import Schedule, build_schedule, unpack_meta
from pallas_impl.segment_ids import SegmentIds
from pallas_impl.slots import column_of
from pallas_impl.tile_mask import KernelPlan, MaskOperands
from reference.blocks import EMPTY, FULL, PARTIAL, Int32
from reference.blocks import labels as block_labels
from reference.error_budget import BFLOAT16_STORED, FLOAT32, MXU_PASSES
from reference.mask_info import DIRECTIONS, GridMaskInfo
from reference.masks import Bool
from reference.sharding import every_shard, shard_masks

#: Values of the implementation options, the default first. A value that does not exist for a mask
#: (``runs`` for rows that are not runs, ``flat`` for a mask known only at run time) means the default.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "use_fused_bwd_kernel": (None, True, False),
    "grid": (None, "flat", "grid2d"),
    "storage": (None, "table", "runs"),
    "mqa": (False, True),
    "residual_checkpoint_name": (None, "kept"),
}


def dynamic_kernel(mask: Any, *, is_mqa: bool, **settings: Any) -> Any:
    """The kernel of a mask whose values are known only at run time."""
    return (make_splash_mqa if is_mqa else make_splash_mha)(mask, **settings)


def restored_kernel(*leaves: Any, tree: Any, is_mqa: bool) -> Any:
    """A kernel out of its arrays: what is compiled into it is in ``tree``."""
    del is_mqa
    return jax.tree_util.tree_unflatten(tree, leaves)


def _single_runs(grid: Int32) -> bool:
    """Whether the non-empty blocks of every row are consecutive, and the full ones among them."""

    def consecutive(chosen: Bool) -> bool:
        starts = np.diff(chosen.astype(np.int8), axis=1, prepend=0) == 1
        return bool((starts.sum(axis=1) <= 1).all())

    return consecutive(grid != EMPTY) and consecutive(grid == FULL)


def stored_in_runs(problem: Problem) -> bool:
    """Whether the schedules of all kernels of a problem can be stored as runs of blocks.

    That needs one mask for all heads, no stored blocks, and rows of blocks (columns in dkv) that are
    single runs on every device.
    """
    if problem.dynamic or not problem.single_mask:
        return False
    shards = problem.shards
    if problem.ring > 1:
        shards = replace(shards, q=problem.ring, kv=problem.ring)
    for direction in DIRECTIONS:
        sizes = problem.blocks.of(direction)
        whole = block_labels(problem.head_masks[0], *sizes)
        if not problem.head_masks[0].expr.computable and (whole == PARTIAL).any():
            return False
        for shard in every_shard(shards):
            grid = block_labels(shard_masks(problem.head_masks, shards, shard)[0], *sizes)
            if not _single_runs(grid.T if direction == "dkv" else grid):
                return False
    return True


def schedule_of_arrays(info: GridMaskInfo, columns: int, slots: int) -> Schedule:
    """The schedule that the kernel reads, for forward arrays in the grid layout.

    Args:
      info: arrays of one shard; ``mask_next`` counts at full positions too.
      columns: kv blocks.
      slots: blocks that a step works on.

    Raises:
      ValueError: a row names one block twice.
    """
    active = info.block_mask > 0
    head, row, _ = np.nonzero(active)
    column = info.data_next[active].astype(np.int64)
    shape = (*info.block_mask.shape[:2], columns)
    at = (head, row, column)
    if len(set(zip(*(part.tolist() for part in at), strict=True))) < len(column):
        raise ValueError("data_next must name every block of a row once")
    grid = np.zeros(shape, dtype=np.int32)
    grid[at] = info.block_mask[active]
    if info.mask_next is None:
        return build_schedule([(grid, None)], slots=slots, storage="table", device_heads=len(grid))
    ids = np.zeros(shape, dtype=np.int32)
    ids[at] = info.mask_next[active]
    heads = len(grid)
    made = build_schedule([(grid, ids)], slots=slots, storage="table", device_heads=heads)
    slots = made.layout.slots
    # The library prepares the next partial block at full positions; here they get what the arrays say.
    meta = unpack_meta(np.asarray(made.words)[:, :, None])
    full = ((meta.full >> np.arange(slots)) & 1).reshape(heads, -1)
    rows = np.repeat(meta.row[:, :, 0], slots, axis=1)
    wanted = ids[np.arange(heads)[:, None], rows, column_of(np.asarray(made.entries))]
    return replace(made, mask_ids=np.where(full == 1, wanted, made.mask_ids).astype(np.int32))


class PallasImplNumerics(PreparedProblem):
    """One problem; every method does its own work when it is called."""

    library = "pallas_impl"
    mask_lib: ClassVar[Any] = masks
    segment_ids = SegmentIds
    traces_segments = False  # no schedule depends on them

    def function_in_kernel(self, function: MaskFunction) -> MaskFunction:
        """A mask function as the library's own kernels evaluate it."""
        return partial(evaluate, function)

    def mask_bounds(
        self, head: int, q_lo: Ids, q_hi: Ids, kv_lo: Ids, kv_hi: Ids
    ) -> tuple[Bool, Bool] | None:
        """See `Prepared.mask_bounds`."""
        mask = self.mask(head)
        if not isinstance(mask, masks.ComputableMask):
            return None
        return mask.block_bounds(q_lo, q_hi, kv_lo, kv_hi)

    def mask_intervals(
        self, head: int, q_ids: Ids
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """See `Prepared.mask_intervals`."""
        mask = self.mask(head)
        return mask.kv_intervals(q_ids) if isinstance(mask, masks.ComputableMask) else None

    @property
    def fused(self) -> bool | None:
        """Whether dq comes from the dkv kernel; None leaves it to the library."""
        chosen: bool | None = self.problem.option("use_fused_bwd_kernel")
        return chosen

    def block_sizes(self, fused: bool | None) -> BlockSizes:
        """Block sizes of all kernels; without those of dq where it is fused for certain."""
        blocks = self.problem.blocks
        sizes: dict[str, Any] = {
            "block_q": blocks.q,
            "block_kv": blocks.kv,
            "block_kv_compute": blocks.kv_compute,
            "block_q_dkv": blocks.q_dkv,
            "block_kv_dkv": blocks.kv_dkv,
            "block_kv_dkv_compute": blocks.kv_dkv_compute,
        }
        if not fused:
            sizes |= {"block_q_dq": blocks.q_dq, "block_kv_dq": blocks.kv_dq}
        return BlockSizes(**sizes, use_fused_bwd_kernel=fused)

    def grid(self) -> str | None:
        """The grid that the kernels walk: as the options say, else that of the layout."""
        if self.problem.dynamic:
            return None
        chosen: str | None = self.problem.option("grid")
        return chosen or {"grid": "grid2d", "flat": "flat"}.get(self.problem.layout or "")

    def storage(self) -> str | None:
        """How the schedules are stored."""
        chosen: str | None = self.problem.option("storage")
        possible = chosen != "runs" or stored_in_runs(self.problem)
        return chosen if possible and not self.problem.dynamic else None

    def kernel_arguments(self, fused: bool | None) -> dict[str, Any]:
        """How the library is asked for a kernel, but for the mask."""
        shards = self.problem.shards
        sharded = {"head_shards": shards.head, "q_seq_shards": shards.q}
        return {
            "block_sizes": self.block_sizes(fused),
            "grid": self.grid(),
            "storage": self.storage(),
            "is_mqa": self.mqa,
            **(sharded if self.problem.ring == 1 else {}),
        }

    def numeric_arguments(self, spec: KernelSpec) -> dict[str, Any]:
        """How the library is asked for a kernel that is run; races and reads outside of an array raise."""
        problem = self.problem
        how = interpret(spec.uninitialised)
        return self.kernel_arguments(self.fused) | {
            "save_residuals": spec.residuals,
            "attn_logits_soft_cap": problem.soft_cap,
            "residual_checkpoint_name": problem.option("residual_checkpoint_name"),
            "interpret": replace(how, detect_races=True) if spec.uninitialised else how,
        }

    def make_kernel(self, spec: KernelSpec) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel and the arrays of its mask; a run-time mask is an argument of every program."""
        arguments, ring = self.numeric_arguments(spec), self.problem.ring
        if self.problem.dynamic:
            kernel = self.kernel_of(dynamic_kernel, arguments, spec.residuals)
            return kernel, (self.run_time_mask(),)
        if ring > 1:
            made: Any = make_ring_attention(
                self.multi_head_mask, ring_axis="ring", ring_size=ring, **arguments
            )
        else:
            made = dynamic_kernel(self.multi_head_mask, **arguments)
            if spec.edit is not None:
                made = self._edited(made, spec.edit)
            elif spec.may_pad:
                forward, dq, dkv = made.plan
                padded = None if dq is None else _padded(dq)
                plan = AttentionPlan(_padded(forward), padded, _padded(dkv))
                made = replace(made, plan=plan)
        leaves, tree = jax.tree_util.tree_flatten(made)
        settings = {"is_mqa": self.mqa, "tree": tree}
        return self.kernel_of(restored_kernel, settings, spec.residuals), tuple(leaves)

    def _edited(self, kernel: SplashAttentionKernel, edit: Edit) -> SplashAttentionKernel:
        """The kernel with a forward schedule made of edited arrays."""
        blocks = self.problem.blocks.of("fwd")
        info, function = compile_mask(
            self.multi_head_mask,
            blocks,
            shrink=self.problem.shrink,
            downcast=self.problem.downcast,
        )
        edited = edit(grid_info("fwd", info))
        assert isinstance(edited, GridMaskInfo)
        slots = kernel.plan.forward.schedule.layout.slots
        schedule = schedule_of_arrays(edited, self.problem.kv_len // blocks[1], slots)
        computed = function is not None and edited.q_sequence is not None
        stack = edited.partial_mask_blocks
        stored = MaskOperands(blocks=None if stack is None else stack.astype(np.int8))
        forward = KernelPlan(schedule, kernel.plan.forward.mask if computed else stored)
        config = kernel.config if computed else replace(kernel.config, mask_function=None)
        return replace(kernel, plan=kernel.plan._replace(forward=forward), config=config)

    def arithmetic(self) -> Arithmetic:
        """Exponents to base 2; probabilities and logit gradients in the type of the arrays.

        Products of float32 arrays ask for the highest precision, whatever the setting of JAX is.
        """
        exact = MXU_PASSES[6] if ON_TPU else FLOAT32
        stored = self.problem.dtype == "bfloat16"
        profile = replace(BFLOAT16_STORED if stored else exact, base2=True)
        return Arithmetic(profile, profile)

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
        try:
            return super().forward(
                inputs,
                residuals=residuals,
                edit=edit,
                uninitialised=uninitialised,
                traced_mask=traced_mask,
            )
        except Exception:
            if uninitialised:  # the simulated memory is of no use after an error
                pltpu.reset_tpu_interpret_mode_state()
            raise


def _padded(plan: KernelPlan) -> KernelPlan:
    """The plan with a stack of blocks that is filled up with visible ones, see `padded_stack`."""
    stack = padded_stack(plan.mask.blocks)
    return plan._replace(mask=plan.mask._replace(blocks=stack))
