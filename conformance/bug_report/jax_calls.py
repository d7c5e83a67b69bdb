"""Calls of ``jax.experimental.pallas.ops.tpu.splash_attention``, or of a fork of it."""

from __future__ import annotations

from conformance.bug_report.calls import (
    LibraryCalls,
    Raw,
    call_arguments,
    gradient_lines,
    inside_program,
    interpreted,
    is_mqa,
    keywords,
    library_masks,
    results,
    wants_residuals,
)
from conformance.bug_report.case import Case

#: What the option ``mask_value`` is if it is not given.
DEFAULT = object()


class JaxCalls(LibraryCalls):
    """See `conformance.bug_report.calls.Calls`."""

    def mask(self, case: Case) -> str:
        """The masks of all heads, as code."""
        problem = case.problem
        if problem.dynamic:
            return "mask"
        return f"masks.MultiHeadMask({library_masks(problem)})"

    def compiled(self, case: Case) -> list[str]:
        problem, direction = case.problem, case.call.arguments[0]
        options = keywords(
            {
                "downcast_smem_data": problem.downcast,
                "head_shards": problem.shards.head,
                "q_seq_shards": problem.shards.q,
                "shrink_grid": problem.shrink,
            }
        )
        end = "_dkv" if direction == "dkv" else ""
        sizes = problem.blocks.of(direction)
        if problem.dynamic:
            name = f"mask_info.process_dynamic_mask{end}"
            return [
                f"info = jax.jit(lambda mask: {name}(mask, {sizes}, {options})[0])(jnp.asarray(values))"
            ]
        name = f"mask_info.process_mask{end}"
        return [f"info, mask_function = {name}({self.mask(case)}, {sizes}, {options})"]

    def _sizes(self, case: Case, backward: bool) -> str:
        values, fused = (
            self.sizes(case, backward),
            case.problem.option("use_fused_bwd_kernel", False),
        )
        if backward and not fused:
            values["block_q_dq"], values["block_kv_dq"] = case.problem.blocks.of("dq")
        values["use_fused_bwd_kernel"] = bool(fused) and backward
        defaults = {
            "block_kv_compute": None,
            "block_kv_dkv_compute": None,
            "use_fused_bwd_kernel": False,
        }
        return f"splash.BlockSizes({keywords(values, defaults)})"

    def _kernel(self, case: Case, backward: bool) -> list[str]:
        problem = case.problem
        options = keywords(
            {
                "block_sizes": Raw(self._sizes(case, backward)),
                "head_shards": 1,
                "q_seq_shards": 1,
                "save_residuals": wants_residuals(case),
                "attn_logits_soft_cap": problem.soft_cap,
                "downcast_smem_data": problem.downcast,
                "mask_value": problem.option("mask_value", DEFAULT),
                "residual_checkpoint_name": problem.option("residual_checkpoint_name"),
                "interpret": Raw(interpreted(case)),
            },
            {
                "save_residuals": False,
                "attn_logits_soft_cap": None,
                "downcast_smem_data": True,
                "mask_value": DEFAULT,
                "residual_checkpoint_name": None,
            },
        )
        make = "splash.make_splash_mqa" if is_mqa(case) else "splash.make_splash_mha"
        return [*self.prepared(case), f"kernel = {make}({self.mask(case)}, {options})"]

    def forward(self, case: Case) -> list[str]:
        made = self._kernel(case, backward=False)
        return _in_program(case, made, results(case, f"kernel({call_arguments(case)})"))

    def backward(self, case: Case) -> list[str]:
        return _in_program(case, self._kernel(case, backward=True), gradient_lines(case))


def _in_program(case: Case, made: list[str], run: list[str]) -> list[str]:
    """The statements; the kernel of a run-time mask is made inside of the program that gets the mask."""
    if not case.problem.dynamic:
        return [*made, *run]
    *before, kernel = made
    return [*before, *inside_program(kernel.removeprefix("kernel = "), "values"), *run]
