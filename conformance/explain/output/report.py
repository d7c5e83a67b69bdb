"""A study as plain data: what ``--json`` writes, in the form of `conformance.explain.output.report_form`."""

from __future__ import annotations

from typing import Any

from conformance.explain.costs.layouts import LAYOUTS, Schedule
from conformance.explain.costs.memory import (
    CHIPS,
    Shape,
    smem_bytes,
    smem_total,
    vmem_buffers,
    vmem_bytes,
    vmem_verdict,
)
from conformance.explain.costs.study import Option, Study
from conformance.explain.language.expressions import is_structured, leaves
from conformance.explain.output.advice import Remark
from conformance.explain.output.report_form import SCHEMA
from conformance.problems.mask_json import expr_to_json


def to_json(found: Study, said: list[Remark]) -> dict[str, Any]:
    """All figures; bytes and tokens are integers, shares lie between 0 and 1."""
    question, counts = found.question, found.counts
    pairs = question.q_len * question.kv_len
    return {
        "schema": SCHEMA,
        "command": "explain",
        "mask": {
            "text": question.text,
            "structured": is_structured(question.expr),
            **_parts(found),
        },
        "problem": {
            "q_len": question.q_len,
            "kv_len": question.kv_len,
            "block_q": question.block_q,
            "block_kv": question.block_kv,
            "heads": question.heads.q,
            "kv_heads": question.heads.kv,
            "head_dim": question.head_dim,
            "dtype": question.dtype,
            "segments": question.segmented,
            "dynamic": question.dynamic,
        },
        "verdict": [{"kind": remark.kind, "text": remark.text} for remark in said],
        "blocks": {
            "q": found.compiled.labels.shape[0],
            "kv": found.compiled.labels.shape[1],
            "total": counts.total,
            "empty": counts.empty,
            "partial": counts.partial,
            "full": counts.full,
        },
        "pairs": {"total": pairs, "visible": found.pairs, "computed": counts.running * found.area},
        "arithmetic_skipped": counts.skipped,
        "flash": {
            "steps": counts.total,
            "k_fetches": found.flash,
            "kv_bytes": found.kv_bytes(found.flash),
        },
        "forward": [_schedule(found, schedule, forward=True) for schedule in found.forward],
        "dkv": [_schedule(found, schedule, forward=False) for schedule in found.dkv],
        "partial_mask_blocks": {
            "partial": counts.partial,
            "different": found.compiled.distinct,
            "bytes_before_dedup": counts.partial * found.area,
            "bytes_after_dedup": found.compiled.distinct * found.area,
        },
        "segments": {"unseen_blocks": found.unseen} if question.segmented else None,
        "chips": [chip._asdict() for chip in CHIPS],
        "block_sizes": [_option(found, option) for option in found.options],
    }


def _parts(found: Study) -> dict[str, Any]:
    """JSON forms of the masks that have one, from left to right."""
    forms = []
    for leaf in leaves(found.question.expr):
        try:
            form = expr_to_json(leaf)
        except ValueError:
            form = {"kind": type(leaf).__name__.lower()}
        forms.append({"kind": "dense"} if form["kind"] == "dense" else form)
    return {"parts": forms}


def _schedule(found: Study, schedule: Schedule, *, forward: bool) -> dict[str, Any]:
    stack = found.stack(schedule)
    total = smem_total(schedule)
    data: dict[str, Any] = {
        "layout": schedule.layout,
        "as_in": LAYOUTS[schedule.layout],
        "form": schedule.form,
        "grid": list(schedule.grid),
        "steps": schedule.steps,
        "mask": "stored" if schedule.stored else "computed" if schedule.computed else "none",
        "smem": {
            "arrays": [
                {
                    "name": array.name,
                    "shape": list(array.shape),
                    "dtype": array.dtype,
                    "bytes": smem_bytes(array),
                }
                for array in schedule.arrays
            ],
            "bytes": total,
            "fits": {chip.name: total <= chip.smem for chip in CHIPS},
        },
        "stored_blocks": {
            "blocks": stack.blocks,
            "bool_bytes": stack.stored,
            "read_bytes": stack.read,
        },
    }
    if forward:
        fetches = schedule.k_fetches
        data["k_fetches"] = fetches
        data["kv_bytes"] = None if fetches is None else found.kv_bytes(fetches)
        data["mask_fetches"] = None if fetches is None else schedule.mask_fetches
        data["at_most"] = {"k_fetches": schedule.k_at_most, "mask_fetches": schedule.mask_at_most}
        data["vmem"] = _vmem(schedule, found.question.shape)
    return data


def _vmem(schedule: Schedule, shape: Shape) -> dict[str, Any]:
    return {
        "buffers": {buffer.name: buffer.nbytes for buffer in vmem_buffers(schedule, shape)},
        "bytes": vmem_bytes(schedule, shape),
        "verdict": {chip.name: vmem_verdict(schedule, shape, chip) for chip in CHIPS},
    }


def _option(found: Study, option: Option) -> dict[str, Any]:
    counts = option.counts
    return {
        "block_q": option.block_q,
        "block_kv": option.block_kv,
        "empty": counts.empty,
        "partial": counts.partial,
        "full": counts.full,
        "arithmetic_skipped": counts.skipped,
        "different_partial_blocks": option.distinct,
        "layouts": [
            {
                "layout": schedule.layout,
                "form": schedule.form,
                "steps": schedule.steps,
                "kv_bytes": None
                if schedule.k_fetches is None
                else option.bytes_of(found.question, schedule.k_fetches),
                "smem_bytes": smem_total(schedule),
                "vmem_bytes": vmem_bytes(schedule, option.shape(found.question)),
            }
            for schedule in option.schedules
        ],
    }
