"""Calls of the splash attention of tokamax, or of a fork of it."""

from __future__ import annotations

from conformance.bug_report import masks
from conformance.bug_report.calls import (
    LibraryCalls,
    Raw,
    call_arguments,
    gradient_lines,
    inside_program,
    interpreted,
    is_mqa,
    keywords,
    results,
    shape_of,
    wants_residuals,
)
from conformance.bug_report.case import Case
from reference.masks import Full

DEFAULT = object()

_RING = """\
mesh = jax.sharding.Mesh(np.array(jax.devices()[:{ring}]), ("ring",))
spec = jax.sharding.PartitionSpec
rows = spec(None, "ring")
keys = {keys}
kernel_of_devices = kernel


def kernel({names}):
    specs = ({specs},)
    run = jax.shard_map(
        lambda kernel, *arrays: kernel(*arrays),
        mesh=mesh,
        in_specs=(kernel_of_devices.manual_sharding_spec(), *specs),
        out_specs=rows,
        check_vma=False,
    )
    return jax.jit(run)(kernel_of_devices, {names})

"""


class TokamaxCalls(LibraryCalls):
    """See `conformance.bug_report.calls.Calls`."""

    def imports(self, case: Case) -> list[str]:
        if case.problem.ring == 1:
            return super().imports(case)
        flag = f"--xla_force_host_platform_device_count={case.problem.ring}"
        before = ["import os", "", f'os.environ["XLA_FLAGS"] = "{flag}"  # before JAX starts', ""]
        return before + super().imports(case)

    def more_modules(self, case: Case) -> list[str]:
        return ["ring_attention_kernel as ring"] if case.problem.ring > 1 else []

    def mask(self, case: Case) -> str:
        """The mask, one for all heads, as code."""
        problem, (expr,) = case.problem, case.problem.masks[:1]
        if problem.dynamic:
            return "mask"
        if problem.ring > 1 and not isinstance(expr, Full):
            return "masks.NumpyMask(visible[0])"  # what the ring takes
        return masks.library(expr, shape_of(problem), "visible[0]")

    def compiled(self, case: Case) -> list[str]:
        problem, direction = case.problem, case.call.arguments[0]
        dkv = direction == "dkv"
        sizes, end = problem.blocks.of(direction), "_dkv" if dkv else ""
        if problem.dynamic:
            name = f"mask_info.process_dynamic_mask{end}"
            options = keywords({"downcast_smem_data": problem.downcast})
            return [f"info = jax.jit(lambda mask: {name}(mask, {sizes}, {options}))(values[0])"]
        options = keywords(
            {
                "downcast_smem_data": problem.downcast,
                "q_seq_shards": problem.shards.q,
                "kv_seq_shards": problem.shards.kv,
                "return_dynamic_grid": not dkv or problem.option("dq_reduction_steps") == 3,
            }
        )
        name = f"mask_info.process_mask{end}"
        return [f"info, mask_function = {name}({self.mask(case)}, {sizes}, {options})"]

    def _config(self, case: Case, backward: bool) -> str:
        problem, values = case.problem, self.sizes(case, backward)
        if backward:
            values["dq_reduction_steps"] = problem.option("dq_reduction_steps")
        values |= {
            "attn_logits_soft_cap": problem.soft_cap,
            "use_base2_exp": problem.option("use_base2_exp", True),
            "fuse_reciprocal": problem.option("fuse_reciprocal", True),
            "max_logit_const": problem.option("max_logit_const"),
            "num_stacked_q_heads": problem.option("num_stacked_q_heads", 1),
            "qk_diag_skip": problem.option("diag_skip", False),
            "sv_diag_skip": problem.option("diag_skip", False),
            "dkv_reuse_scaled_q": problem.option("scaled_q") == "reused",
            "q_prescaled_log2e": problem.option("scaled_q") == "by_caller",
            "residual_checkpoint_name": problem.option("residual_checkpoint_name"),
        }
        values["interpret"] = Raw(interpreted(case))
        defaults = {
            "block_kv_compute": None, "block_kv_dkv_compute": None, "dq_reduction_steps": None,
            "attn_logits_soft_cap": None, "use_base2_exp": True, "fuse_reciprocal": True,
            "max_logit_const": None, "num_stacked_q_heads": 1, "qk_diag_skip": False,
            "sv_diag_skip": False, "dkv_reuse_scaled_q": False, "q_prescaled_log2e": False,
            "residual_checkpoint_name": None,
        }  # fmt: skip
        return f"splash.SplashConfig({keywords(values, defaults)})"

    def _kernel(self, case: Case, backward: bool) -> list[str]:
        problem = case.problem
        before = [*self.prepared(case), f"config = {self._config(case, backward)}"]
        values: dict[str, object] = {
            "config": Raw("config"),
            "save_residuals": wants_residuals(case),
            "downcast_smem_data": problem.downcast,
            "mask_value": problem.option("mask_value", DEFAULT),
        }
        defaults = {"save_residuals": False, "downcast_smem_data": True, "mask_value": DEFAULT}
        head = "mqa" if is_mqa(case) else "mha"
        if problem.dynamic:
            made = f"splash.make_dynamic_splash_{head}(mask, {keywords(values, defaults)})"
            return [*before, *inside_program(made, "values[0]")]
        if problem.ring > 1:
            values |= {"is_mqa": is_mqa(case), "ring_axis": "ring"}
            values |= {"q_seq_shards": problem.ring, "kv_seq_shards": problem.ring}
            made = f"ring.make_ring_attention({self.mask(case)}, {keywords(values, defaults)})"
            return [*before, f"kernel = {made}", *self._in_ring(case)]
        values["q_seq_shards"] = 1
        made = f"splash.make_splash_{head}({self.mask(case)}, {keywords(values, defaults)})"
        return [*before, f"kernel = {made}"]

    def _in_ring(self, case: Case) -> list[str]:
        names, specs = ["q", "k", "v"], ["rows", "keys", "keys"]
        if case.inputs.segment_ids is not None:
            names.append("segment_ids")
            specs.append('splash.SegmentIds(spec("ring"), spec("ring"))')
        text = _RING.format(
            ring=case.problem.ring,
            keys='spec("ring", None)' if is_mqa(case) else "rows",
            names=", ".join(names),
            specs=", ".join(specs),
        )
        return text.split("\n")

    def _call(self, case: Case) -> str:
        value = case.problem.option("max_logit_value") if case.problem.ring == 1 else None
        more = "" if value is None else f", max_logit_value={value}"
        return f"kernel({call_arguments(case)}{more})"

    def forward(self, case: Case) -> list[str]:
        made = self._kernel(case, backward=False)
        if case.problem.ring > 1:  # returns the output alone, whatever was asked for
            return [*made, f"output = {self._call(case)}"]
        return [*made, *results(case, self._call(case))]

    def backward(self, case: Case) -> list[str]:
        return [*self._kernel(case, backward=True), *gradient_lines(case)]
