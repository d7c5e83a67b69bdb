"""Calls of ``jax.experimental.pallas.ops.tpu.splash_attention``, or of a fork of it."""

from __future__ import annotations

from conformance.bug_report.calls import (
    Raw,
    call_arguments,
    gradient_lines,
    inside_program,
    interpreted,
    is_mqa,
    keywords,
    library_masks,
    one_kv_head,
    pallas_imports,
    results,
    segment_class,
    to_type,
)
from conformance.bug_report.case import Case

#: What the option ``mask_value`` is if it is not given.
DEFAULT = object()


class JaxCalls:
    """See `conformance.bug_report.calls.Calls`."""

    runs = True

    def imports(self, case: Case) -> list[str]:
        modules = ["splash_attention_kernel as splash", "splash_attention_mask as masks"]
        if case.call.method == "mask_info":
            modules = ["splash_attention_mask as masks", "splash_attention_mask_info as mask_info"]
        return [
            *pallas_imports(case),
            *(f"from {case.package} import {module}" for module in modules),
            "",
            'jax.config.update("jax_platforms", "cpu")',
        ]

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
        problem, blocks = case.problem, case.problem.blocks
        sizes = {"block_q": blocks.q, "block_kv": blocks.kv, "block_kv_compute": blocks.kv_compute}
        fused = bool(problem.option("use_fused_bwd_kernel", False))
        if backward:
            q, kv = blocks.of("dkv")
            sizes |= {"block_q_dkv": q, "block_kv_dkv": kv}
            sizes |= {"block_kv_dkv_compute": blocks.kv_dkv_compute}
            if not fused:
                sizes["block_q_dq"], sizes["block_kv_dq"] = blocks.of("dq")
        values: dict[str, object] = {**sizes, "use_fused_bwd_kernel": fused and backward}
        if problem.option("layouts") == "seq_minor":
            minor = Raw("splash.QKVLayout.SEQ_MINOR")
            values |= {"q_layout": minor, "k_layout": minor, "v_layout": minor}
        defaults = {
            "block_kv_compute": None,
            "block_kv_dkv_compute": None,
            "use_fused_bwd_kernel": False,
        }
        return f"splash.BlockSizes({keywords(values, defaults)})"

    def _kernel(self, case: Case, backward: bool, residuals: bool) -> list[str]:
        problem = case.problem
        options = keywords(
            {
                "block_sizes": Raw(self._sizes(case, backward)),
                "head_shards": 1,
                "q_seq_shards": 1,
                "save_residuals": residuals,
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
        return [*to_type(case), *one_kv_head(case), *segment_class(case.inputs, "splash"),
                f"kernel = {make}({self.mask(case)}, {options})"]  # fmt: skip

    def forward(self, case: Case) -> list[str]:
        residuals = bool(case.call.keywords.get("residuals"))
        made = self._kernel(case, backward=False, residuals=residuals)
        return _in_program(case, made, results(case, f"kernel({call_arguments(case)})"))

    def backward(self, case: Case) -> list[str]:
        keys = case.call.keywords
        residuals = bool(keys.get("with_residuals") or keys.get("d_logsumexp") is not None)
        made = self._kernel(case, backward=True, residuals=residuals)
        return _in_program(case, made, gradient_lines(case))


def _in_program(case: Case, made: list[str], run: list[str]) -> list[str]:
    """The statements; the kernel of a run-time mask is made inside of the program that gets the mask."""
    if not case.problem.dynamic:
        return [*made, *run]
    *before, kernel = made
    return [*before, *inside_program(kernel.removeprefix("kernel = "), "values"), *run]
